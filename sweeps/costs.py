"""Seconds a trial of each entry takes on this machine: measured by the sweeps that were run here,
or foretold by ``fedorch sweep ENTRY --time``.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    """What an entry at a budget is called in the file."""
    return f"{one.entry.id} {one.size}"


def of(one: Reproduction, seconds: Mapping[str, float]) -> float | None:
    """What a trial takes by such a file, also where another budget runs the same; or None."""
    budgets = one.entry.budgets
    alike = [name for name in budgets if budgets[name] == budgets[one.size]]
    found = (seconds.get(key(Reproduction(one.entry, name))) for name in (one.size, *alike))
    return next((each for each in found if each is not None), None)


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
