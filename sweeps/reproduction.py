"""A paper's table or figure at one budget: the sweeps that it is, and the sweeps' results as its
cells.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from orchestrator.config.parsing import parse
from orchestrator.errors import UserError
from orchestrator.terminal import console
from sweeps.entry import Budget, Column, Diverged, Entry, Settings, Tuning, Values
from sweeps.plan import Cell, Sweep
from sweeps.results import by_trial
from sweeps.tuning import (
    Candidate,
    Chosen,
    Search,
    Tuned,
    by_row,
    candidates,
    judged_by,
    kept_back,
    size,
)

UNTUNED = Tuned()
EXTENDED_BUDGET = "full"
"""The budget at which a grid goes on beyond a best setting on its edge."""
UNTUNED_BUDGET = "smoke"
"""The budget that only shows that every setting runs: it takes the rows as they are."""


NO_WORK = ("name=", "track", "checkpoint")
"""How settings begin that change nothing of what a run does."""


def dataset_of(settings: Settings) -> str:
    """The dataset that settings name, with what it is made from; empty if they name none."""
    keys = ("data.dataset", "data.dataset.name")
    given = [text for key, _, text in (s.partition("=") for s in settings) if key in keys]
    if not given:
        return ""
    named = parse(given[-1], "data.dataset")
    if not isinstance(named, Mapping):
        return str(named)
    return " of ".join(str(named[key]) for key in ("name", "base") if key in named)


@dataclass(frozen=True)
class Reproduction:
    """An entry at one of its budgets, or at some columns of it.

    Raises UserError for a budget or a column that the entry has not, and for columns of a figure
    that needs them all.
    """

    entry: Entry
    size: str
    """Name of the budget."""
    only: tuple[str, ...] = ()
    """Columns that were asked for; empty: all of the budget's."""
    also: tuple[str, ...] = ()
    """What ``--set`` has changed of it, where that is known."""

    def __post_init__(self) -> None:
        if self.size not in self.entry.budgets:
            known = ", ".join(self.entry.budgets)
            raise UserError(f"--budget {self.size!r}: {self.entry.id} has {known}")
        for column in self.only:
            if column not in self._offered:
                raise UserError(
                    f"--column {column!r}: {self.entry.id} at budget {self.size} has "
                    f"{', '.join(self._offered)}"
                )
        if self.only and self.entry.figure in ("scatter", "clouds"):
            raise UserError(
                f"--column: {self.entry.id} draws its columns against one another and needs them "
                "all"
            )

    @property
    def budget(self) -> Budget:
        """How much of the paper's work is done."""
        return self.entry.budgets[self.size]

    @property
    def _changed(self) -> Settings:
        """Of the entry's own settings."""
        return (*self.budget.settings, *self.also)

    @property
    def stand_in(self) -> str:
        """Which dataset is taken in the place of the paper's; empty: none."""
        paper, here = dataset_of(self.entry.base), dataset_of(self._changed)
        if not here or here == paper:
            return ""
        return f"{here} in place of {paper}" if paper else here

    @property
    def elsewhere(self) -> bool:
        """Whether that is no part of the paper's, so that its numbers are of other data."""
        paper, here = dataset_of(self.entry.base), dataset_of(self._changed)
        return bool(here) and here.replace("_10k", "") != paper.replace("_10k", "")

    @property
    def partial(self) -> tuple[str, ...]:
        """Columns whose cells are sums over other rounds than the paper's numbers, or of other
        work.
        """
        changed = {s for s in self._changed if s.startswith("rounds=")}
        works = [s for s in self.also if not s.startswith(NO_WORK)]
        if changed <= {*self.entry.base} and not works:
            return ()
        return tuple(c for c in self.columns if self.entry.columns[c].statistic == "sum")

    @property
    def name(self) -> str:
        """Name of its sweeps, and of its folder where the user names none."""
        return f"{self.entry.id.replace('/', '-')}-{self.size}"

    @property
    def rows(self) -> tuple[str, ...]:
        """Rows that are run."""
        return self.budget.rows or tuple(self.entry.rows)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that are run, in the entry's order."""
        return tuple(c for c in self._offered if not self.only or c in self.only)

    @property
    def _offered(self) -> tuple[str, ...]:
        return self.budget.columns or tuple(self.entry.columns)

    @property
    def whole(self) -> Reproduction:
        """With all of the budget's columns."""
        return replace(self, only=()) if self.only else self

    @cached_property
    def firsts(self) -> Mapping[str, str]:
        """Column -> the first of the budget's that has the same settings, and so the same trials,
        whichever were asked for.
        """
        first: dict[Settings, str] = {}
        for column in self._offered:
            first.setdefault(self.entry.columns[column].settings, column)
        return {column: first[self.entry.columns[column].settings] for column in self.columns}

    @cached_property
    def labels(self) -> Mapping[tuple[str, str], str]:
        """(row, column) -> label of the trials behind that cell; columns with equal settings share
        it.
        """
        return {
            (row, column): f"{row} / {self.firsts[column]}"
            for row, column in itertools.product(self.rows, self.columns)
        }

    def final_sweep(self, tuned: Tuned = UNTUNED) -> Sweep:
        """All cells on the budget's seeds; columns with equal settings share their trials."""
        trials = {
            label: (
                *self.entry.rows[row],
                *tuned.of(row, self.firsts[column]),
                *self.entry.columns[column].settings,
            )
            for (row, column), label in self.labels.items()
        }
        cells = tuple(Cell(label=label, settings=own) for label, own in trials.items())
        first = next(iter(self.entry.columns.values()))
        return self._sweep((), cells, self.budget.seeds, first, "nothing")

    @property
    def tuning(self) -> Tuning | None:
        """What is tuned at this budget."""
        return None if self.size == UNTUNED_BUDGET else self.entry.tuning

    @property
    def trials(self) -> int:
        """How many its sweeps have, if no grid goes on: counted, where to plan them takes time."""
        final = len({*self.labels.values()}) * len(self.budget.seeds)
        if self.tuning is None:
            return final
        tried = sum(size(self.tuning, row) for row in self.rows) * len(self._tuned_apart)
        return final + tried * len(self.tuning.seeds)

    @property
    def _tuned_apart(self) -> list[str]:
        """The columns that are tuned for themselves; one nameless one if all are tuned as one."""
        assert self.tuning is not None
        return list(dict.fromkeys(self.firsts.values())) if self.tuning.each_column else [""]

    def candidates(self) -> list[Candidate]:
        """What every row is tried with; raises UserError if the rows' grids are not of one size."""
        if self.tuning is None:
            return []
        self._require_equal_grids(self.tuning)
        return [
            one
            for row, column in itertools.product(self.rows, self._tuned_apart)
            for one in candidates(self.tuning, row, column)
        ]

    def tuning_sweep(self, tried: Sequence[Candidate]) -> Sweep:
        """The first stage: the candidates on the tuning seeds."""
        tuning = self.tuning
        assert tuning is not None
        # the criterion's settings come last: they say on which column of the table it is measured
        cells = tuple(
            Cell(
                label=one.label,
                settings=(*self.entry.rows[one.row], *one.settings, *self._where(tuning, one)),
            )
            for one in tried
        )
        further = (*tuning.settings, *kept_back(tuning))
        return self._sweep(further, cells, tuning.seeds, judged_by(tuning), "validation")

    def _where(self, tuning: Tuning, one: Candidate) -> Settings:
        return self.entry.columns[one.column].settings if one.column else tuning.criterion.settings

    def _require_equal_grids(self, tuning: Tuning) -> None:
        sizes = {row: size(tuning, row) for row in self.rows}
        if len(set(sizes.values())) > 1:
            raise UserError(
                f"{self.entry.id}: every method must have as many trials to be tuned with, and "
                f"they have {sizes}"
            )

    def _sweep(
        self,
        further: Settings,
        cells: tuple[Cell, ...],
        seeds: tuple[int, ...],
        column: Column,
        choose_on: Literal["validation", "nothing"],
    ) -> Sweep:
        """``column`` is what Tune compares, as the table has it (where it is what a run took to a
        target, by the metric's last value); ``further`` wins over the base and the budget.
        """
        statistic = column.statistic if column.statistic in ("best", "tail") else "last"
        return Sweep(
            name=self.name,
            set=(*self.entry.base, *self.budget.settings, *further),
            cells=cells,
            seeds=seeds,
            metric=column.metric,
            mode=column.mode,
            statistic=statistic,
            tail=column.tail if statistic == "tail" else 1,
            choose_on=choose_on,
        )

    def searches(self, tried: Mapping[Candidate, Path]) -> list[Search]:
        """What came of all that was tried, by row; ``tried``: candidate -> folder of its sweep."""
        assert self.tuning is not None
        column, seeds = judged_by(self.tuning), self.tuning.seeds
        trials = {folder: by_trial(folder) for folder in set(tried.values())}
        scores = {}
        for one, folder in tried.items():
            ended = [trials[folder].get((one.label, seed)) for seed in seeds]
            values = [r.value(column) if r else math.nan for r in ended]
            scores[one] = float(np.mean(values))
        return by_row(scores, column.better == "high")

    def further(self, searches: Sequence[Search]) -> list[Candidate]:
        """What lies beside the best settings and has not been tried; at the full budget only, and
        only what makes a config.
        """
        if self.tuning is None or self.size != EXTENDED_BUDGET:
            return []
        found = [edge.candidate for search in searches for edge in search.edges]
        return [one for one in dict.fromkeys(found) if self._is_config(one)]

    def _is_config(self, one: Candidate) -> bool:
        try:
            list(self.tuning_sweep([one]).configs())
        except UserError:
            return False
        return True

    def choose(self, searches: Sequence[Search], folder: Path) -> Tuned:
        """Each row's best settings by the tuning's criterion, mean over its seeds; written to
        ``folder``/tuned.json.

        A row without a successful trial keeps its first settings; raises UserError if there is no
        other.
        """
        tuned = Tuned(tuple(Chosen.of(search) for search in searches))
        failed = [one for one in tuned.chosen if one.score is None]
        for one in failed:
            console.print(
                f"note: no trial that tunes {one.place!r} has succeeded; it keeps its first "
                "settings"
            )
        if len(failed) == len(tuned.chosen):
            raise UserError(f"{self.entry.id}: no trial of the tuning has succeeded; see {folder}")
        tuned.write(folder)
        return tuned

    def measured(self, folder: Path) -> Values:
        """What the trials in ``folder`` that have ended say, for every cell; nothing where a method
        has no such number, which its runs need not report.
        """
        ended = {key: one for key, one in by_trial(folder).items() if not one.broken}
        seeds = sorted({seed for _, seed in ended})
        return {
            (row, column): {
                seed: ended[label, seed].value(self.entry.columns[column])
                for seed in seeds
                if (label, seed) in ended and self._has(row, column)
            }
            for (row, column), label in self.labels.items()
        }

    def _has(self, row: str, column: str) -> bool:
        said = self.entry.published.get((row, column))
        return said is None or said.exists

    def diverged(self, folder: Path) -> Diverged:
        """The seeds of every cell whose trials in ``folder`` have diverged."""
        results = by_trial(folder)
        return {
            cell: [seed for (of, seed), r in results.items() if of == label and r.diverged]
            for cell, label in self.labels.items()
        }
