"""Names under which several runs stand side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from orchestrator.errors import UserError
from orchestrator.results.run_folder import RunFolder

NO_MATTER = ("seed", "name", "resources")
"""Sections of a config in which runs of one experiment may differ."""


def told_apart(folders: list[RunFolder], names: list[str] | None = None) -> list[str]:
    """The runs' ``names``, or what tells them apart: names of their folders, or whole paths.

    Raises UserError for a run that is there twice.
    """
    places = [f.place for f in folders]
    twice = [place for place in places if places.count(place) > 1]
    if twice:
        raise UserError(f"{twice[0]} is named twice; a run is compared with others")
    for known in (
        names or [],
        [place.partition("?")[0].rstrip("/").rpartition("/")[2] for place in places],
    ):
        if known and len(set(known)) == len(folders):
            return known
    return places


def over_seeds(folders: list[RunFolder]) -> dict[str, list[RunFolder]]:
    """Name -> the runs of one config on several seeds, in the order in which they were given.

    Raises UserError for a run that is there twice, be it as two runs of one seed.
    """
    groups = by_config(folders)
    known: dict[str, RunFolder] = {}
    for runs in groups:
        other = known.setdefault(_alike(runs[0]), runs[0])
        if other is not runs[0]:
            seed = runs[0].config().seed
            raise UserError(f"{runs[0].place}: another run is the same, on seed {seed}, too")
    return dict(zip(group_names(groups), groups, strict=True))


def by_config(folders: list[RunFolder]) -> list[list[RunFolder]]:
    """The runs that differ in nothing but the seed, in the order in which they were given; a second
    run of one seed begins a group of its own.
    """
    groups: dict[tuple[str, int], list[RunFolder]] = {}
    seen: dict[tuple[str, int], int] = {}
    for folder in folders:
        alike, seed = _alike(folder), folder.config().seed
        copy = seen.get((alike, seed), 0)
        seen[alike, seed] = copy + 1
        groups.setdefault((alike, copy), []).append(folder)
    return list(groups.values())


def group_names(groups: list[list[RunFolder]], names: list[str] | None = None) -> list[str]:
    """The name of each group: its first run's (of ``names``, or its folder's), with the seeds where
    there are others.

    Raises UserError for a run that is there twice.
    """
    told_apart([folder for runs in groups for folder in runs])
    first = told_apart([runs[0] for runs in groups], names)
    seeds = [", ".join(str(folder.config().seed) for folder in runs) for runs in groups]
    return [
        name if len(runs) == 1 else f"{name} (seeds {said})"
        for name, runs, said in zip(first, groups, seeds, strict=True)
    ]


def require_alike(folders: Sequence[RunFolder], counts: Callable[[str], bool], why: str) -> None:
    """Raises UserError, which says ``why``, for runs whose configs differ in a key that ``counts``
    (``local.lr``, say).
    """
    configs = [folder.config().model_dump(mode="json") for folder in folders]
    for folder, config in zip(folders, configs, strict=True):
        keys = [key for key in _differing(configs[0], config) if counts(key)]
        if keys:
            first, some = folders[0].place, ", ".join(keys[:5])
            raise UserError(f"{folder.place}: differs from {first} in {some}; {why}")


def _differing(one: Any, other: Any, above: str = "") -> Iterator[str]:
    """The keys under which two configs, or parts of them, do not say the same."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            yield from _differing(one.get(key), other.get(key), f"{above}.{key}" if above else key)
    elif one != other:
        yield above


def _alike(folder: RunFolder) -> str:
    # where it ran changes nothing, and a seed has often a name of its own
    return folder.config().model_dump_json(exclude=set(NO_MATTER))
