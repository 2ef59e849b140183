"""A rule of thumb out of a sweep: the cheapest row for each network, and the line through those
points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sweeps.entry import Entry, Rule, Values


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
    rule = entry.rule
    if rule is None:
        return []
    return [
        Line(setting, _points(entry, rule, values, setting), published)
        for setting, published in rule.published.items()
    ]


def _points(
    entry: Entry, rule: Rule, values: Values, setting: str
) -> dict[str, tuple[float, float]]:
    """Network -> (x, y) of its cheapest row, without networks that have not been measured."""
    found = {}
    for network, size in rule.sizes.items():
        row = _cheapest(entry, values, entry.cost_of(setting, network))
        if row is not None:
            found[network] = (size, size * rule.factors[row])
    return found


def _cheapest(entry: Entry, values: Values, column: str) -> str | None:
    """The row with the least mean cost; a row with a seed that missed the target does not count."""
    means = {row: _mean(list(values.get((row, column), {}).values())) for row in entry.rows}
    known = {row: mean for row, mean in means.items() if math.isfinite(mean)}
    return min(known, key=lambda row: known[row]) if known else None


def _mean(seeds: list[float]) -> float:
    return float(np.mean(seeds)) if seeds else math.nan
