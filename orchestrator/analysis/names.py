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
