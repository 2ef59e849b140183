"""Groups of runs that differ in the seed alone, as curves: their mean, with a band around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from orchestrator.pages import charts
from orchestrator.pages.figures import Drawing
from orchestrator.pages.library import Spec
from orchestrator.pages.table import AXES, MEASURED, Rows, axes_of, numbers, thinned
from orchestrator.results.columns import OF_ONE_MODEL
from orchestrator.terminal import HEADLINES


def points(groups: Mapping[str, Sequence[pd.DataFrame]], column: str) -> Rows:
    """A row for each group and round that all of its runs report the column in (or number of local
    steps at which they do, where looks are within rounds): line (its name), AXES, value (the mean),
    low and high (one standard error to either side).
    """
    rows: Rows = []
    for name, runs in groups.items():
        known = _known(runs, column)
        if not known:
            continue
        by, shared = _shared(known, _are_clocked(runs, column))
        alike = [one[one[by].isin(shared)].drop_duplicates(by).set_index(by) for one in known]
        values = pd.concat([one["value"] for one in alike], axis=1)
        error = values.sem(axis=1).fillna(0.0)
        mean = values.mean(axis=1)
        axes = pd.concat([one.drop(columns="value") for one in alike]).groupby(by).mean()
        curve = axes.assign(value=mean, low=mean - error, high=mean + error).reset_index()
        table = thinned(curve)
        columns = {str(c): numbers(table[c]) for c in table}
        rows += [
            {"line": name, **dict(zip(columns, row, strict=True))}
            for row in zip(*columns.values(), strict=True)
        ]
    return rows


def _known(runs: Sequence[pd.DataFrame], column: str) -> list[pd.DataFrame]:
    """Of each of the runs that report the column: axes, value."""
    return [
        _measured(run, column)[_axes(runs)].assign(value=run[column]).dropna()
        for run in runs
        if column in run
    ]


def _shared(known: Sequence[pd.DataFrame], clocked: bool) -> tuple[str, set[float]]:
    """What the runs of a group have in common: rounds, or, where a clock of steps looks
    (``clocked``), numbers of steps, if these are no fewer.
    """
    names = ["steps", "round"] if clocked and all("steps" in one for one in known) else ["round"]
    each = {name: set.intersection(*({*one[name]} for one in known)) for name in names}
    by = max(each, key=lambda name: len(each[name]))
    return by, each[by]


def _measured(run: pd.DataFrame, column: str) -> pd.DataFrame:
    """The run's axes, with the local steps at which the column was measured."""
    axes = axes_of(run)
    if _is_clocked(run, column):
        axes["steps"] = run[MEASURED].fillna(axes["steps"])
    return axes


def _is_clocked(run: pd.DataFrame, column: str) -> bool:
    """Whether a clock of local steps says when the column was measured."""
    return MEASURED in run and column.startswith(OF_ONE_MODEL)


def _are_clocked(runs: Sequence[pd.DataFrame], column: str) -> bool:
    return all(_is_clocked(run, column) for run in runs)


def _axes(runs: Sequence[pd.DataFrame]) -> list[str]:
    """Those that all of the runs have."""
    return [axis for axis in AXES if axis != "steps" or all("steps_total" in r for r in runs)]


def is_cut(groups: Mapping[str, Sequence[pd.DataFrame]], column: str) -> bool:
    """Whether some runs of a group report the column longer than others, which no curve shows."""
    return any(_is_cut(runs, column) for runs in groups.values())


def _is_cut(runs: Sequence[pd.DataFrame], column: str) -> bool:
    known = _known(runs, column)
    if not known:
        return False
    by, _ = _shared(known, _are_clocked(runs, column))
    return len({one[by].max() for one in known}) > 1


def band(column: str, names: Sequence[str], rows: Rows, cut: bool = False) -> Drawing:
    """The figure of a column, of groups of these names; ``cut``: as :func:`is_cut` says."""
    words = HEADLINES.get(column, column.replace("_", " "))
    several = any(row["low"] != row["high"] for row in rows)
    about = "mean over seeds, and one standard error to either side" if several else "of each run"
    about += "; up to the last round that all of a group's runs have" if cut else ""

    def make(over: str, still: bool) -> Spec:
        return charts.bands(names, words, over, still)

    return Drawing(column, words, about, make, "round", {"points": rows})
