"""What ``fedorch sweep --list`` and ``fedorch sweep status`` print."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from rich.table import Column, Table

from orchestrator.config import load
from orchestrator.errors import UserError
from orchestrator.terminal import console
from sweeps import costs
from sweeps.entry import Entry
from sweeps.papers import entries
from sweeps.reproduction import Reproduction
from sweeps.status import Status, ended_trials, is_driven, stage_of

BUDGETS = ("smoke", "reduced", "full")


def show_list() -> None:
    """All tables and figures with their trials, and what they cost where that has been measured on
    this machine.
    """
    known = costs.known()
    estimates = [f"{budget}: trials (estimate)" for budget in BUDGETS]
    listed = Table(Column("id", no_wrap=True), "what", "rows x columns", *estimates)
    for name, one in entries().items():
        size = f"{len(one.rows)} x {len(one.columns)}"
        listed.add_row(name, one.title, size, *[_cost(one, budget, known) for budget in BUDGETS])
    console.print(listed)


def _cost(entry: Entry, budget: str, known: Mapping[str, float]) -> str:
    if budget not in entry.budgets:
        return ""
    one = Reproduction(entry, budget)
    plans = [one.final_sweep(), *([one.tuning_sweep(one.candidates())] if one.tuning else [])]
    trials = sum(len(plan.planned()) for plan in plans)
    per_round = known.get(costs.key(one))
    if per_round is None:
        return str(trials)
    # rows that train for another number of rounds are taken for ones that do not
    rounds = load(None, [*entry.base, *one.budget.settings]).rounds
    return f"{trials} ({trials * rounds * per_round / 60:.0f} min)"


def show_status(folder: Path) -> None:
    """How a sweep is doing, from another shell; raises UserError if none has begun there, or what
    its trials have left is lost.
    """
    place = stage_of(folder)
    if place is None:
        raise UserError(f"no sweep has begun in {folder}")
    status = Status.read(place)
    ended_trials(place)
    stage = "trials" if place == folder else "tuning"
    driven = is_driven(place)
    head = f"{stage} {status.ended}/{status.total}: {status.seen(driven, time.time())}"
    console.print(head, soft_wrap=True)
    was = "was in " if driven is False else ""
    for trial, rounds in status.running.items():
        console.print(f"  {trial}: {was}round {rounds}")
