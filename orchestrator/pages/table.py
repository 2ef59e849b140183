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
MEASURED = "evaluated_steps"
"""The local steps of what judges one model, where that was in the middle of a round."""

Rows = list[dict[str, Any]]


def over_axes(rounds: pd.DataFrame) -> pd.DataFrame:
    """``rounds`` with the columns of AXES as far as they are known, and ``mb_up``, ``mb_down``: all
    since the start.
    """
    table = pd.DataFrame(dict(rounds))
    for way in ("up", "down"):
        table[f"mb_{way}"] = table[f"bytes_{way}"].cumsum() / 1e6
    table["mb"] = table["mb_up"] + table["mb_down"]
    table["seconds"] = table["seconds"].cumsum()
    if "steps_total" in table:
        table["steps"] = table["steps_total"]
    return table


def thinned(table: pd.DataFrame, most: int = MOST_ROUNDS) -> pd.DataFrame:
    """At most so many rows: of each few rounds what they reported last of each column."""
    if len(table) <= most:
        return table
    few = math.ceil(len(table) / most)
    return table.groupby(np.arange(len(table)) // few).last()


@dataclass(frozen=True)
class Table:
    """Some columns by names that a chart can have: ``c0``, ``c1``, ... (a dot in a column's own
    would be a path to Vega).
    """

    columns: list[str]
    frame: pd.DataFrame

    @classmethod
    def of(cls, table: pd.DataFrame, columns: Iterable[str]) -> Table:
        """Those of ``columns`` that there are, and all axes."""
        there = [c for c in dict.fromkeys((*AXES, MEASURED, *columns)) if c in table]
        return cls(there, thinned(table[there]))

    def name(self, column: str) -> str:
        """What a chart calls the column; axes have their own names."""
        return column if column in (*AXES, MEASURED) else f"c{self.columns.index(column)}"

    def values(self) -> dict[str, list[float | None]]:
        """Name -> numbers, None where there is none."""
        return {self.name(c): numbers(self.frame[c]) for c in self.columns}

    def rows(self) -> Rows:
        """The same as a row for each point."""
        values = self.values()
        return [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]


def numbers(values: Iterable[Any]) -> list[float | None]:
    """As JSON can have them, to six digits: of what is drawn, nobody sees more."""
    return [float(f"{v:.6g}") if math.isfinite(v) else None for v in map(float, values)]
