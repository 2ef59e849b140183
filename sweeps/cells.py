"""What a sweep of one's own has measured, by the lines of its table."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from orchestrator.analysis.compared import Runs
from orchestrator.analysis.goals import ends_of
from orchestrator.analysis.judged import Judged
from orchestrator.analysis.paired import is_tied
from orchestrator.analysis.reached import Reached
from orchestrator.analysis.tested import Measured, PairedTests
from orchestrator.config import Config
from orchestrator.files import json_text
from orchestrator.results.run_folder import RunFolder
from orchestrator.rounds.metrics import is_budget, is_cost, on_test
from sweeps import efforts
from sweeps.choice import Choice
from sweeps.plan import Sweep
from sweeps.results import Result, stored, table_of
from sweeps.spaces import Yaml
from sweeps.statistics import reported

FOR_TRAINING = ("augment", "scale")
"""Of ``data``, what is done to rows that are trained on."""


@dataclass(frozen=True)
class Cells:
    """What a sweep of one's own has measured, read once."""

    plan: Sweep
    results: list[Result]
    data: pd.DataFrame
    """As ``table_of`` has it."""

    @classmethod
    def read(cls, folder: Path) -> Cells:
        """Raises UserError if it is not a sweep's folder, or has lost some."""
        plan, results = stored(folder)
        return cls(plan, results, table_of(plan, results))

    @property
    def title(self) -> str:
        """What the numbers are."""
        plan, ended = self.plan, len(self.results)
        some = f"{ended} of {plan.trials}" if ended < plan.trials else str(ended)
        return f"{plan.name}: {plan.metric}, {plan.how}, {some} trials ended"

    @property
    def numbered(self) -> pd.DataFrame:
        """The table, with numbers for draws of the same axes, which have the same label."""
        if self.plan.samples == 1 or self.plan.scheduler.name == "pbt" or not len(self.data):
            return self.data
        labels = enumerate(self.data["trial"], start=1)
        return self.data.assign(trial=[f"{label} #{i}" for i, label in labels])

    @cached_property
    def groups(self) -> dict[str, list[Result]]:
        """Each line's trials, in the order of the table; without those that the scheduler has
        stopped, unless it has stopped all.
        """
        whole = [one for one in self.results if one.status != "stopped"]
        if all(one.status == "failed" for one in whole):
            whole = self.results
        placed = [(self.place(result), result) for result in whole]
        found: dict[tuple[int, int], Result] = {}
        # what was drawn twice is one run, as in the table
        for at, result in sorted(placed, key=lambda pair: pair[1].status != "finished"):
            found.setdefault((at, result.seed), result)
        lines: dict[str, list[Result]] = {}
        for at, seed in sorted(found):
            lines.setdefault(self._called[at], []).append(found[at, seed])
        return lines

    def place(self, result: Result) -> int:
        """The number of a trial's line in the table."""
        its = result.setting.items()
        return next(i for i, row in enumerate(self._rows) if its <= row.items())

    @cached_property
    def _rows(self) -> list[dict[Hashable, Any]]:
        return self.data.to_dict("records")

    @cached_property
    def _called(self) -> list[str]:
        """The table's lines by their settings, those that were drawn among them."""
        drawn = [path for path, axis in self.plan.axes.items() if path in self.data]
        return [
            ", ".join([line["trial"], *(f"{path}={cell_text(line[path])}" for path in drawn)])
            for line in self.numbered.to_dict("records")
        ]

    @cached_property
    def runs(self) -> Runs | None:
        """The same as runs of any kind; None if there is none."""
        return Runs.read(self.finished) if self.finished else None

    @cached_property
    def tests(self) -> PairedTests:
        """Of the settings against the first of the table, where that was chosen by other data, by
        the table's own numbers: a trial that failed as NaN or infinity has none, and loses; one
        that is broken is in none.
        """
        runs = self.runs
        metric, tested = ("", False) if runs is None else judged_by(self.plan, runs.rounds)
        if runs is None or not tested:
            return PairedTests()
        first = next(iter(self.groups))
        values = self._compared(runs, metric, first)
        if first not in values:
            return PairedTests()
        if len(self.plan.seeds) > 1 and self.data["stopped"].any():
            return PairedTests()  # who was let finish is no sample of the seeds
        counts = self.reached.counts(metric)
        one = Measured(metric, values, self._side(runs, metric), counts)
        return PairedTests.of([one], first)

    def _side(self, runs: Runs, metric: str) -> bool | None:
        """Whether more of it is better, as the sweep says by which the table is in order."""
        return None if runs.has_no_side(metric) else self.plan.direction == "max"

    def _compared(self, runs: Runs, metric: str, first: str) -> dict[str, dict[int, float]]:
        """Line -> seed -> number, of the lines that can be compared with the ``first``: on its data
        and rows, looked at as it was, none of which has ended by the metric, or at another goal.
        """
        number = self._numbers
        others = {*self.judged.others(metric, first), *self.looked_at_otherwise(first)}
        if self.plan.choose_on != "nothing":
            # the first is of the easiest problem
            others |= {*self.groups} - {*next(iter(self.problems.values()))}
        if is_cost(metric) and first in self.reached.columns:
            others |= {*self.reached.other_goals(first)}
            others |= {*self.reached.cut_short(metric, first, self.spent(metric))}

        def fits(run: int) -> bool:
            return runs.same_data(0, run) and not self.reached.ended(metric, run)

        return {
            name: {one.seed: self._tested(one, metric) for one in trials if not one.broken}
            for name, trials in self.groups.items()
            if name not in {*others, *self.silent(metric)}
            and not all(one.broken for one in trials)
            and all(fits(number[t.folder.path]) for t in trials if t.folder.path in number)
        }

    def silent(self, metric: str) -> list[str]:
        """The lines of which some trial does not report a metric, or had no other end."""
        return [
            name
            for name, trials in self.groups.items()
            if any(
                metric not in one.rounds if one.status != "failed" else one.unreported
                for one in trials
            )
        ]

    def _tested(self, trial: Result, metric: str) -> float:
        """A trial's number of a metric; NaN where it has none that counts."""
        gone = is_cost(metric) and trial.missed
        return math.nan if gone else trial.beside(self.plan.column, metric)

    @cached_property
    def _numbers(self) -> dict[Path, int]:
        """Place of a trial that did not fail -> its number among the runs."""
        return {folder.path: i for i, folder in enumerate(self.finished)}

    @cached_property
    def reached(self) -> Reached:
        """Which trials have reached what they were to, by the table's lines."""
        runs, number = self.runs, self._numbers
        assert runs is not None
        each = {
            name: [number[one.folder.path] for one in trials if one.folder.path in number]
            for name, trials in self.groups.items()
        }
        columns = {name: some for name, some in each.items() if some}
        return Reached(runs.configs, runs.rounds, runs.early, runs.seeds, columns, self.judged)

    def spent(self, metric: str) -> list[float]:
        """Of each trial that did not fail, its number of a metric, be its goal reached or not."""
        trials = itertools.chain(*self.groups.values())
        return [one.beside(self.plan.column, metric) for one in trials if one.status != "failed"]

    def looked_at_otherwise(self, first: str) -> dict[str, str]:
        """The lines whose numbers are the best, or the mean, of other rounds than those of the
        ``first`` on a seed that both have; and of which, in a few words.
        """
        if self.plan.statistic == "last":
            return {}
        looks = {
            name: {
                one.seed: self._looked(one)
                for one in trials
                if one.status != "failed" and self.plan.metric in one.rounds
            }
            for name, trials in self.groups.items()
        }
        theirs = looks.get(first, {})
        found = {}
        for name, each in looks.items():
            apart = [seed for seed, rounds in each.items() if rounds != theirs.get(seed, rounds)]
            if apart:
                on = f", seed {apart[0]}" if len(self.plan.seeds) > 1 else ""
                found[name] = f"{each[apart[0]]} against {theirs[apart[0]]}{on}"
        return found

    def _looked(self, trial: Result) -> str:
        """The rounds that a trial's number is of, in a few words."""
        looks = reported(trial.rounds, self.plan.metric).index
        known = trial.rounds["round"].loc[looks].astype(int)
        if self.plan.statistic == "best":
            return f"{len(known)} rounds"
        return f"rounds {', '.join(map(str, known.iloc[-self.plan.tail :]))}"

    @property
    def overshot(self) -> bool:
        """Whether a goal has ended trials, whose numbers say how far each went beyond it: who was
        slower had more rounds, and is no better for that.
        """
        if self.runs is None or is_budget(self.plan.metric):
            return False
        return any(map(self.reached.at_goal, itertools.chain(*self.reached.columns.values())))

    def tied(self, lines: Sequence[str]) -> int:
        """How many of some lines, in the order of the table, are as good as the first of them, as
        which none of those is that have diverged; 0 where all have.
        """
        left = [line for line in lines if not all(one.diverged for one in self.groups[line])]
        if not left:
            return 0
        data = self.data.iloc[[self._called.index(line) for line in left]]
        if (data["diverged"] == 0).any():
            data = data[data["diverged"] == 0]
        whole = data[data["count"] == data["count"].max()]
        return sum(is_tied(mean, data["mean"].iloc[0]) for mean in whole["mean"])

    @cached_property
    def methods(self) -> dict[str, list[Result]]:
        """The trials of each method, by what tells it from the others."""
        return efforts.methods(self.results, self.config)

    def config(self, trial: Result) -> Config:
        """Of a trial that failed before it had one, what it was to be."""
        if self.runs is not None and trial.folder.path in self._numbers:
            return self.runs.configs[self._numbers[trial.folder.path]]
        if trial.folder.begun:
            return trial.folder.config()
        return Choice.read(trial.folder.path).config(self._raw)

    @cached_property
    def _raw(self) -> dict[str, Yaml]:
        return self.plan.raw()

    @property
    def no_problem(self) -> tuple[str, ...]:
        """Of ``data``, what lines may differ in that are of one problem: what is done to rows that
        are trained on; and how many are kept back, unless they are what the lines are judged by.
        """
        judging = on_test(self.plan.metric) is not None
        return FOR_TRAINING if judging else (*FOR_TRAINING, "validation")

    @cached_property
    def problems(self) -> dict[str, list[str]]:
        """The lines of each problem, in the table's order: what ``data`` (but for ``no_problem``)
        and ``attack`` say and, of costs, what they are the costs of.
        """
        found: dict[str, list[str]] = {}
        for line, trials in self.groups.items():
            config = self.config(trials[0])
            said: list[Any] = [
                config.data.model_dump(mode="json", exclude={*self.no_problem}),
                config.attack.model_dump(mode="json"),
            ]
            if is_cost(self.plan.metric):
                said.append({name: str(goal) for name, goal in ends_of(config).items()})
            found.setdefault(json_text(said), []).append(line)
        return found

    @cached_property
    def judged(self) -> Judged:
        """The clients that the lines' numbers are over, of trials that did not fail."""
        return Judged({
            name: {one.seed: one.folder for one in trials if one.status != "failed"}
            for name, trials in self.groups.items()
        })  # fmt: skip

    @cached_property
    def finished(self) -> list[RunFolder]:
        """The trials that did not fail, in the order of the table."""
        each = itertools.chain(*self.groups.values())
        return [result.folder for result in each if result.status != "failed"]


def judged_by(plan: Sweep, rounds: Sequence[pd.DataFrame]) -> tuple[str, bool]:
    """The metric by which runs are compared with the first, and whether they can be tested: who is
    the best of many by a metric is ahead by it whatever they are worth.
    """
    judging = on_test(plan.metric)
    if judging is not None and all(judging in one for one in rounds):
        return judging, True
    return plan.metric, plan.choose_on == "nothing"


def cell_text(cell: object) -> str:
    """Numbers to four digits, nothing where there is none."""
    try:
        number = float(str(cell))
    except ValueError:
        return str(cell)
    return f"{number:.4g}" if math.isfinite(number) else ""
