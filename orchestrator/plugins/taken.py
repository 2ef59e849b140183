"""Plugins are imported, once a process, and known by what was in them."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType

from algorithms import part
from algorithms.part import Part, part_name
from orchestrator.errors import UserError
from orchestrator.files import cache, digest_of_all, said
from orchestrator.plugins.plugin import FOLDER, Plugin, content_of
from orchestrator.plugins.sources import PACKAGE, SOURCES, is_known, is_ours, module_of
from orchestrator.terminal import told

GROUP = "fedorch.parts"
"""Entry points of installed distributions whose modules hold parts."""
IMPORTED: dict[str, str] = {}
"""Module -> SHA-256 of what this process has imported as it."""


def take(plugins: Iterable[Plugin]) -> list[Plugin]:
    """Import them, once a process, and say what was in them.

    Raises UserError for one that is not there, cannot be imported, has changed since it was taken
    first, or has a part of a name that is another's.
    """
    installed()
    # one that a config and a command name is one
    taken = list({(p.name, p.sha256): p for p in map(_taken, plugins)}.values())
    names = [plugin.name for plugin in taken]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"plugins: two of them are named {name!r}")
    return taken


def take_named(names: Iterable[str]) -> None:
    """:func:`take` for a command that names files and modules."""
    take(Plugin.model_validate(name) for name in names)


def _taken(plugin: Plugin) -> Plugin:
    if plugin.kept:
        _require_consent(plugin)
    if not plugin.file and not plugin.is_file and not _is_there(plugin):
        raise UserError(f"plugins: there is no module {plugin.name!r} here, and no such .py file")
    if plugin.file:
        content = content_of(plugin)
        found = plugin.model_copy(update={"sha256": hashlib.sha256(content).hexdigest()})
        SOURCES.setdefault(module_of(found.name, found.sha256), content)
    elif plugin.is_file:
        found = plugin
    else:
        found = plugin.model_copy(update={"sha256": _digest_of(plugin.name)})
    if plugin.sha256 not in ("", found.sha256):
        raise UserError(
            f"plugins: {plugin.file or plugin.name} is not what it was (it began with the SHA-256 "
            f"{plugin.sha256[:12]}, and now has {found.sha256[:12]}); put it back, or begin anew"
        )
    if not plugin.kept:
        _consent(found)
    _import(found)
    return found


def _require_consent(plugin: Plugin) -> None:
    """Raise UserError for a plugin of a run's folder that this user has never named: somebody may
    have sent the folder, and to read its config is not to run its code.
    """
    if not (cache() / FOLDER / Path(plugin.sha256).name).is_file():
        called = plugin.file or plugin.name
        raise UserError(
            f"plugins: {called} is code that you have not run before; look at it, and name it "
            f"once if it is to be run: fedorch list --plugin {called}"
        )


def _consent(plugin: Plugin) -> None:
    """Remember that the user has named what has this digest."""
    known = cache() / FOLDER / plugin.sha256
    with contextlib.suppress(OSError):  # it will be asked for again
        known.parent.mkdir(parents=True, exist_ok=True)
        known.touch()


def _is_there(plugin: Plugin) -> bool:
    """Whether a plugin without a file is a module of this installation, or one of the cluster's."""
    if plugin.sha256 and is_known(module_of(plugin.name, plugin.sha256)):
        return True
    try:
        return importlib.util.find_spec(plugin.name) is not None
    except Exception:  # the package that it would be in was imported for this
        return False


def _digest_of(module: str) -> str:
    """Digest of an installed module: of its file, or all files of its package."""
    spec = importlib.util.find_spec(module)
    assert spec is not None
    places = spec.submodule_search_locations or [spec.origin or ""]
    with said(f"plugins: {module}: cannot be read"):
        return digest_of_all(Path(next(iter(places))))


def _import(plugin: Plugin) -> None:
    """Import a module; of a file that was taken before with other content, the old parts go."""
    if plugin.is_file:
        for other in SOURCES:
            if other.rpartition("_")[0] == f"{PACKAGE}.{plugin.name}" and other != plugin.module:
                part.retire(other)
    if plugin.module in sys.modules:
        if IMPORTED.setdefault(plugin.module, plugin.sha256) != plugin.sha256:
            raise UserError(
                f"plugins: {plugin.name} was changed since this process has imported it; restart "
                "Python"
            )
        part.restore(plugin.module)
        return
    IMPORTED[plugin.module] = plugin.sha256
    try:
        module = importlib.import_module(plugin.module)
        _require_own_names(module)
    except (Exception, SystemExit) as error:
        part.retire(plugin.module)
        sys.modules.pop(plugin.module, None)
        raise UserError(f"plugins: {plugin.file or plugin.name}: {_why(error)}") from error


class NameTaken(Exception):
    """A part of a plugin has the name of another."""


def _why(error: BaseException) -> str:
    """What went wrong in a module, and at which of its lines."""
    if isinstance(error, NameTaken):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f.lineno for f in frames if PACKAGE in f.filename]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    at = f"line {line}: " if line else ""
    said = " ".join(str(error.msg if isinstance(error, SyntaxError) else error).split())
    return f"{at}{type(error).__name__}: {said}"[:300]


def _require_own_names(module: ModuleType) -> None:
    """Raise NameTaken for a part with the name of another of its family."""
    for cls in parts_of(module.__name__):
        name = part_name(cls)
        for family in cls.__mro__[1:]:
            if family is Part or not issubclass(family, Part) or part_name(family) is not None:
                continue
            others = [c for c in part.members(family) if part_name(c) == name and c is not cls]
            if others:
                raise NameTaken(
                    f"{cls.__qualname__} is named {name!r}, as "
                    f"{others[0].__module__}.{others[0].__qualname__} is; give it another name"
                )


def parts_of(module: str) -> list[type[Part]]:
    """The named parts that a module, or one in it, has made."""
    return [
        cls
        for cls in part.members(Part)
        if part_name(cls) and f"{cls.__module__}.".startswith(f"{module}.")
    ]


def origin(cls: type[Part]) -> str:
    """Where a part is from: empty for a built-in one, else a file's or a module's name."""
    module = cls.__module__
    if module.startswith(f"{PACKAGE}."):
        return module.removeprefix(f"{PACKAGE}.").rpartition("_")[0] + ".py"
    return "" if is_ours(module) else module


@functools.cache
def installed() -> tuple[str, ...]:
    """Import what installed distributions offer, and return the modules' names; one that cannot be
    imported is told, and left out.
    """
    found = []
    for point in entry_points(group=GROUP):
        try:
            point.load()
            found.append(point.module)
        except (Exception, SystemExit) as error:
            told("note", f"plugins: {_called(point)} cannot be imported: {_why(error)}")
    return tuple(found)


def _called(point: EntryPoint) -> str:
    return f"{point.name} of {point.dist.name}" if point.dist else point.name
