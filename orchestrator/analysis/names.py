"""Names under which several runs stand side by side."""

from __future__ import annotations

from orchestrator.errors import UserError
from orchestrator.results.run_folder import RunFolder


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


def _alike(folder: RunFolder) -> str:
    # where it ran changes nothing, and a seed has often a name of its own
    return folder.config().model_dump_json(exclude={"seed", "name", "resources"})
