"""The table of a sweep of one's own: a line for each setting, the best first."""

from __future__ import annotations

import contextlib
import itertools
import math
import shlex
from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
from rich.table import Table

from orchestrator.analysis.compared import Runs
from orchestrator.analysis.comparison import Form
from orchestrator.analysis.judged import Judged
from orchestrator.analysis.paired import is_tied
from orchestrator.analysis.reached import Reached
from orchestrator.analysis.tested import Measured, PairedTests
from orchestrator.analysis.written import Written, show_listed, tell_beside
from orchestrator.errors import UserError
from orchestrator.files import json_text
from orchestrator.results.members import PBT
from orchestrator.results.run_folder import RunFolder
from orchestrator.rounds.metrics import is_cost, on_test
from orchestrator.terminal import console
from sweeps import efforts
from sweeps.apart import key_of, leaves, under
from sweeps.choice import Choice
from sweeps.plan import Sweep
from sweeps.results import Result, stored, table_of
from sweeps.spaces import as_settings, numbers_of

CHOSEN_ON = {
    "validation": "best first, by data that is not tested on",
    "test": "best first, chosen on test data: the best number is better than it would be on new "
    "data",
    "nothing": "in the order of the sweep: a comparison, and who picks its best picks on test data",
}
OTHERWISE = "best first, by a metric that is of no test data"
"""What a table says of its order."""
SAME_RUNS = (
    "the first was chosen by the runs that it is tested in: whom luck made the first is ahead on "
    "test data, too, and p is too small; only new seeds are free of that"
)
PICKED = (
    "each number is the best of its run's rounds, picked by what it says: it is better than it "
    "would be on new data"
)
SPREAD = {"mean": "sem", "test": "test_sem"}
"""Column of a table of cells -> the one of its standard errors."""
LISTED = 12
"""Tests that the terminal has below the table."""


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
            ", ".join([line["trial"], *(f"{path}={_cell(line[path])}" for path in drawn)])
            for line in self.numbered.to_dict("records")
        ]

    @cached_property
    def runs(self) -> Runs | None:
        """The same as runs of any kind; None if there is none."""
        return Runs.read(self.finished) if self.finished else None

    @cached_property
    def tests(self) -> PairedTests:
        """Of the settings against the first of the table, where that was chosen by other data, by
        the table's own numbers: a trial that failed has none, and loses.
        """
        runs = self.runs
        metric, tested = ("", False) if runs is None else _judged_by(self.plan, runs.rounds)
        if runs is None or not tested:
            return PairedTests()
        first = next(iter(self.groups))
        values = self._compared(runs, metric, first)
        if first not in values:
            return PairedTests()
        if len(self.plan.seeds) > 1 and self.data["stopped"].any():
            return PairedTests()  # who was let finish is no sample of the seeds
        counts = self.reached.counts(metric)
        one = Measured(metric, values, runs.more_is_better(metric), counts)
        return PairedTests.of([one], first)

    def _compared(self, runs: Runs, metric: str, first: str) -> dict[str, dict[int, float]]:
        """Line -> seed -> number, of the lines that can be compared with the ``first``: on its data
        and rows, looked at as it was, none of which has ended by the metric, or at another goal.
        """
        number = self._numbers
        others = {*self.judged.others(metric, first), *self.looked_at_otherwise(first)}
        if is_cost(metric) and first in self.reached.columns:
            others |= {*self.reached.other_goals(first)}
            others |= {*self.reached.cut_short(metric, first, self.spent(metric))}

        def fits(run: int) -> bool:
            return runs.same_data(0, run) and not self.reached.ended(metric, run)

        return {
            name: {one.seed: self._tested(one, metric) for one in trials}
            for name, trials in self.groups.items()
            if name not in {*others, *self.silent(metric)}
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
        rounds = trial.rounds
        known = rounds["round"][rounds[self.plan.metric].notna()].astype(int)
        if self.plan.statistic == "best":
            return f"{len(known)} rounds"
        return f"rounds {', '.join(map(str, known.iloc[-self.plan.tail :]))}"

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


def show_cells(folder: Path) -> None:
    """Print the cells of a sweep file, best first."""
    cells = Cells.read(folder)
    if not len(cells.data):
        console.print(f"{cells.title}: no trial has ended yet", soft_wrap=True)
        return
    shown = _shown(cells)
    drawn = Table(title=cells.title, title_justify="left")
    for column in shown.columns:
        # a setting that is cut off is another's
        drawn.add_column(str(column), overflow="fold")
    for _, line in shown.iterrows():
        drawn.add_row(*line)
    console.print(drawn)
    for sentence in _sentences(cells):
        console.print(sentence, soft_wrap=True)
    show_tests(cells.tests, folder)


def show_tests(tests: PairedTests, folder: Path) -> None:
    """Print them, or where they are, if there are many."""
    if len(tests.each) > LISTED:
        where = shlex.quote(str(folder))
        console.print(
            f"tests of {len(tests.each)} settings against the first: fedorch table {where} "
            "--format markdown",
            soft_wrap=True,
        )
    elif tests.each:
        table = tests.table()
        show_listed(tests.about, table.assign(group=_by_lines(table["group"], ",\n")))


def cells_as(folder: Path, form: Form) -> str:
    """The same as a text, with paired tests against the first setting on data that did not choose
    it; CSV and JSON have the numbers as they are.
    """
    cells = Cells.read(folder)
    if form == "csv":
        tell_beside(_sentences(cells))
        return cells.numbered.to_csv(index=False)
    tests = cells.tests
    if form == "json":
        numbers = cells.numbered.to_dict("records")
        told = {"metric": cells.plan.metric, "notes": [*_sentences(cells)]}
        return json_text(told | {"cells": numbers, "tests": tests.records()})
    table = _shown(cells).replace("\n", ", ", regex=True)
    named = table.set_index("trial") if "trial" in table else table
    return Written(
        cells.title, named, ("mean ± standard error over seeds",), tuple(_sentences(cells)),
        further=tests.table(), about_further=tests.about, listed=True,
    ).as_(form)  # fmt: skip


def _sentences(cells: Cells) -> Iterator[str]:
    """What one should know of the order, of the first, and of what is not the same of all."""
    yield from _order(cells)
    yield from _given(cells)


def _order(cells: Cells) -> Iterator[str]:
    """What the order is by, and how sure the first is."""
    plan, data = cells.plan, cells.data
    on_rows = plan.choose_on != "validation" or on_test(plan.metric) is not None
    yield CHOSEN_ON[plan.choose_on] if on_rows else OTHERWISE
    if plan.choose_on == "nothing" and plan.statistic == "best":
        yield PICKED
    if plan.choose_on == "nothing" or not len(data):
        return
    yield from _cut(cells)
    if len(cells.results) < plan.trials and data["count"].nunique() > 1:
        yield (
            "settings of which fewer seeds have finished stand below the others, whatever their "
            "mean"
        )
    tied = _tied(data)
    if tied > 1:
        yield f"{tied} settings are tied for the best; the first of them counts as it"
    if on_rows and plan.choose_on == "validation" and cells.tests.each:
        yield SAME_RUNS
    # which setting is the best is open before that
    over = len(cells.results) >= plan.trials and tied == 1
    for edge in _edges(cells) if over else ():
        yield f"the best has {edge} of its grid: what lies beyond may be better"


def _tied(data: pd.DataFrame) -> int:
    """How many lines are as good as the first."""
    whole = data[data["count"] == data["count"].max()]
    return sum(is_tied(mean, data["mean"].iloc[0]) for mean in whole["mean"])


def _cut(cells: Cells) -> Iterator[str]:
    """What a scheduler did to the lines."""
    if cells.plan.scheduler.name == "pbt":
        yield PBT.format(what="a line")
    elif cells.data["stopped"].any() and len(cells.plan.seeds) > 1:
        yield (
            f"{cells.plan.scheduler.name} has stopped trials: means are over the n seeds that it "
            "let finish, which are the better ones and not the same in all lines; lines of fewer "
            "are below"
        )
    elif cells.data["stopped"].any():
        rounds = [one.folder.result()["rounds"] for one in cells.results if one.status == "stopped"]
        some = f"{min(rounds)}" if min(rounds) == max(rounds) else f"{min(rounds)} to {max(rounds)}"
        yield (
            f"trials that {cells.plan.scheduler.name} stopped stand below the others: their "
            f"numbers are after {some} rounds"
        )


def _given(cells: Cells) -> Iterator[str]:
    """What the lines of the table were given, as far as that is not the same: what a reader must
    know who compares them.
    """
    plan = cells.plan
    winning = {*map(key_of, plan.also), *plan.axes}
    for cell in plan.cells:
        if said := [one for one in cell.settings if not _is_lost(one, winning)]:
            yield f"{cell.label}: {', '.join(said)}"
    if plan.also:
        yield f"all with {', '.join(plan.also)}"
    yield from efforts.tries(cells.results, plan.raw())
    yield from efforts.unequal(cells.groups)
    first = next(iter(cells.groups), "")
    if others := cells.looked_at_otherwise(first):
        each = "; ".join(f"{name} ({rounds})" for name, rounds in [*others.items()][:LISTED])
        yield (
            f"numbers that are the {'best' if cells.plan.statistic == 'best' else 'mean'} of other "
            f"rounds than those of {first}, and not tested: {each}"
        )
    if (runs := cells.runs) is not None:
        judged = _judged_by(cells.plan, runs.rounds)[0]
        compared = dict.fromkeys((cells.plan.metric, judged))
        unlike = cells.judged.said(compared, first)
        if silent := cells.silent(judged):
            yield f"{judged} is not reported by {', '.join(silent[:LISTED])}, and not tested there"
        yield from filter(None, (runs.data_said, runs.honest_said, unlike))
        yield from cells.reached.said()
        if first in cells.reached.columns:
            yield from cells.reached.untested_said(first, {judged: cells.spent(judged)})
        yield from filter(None, [cells.reached.looks_said()])
        yield from filter(None, [runs.code_said])


def _is_lost(setting: str, winning: Collection[str]) -> bool:
    """Whether others win over all of a cell's ``setting``."""
    return all(any(under(key, [said]) for key in winning) for said, _ in leaves([setting]))


def _judged_by(plan: Sweep, rounds: Sequence[pd.DataFrame]) -> tuple[str, bool]:
    """The metric by which runs are compared with the first, and whether they can be tested: who is
    the best of many by a metric is ahead by it whatever they are worth.
    """
    judging = on_test(plan.metric)
    if judging is not None and all(judging in one for one in rounds):
        return judging, True
    return plan.metric, plan.choose_on == "nothing"


def _edges(cells: Cells) -> Iterator[str]:
    """The axes of numbers at whose end the best setting is, and beyond which there are others."""
    if not cells.finished:
        return
    best = Choice.read(cells.finished[0].path)
    settings = best.planned.settings
    for path, axis in cells.plan.axes.items():
        if path.startswith("evaluation."):
            continue  # how often one looks is nothing to tune
        numbers = numbers_of(axis.grid or ())
        ends = zip(("smallest", "largest"), (numbers[:1] + numbers[-1:]), (-1, 1), strict=False)
        for which, end, way in ends if len(numbers) > 1 else ():
            at_it = as_settings({path: end})[0] in settings
            if at_it and _goes_on(cells.plan, best, path, (end, way)):
                yield f"{path} = {end:g}, the {which}"


def _goes_on(plan: Sweep, best: Choice, path: str, where: tuple[float, int]) -> bool:
    """Whether a config may have a number beyond that end of an axis, to that side: a whole one, or
    one that is hardly another.
    """
    (end, way), base = where, plan.raw()
    for step in (1, 1e-6 * abs(end) or 1e-6):
        with contextlib.suppress(UserError):
            replace(best, drawn={**best.drawn, path: end + way * step}).config(base)
            return True
    return False


def _shown(cells: Cells) -> pd.DataFrame:
    """The table as texts: a setting a line, the mean with its standard error, and of what may have
    befallen trials only what has.
    """
    data = cells.numbered
    nothing = [c for c in ("stopped", "failed", "diverged") if c in data and not data[c].any()]
    texts = data.drop(columns=[*nothing, *SPREAD.values()], errors="ignore")
    # a label is one whatever it looks like
    for column in texts.columns.difference(["trial"]):
        texts[column] = texts[column].map(_cell)
    if "trial" in texts:
        texts["trial"] = _by_lines(texts["trial"], "\n")
    for mean, spread in SPREAD.items():
        if mean in texts and spread in data:
            texts[mean] = [*map(_with_error, data[mean], data[spread])]
    metric = cells.plan.metric
    names = {"count": "n", "mean": metric, "test": on_test(metric) or "test"}
    return texts.rename(columns=names)


def _by_lines(labels: pd.Series[str], end: str) -> pd.Series[str]:
    """Each setting of a label on a line of its own."""
    return labels.str.replace(r", (?=[\w.]+=)", end, regex=True)


def _with_error(mean: float, error: float) -> str:
    """The mean to four digits, and its standard error to the same place; without one where there is
    none.
    """
    text = _cell(mean)
    if not text or "e" in text or not math.isfinite(error):
        return f"{text} ± {error:.2g}" if text and math.isfinite(error) else text
    digits = max(0, 3 - math.floor(math.log10(abs(mean)))) if mean else 4
    return f"{mean:.{digits}f} ± {error:.{digits}f}"


def _cell(cell: object) -> str:
    """Numbers to four digits, nothing where there is none."""
    try:
        number = float(str(cell))
    except ValueError:
        return str(cell)
    return f"{number:.4g}" if math.isfinite(number) else ""
