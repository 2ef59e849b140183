"""The files of plugins, which Python knows as ``fedorch_plugins.NAME_DIGEST``: by what is in them,
wherever they lie. A process that meets that name in a message and has no such file asks the cluster
for it (:func:`publish`), so that whatever is sent to an actor can be read there.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType

OURS = ("algorithms", "fedorch", "orchestrator", "rl", "sweeps")
"""The packages that are no plugin's."""
PACKAGE = "fedorch_plugins"
BOARD = b"fedorch_plugins"
"""The cluster's key-value store keeps the files under this namespace."""
SOURCES: dict[str, bytes] = {}
"""Module -> content of its file, of all that this process knows."""


def is_ours(module: str) -> bool:
    """Whether a module of that name is in one of our packages."""
    return module.partition(".")[0] in OURS


def module_of(name: str, sha256: str) -> str:
    """The name of a file's module."""
    return f"{PACKAGE}.{name}_{sha256[:16]}"


def publish() -> None:
    """Have all processes of the cluster that Ray is connected to find the files of this one."""
    from ray.experimental import internal_kv

    for module, content in SOURCES.items():
        internal_kv._internal_kv_put(module.encode(), content, namespace=BOARD)


def is_known(module: str) -> bool:
    """Ask the cluster, if there is one, for a module's file; whether it is known then."""
    ray = sys.modules.get("ray")
    if module in SOURCES or ray is None or not ray.is_initialized():
        return module in SOURCES
    from ray.experimental import internal_kv

    content = internal_kv._internal_kv_get(module.encode(), namespace=BOARD)
    digest = hashlib.sha256(content or b"").hexdigest()
    if content and module.endswith(f"_{digest[:16]}"):
        SOURCES[module] = content
    return module in SOURCES


class _Finder(MetaPathFinder, InspectLoader):
    """Finds the modules of files, here or on the cluster."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == PACKAGE:
            return ModuleSpec(fullname, self, is_package=True)
        if not fullname.startswith(f"{PACKAGE}.") or not is_known(fullname):
            return None
        return ModuleSpec(fullname, self, origin=f"<{fullname}>")

    def get_source(self, fullname: str) -> str:
        return SOURCES.get(fullname, b"").decode("utf-8")

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.get_source(fullname), f"{fullname}.py", "exec", dont_inherit=True)

    def is_package(self, fullname: str) -> bool:
        return fullname == PACKAGE


sys.meta_path.append(_Finder())
