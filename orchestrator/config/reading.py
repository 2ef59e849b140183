"""From a YAML file and ``key=value`` settings to a validated config."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from orchestrator.config.defaults import rechosen, with_defaults
from orchestrator.config.parsing import LEVELS, parse, parse_file
from orchestrator.config.paths import at, has, put
from orchestrator.config.schema import Config
from orchestrator.config.sentences import options_at, sections_of, sentence
from orchestrator.errors import UserError
from orchestrator.plugins.blame import blamed
from orchestrator.plugins.imports import note
from orchestrator.plugins.own import pinned
from orchestrator.plugins.plugin import Plugin
from orchestrator.plugins.raw import beside, of_file, with_own
from orchestrator.plugins.taken import take
from orchestrator.terminal import told

YAML = (".yaml", ".yml")
"""How the names of files are known to be YAML, where a command takes other words, too."""


def load(
    path: Path | None = None, settings: Sequence[str] = (), plugins: Sequence[str] = ()
) -> Config:
    """Read a YAML file (None: the quick start), apply ``a.b=value`` settings, add ``plugins`` to
    the file's; raises UserError.
    """
    raw = raw_of(path)
    before = dict(raw)
    apply_all(raw, settings)
    _tell_lost(before, raw, settings)
    if plugins:
        raw["plugins"] = [*(raw.get("plugins") or ()), *plugins]
    return build(raw)


def raw_of(path: Path | None) -> dict[str, Any]:
    """What a YAML file says (None: nothing); raises UserError for one that is no mapping."""
    return {} if path is None else _mapping(path, "config")


def build(raw: Mapping[str, Any], begun: bool = False) -> Config:
    """Validate a raw config, with all defaults where it is silent; raises UserError. ``begun``: a
    run has already, and is read whatever it is that none may begin with any more.
    """
    raw = with_plugins(raw)
    with blamed(_plugins_of(raw)):  # their properties are asked for here
        try:
            filled = with_defaults(raw)
        except RecursionError as error:
            raise UserError("config: there are too many mappings within one another") from error
        try:
            config = Config.model_validate(filled)
        except ValidationError as error:
            raise UserError(sentence(error, filled)) from error
        problem = None if begun else config.new_problem()
        if problem:
            raise UserError(f"config: {problem}")
        return config


def with_plugins(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Import the plugins that a raw config names, and say in it what was in them; raises UserError.

    What is no list of plugins stays as it is, for the schema to say.
    """
    raw = _with_own(raw)
    taken = take(_plugins_of(raw))
    note(taken)

    def found(value: Any) -> Any:
        if not isinstance(value, Mapping) or not isinstance(value.get("of"), str):
            return value
        return {**value, "of": pinned(value["of"], taken)}

    filled = with_own(raw, found)
    if taken:
        filled["plugins"] = [plugin.model_dump() for plugin in taken]
    return filled


def _plugins_of(raw: Mapping[str, Any]) -> list[Plugin]:
    """What it has under ``plugins``; none where that is no list of plugins."""
    try:
        return list(PLUGINS.validate_python(raw.get("plugins", ())))
    except ValidationError:
        return []


def _with_own(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """``model: nets.py:Net`` and its like in full: a plugin, and what of it is the part."""
    named = raw.get("plugins") or []
    if not isinstance(named, list):
        return raw
    plugins = [*named]

    def found(value: Any) -> Any:
        file, called, options = of_file(value)
        if not file:
            return value
        if file not in plugins:
            plugins.append(file)
        # what all models have, and all own metrics, is no argument of the call
        usual = {k: options.pop(k) for k in ("init", "projection", "better") if k in options}
        return {"name": "own", "of": f"{Path(file).stem}:{called}", "options": options, **usual}

    changed = with_own(raw, found)
    return changed | {"plugins": plugins} if plugins else changed


PLUGINS = TypeAdapter(Annotated[tuple[Plugin, ...], Field(max_length=20)])


def apply_all(raw: dict[str, Any], settings: Sequence[str]) -> None:
    """Put ``a.b=value`` settings into a raw config, of which later ones win, and with another
    algorithm, or preset, its defaults (:func:`orchestrator.config.defaults.rechosen`); raises
    UserError for one that takes away what another has set.
    """
    before = dict(raw)
    known: dict[str, str] = {}
    for setting in settings:
        key = apply(raw, setting)
        for earlier, text in known.items():
            if earlier.startswith(f"{key}.") and not has(raw, earlier):
                raise UserError(
                    f"--set {setting[:100]}: takes away what --set {text[:100]} has set; leave "
                    "that out, or put it behind"
                )
        known[key] = setting
    rechosen(before, raw, known)


def _tell_lost(
    before: Mapping[str, Any], after: Mapping[str, Any], settings: Sequence[str]
) -> None:
    """Say which options of parts are gone by ``settings`` that name others, which have them, too,
    and that no other setting has put there.
    """
    if Config.model_fields.keys() <= before.keys():  # a run's own, which says every default
        return
    for setting in settings:
        key, _, text = setting.partition("=")
        there, chosen = (at(raw, key) if has(raw, key) else None for raw in (before, after))
        chosen = {"name": chosen} if isinstance(chosen, str) else chosen
        if "{" in text or not isinstance(there, Mapping) or not isinstance(chosen, Mapping):
            continue
        name = chosen.get("name")
        known = {*options_at(key, {**after, key: chosen} if "." not in key else after)}
        lost = [f"{k} {v}" for k, v in there.items() if k in known - {*chosen, "preset"}]
        if lost and "name" in there:
            told(
                "note",
                f"--set {key}={name} leaves out what was said of {there['name']} "
                f"({', '.join(lost)}); --set {key}.name={name} keeps it",
            )


def apply(raw: dict[str, Any], setting: str) -> str:
    """Put one ``a.b=value`` (the value in YAML) into a raw config; returns the key."""
    key, equals, text = setting.partition("=")
    if not equals or not key:
        raise UserError(f"--set {setting!r}: write key=value, for example local.lr=0.1")
    if key.count(".") >= LEVELS:
        raise UserError(f"--set {setting!r}: the key has more than {LEVELS} levels")
    key = key.strip()
    value = placed(parse(text, f"--set {setting!r}: the value"), Path())
    put(raw, key, value, part=key not in dict(sections_of(Config)))
    return key


def read_whole(path: Path, what: str = "config") -> dict[str, Any]:
    """The mapping in a YAML file, with the file that it names as its ``base`` in place of that
    name.

    ``what`` the file is, for the sentence of the UserError that is raised if it is none.
    """
    raw = _mapping(path, what)
    if isinstance(raw.get("base"), str):
        try:
            raw["base"] = _mapping(path.parent / raw["base"], "config")
        except UserError as error:
            raise UserError(f"base: {error}") from error
    elif isinstance(raw.get("base"), dict):
        raw["base"] = beside(raw["base"], path.parent)
    return raw


def _mapping(path: Path, what: str) -> dict[str, Any]:
    raw = parse_file(path)
    if not isinstance(raw, dict | None):
        raise UserError(
            f"{path}: a {what} is a mapping of keys to values, not {type(raw).__name__}"
        )
    return placed(beside(raw or {}, path.parent), path.parent)


def placed(value: Any, folder: Path) -> Any:
    """A raw config in which texts that begin with ``./`` or ``../`` are paths from ``folder``,
    wherever it is read.
    """
    if isinstance(value, dict):
        return {key: placed(one, folder) for key, one in value.items()}
    if isinstance(value, list):
        return [placed(one, folder) for one in value]
    if isinstance(value, str) and value.startswith(("./", "../")):
        return os.path.abspath(folder / value)
    return value
