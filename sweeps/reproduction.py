"""A paper's table or figure at one budget: the sweeps that it is, and the sweeps' results as its
cells.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from orchestrator.errors import UserError
from orchestrator.terminal import console
from sweeps.entry import Budget, Column, Diverged, Entry, Settings, Values
from sweeps.plan import Cell, Sweep
from sweeps.results import by_trial
from sweeps.tuning import Candidate, Scored, Tuned, best, candidates, size

UNTUNED = Tuned()
UNTUNED_BUDGET = "smoke"
"""The budget that only shows that every setting runs: it takes the rows as they are."""


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

    @cached_property
    def labels(self) -> Mapping[tuple[str, str], str]:
        """(row, column) -> label of the trials behind that cell; columns with equal settings share
        it.
        """
        first: dict[Settings, str] = {}
        for column in self.columns:
            first.setdefault(self.entry.columns[column].settings, column)
        return {
            (r, c): f"{r} / {first[self.entry.columns[c].settings]}"
            for r, c in itertools.product(self.rows, self.columns)
        }

    def final_sweep(self, tuned: Tuned = UNTUNED) -> Sweep:
        """All cells on the budget's seeds; columns with equal settings share their trials."""
        trials = {
            label: (*self.entry.rows[row], *tuned.of(row), *self.entry.columns[column].settings)
            for (row, column), label in self.labels.items()
        }
        cells = tuple(Cell(label=label, settings=own) for label, own in trials.items())
        first = next(iter(self.entry.columns.values()))
        return self._sweep((), cells, self.budget.seeds, first)

    def tuning_sweep(self) -> Sweep | None:
        """The first stage: every row's grid on the tuning seeds; None if there is nothing to tune.

        Raises UserError if the rows' grids are not of one size.
        """
        tuning = self.entry.tuning
        if tuning is None or self.size == UNTUNED_BUDGET:
            return None
        self._require_equal_grids()
        # the criterion's settings come last: they say on which column of the table it is measured
        cells = tuple(
            Cell(
                label=one.label,
                settings=(*self.entry.rows[row], *one.settings, *tuning.criterion.settings),
            )
            for row in self.rows
            for one in candidates(tuning, row)
        )
        return self._sweep(tuning.settings, cells, tuning.seeds, tuning.criterion)

    def _require_equal_grids(self) -> None:
        assert self.entry.tuning is not None
        sizes = {row: size(self.entry.tuning, row) for row in self.rows}
        if len(set(sizes.values())) > 1:
            raise UserError(
                f"{self.entry.id}: every method must have as many trials to be tuned with, and "
                f"they have {sizes}"
            )

    def _sweep(
        self, further: Settings, cells: tuple[Cell, ...], seeds: tuple[int, ...], column: Column
    ) -> Sweep:
        """``column`` is what Tune compares; ``further`` wins over the base and the budget."""
        return Sweep(
            name=self.name,
            set=(*self.entry.base, *self.budget.settings, *further),
            cells=cells,
            seeds=seeds,
            metric=column.metric,
            mode=column.mode,
        )

    def choose(self, folder: Path) -> Tuned:
        """Each row's best settings by the tuning's criterion, mean over its seeds; written to
        ``folder``/tuned.json.

        A row without a successful trial keeps its first settings; raises UserError if there is no
        other.
        """
        assert self.entry.tuning is not None
        high = self.entry.tuning.criterion.better == "high"
        ahead = {row: best(scored, high) for row, scored in self._scored(folder).items()}
        failed = [row for row, one in ahead.items() if math.isnan(one.score)]
        for row in failed:
            console.print(
                f"note: no trial that tunes {row!r} has succeeded; it keeps its first settings"
            )
        if len(failed) == len(ahead):
            raise UserError(f"{self.entry.id}: no trial of the tuning has succeeded; see {folder}")
        tuned = Tuned({row: one.candidate.settings for row, one in ahead.items()})
        tuned.write(folder)
        return tuned

    def _scored(self, folder: Path) -> dict[str, list[Scored]]:
        """Row -> its candidates with what their trials in ``folder`` have reached."""
        tuning, found = self.entry.tuning, by_trial(folder)
        assert tuning is not None

        def score(one: Candidate) -> float:
            ended = [found.get((one.label, seed)) for seed in tuning.seeds]
            values = [r.value(tuning.criterion) if r else math.nan for r in ended]
            return float(np.mean(values))

        return {
            row: [Scored(one, score(one)) for one in candidates(tuning, row)] for row in self.rows
        }

    def measured(self, folder: Path) -> Values:
        """What the trials in ``folder`` that have ended say, for every cell."""
        results = by_trial(folder)
        seeds = sorted({seed for _, seed in results})
        return {
            (row, column): {
                seed: results[label, seed].value(self.entry.columns[column])
                for seed in seeds
                if (label, seed) in results
            }
            for (row, column), label in self.labels.items()
        }

    def diverged(self, folder: Path) -> Diverged:
        """The seeds of every cell whose trials in ``folder`` have diverged."""
        results = by_trial(folder)
        return {
            cell: [seed for (of, seed), r in results.items() if of == label and r.diverged]
            for cell, label in self.labels.items()
        }
