"""Names under which several runs stand side by side."""

from __future__ import annotations

from orchestrator.results.run_folder import RunFolder


def told_apart(folders: list[RunFolder], names: list[str] | None = None) -> list[str]:
    """The runs' ``names``, or what tells them apart: names of their folders, or whole paths."""
    for known in (
        names or [],
        [f.place.partition("?")[0].rstrip("/").rpartition("/")[2] for f in folders],
    ):
        if known and len(set(known)) == len(folders):
            return known
    return [f.place for f in folders]
