"""One number out of a run: what a table's cell shows."""

from __future__ import annotations

import math

import pandas as pd

from algorithms.part import nearest
from orchestrator.config.goal import Goal, up_to
from orchestrator.errors import UserError
from sweeps.entry import Column


def value(rounds: pd.DataFrame, column: Column) -> float:
    """The ``column``'s statistic of a run's round table, scaled; NaN if a target was never reached.

    Raises UserError if the run does not report the metric.
    """
    if column.metric not in rounds:
        raise UserError(
            f"the runs do not report {column.metric!r}; "
            f"{nearest(column.metric, [str(c) for c in rounds.columns])}"
        )
    known = rounds[column.metric].dropna()
    if not len(known):
        return math.nan
    if column.target is not None:
        return column.scale * _until(rounds, column, Goal(column.target, column.falling))
    if column.statistic == "sum":
        return column.scale * float(known.sum())
    if column.statistic == "best":
        return column.scale * float(known.max() if column.better == "high" else known.min())
    return column.scale * float(
        known.iloc[-column.tail if column.statistic == "tail" else -1 :].mean()
    )


def _until(rounds: pd.DataFrame, column: Column, goal: Goal) -> float:
    """What it took until the metric reached the goal."""
    spent = up_to(rounds, column.metric, goal)
    if spent is None:
        return math.nan
    steps, nbytes = (
        float(spent["steps_total"].iloc[-1]),
        float((spent["bytes_up"] + spent["bytes_down"]).sum()),
    )
    if column.cost is not None:
        return column.cost(steps, nbytes)
    if column.statistic == "steps_to":
        return steps
    if column.statistic == "seconds_to":
        return float(spent["seconds"].sum())
    if column.statistic == "gigabytes_to":
        return nbytes / 1e9
    return float(len(spent))
