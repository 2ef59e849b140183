"""Libraries that are imported when something of them is first used.

Torch takes a second and a half to import, pandas and scipy half a second each, and most commands
use none of them: they print a page, or refuse a config. What such commands load therefore takes
nothing from these libraries while it is imported itself (``tests/test_startup.py``).
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any

HEAVY = ("torch", "pandas", "scipy")


def defer() -> None:
    """Have ``import`` of these libraries take no time, in a process that is only a command."""
    for name in HEAVY:
        spec = None if name in sys.modules else find_spec(name)
        # what is missing is said where it is used
        if spec is not None:
            module = sys.modules[name] = module_from_spec(spec)
            module.__class__ = _Deferred


class _Deferred(ModuleType):
    """A module whose code has not run: asked for what its code makes, it runs, and the module is
    one like any other. (``importlib.util.LazyLoader``'s run at the next ``import`` already, which
    looks at ``__spec__``.)
    """

    def __getattribute__(self, name: str) -> Any:
        if name in ("__spec__", "__class__", "__name__", "__dict__", "__file__"):
            return super().__getattribute__(name)
        if self.__class__ is _Deferred:
            self.__class__ = ModuleType  # type: ignore[assignment]
            _run(self, self.__spec__)
        return getattr(self, name)


def _run(module: ModuleType, spec: ModuleSpec | None) -> None:
    assert spec is not None
    assert spec.loader is not None
    # as of any module that is being imported; another thread that asks meanwhile has a part of it
    spec._initializing = True  # type: ignore[attr-defined]
    try:
        spec.loader.exec_module(module)
    finally:
        spec._initializing = False  # type: ignore[attr-defined]
