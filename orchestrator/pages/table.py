"""The columns of a run that its figures are drawn from, thinned to what an eye can tell apart."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

MOST_ROUNDS = 600
"""Points of a curve; of more rounds several share one."""
AXES = {
    "round": "round",
    "mb": "MB transmitted, both ways",
    "seconds": "seconds since the start",
    "steps": "local steps, in lock step",
}
"""What curves may be drawn over -> its title."""
SO_FAR = {"bytes_up": "MB up since the start", "bytes_down": "MB down since the start"}
"""Columns of rounds -> names of what they come to."""
MEASURED = "evaluated_steps"
"""The local steps of what judges one model, where that was in the middle of a round."""

Rows = list[dict[str, Any]]


def axes_of(rounds: pd.DataFrame) -> pd.DataFrame:
    """What curves are drawn over, AXES as far as they are known: all since the start, beside the
    columns of ``rounds``, of which some have the same names (the round's own seconds and steps).
    """
    sent = (rounds["bytes_up"] + rounds["bytes_down"]).cumsum() / 1e6
    axes = {"round": rounds["round"], "mb": sent, "seconds": rounds["seconds"].cumsum()}
    if "steps_total" in rounds:
        axes["steps"] = rounds["steps_total"]
    return pd.DataFrame(axes)


def with_traffic(rounds: pd.DataFrame) -> pd.DataFrame:
    """``rounds`` with the megabytes since the start, by the names that SO_FAR has for them."""
    return rounds.assign(**{name: rounds[sent].cumsum() / 1e6 for sent, name in SO_FAR.items()})


def thinned(table: pd.DataFrame, most: int = MOST_ROUNDS) -> pd.DataFrame:
    """At most so many rows: of each few rounds what they reported last of each column."""
    if len(table) <= most:
        return table
    few = math.ceil(len(table) / most)
    return table.groupby(np.arange(len(table)) // few).last()


@dataclass(frozen=True)
class Table:
    """Axes by their names, and some columns by names that a chart can have: ``c0``, ``c1``, ... (a
    dot in a column's own would be a path to Vega).
    """

    axes: list[str]
    """Of AXES, and MEASURED, those that there are."""
    columns: list[str]
    frame: pd.DataFrame
    """By the charts' names."""

    @classmethod
    def of(cls, rounds: pd.DataFrame, columns: Iterable[str]) -> Table:
        """Those of ``columns`` that there are, and all axes."""
        axes = axes_of(rounds)
        if MEASURED in rounds:
            axes[MEASURED] = rounds[MEASURED]
        there = [c for c in dict.fromkeys(columns) if c in rounds]
        frame = axes.assign(**{f"c{number}": rounds[c] for number, c in enumerate(there)})
        return cls([*axes], there, thinned(frame))

    def name(self, column: str) -> str:
        """What a chart calls the column."""
        return f"c{self.columns.index(column)}"

    def values(self) -> dict[str, list[float | None]]:
        """Name -> numbers, None where there is none."""
        return {str(name): numbers(self.frame[name]) for name in self.frame}

    def rows(self) -> Rows:
        """The same as a row for each point."""
        values = self.values()
        return [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]


def numbers(values: Iterable[Any]) -> list[float | None]:
    """As JSON can have them, to six digits: of what is drawn, nobody sees more."""
    return [float(f"{v:.6g}") if math.isfinite(v) else None for v in map(float, values)]
