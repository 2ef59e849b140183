"""What a config does not tell: code that a session or a script brings itself (parts that are in no
package and no plugin, whose names say nothing of what they do), and what is in files.
"""

from __future__ import annotations

import contextlib
import dis
import hashlib
import importlib.util
import inspect
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from functools import cached_property, partial, partialmethod
from pathlib import Path
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from orchestrator.data.sources import located
from orchestrator.files import digest_of_all, said
from orchestrator.plugins.imports import digest_of, is_installed, require_as_imported
from orchestrator.plugins.sources import is_ours

if TYPE_CHECKING:
    from orchestrator.config import Config

STORES = ("STORE_GLOBAL", "STORE_DEREF")
LOADS = ("LOAD_GLOBAL", "LOAD_NAME")
"""What a function does with names that are not its own."""
SIMPLE = (bool, int, float, complex, str, bytes, Enum, type(None))


CODES = ("code_sha256", "imports_sha256")
"""Of a result: digests of code of the user's own that a config does not tell."""
FILES = "files_sha256"
"""Likewise of the files that it names, but for those of datasets, which have digests of their own:
partitions, policies, weights (which ``initial_sha256`` tells on one seed alone)."""
UNTOLD = (*CODES, FILES)
LATER = (FILES, "frozen_sha256")
"""What earlier versions did not tell."""
IMAGENET = Path("imagenet")
"""Weights of torchvision's, whatever folder has that name."""


def untold(config: Config) -> dict[str, str]:
    """``UNTOLD`` of a config, as far as there is such; raises UserError if files that plugins
    import have changed since this process has imported them, and for files that cannot be read.
    """
    imported = digest_of(require_as_imported(config.plugins))
    each = code_sha256(config), imported, files_sha256(config)
    return {key: code for key, code in zip(UNTOLD, each, strict=True) if code}


def other(
    known: Mapping[str, Any], now: Mapping[str, Any], keys: Iterable[str] = UNTOLD
) -> list[str]:
    """Which of the ``keys`` differ in two results (or what runs began with); none is none, but for
    what runs of before did not say.
    """
    said = [key for key in keys if key not in LATER or key in known]
    return [key for key in said if known.get(key, "") != now.get(key, "")]


def files_sha256(config: Config) -> str:
    """Digest of what is in those files; "" where none is named."""
    elsewhere = Counter(config.data.dataset.named_files())
    names = [*(Counter(config.named_files()) - elsewhere).elements()]
    found = []
    for name in names:
        with said(f"cannot read {name[:200]}"):
            file = located(name)
            known = file is not None and (file.is_file() or file == Path(name) != IMAGENET)
            found.append(digest_of_all(file) if file is not None and known else "")
    return hashlib.sha256(" ".join(found).encode()).hexdigest() if any(found) else ""


def code_sha256(config: Config) -> str:
    """Digest of what the config's parts of that kind do, as far as it is in their own functions and
    in what these call by name; "" where there are none. It is the same in a process that was sent
    the parts (a Ray actor), in which nobody has imported their module.
    """
    plugins = {plugin.module for plugin in config.plugins}
    kinds = {type(one) for one in config.sections()}
    kinds |= {kind.algorithm for kind in kinds if hasattr(kind, "algorithm")}
    mine = [kind for kind in kinds if kind.__module__ not in plugins and is_own(kind)]
    told = sorted("\n".join(_of(kind, set())) for kind in mine)
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


def _of(value: Any, seen: set[int]) -> Iterator[str]:
    """What there is to tell of a class, a function, or a value that does not change."""
    if isinstance(value, SIMPLE):
        yield repr(value)
    elif isinstance(value, tuple | frozenset):
        told = ["\n".join(_of(one, seen)) for one in value]
        yield from sorted(told) if isinstance(value, frozenset) else told
    elif isinstance(value, partial | partialmethod):
        yield from _of((value.func, value.args, *sorted(value.keywords.items())), seen)
    elif id(value) not in seen:
        seen.add(id(value))
        if isinstance(value, FunctionType) and is_own(value):
            yield from _of_function(value, seen)
        elif isinstance(value, type) and is_own(value):
            yield from _of_class(value, seen)
        else:  # what lru_cache and its like have made of a function
            yield from _of(inspect.getattr_static(value, "__wrapped__", ()), seen)


def _of_class(value: type, seen: set[int]) -> Iterator[str]:
    yield f"class {value.__name__}"
    for base in value.__bases__:
        yield from _of(base, seen)
    for name, one in sorted(vars(value).items()):
        told = [text for inner in _inside(name, one) for text in _of(inner, seen)]
        yield from [name, *told] if told else ()


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


def _of_function(function: FunctionType, seen: set[int]) -> Iterator[str]:
    code = function.__code__
    yield from _of_code(code)
    yield from _of(function.__defaults__ or (), seen)
    yield from _of(tuple(sorted((function.__kwdefaults__ or {}).items())), seen)
    around = function.__globals__
    found = {name: around[name] for name in names_in(code, LOADS) if name in around}
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # not filled yet
            found[name] = cell.cell_contents
    # what it counts is no part of what it does
    for name in sorted(found.keys() - names_in(code, STORES)):
        yield name
        yield from _of(found[name], seen)


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
