"""Modules of a user's own, whose parts a config can name like built-in ones.

A file is known to Python as ``fedorch_plugins.NAME_DIGEST``: by what is in it, wherever it lies. A
process that meets that name in a message and has no such file asks the cluster for it
(:func:`publish`), so that whatever is sent to an actor can be read there.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from pydantic import Field, JsonValue, model_validator

from algorithms import part
from algorithms.part import Part, nearest, part_name
from algorithms.section import Section
from orchestrator.errors import UserError
from orchestrator.files import cache, digest_of_all, read_bytes, said
from orchestrator.terminal import told

OURS = ("algorithms", "fedorch", "orchestrator", "rl", "sweeps")
"""The packages that are no plugin's."""
PACKAGE = "fedorch_plugins"
GROUP = "fedorch.parts"
"""Entry points of installed distributions whose modules hold parts."""
BOARD = b"fedorch_plugins"
"""The cluster's key-value store keeps the files under this namespace."""
LARGEST = 1_000_000
"""Bytes of a file."""
NAME = re.compile(r"[A-Za-z_]\w{0,60}")
TOLD = re.compile(rf'File "({PACKAGE}\.\w+)\.py", line (\d+), in (\S+)')
"""A line of a file in the text of a traceback."""
FOLDER = "plugins"
"""Where a run keeps the files that its config names."""

SOURCES: dict[str, bytes] = {}
"""Module -> content of its file, of all that this process knows."""


class Plugin(Section):
    """A file or an installed module, and what was in it."""

    name: str = Field(description="of the file, without .py; or of the module, with dots")
    sha256: str = Field("", description="digest of the file, or of the module's files")
    file: str = Field("", exclude=True, description="where the file is; empty: known by its digest")
    kept: bool = Field(
        False, exclude=True, description="whether a run's folder names it, and no user"
    )

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, given: Any) -> Any:
        """A path ends in .py; anything else is a module."""
        if not isinstance(given, str):
            return given
        if given.endswith(".py"):
            return {"name": Path(given).stem, "file": given}
        return {"name": given}

    @property
    def is_file(self) -> bool:
        """Or else an installed module."""
        return bool(self.file) or module_of(self.name, self.sha256) in SOURCES

    @property
    def module(self) -> str:
        """The name under which Python has it."""
        return module_of(self.name, self.sha256) if self.is_file else self.name

    @property
    def reference(self) -> str:
        """What tells it from others in a :func:`pinned` reference."""
        return self.module.removeprefix(f"{PACKAGE}.")


def is_ours(module: str) -> bool:
    """Whether a module of that name is in one of our packages."""
    return module.partition(".")[0] in OURS


def module_of(name: str, sha256: str) -> str:
    """The name of a file's module."""
    return f"{PACKAGE}.{name}_{sha256[:16]}"


def beside(raw: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A raw config whose plugins' files are found from the folder that it was read in."""

    def found(value: Any) -> Any:
        file, called, options = own(value)
        place = (folder / Path(file).expanduser()).resolve()
        return {**options, "name": f"{place}:{called}"} if file else value

    raw, given = with_own(raw, found), raw.get(FOLDER)
    if not isinstance(given, list):
        return raw
    return {**raw, FOLDER: [_placed(one, folder) for one in given]}


OWN = ("model", "loss", "data.partition", "data.augment", "evaluation.metrics")
"""Keys of a config (of a list: each in it) at which ``FILE.py:NAME`` is a part of one's own."""


class Own(Section):
    """What a part has whose work is done by something in a plugin."""

    of: str = Field(
        "", description="PLUGIN:NAME, a plugin (its file's name without .py) and what is called"
    )
    options: dict[str, JsonValue] = Field({}, description="keyword arguments of the call")

    def made(self, key: str, facts: Mapping[str, Any]) -> Any:
        """What the call makes of the ``options`` and of those ``facts`` that its signature asks
        for. Raises ValueError, which names the config's ``key``, for whatever is wrong with it.
        """
        try:
            called = find(self.of)
            if not callable(called):
                kind = type(called).__name__
                raise ValueError(f"{self.of} is a {kind}, which cannot be called")
            arguments = _arguments(self.of, called, facts, self.options)
        except ValueError as error:
            raise ValueError(f"{key}: {' '.join(str(error).split())}"[:400]) from error
        try:
            return called(**arguments)
        except UserError:
            raise
        except (Exception, SystemExit) as error:  # whatever code of others may raise
            raise ValueError(f"{key}: {self.of}: {raised(error)}") from error


# a loss is called in every step, and to read a signature takes as long as a small step
_signature = functools.lru_cache(maxsize=1000)(inspect.signature)


@contextlib.contextmanager
def blamed(plugins: Sequence[Plugin]) -> Iterator[None]:
    """Raise UserError for what code of the ``plugins`` raises, or a run with them: with the line,
    where that is theirs.
    """
    try:
        yield
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        if not plugins:
            raise
        causes = [*_causes(error)]
        cause = causes[-1]
        at = next((line for one in causes if (line := _line_of(one, plugins))), "")
        if at:
            raise UserError(f"plugins: {at}: {raised(cause)}") from error
        if isinstance(error, MemoryError | OSError):
            raise
        names = ", ".join(plugin.name for plugin in plugins)
        raise UserError(
            f"with parts of {names}: {raised(cause)}; something that they return cannot be used "
            "(`fedorch check` may tell what)"
        ) from error


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error, and what it was made of, from the outside in."""
    inner: object = error
    while isinstance(inner, BaseException):
        yield inner
        inner = getattr(inner, "cause", None) or inner.__cause__  # the first is Ray's


def _line_of(error: BaseException, plugins: Sequence[Plugin]) -> str:
    """The last line of a plugin that an error has come through; "" for none."""
    found = ""
    # what comes from another process has its lines in its text
    for module, line, name in TOLD.findall(str(error)):
        for plugin in plugins:
            if module == plugin.module:
                found = f"{plugin.name}, line {line}, in {name}"
    for frame, line in traceback.walk_tb(error.__traceback__):
        module = frame.f_globals.get("__name__", "")
        for plugin in plugins:
            if module == plugin.module or module.startswith(f"{plugin.module}."):
                found = f"{plugin.name}, line {line}, in {frame.f_code.co_name}"
    return found


def raised(error: BaseException) -> str:
    """What code of others has raised, in short."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]


def _arguments(
    of: str, made: Callable[..., object], facts: Mapping[str, Any], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Keyword arguments for a call; raises ValueError for options that it does not take, or that
    are missing.
    """
    parameters = _signature(made).parameters
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    unknown = [name for name in options if name not in parameters and not takes_all]
    if unknown:
        raise ValueError(f"{of} takes no {unknown[0]!r}; {nearest(unknown[0], [*parameters])}")
    given = {name: facts[name] for name in parameters if name in facts} | dict(options)
    variable = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    missing = [
        name
        for name, p in parameters.items()
        if p.default is p.empty and p.kind not in variable and name not in given
    ]
    if missing:
        raise ValueError(
            f"{of} needs {', '.join(missing)}: give it among the options, or a default; it is "
            f"called with {', '.join(facts)}, as far as it asks for them"
        )
    return given


def with_own(raw: Mapping[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """A raw config with ``change`` made of what it has at each of the keys ``OWN``."""
    changed = dict(raw)
    for key in OWN:
        section, _, last = key.rpartition(".")
        inside = changed.get(section) if section else changed
        if not isinstance(inside, Mapping) or last not in inside:
            continue
        value = inside[last]
        new = [change(one) for one in value] if isinstance(value, list) else change(value)
        changed |= {section: {**inside, last: new}} if section else {last: new}
    return changed


def own(given: Any) -> tuple[str, str, dict[str, Any]]:
    """File, name in it, and options of what a raw config says as ``FILE.py:NAME``; else ""."""
    options = dict(given) if isinstance(given, Mapping) else {}
    name = options.pop("name", given)
    # as a run's config has them
    inner = options.pop("options", {})
    options |= inner if isinstance(inner, Mapping) else {"options": inner}
    file, colon, called = name.rpartition(":") if isinstance(name, str) else ("", "", "")
    return (file, called, options) if colon and file.endswith(".py") else ("", "", {})


def _placed(one: Any, folder: Path) -> Any:
    if isinstance(one, str) and one.endswith(".py"):
        return str((folder / Path(one).expanduser()).resolve())
    if not isinstance(one, Mapping) or "file" in one:
        return one
    place = folder / FOLDER / f"{one.get('name')}.py"
    if place.is_file():
        return {**one, "file": str(place)}
    return one


def kept(raw: dict[str, Any], path: Path) -> dict[str, Any]:
    """The raw config of a run's folder, whose plugins are only imported by who knows them.

    Raises UserError for plugins without a digest, which no run leaves there.
    """
    given = raw.get(FOLDER, [])
    if not isinstance(given, list):
        return raw
    files: list[str] = []
    with_own(raw, lambda value: files.append(own(value)[0]))
    if any(files) or not all(isinstance(one, Mapping) and one.get("sha256") for one in given):
        raise UserError(f"{path} is damaged: its plugins are not as a run leaves them")
    return {**raw, FOLDER: [{**one, "kept": True} for one in given]}


def exchanged(raw: dict[str, Any], named: Sequence[str]) -> dict[str, Any]:
    """The raw config of a run's folder with other plugins in the place of those of the same names;
    raises UserError for one that the run does not have.
    """
    if not named:
        return raw
    known = {one["name"]: one for one in raw[FOLDER]}
    for one in named:
        plugin = Plugin.model_validate(one)
        if plugin.name not in known:
            there = ", ".join(known) or "none"
            raise UserError(
                f"--plugin {one}: the run has no plugin {plugin.name!r}; it has {there}"
            )
        known[plugin.name] = {"name": plugin.name, "file": plugin.file}
    return {**unpinned(raw), FOLDER: list(known.values())}


def unpinned(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A raw config whose references say nothing of what is in the plugins' files."""
    digests = {f"{p['name']}_{p['sha256'][:16]}": p["name"] for p in raw.get(FOLDER, [])}

    def found(value: Any) -> Any:
        if not isinstance(value, Mapping) or not isinstance(value.get("of"), str):
            return value
        name, colon, called = value["of"].partition(":")
        return {**value, "of": f"{digests.get(name, name)}{colon}{called}"}

    return with_own(raw, found)


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
        content = _content(plugin)
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


def pinned(reference: str, plugins: Iterable[Plugin]) -> str:
    """``PLUGIN:NAME`` with the plugin as any process can find it, by what is in it."""
    name, colon, called = reference.partition(":")
    modules = {plugin.name: plugin.reference for plugin in plugins}
    return f"{modules.get(name, name)}{colon}{called}"


def find(reference: str) -> Any:
    """What a plugin has under a name, by a :func:`pinned` reference that a config's plugins know;
    raises ValueError if there is nothing of that name.
    """
    name, _, called = reference.partition(":")
    is_file = _from_cluster(f"{PACKAGE}.{name}")
    found = importlib.import_module(f"{PACKAGE}.{name}" if is_file else name)
    if not hasattr(found, called):
        there = [n for n in vars(found) if not n.startswith("_")]
        raise ValueError(f"{reference!r}: {name} has no {called!r}; {nearest(called, there)[:300]}")
    return getattr(found, called)


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


def _content(plugin: Plugin) -> bytes:
    if not NAME.fullmatch(plugin.name):
        raise UserError(
            f"plugins: {plugin.file}: a plugin's file is named by letters, digits and _"
        )
    content = read_bytes(Path(plugin.file))
    with said(f"plugins: {plugin.file}: cannot be read"):
        content.decode()
    if len(content) > LARGEST:
        raise UserError(f"plugins: {plugin.file}: {len(content)} bytes are more than code has")
    return content


def _is_there(plugin: Plugin) -> bool:
    """Whether a plugin without a file is a module of this installation, or one of the cluster's."""
    if plugin.sha256 and _from_cluster(module_of(plugin.name, plugin.sha256)):
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


IMPORTED: dict[str, str] = {}
"""Module -> SHA-256 of what this process has imported as it."""


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


def source(plugin: Plugin) -> bytes | None:
    """Content of a plugin's file; None for an installed module."""
    return SOURCES.get(plugin.module)


def publish() -> None:
    """Have all processes of the cluster that Ray is connected to find the files of this one."""
    from ray.experimental import internal_kv

    for module, content in SOURCES.items():
        internal_kv._internal_kv_put(module.encode(), content, namespace=BOARD)


def fetch(plugins: Iterable[Plugin]) -> None:
    """Have the files of plugins that another process of the cluster has read."""
    for plugin in plugins:
        _from_cluster(module_of(plugin.name, plugin.sha256))


def _from_cluster(module: str) -> bool:
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
        if not fullname.startswith(f"{PACKAGE}.") or not _from_cluster(fullname):
            return None
        return ModuleSpec(fullname, self, origin=f"<{fullname}>")

    def get_source(self, fullname: str) -> str:
        return SOURCES.get(fullname, b"").decode("utf-8")

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.get_source(fullname), f"{fullname}.py", "exec", dont_inherit=True)

    def is_package(self, fullname: str) -> bool:
        return fullname == PACKAGE


sys.meta_path.append(_Finder())
