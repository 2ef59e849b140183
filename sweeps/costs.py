"""Seconds a trial of each entry takes on this machine: measured by the sweeps that were run here,
or foretold by ``fedorch sweep ENTRY --time``.
"""

from __future__ import annotations

from pathlib import Path

from orchestrator.errors import UserError
from orchestrator.files import cache, read_json, write_json
from sweeps.reproduction import Reproduction
from sweeps.results import stored


def _file() -> Path:
    return cache() / "trial-seconds.json"


def known() -> dict[str, float]:
    """``entry budget`` -> seconds a trial, one after another."""
    try:
        return read_json(_file(), dict[str, float])
    except UserError:  # measured anew
        return {}


def key(one: Reproduction) -> str:
    """What an entry at a budget is called in the file: by the first of the budgets that are the
    same.
    """
    budgets = one.entry.budgets
    first = next(name for name in budgets if budgets[name] == budgets[one.size])
    return f"{one.entry.id} {first}"


def note(one: Reproduction, seconds: float) -> None:
    """Remember what a trial takes."""
    _file().parent.mkdir(parents=True, exist_ok=True)
    write_json(_file(), {**known(), key(one): seconds})


def note_measured(one: Reproduction, folder: Path) -> None:
    """Remember what the trials of a sweep took, if there are any."""
    _, results = stored(folder)
    took = [float(r.folder.rounds()["seconds"].sum()) for r in results if r.status != "failed"]
    if took:
        note(one, sum(took) / len(took))
