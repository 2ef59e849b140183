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
    return column.scale * _of(known, column)


def _of(known: pd.Series, column: Column) -> float:
    """The statistic of the metric's values, in the order of the rounds."""
    if column.statistic == "sum":
        return float(known.sum())
    if column.statistic == "best":
        return float(known.max() if column.better == "high" else known.min())
    last = column.tail if column.statistic == "tail" else 1
    return float(known.iloc[-last:].mean())


def _until(rounds: pd.DataFrame, column: Column, goal: Goal) -> float:
    """What it took until the metric reached the goal; NaN if it did not."""
    spent = up_to(rounds, column.metric, goal)
    if spent is None:
        return math.nan
    steps = float(spent["steps_total"].iloc[-1])
    nbytes = float((spent["bytes_up"] + spent["bytes_down"]).sum())
    if column.cost is not None:
        return column.cost(steps, nbytes)
    if column.statistic == "steps_to":
        return steps
    if column.statistic == "seconds_to":
        return float(spent["seconds"].sum())
    return nbytes / 1e9 if column.statistic == "gigabytes_to" else float(len(spent))
