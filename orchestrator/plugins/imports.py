"""Modules that plugins import: code of the user's own, too, which no plugin's digest is of."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib.util
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import TypeGuard

from orchestrator.errors import OtherCode
from orchestrator.plugins.plugin import Plugin, fetch, source
from orchestrator.plugins.sources import is_ours

Imports = dict[str, str]
"""Name of a module -> digest of its file."""

NOTED: dict[str, str] = {}
"""Path -> digest of the file when this process has first imported what imports it."""
KNOWN: set[str] = set()
"""Modules of plugins whose files are noted."""


def note(plugins: Iterable[Plugin]) -> None:
    """Remember what this process has imported with them."""
    new = [plugin for plugin in plugins if plugin.module not in KNOWN]
    _note(_files(new))
    KNOWN.update(plugin.module for plugin in new)


def _note(files: Mapping[str, tuple[str, str]]) -> None:
    """Of what is only imported once a function is called, as soon as it has been."""
    for path, (name, digest) in files.items():
        if name in sys.modules:
            NOTED.setdefault(path, digest)


def imports_of(plugins: Iterable[Plugin]) -> Imports:
    """What plugins import, and that imports, as far as nobody has installed it, and as this process
    has imported it.
    """
    return {name: NOTED.get(path, digest) for path, (name, digest) in _files(plugins).items()}


def digest_of(imports: Mapping[str, str]) -> str:
    """Of all of them; "" where there are none."""
    told = "\n".join(sorted(f"{name} {digest}" for name, digest in imports.items()))
    return hashlib.sha256(told.encode()).hexdigest() if told else ""


def require_as_imported(plugins: Iterable[Plugin]) -> Imports:
    """:func:`imports_of`; raises OtherCode for a file that is another by now: whoever has changed
    it wants that to run.
    """
    files = _files(plugins)
    _note(files)
    for path, (_, digest) in files.items():
        if NOTED.get(path, digest) != digest:
            raise OtherCode(
                f"plugins: {path}, which they import, was changed since this process has imported "
                "it; put it back, or restart Python"
            )
    return dict(files.values())


def require_imports(plugins: Sequence[Plugin], begun_with: Mapping[str, str]) -> None:
    """Raise OtherCode if a module is another here than the run was ``begun_with``, or than it was
    when this process has imported it, or was not found there. One that is not found here is
    nobody's, or installed.
    """
    fetch(plugins)
    for name, digest in require_as_imported(plugins).items():
        if begun_with.get(name) != digest:
            raise OtherCode(
                f"plugins: module {name}, which they import, is not what the run was begun with; "
                "put it back"
            )


def is_installed(file: str) -> bool:
    """Whether a file is Python's, or a library's that somebody has installed."""
    path = Path(file)
    if {"site-packages", "dist-packages"} & {*path.parts} or _under(path, _installed()):
        return True
    return any(map(_holds_libraries, path.parents))


@cache
def _installed() -> tuple[Path, ...]:
    """Where Python's own modules lie, and what somebody has installed."""
    kinds = ("stdlib", "platstdlib", "purelib", "platlib")
    return tuple(map(Path, [*map(sysconfig.get_path, kinds), site.getusersitepackages()]))


def _under(path: Path, places: Iterable[Path]) -> bool:
    return any(path.is_relative_to(place) for place in places)


@cache
def _holds_libraries(folder: Path) -> bool:
    """Whether it is one that pip has installed into (``--target``); an editable checkout has no
    such folders beside its code.
    """
    with contextlib.suppress(OSError):
        return str(folder) in sys.path and any(folder.glob("*.dist-info"))
    return False


def _files(plugins: Iterable[Plugin]) -> dict[str, tuple[str, str]]:
    """What plugins import, wherever that stands in them, and those import: path -> name of the
    module and digest.
    """
    found: dict[str, tuple[str, str]] = {}
    for plugin in plugins:
        content = source(plugin)
        # a module's digest is of its own files, and not of others
        _look(f"import {plugin.module}".encode() if content is None else content, "", found)
    return found


def _look(content: bytes, package: str, found: dict[str, tuple[str, str]]) -> None:
    """Add the files that a module of a ``package`` imports to those ``found``."""
    for name in _named(content, package):
        spec = _own(name)
        path = spec.origin if spec is not None else None
        if spec is None or path is None or path in found:
            continue
        inside = _content(spec)
        if inside is None:
            continue
        # by what is in it: it may lie elsewhere when the run goes on
        found[path] = name, hashlib.sha256(inside).hexdigest()
        above = name if spec.submodule_search_locations is not None else name.rpartition(".")[0]
        if path.endswith(".py"):
            _look(inside, above, found)


def _content(spec: ModuleSpec) -> bytes | None:
    """Of a module's file, be it in an archive; None of one that is there no more."""
    with contextlib.suppress(OSError, AttributeError):
        return spec.loader.get_data(spec.origin)  # type: ignore[union-attr]
    return None


@lru_cache(maxsize=10_000)
def _named(content: bytes, package: str) -> tuple[str, ...]:
    """Modules that import statements name, wherever they stand, and what may be one in them; of a
    package that says what it has for ``import *`` that, too.
    """
    try:
        tree = ast.parse(content)
    # what cannot be imported, which somebody may expect
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    return tuple(dict.fromkeys(name for node in _run(tree) for name in _names(node, package)))


def _names(node: ast.AST, package: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        for one in node.names:
            yield from _and_above(one.name)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            with contextlib.suppress(ImportError):
                base = importlib.util.resolve_name("." * node.level + base, package)
        yield from _and_above(base)
        yield from (f"{base}.{one.name}" for one in node.names)
    elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and _is_all(node):
        texts = (one.value for one in ast.walk(node) if isinstance(one, ast.Constant))
        yield from (f"{package}.{text}" for text in texts if isinstance(text, str))


def _run(tree: ast.AST) -> Iterator[ast.AST]:
    """What is in a tree, but for what only type checkers read. (Without recursion: sums and chains
    of calls may be long.)
    """
    todo = [tree]
    while todo:
        node = todo.pop()
        yield node
        todo += node.orelse if _is_for_types(node) else ast.iter_child_nodes(node)


def _is_for_types(node: ast.AST) -> TypeGuard[ast.If]:
    """Whether it is ``if TYPE_CHECKING:``, from wherever."""
    test = node.test if isinstance(node, ast.If) else None
    names = {getattr(test, "id", ""), getattr(test, "attr", "")}
    return "TYPE_CHECKING" in names


def _is_all(node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return any(isinstance(one, ast.Name) and one.id == "__all__" for one in targets)


def _and_above(name: str) -> Iterator[str]:
    """A module's name, and those of the packages that it is in."""
    parts = name.split(".")
    yield from (".".join(parts[:n]) for n in range(1, len(parts) + 1))


def _own(name: str) -> ModuleSpec | None:
    """Where a module comes from that is neither ours nor installed. Nothing is imported to find
    that out: code of others would run that Python has not run.
    """
    parts, inside, spec = name.split("."), None, None
    if not name or is_ours(name):
        return None
    for count in range(1, len(parts) + 1):
        spec = _found(".".join(parts[:count]), inside)
        # nobody looks into a library
        if spec is None or (spec.origin and is_installed(spec.origin)):
            return None
        inside = spec.submodule_search_locations
        if inside is None and count < len(parts):
            return None  # what is in it is no module
    return spec if spec is not None and spec.has_location else None


def _found(name: str, inside: Sequence[str] | None) -> ModuleSpec | None:
    """A module as it has been imported, or would be, ``inside`` its package's folders."""
    known = getattr(sys.modules.get(name), "__spec__", None)
    if known is not None:
        return known
    for finder in sys.meta_path:
        # of whatever somebody has put there
        with contextlib.suppress(Exception):
            spec = finder.find_spec(name, inside, None)
            if spec is not None:
                return spec
    return None
