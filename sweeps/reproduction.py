"""A paper's table or figure as a sweep, and the sweep's results as that table."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy import stats

from orchestrator.errors import UserError
from orchestrator.results.run_folder import RunFolder
from orchestrator.terminal import console
from sweeps.entry import Budget, Column, Entry, Settings
from sweeps.plan import Cell, Sweep
from sweeps.results import by_trial
from sweeps.spaces import as_settings

Values = dict[tuple[str, str], dict[int, float]]
"""(row, column) -> seed -> measured value."""


def chosen_budget(entry: Entry, name: str) -> Budget:
    """The budget called ``name``; raises UserError if the entry has none."""
    if name not in entry.budgets:
        raise UserError(f"--budget {name!r}: {entry.id} has {', '.join(entry.budgets)}")
    return entry.budgets[name]


def narrowed(entry: Entry, name: str, columns: Sequence[str]) -> Entry:
    """The entry with only ``columns`` in that budget (none: as it is); raises UserError for one
    that it has not.
    """
    budget = chosen_budget(entry, name)
    there = shown(entry, budget)[1]
    for column in columns:
        if column not in there:
            raise UserError(
                f"--column {column!r}: {entry.id} at budget {name} has {', '.join(there)}"
            )
    if columns and entry.figure in ("scatter", "clouds"):
        raise UserError(
            f"--column: {entry.id} draws its columns against one another and needs them all"
        )
    kept = replace(budget, columns=tuple(c for c in there if c in columns)) if columns else budget
    return replace(entry, budgets={**entry.budgets, name: kept})


def shown(entry: Entry, budget: Budget) -> tuple[list[str], list[str]]:
    """Rows and columns that a budget runs."""
    return list(budget.rows or entry.rows), list(budget.columns or entry.columns)


def final_sweep(entry: Entry, name: str, tuned: dict[str, list[str]]) -> Sweep:
    """All cells of the entry on the budget's seeds; columns with equal settings share their
    trials."""
    budget = chosen_budget(entry, name)
    trials = {
        label: (*entry.rows[row], *tuned.get(row, []), *entry.columns[column].settings)
        for (row, column), label in labels(entry, name).items()
    }
    cells = [Cell(label=label, settings=settings) for label, settings in trials.items()]
    return _sweep(
        entry,
        name,
        (*entry.base, *budget.settings),
        cells,
        budget.seeds,
        next(iter(entry.columns.values())),
    )


def tuning_sweep(entry: Entry, name: str) -> Sweep | None:
    """The first stage: every row's grid on the tuning seeds; None if there is nothing to tune.

    Raises UserError if the rows' grids are not of one size.
    """
    if entry.tuning is None or name == "smoke":
        return None
    budget, tuning = chosen_budget(entry, name), entry.tuning
    rows, _ = shown(entry, budget)
    sizes = {row: math.prod(map(len, tuning.grids.get(row, {}).values())) for row in rows}
    if len(set(sizes.values())) > 1:
        raise UserError(
            f"{entry.id}: every method must have as many trials to be tuned with, and they have "
            f"{sizes}"
        )
    cells = [
        Cell(
            label=tuning_label(row, settings),
            settings=(*entry.rows[row], *settings, *tuning.criterion.settings),
        )
        for row in rows
        for settings in _combinations(entry, row)
    ]
    return _sweep(
        entry,
        name,
        (*entry.base, *budget.settings, *tuning.settings),
        cells,
        tuning.seeds,
        tuning.criterion,
    )


def _combinations(entry: Entry, row: str) -> list[list[str]]:
    assert entry.tuning is not None
    grid = entry.tuning.grids.get(row, {})
    return [
        as_settings(dict(zip(grid, values, strict=True)))
        for values in itertools.product(*grid.values())
    ]


def _sweep(
    entry: Entry,
    name: str,
    base: Settings,
    cells: list[Cell],
    seeds: tuple[int, ...],
    column: Column,
) -> Sweep:
    return Sweep(
        name=f"{entry.id.replace('/', '-')}-{name}",
        set=base,
        cells=tuple(cells),
        seeds=seeds,
        metric=column.metric,
        mode=column.mode,
    )


def choose(entry: Entry, name: str, folder: Path) -> dict[str, list[str]]:
    """Each row's best settings by the tuning's criterion, mean over its seeds; written to
    ``folder``/tuned.json.

    A row without a successful trial keeps its first settings; raises UserError if there is no
    other.
    """
    assert entry.tuning is not None
    column, found = entry.tuning.criterion, by_trial(folder)
    best: dict[str, list[str]] = {}
    rows, _ = shown(entry, chosen_budget(entry, name))
    failed: list[str] = []
    for row in rows:
        scores = []
        for settings in _combinations(entry, row):
            label = tuning_label(row, settings)
            ended = [found.get((label, seed)) for seed in entry.tuning.seeds]
            score = float(np.mean([r.value(column) if r else math.nan for r in ended]))
            scores.append(
                (math.isnan(score), -score if column.better == "high" else score, settings)
            )
        if all(missing for missing, _, _ in scores):
            console.print(
                f"note: no trial that tunes {row!r} has succeeded; it keeps its first settings"
            )
            failed.append(row)
        best[row] = min(scores, key=lambda s: s[:2])[2]
    if failed == rows:
        raise UserError(f"{entry.id}: no trial of the tuning has succeeded; see {folder}")
    RunFolder(folder).write_text("tuned.json", json.dumps(best, indent=2))
    return best


def tuning_label(row: str, settings: list[str]) -> str:
    """Label of a trial of the first stage."""
    return f"{row} / {', '.join(settings)}"


def labels(entry: Entry, name: str) -> dict[tuple[str, str], str]:
    """(row, column) -> label of the trials behind that cell; columns with equal settings share
    it."""
    rows, columns = shown(entry, chosen_budget(entry, name))
    first: dict[Settings, str] = {}
    for column in columns:
        first.setdefault(entry.columns[column].settings, column)
    return {
        (r, c): f"{r} / {first[entry.columns[c].settings]}"
        for r, c in itertools.product(rows, columns)
    }


def measured(entry: Entry, name: str, folder: Path) -> Values:
    """What the trials that have ended say, for every cell."""
    results = by_trial(folder)
    seeds = sorted({seed for _, seed in results})
    return {
        (row, column): {
            s: results[label, s].value(entry.columns[column])
            for s in seeds
            if (label, s) in results
        }
        for (row, column), label in labels(entry, name).items()
    }


@dataclass(frozen=True)
class Verdict:
    """One cell's comparison behind a claim."""

    better: str
    worse: str
    column: str
    difference: float
    """How much better, mean over the seeds, in the column's unit; NaN without common seeds."""
    p: float
    """One-sided paired t-test over seeds; NaN with fewer than two."""

    @property
    def word(self) -> str:
        """holds (p < 0.05), leans, fails or open."""
        if math.isnan(self.difference):
            return "open"
        if self.difference <= 0:
            return "fails"
        return "holds" if self.p < 0.05 else "leans"


def verdicts(entry: Entry, values: Values) -> dict[str, list[Verdict]]:
    """Each claim of the paper, cell by cell."""
    found: dict[str, list[Verdict]] = {}
    for claim in entry.claims:
        columns = claim.columns or tuple(dict.fromkeys(c for _, c in values))
        found[claim.text] = [
            _compare(values, claim.better, worse, column, entry.columns[column].better == "high")
            for worse, column in itertools.product(claim.worse, columns)
            if (claim.better, column) in values and (worse, column) in values
        ]
    return found


def _compare(values: Values, better: str, worse: str, column: str, high: bool) -> Verdict:
    a, b = values[better, column], values[worse, column]
    common = [s for s in a if s in b and math.isfinite(a[s]) and math.isfinite(b[s])]
    gaps = np.array([a[s] - b[s] for s in common]) * (1 if high else -1)
    p = math.nan
    if len(gaps) > 1 and gaps.std() > 0:
        p = float(stats.ttest_1samp(gaps, 0.0, alternative="greater").pvalue)
    return Verdict(better, worse, column, float(gaps.mean()) if len(gaps) else math.nan, p)
