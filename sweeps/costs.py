"""Seconds a round of each entry on this machine, as measured by the sweeps that were run here."""

from __future__ import annotations

from pathlib import Path

from orchestrator.errors import UserError
from orchestrator.files import cache, read_json, write_json
from sweeps.reproduction import Reproduction
from sweeps.results import stored


def _file() -> Path:
    return cache() / "sweep-costs.json"


def known() -> dict[str, float]:
    """``entry budget`` -> seconds a round of one trial."""
    try:
        return read_json(_file(), dict[str, float])
    except UserError:  # measured anew
        return {}


def key(one: Reproduction) -> str:
    """What an entry at a budget is called in the file."""
    return f"{one.entry.id} {one.size}"


def note(one: Reproduction, folder: Path) -> None:
    """Remember what a sweep's trials took."""
    _, results = stored(folder)
    tables = [r.folder.rounds() for r in results if r.status != "failed"]
    rounds = sum(len(t) for t in tables)
    if rounds:
        _file().parent.mkdir(parents=True, exist_ok=True)
        seconds = sum(float(t["seconds"].sum()) for t in tables)
        write_json(_file(), {**known(), key(one): seconds / rounds})
