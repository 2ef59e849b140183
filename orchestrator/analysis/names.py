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
    groups: dict[str, list[tuple[int, str, RunFolder]]] = {}
    for name, folder in zip(told_apart(folders), folders, strict=True):
        config = folder.config()
        # where it ran changes nothing, and a seed has often a name of its own
        alike = config.model_dump_json(exclude={"seed", "name", "resources"})
        others = groups.setdefault(alike, [])
        if config.seed in [seed for seed, *_ in others]:
            raise UserError(f"{folder.place}: another run is the same, on seed {config.seed}, too")
        others.append((config.seed, name, folder))
    return {_shared(runs): [folder for *_, folder in runs] for runs in groups.values()}


def _shared(runs: list[tuple[int, str, RunFolder]]) -> str:
    """The first run's name, with all their seeds if there are others."""
    seeds, name = ", ".join(str(seed) for seed, *_ in runs), runs[0][1]
    return name if len(runs) == 1 else f"{name} (seeds {seeds})"
