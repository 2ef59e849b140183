"""Code that a session or a script brings itself: parts that are in no package and no plugin, whose
names say nothing of what they do.
"""

from __future__ import annotations

import contextlib
import dis
import hashlib
import importlib.util
import inspect
import re
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cached_property, partial, partialmethod
from itertools import islice
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from orchestrator.noted import note
from orchestrator.plugins.imports import digest_of, is_installed, require_as_imported
from orchestrator.plugins.sources import is_ours

if TYPE_CHECKING:
    from orchestrator.config import Config

STORES = ("STORE_GLOBAL", "STORE_DEREF")
LOADS = ("LOAD_GLOBAL", "LOAD_NAME")
"""What a function does with names that are not its own."""
ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
NAMES = (*LOADS, *ATTRIBUTES, "LOAD_DEREF", "LOAD_FAST")
SIMPLE = (bool, int, float, complex, str, bytes, type(None))
CHANGES = re.compile(
    "append(left)?|extend(left)?|insert|pop(left|item)?|remove|clear|sort|reverse|rotate|add|"
    r"discard|update|setdefault|fill|put|resize|\w+_|data"
)
"""Attributes by which collections are written into."""
MOST = 10_000
"""Items of a collection that are told."""


CODES = ("code_sha256", "imports_sha256")
"""Of a result: digests of code of the user's own that a config does not tell."""


def codes_of(config: Config) -> dict[str, str]:
    """``CODES`` of a config, as far as there is such code; raises UserError if files that plugins
    import have changed since this process has imported them.
    """
    imported = digest_of(require_as_imported(config.plugins))
    found = dict(zip(CODES, (code_sha256(config), imported), strict=True))
    return {key: code for key, code in found.items() if code}


def other_codes(known: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Which of ``CODES`` differ in two results (or what runs began with); none is none."""
    return [key for key in CODES if known.get(key, "") != now.get(key, "")]


def code_sha256(config: Config) -> str:
    """Digest of what the config's parts of that kind do, as far as it is in their own functions and
    in what these call by name; "" where there are none. It is the same in a process that was sent
    the parts (a Ray actor), in which nobody has imported their module.
    """
    plugins = {plugin.module for plugin in config.plugins}
    kinds = {type(one) for one in config.sections()}
    kinds |= {kind.algorithm for kind in kinds if hasattr(kind, "algorithm")}
    mine = [kind for kind in kinds if kind.__module__ not in plugins and is_own(kind)]
    told = sorted("\n".join(_told(kind)) for kind in mine)
    return hashlib.sha256("\n\n".join(told).encode()).hexdigest() if told else ""


def is_own(value: Any) -> bool:
    """Whether a class or function is of the session, or of a file that nobody has installed."""
    name = getattr(value, "__module__", None) or "builtins"
    if name == "__main__" or is_ours(name):
        return name == "__main__"
    if file := _file(name):
        return not is_installed(file)
    return name.partition(".")[0] not in sys.stdlib_module_names


def _file(module: str) -> str | None:
    """Where a module lies; None for one that is nowhere, in this process at least."""
    if module in sys.modules:
        return getattr(sys.modules[module], "__file__", None)
    with contextlib.suppress(ImportError, ValueError):
        if spec := importlib.util.find_spec(module):
            return spec.origin
    return None


def _told(kind: type) -> list[str]:
    """What there is to tell of a part."""
    first = _Teller()
    list(first.of(kind))
    # names of what its code writes into: what it counts is no part of what it does
    return [*_Teller(set().union(*map(_written_in, first.codes))).of(kind)]


class _Teller:
    """Tells of classes, functions, and values that do not change."""

    def __init__(self, changed: set[str] | None = None) -> None:
        self.changed, self.seen = changed, set[int]()
        """Names of collections that are passed over; None: all."""
        self.codes: list[CodeType] = []
        """Of all functions that it has come to."""

    def of(self, value: Any) -> Iterator[str]:
        if isinstance(value, SIMPLE):
            yield repr(value)
        elif isinstance(value, tuple):
            for one in value:
                yield from self.of(one)
        elif isinstance(value, Enum):
            yield f"{value!r}"
        elif isinstance(value, partial | partialmethod):
            yield from self.of((value.func, value.args, *sorted(value.keywords.items())))
        elif id(value) not in self.seen:
            self.seen.add(id(value))
            if _is_collection(value):
                yield from self._of_collection(value)
            elif isinstance(value, FunctionType) and is_own(value):
                yield from self._of_function(value)
            elif isinstance(value, type) and is_own(value):
                yield from self._of_class(value)
            else:  # what lru_cache and its like have made of a function
                yield from self.of(inspect.getattr_static(value, "__wrapped__", ()))

    def _of_class(self, value: type) -> Iterator[str]:
        yield f"class {value.__name__}"
        for base in value.__bases__:
            yield from self.of(base)
        for name, one in sorted(vars(value).items()):
            if self._is_passed_over(name, one):
                continue
            told = [text for inner in _inside(name, one) for text in self.of(inner)]
            yield from [name, *told] if told else ()

    def _of_collection(self, value: Any) -> Iterator[str]:
        """Its type and items; of a set in an order of their own."""
        yield type(value).__name__
        if isinstance(value, np.ndarray | torch.Tensor):
            yield repr(note(value))
        elif isinstance(value, set | frozenset):
            yield from sorted("\n".join(self.of(one)) for one in islice(value, MOST))
        else:
            for one in islice(value.items() if isinstance(value, dict) else value, MOST):
                yield from self.of(one)

    def _of_function(self, function: FunctionType) -> Iterator[str]:
        code = function.__code__
        self.codes.append(code)
        yield from _of_code(code)
        given = (*(function.__defaults__ or ()), *sorted((function.__kwdefaults__ or {}).items()))
        for one in given:
            # of a default nobody knows the name that it is written into by
            yield from () if _is_collection(one) and _written_in(code) else self.of(one)
        around = function.__globals__
        found = {name: around[name] for name in names_in(code, LOADS) if name in around}
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # not filled yet
                found[name] = cell.cell_contents
        for name in sorted(found.keys() - names_in(code, STORES)):
            if not self._is_passed_over(name, found[name]):
                yield name
                yield from self.of(found[name])

    def _is_passed_over(self, name: str, value: Any) -> bool:
        return _is_collection(value) and (self.changed is None or name in self.changed)


def _is_collection(value: object) -> bool:
    """Whether it holds numbers, and may be written into."""
    kinds = (list, dict, set, frozenset, deque, np.ndarray, torch.Tensor)
    return isinstance(value, kinds)


def _inside(name: str, member: Any) -> Iterator[Any]:
    """What a member of a class is made of; nothing of what Python and pydantic put there."""
    if isinstance(member, classmethod | staticmethod):
        yield member.__func__
    elif isinstance(member, property):
        yield from (member.fget, member.fset)
    elif isinstance(member, cached_property):
        yield member.func
    elif isinstance(member, FunctionType) or not name.startswith("_"):
        yield member


def _written_in(code: CodeType) -> set[str]:
    """Names of collections into which code, or code within it, may write: all, where it is not seen
    which.
    """
    found, before = set[str](), None
    for one in dis.get_instructions(code):
        if one.opname in ("STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE"):
            return names_in(code, NAMES)
        if one.opname in ATTRIBUTES and CHANGES.fullmatch(one.argval):
            if before is None or before.opname not in (*LOADS, *ATTRIBUTES, "LOAD_DEREF"):
                return names_in(code, NAMES)
            found.add(before.argval)
        before = one
    inner = (one for one in code.co_consts if isinstance(one, CodeType))
    return found.union(*map(_written_in, inner))


def names_in(code: CodeType, operations: tuple[str, ...]) -> set[str]:
    """Those with which code, or code within it, does one of the ``operations``."""
    found = {one.argval for one in dis.get_instructions(code) if one.opname in operations}
    inner = (one for one in code.co_consts if isinstance(one, CodeType))
    return found.union(*(names_in(one, operations) for one in inner))


def _of_code(code: CodeType) -> Iterator[str]:
    yield f"{code.co_name} {code.co_code.hex()} {code.co_names} {code.co_varnames}"
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _of_code(one)
        else:
            yield repr(sorted(map(repr, one)) if isinstance(one, frozenset) else one)
