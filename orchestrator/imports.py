"""Modules that plugins import: code of the user's own, too, which no plugin's digest is of."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib.util
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from orchestrator.errors import OtherCode
from orchestrator.files import read_bytes
from orchestrator.plugins import OURS, Plugin, fetch, source

INSTALLED = tuple(sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib"))
"""Where what somebody has installed lies."""

NOTED: dict[str, str] = {}
"""Path -> what the file was when this process has first imported what imports it."""
KNOWN: set[str] = set()
"""Modules of plugins whose files are noted."""


def note(plugins: Iterable[Plugin]) -> None:
    """Remember what this process has imported with them."""
    new = [plugin for plugin in plugins if plugin.module not in KNOWN]
    for path, told in _files(new).items():
        NOTED.setdefault(path, told)
    KNOWN.update(plugin.module for plugin in new)


def imports_sha256(plugins: Iterable[Plugin]) -> str:
    """Digest of the files that plugins import, and those import, as far as nobody has installed
    them, and as this process has imported them; "" where there are none.
    """
    files = (NOTED.get(path, told) for path, told in _files(plugins).items())
    told = "\n".join(sorted(files))
    return hashlib.sha256(told.encode()).hexdigest() if told else ""


def require_as_imported(plugins: Iterable[Plugin]) -> None:
    """Raise OtherCode for a file that is another by now: whoever has changed it wants that to
    run.
    """
    for path, told in _files(plugins).items():
        if NOTED.get(path, told) != told:
            raise OtherCode(
                f"plugins: {path}, which they import, was changed since this process has imported "
                "it; put it back, or restart Python"
            )


def require_imports(plugins: Sequence[Plugin], begun_with: str) -> None:
    """Raise OtherCode if plugins import other files here than the run was ``begun_with``; a process
    of another machine may have installed them.
    """
    fetch(plugins)
    here = imports_sha256(plugins)
    if here and begun_with and here != begun_with:
        raise OtherCode(
            "modules that plugins import are not those that the run was begun with; put them back"
        )


def _files(plugins: Iterable[Plugin]) -> dict[str, str]:
    """What plugins import, wherever that stands in them, and those import: path -> name of the
    module and digest.
    """
    found: dict[str, str] = {}
    for plugin in plugins:
        content = source(plugin)
        # a module's digest is of its own files, and not of others
        _look(f"import {plugin.module}".encode() if content is None else content, "", found)
    return found


def _look(content: bytes, package: str, found: dict[str, str]) -> None:
    """Add the files that a module of a ``package`` imports to those ``found``."""
    for name in _named(content, package):
        path = _place(name)
        if path is None or str(path) in found:
            continue
        inside = read_bytes(path)
        # by what is in it: it may lie elsewhere when the run goes on
        found[str(path)] = f"{name} {hashlib.sha256(inside).hexdigest()}"
        own = name if path.name == "__init__.py" else name.rpartition(".")[0]
        _look(inside, own, found)


def _named(content: bytes, package: str) -> Iterator[str]:
    """Modules that import statements name, wherever they stand, and what may be one in them."""
    try:
        nodes = [*ast.walk(ast.parse(content))]
    except (SyntaxError, ValueError):  # what cannot be imported, which somebody may expect
        return
    for node in nodes:
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


def _and_above(name: str) -> Iterator[str]:
    """A module's name, and those of the packages that it is in."""
    parts = name.split(".")
    yield from (".".join(parts[:n]) for n in range(1, len(parts) + 1))


def _place(name: str) -> Path | None:
    """The file of a module that is neither ours nor installed."""
    if not name or name.partition(".")[0] in OURS:
        return None
    # code of others runs where a module's package is imported to look into it
    with contextlib.suppress(Exception):
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin and spec.origin.endswith(".py"):
            return None if spec.origin.startswith(INSTALLED) else Path(spec.origin)
    return None
