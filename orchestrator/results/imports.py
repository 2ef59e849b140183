"""Modules that plugins import: code of the user's own, too, which no plugin's digest is of."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path

from orchestrator.config import Config
from orchestrator.files import read_bytes
from orchestrator.plugins import OURS, Plugin, source
from orchestrator.results.own_code import INSTALLED, code_sha256

CODES = ("code_sha256", "imports_sha256")
"""Of a result: digests of code of the user's own that a config does not tell."""


def codes_of(config: Config) -> dict[str, str]:
    """``CODES`` of a config, as far as there is such code."""
    found = dict(zip(CODES, (code_sha256(config), imports_sha256(config.plugins)), strict=True))
    return {key: code for key, code in found.items() if code}


def imports_sha256(plugins: Sequence[Plugin]) -> str:
    """Digest of the files that plugins import, and those import, as far as nobody has installed
    them; "" where there are none.
    """
    found: dict[str, str] = {}
    for plugin in plugins:
        content = source(plugin)
        if content is not None:
            _look(content, "", found)
        else:  # a module, of whose own files its digest is
            _look(f"import {plugin.module}".encode(), "", found)
    told = "\n".join(sorted(found.values()))
    return hashlib.sha256(told.encode()).hexdigest() if told else ""


def _look(content: bytes, package: str, found: dict[str, str]) -> None:
    """Add the files that a module of a ``package`` imports to those ``found``: path -> digest."""
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
