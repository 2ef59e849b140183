"""A rule of thumb out of a sweep: the cheapest row for each network, and the line through those
points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sweeps.entry import Entry
from sweeps.reproduction import Values


@dataclass(frozen=True)
class Line:
    """y = c x for one setting."""

    setting: str
    points: dict[str, tuple[float, float]]
    """Network -> (x, y) of its cheapest row."""
    published: float

    @property
    def slope(self) -> float:
        """c of the least squares through the origin; NaN without points."""
        x, y = np.array(list(self.points.values())).reshape(-1, 2).T
        return float(x @ y / (x @ x)) if len(x) else math.nan

    def __str__(self) -> str:
        if not self.points:
            return f"{self.setting}: not measured yet (published {self.published:.3g} d)"
        found = ", ".join(f"{y / x:.3g} d for {name}" for name, (x, y) in self.points.items())
        return (
            f"{self.setting}: least at {found}; line {self.slope:.3g} d (published "
            f"{self.published:.3g} d)"
        )


def lines(entry: Entry, values: Values) -> list[Line]:
    """The lines of an entry's rule, from what has been measured; none if it has no rule."""
    if entry.rule is None:
        return []
    return [
        Line(
            setting,
            {n: p for n in entry.rule.sizes if (p := _point(entry, values, setting, n))},
            slope,
        )
        for setting, slope in entry.rule.published.items()
    ]


def _point(entry: Entry, values: Values, setting: str, network: str) -> tuple[float, float] | None:
    """(x, y) of the row with the least mean cost; a row with a seed that missed the target does not
    count.
    """
    assert entry.rule is not None
    means = {row: _mean(values.get((row, f"{setting}, {network}"), {})) for row in entry.rows}
    known = {row: mean for row, mean in means.items() if math.isfinite(mean)}
    if not known:
        return None
    size = entry.rule.sizes[network]
    return size, size * entry.rule.factors[min(known, key=lambda row: known[row])]


def _mean(seeds: dict[int, float]) -> float:
    return float(np.mean(list(seeds.values()))) if seeds else math.nan
