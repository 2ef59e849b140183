"""What raw configs say of plugins: where their files are, and what was in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.errors import UserError
from orchestrator.plugins.plugin import FOLDER, Plugin

OWN = ("model", "loss", "data.partition", "data.augment", "evaluation.metrics")
"""Keys of a config (of a list: each in it) at which ``FILE.py:NAME`` is a part of one's own."""


def beside(raw: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A raw config whose plugins' files are found from the folder that it was read in."""

    def found(value: Any) -> Any:
        file, called, options = of_file(value)
        place = (folder / Path(file).expanduser()).resolve()
        return {**options, "name": f"{place}:{called}"} if file else value

    raw, given = with_own(raw, found), raw.get(FOLDER)
    if not isinstance(given, list):
        return raw
    return {**raw, FOLDER: [_placed(one, folder) for one in given]}


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


def of_file(given: Any) -> tuple[str, str, dict[str, Any]]:
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
    with_own(raw, lambda value: files.append(of_file(value)[0]))
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
