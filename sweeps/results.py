"""What a sweep has measured so far, read from its folder; works while it runs."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from orchestrator.analysis.goals import is_blind, missed
from orchestrator.analysis.names import naturally
from orchestrator.config.goal import counts_of_the_diverged
from orchestrator.errors import UserError
from orchestrator.files import read_sealed
from orchestrator.results.run_folder import RunFolder
from orchestrator.results.trials import ended_trials
from orchestrator.rounds.metrics import is_cost, on_test
from orchestrator.terminal import told
from sweeps.choice import Choice, Planned
from sweeps.entry import Column
from sweeps.plan import Sweep
from sweeps.spaces import Yaml
from sweeps.statistics import beside, value

if TYPE_CHECKING:
    from pandas.api.typing import SeriesGroupBy


NO_SETTING = ("seed", "status", "value", "test", "diverged", "broken")
"""Of a trial's line, what does not say which line of the table it is of."""
SILENT = "the trial does not report"
NAMED = 12
"""Trials that a sentence names."""
REASON = 200
"""Characters of why a trial failed that a sentence repeats."""


@dataclass(frozen=True)
class Result:
    """One trial that has ended."""

    label: str
    seed: int
    status: str
    """finished, stopped (by a scheduler) or failed."""
    error: str
    drawn: Mapping[str, Yaml]
    """Path -> value."""
    folder: RunFolder
    diverged: bool = False
    """Whether its model, or its loss, ended as NaN or infinity."""
    unreported: bool = False
    """Whether all that it failed in is that it does not report what trials are compared by."""

    @property
    def setting(self) -> dict[str, str]:
        """Which row of the sweep's table it is of: the columns that say so."""
        return {"trial": self.label, **{path: str(value) for path, value in self.drawn.items()}}

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """The trial's table, read once; raises UserError for one that has left none."""
        return self.folder.rounds()

    @cached_property
    def missed(self) -> bool:
        """Whether it was to reach a goal (``stop``), and has not, or has never looked for it."""
        if self.status == "failed":
            return True
        run = self.folder.config(), self.rounds
        return missed(*run) or is_blind(*run)

    @property
    def broken(self) -> bool:
        """Whether it has failed without having diverged (no memory, a file that is gone), which
        says nothing of what its method is worth: in a comparison it is as if it had not been run.
        """
        return self.status == "failed" and not self.diverged

    def value(self, column: Column) -> float:
        """A statistic of the trial; NaN for one that failed, and where it says nothing of a model
        that has diverged.
        """
        return value(self.rounds, column) if self.has(column.metric) else math.nan

    def beside(self, column: Column, metric: str) -> float:
        """Another metric of the trial, at the round that the column's statistic is of; NaN as of
        :meth:`value`.
        """
        return beside(self.rounds, column, metric) if self.has(metric) else math.nan

    def has(self, metric: str) -> bool:
        """Whether it has ended in a model of which the metric says something."""
        gone = self.diverged and not counts_of_the_diverged(metric)
        return self.status != "failed" and not gone


def no_sweep(folder: Path | str) -> UserError:
    """What is said of a folder that is not a sweep's."""
    return UserError(f"{folder} is not the folder of a sweep: it holds no sweep.json")


def plan_of(folder: Path) -> Sweep:
    """The sweep of a folder; raises UserError if it is not a sweep's folder."""
    file = folder / "sweep.json"
    if not file.is_file():
        raise no_sweep(folder)
    return read_sealed(file, Sweep)


def require_plan(folder: Path, mine: Sweep, place: str) -> None:
    """Raise UserError unless the sweep in ``folder``, which the user knows as ``place``, is
    ``mine``; how fast it goes may be another.
    """
    whole = mine.model_copy(update={"at_once": None})
    # compared as it is read: a list that was a tuple is no other sweep
    if plan_of(folder) != Sweep.model_validate_json(whole.model_dump_json()):
        raise UserError(
            f"{place} holds another sweep (or another budget of it); choose another --out"
        )


def stored(folder: Path) -> tuple[Sweep, list[Result]]:
    """The sweep of a folder, and its trials that have ended; raises UserError if it is not a
    sweep's folder, or has lost some.
    """
    plan = plan_of(folder)
    planned = set(plan.planned())
    found = [_result(path, planned) for path in ended_trials(folder)]
    # without a scheduler nothing but an interruption stops a trial, which --resume goes on with;
    # and what trials of pbt have left behind, who went on with the state of others, is no trial
    under_way = "stopped" if plan.scheduler.name in ("fifo", "pbt") else ""
    ended = [one for one in found if one is not None and one.status != under_way]
    if plan.scheduler.name == "pbt":
        # of two that have come to the same settings each has a history of its own
        ended = [replace(one, label=numbered(one.label, one.folder.path.name)) for one in ended]
    return plan, ended


def broken_said(results: Iterable[Result]) -> list[str]:
    """A sentence on those of some trials that are broken, and are left out; none without one."""
    broken = [one for one in results if one.broken and not one.unreported]
    if not broken:
        return []
    each = [f"{one.label}, seed {one.seed}" for one in broken]
    more = f" and {len(each) - NAMED} more" if len(each) > NAMED else ""
    reason = textwrap.shorten(broken[0].error, REASON, placeholder=" ...")
    return [
        "failed without having diverged, and compared as if they had not been run: "
        f"{'; '.join(each[:NAMED])}{more} (the first: {reason})"
    ]


def numbered(label: str, trial: str) -> str:
    """A label with the number that a trial's name ends with."""
    number = re.search(r"_0*(\d+)$", trial)
    return f"{label} (trial {number[1]})" if number else label


def by_trial(folder: Path) -> dict[tuple[str, int], Result]:
    """(label, seed) -> the trial that has ended, for a sweep without drawn axes."""
    return {(r.label, r.seed): r for r in stored(folder)[1]}


def _result(path: Path, planned_ones: Collection[Planned]) -> Result | None:
    """The trial in a folder; None for a copy of one, which would count as another seed, and for one
    that is not planned.
    """
    folder, choice = RunFolder(path), Choice.read(path)
    if not choice.is_at(path):
        told("note", f"{path} is not where its trial left it, and is left out")
        return None
    if choice.planned not in planned_ones:
        told("note", f"{path} is no trial of this sweep, and is left out")
        return None
    planned, ended = choice.planned, folder.ending()
    return Result(
        label=planned.label,
        seed=planned.seed,
        status=ended["status"],
        error=ended.get("error", ""),
        drawn=choice.drawn,
        folder=folder,
        # sweeps of before say it in words alone
        diverged=ended.get("diverged", "NaN" in ended.get("error", "")),
        unreported=ended.get("unreported", SILENT in ended.get("error", "")),
    )


def table(folder: Path) -> pd.DataFrame:
    """One row a cell of the sweep: label, drawn values, seeds, mean and standard error of its
    metric, and how many of its trials were stopped, failed or diverged; the best first, unless
    nothing is to be chosen, behind them those that a scheduler has stopped, whose numbers are of
    fewer rounds, and last those of which some seed has no number (but for what broke).

    Where the metric is of validation rows, ``test`` is the mean of the same on test rows, and
    ``test_sem`` its standard error.
    """
    return table_of(*stored(folder))


def table_of(sweep: Sweep, results: Sequence[Result]) -> pd.DataFrame:
    """The :func:`table` of trials that are read already."""
    several = len(sweep.seeds) > 1
    # which of equals is first is not said by who ended first
    # of what was drawn twice that which no scheduler has stopped
    ordered = sorted(
        results,
        key=lambda one: (naturally(", ".join(one.setting.values())), one.status != "finished"),
    )
    rows = [_row(one, sweep, several) for one in ordered]
    if not rows:
        return pd.DataFrame()
    data = pd.DataFrame(rows)
    keys = [c for c in data.columns if c not in NO_SETTING]
    # what was drawn twice is one run, whose number counts once
    data = data.drop_duplicates([*keys, "seed"])
    data["sound"] = data["value"].notna() | data["broken"]
    grouped = data.groupby(keys, sort=False)
    cells = grouped["value"].agg(["count", "mean", "sem"]).reset_index()
    if "test" in data:
        cells["test"] = grouped["test"].mean().to_numpy()
        cells["test_sem"] = grouped["test"].sem().to_numpy()
    for status in ("stopped", "failed"):
        cells[status] = _count(grouped["status"], status)
    cells["diverged"] = grouped["diverged"].sum().to_numpy()
    if sweep.choose_on == "nothing":
        order = {
            label: i for i, label in enumerate(dict.fromkeys(p.label for p in sweep.planned()))
        }
        place = cells["trial"].map(order)
        return cells.iloc[place.argsort(kind="stable")].reset_index(drop=True)
    # a setting that some seeds did not survive is not as good as the rest of them, whatever a model
    # that says one class to all is worth by the metric
    whole = grouped["sound"].all() & ~grouped["broken"].all()
    cells["whole"] = whole.to_numpy() & (cells["diverged"] == 0)
    cells["cut"] = cells["stopped"] > 0
    # of several seeds those that a scheduler let finish are the better ones, and those that have
    # come first may be the easy ones: more of them first
    upwards = [False, True, False, sweep.direction == "min"]
    # the order in which seeds were added up is no difference
    cells["level"] = [float(f"{mean:.9g}") for mean in cells["mean"]]
    best = cells.sort_values(["whole", "cut", "count", "level"], ascending=upwards, kind="stable")
    return best.drop(columns=["whole", "cut", "level"]).reset_index(drop=True)


def _count(statuses: SeriesGroupBy[Any, tuple[Hashable, ...]], status: str) -> np.ndarray:
    return statuses.agg(lambda s: int((s == status).sum())).to_numpy()


def _row(result: Result, sweep: Sweep, several: bool) -> dict[str, object]:
    """A trial as a line; the drawn axes, which differ from sweep to sweep, are columns. Of
    ``several`` seeds one that a scheduler has stopped has no number: a mean would be of no round.
    """
    column, metric = sweep.column, on_test(sweep.metric)
    ended = result.status == "finished" or not several
    # who was to reach a goal, and has not, has no cost of it
    if ended and is_cost(sweep.metric):
        ended = not result.missed
    own = {
        "seed": result.seed,
        "status": result.status,
        "value": result.value(column) if ended else math.nan,
    }
    test = {} if metric is None else {"test": result.beside(column, metric) if ended else math.nan}
    return {**result.setting, **own, **test, "diverged": result.diverged, "broken": result.broken}
