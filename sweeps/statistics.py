"""One number out of a run: what a table's cell shows."""

from __future__ import annotations

import math
from dataclasses import replace

import pandas as pd

from algorithms.part import nearest
from orchestrator.config.goal import Goal, steps_of, up_to
from orchestrator.errors import UserError
from sweeps.entry import Column

JUDGED = ("judged", "test_accuracy")
"""What a round reports if it is evaluated, and is then a number whatever the model is; the second
in tables of earlier versions.
"""


def value(rounds: pd.DataFrame, column: Column) -> float:
    """The ``column``'s statistic of a run's round table, scaled; NaN if a target was never reached,
    and where the rounds that it is of report NaN.

    Raises UserError if the run does not report the metric.
    """
    if column.metric not in rounds:
        raise UserError(
            f"the runs do not report {column.metric!r}; "
            f"{nearest(column.metric, [str(c) for c in rounds.columns])}"
        )
    values = reported(rounds, column.metric)
    if not len(values):
        return math.nan
    if column.target is not None:
        return column.scale * _until(rounds, column, Goal(column.target, column.falling))
    return column.scale * _of(values, column)


def beside(rounds: pd.DataFrame, column: Column, metric: str) -> float:
    """What another ``metric`` was where the ``column``'s statistic is of: for the best round that
    round's, and not its own best; NaN if the run does not report it there.
    """
    if metric not in rounds or column.metric not in rounds:
        return math.nan
    if column.statistic != "best":
        return value(rounds, replace(column, metric=metric))
    pairs = pd.DataFrame({"of": reported(rounds, column.metric), "beside": rounds[metric]})
    known = pairs.dropna(subset=["of"]).sort_values("of", kind="stable")
    if not len(known):
        return math.nan
    best = known[known["of"] == known["of"].iloc[-1 if column.better == "high" else 0]]
    # the first of rounds that are as good
    return column.scale * float(best["beside"].iloc[0])


def reported(rounds: pd.DataFrame, metric: str) -> pd.Series:
    """The metric in the rounds that report it, from its first number on; NaN where it was none.

    The table has NaN as well for a round that was not evaluated.
    """
    values = rounds[metric].loc[rounds[metric].first_valid_index() :]
    known = [name for name in JUDGED if name in rounds]
    if not known:
        return values.dropna()
    judged = rounds[known[0]].loc[values.index].notna()
    return values if values[~judged].notna().any() else values[judged]


def _of(values: pd.Series, column: Column) -> float:
    """The statistic of the metric's values, in the order of the rounds."""
    if column.statistic == "sum":
        return float(values.sum(min_count=1))
    if column.statistic == "best":
        return float(values.max() if column.better == "high" else values.min())
    last = column.tail if column.statistic == "tail" else 1
    # a run whose loss ended as NaN has no last loss, and not that of the round before
    return float(values.iloc[-last:].mean(skipna=False))


def _until(rounds: pd.DataFrame, column: Column, goal: Goal) -> float:
    """What it took until the metric reached the goal; NaN if it did not."""
    spent = up_to(rounds, column.metric, goal)
    if spent is None:
        return math.nan
    steps = steps_of(spent)
    nbytes = float((spent["bytes_up"] + spent["bytes_down"]).sum())
    if column.cost is not None:
        return column.cost(steps, nbytes)
    if column.statistic == "steps_to":
        return steps
    if column.statistic == "seconds_to":
        return float(spent["seconds"].sum())
    return nbytes / 1e9 if column.statistic == "gigabytes_to" else float(len(spent))
