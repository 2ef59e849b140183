"""A rule of thumb out of a sweep: the cheapest row for each network, and the line through those
points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sweeps.entry import Entry, Rule, Values


@dataclass(frozen=True)
class Point:
    """A network's cheapest row."""

    x: float
    y: float
    margin: float
    """How much more the next cheapest row costs, as a part; infinite if there is no other."""
    edge: str = ""
    """``smallest`` or ``largest`` if no row beyond it was measured: the cheapest may lie there."""

    def __str__(self) -> str:
        remarks = [f"by {100 * self.margin:.1f} %"] if math.isfinite(self.margin) else []
        remarks += [f"the {self.edge} tried"] if self.edge else []
        return f"{self.y / self.x:.3g} d" + (f" ({', '.join(remarks)})" if remarks else "")


@dataclass(frozen=True)
class Line:
    """y = c x for one setting."""

    setting: str
    points: dict[str, Point]
    """Network -> its cheapest row."""
    published: float

    @property
    def slope(self) -> float:
        """c of the least squares through the origin; NaN without points."""
        x, y = np.array([(p.x, p.y) for p in self.points.values()]).reshape(-1, 2).T
        return float(x @ y / (x @ x)) if len(x) else math.nan

    @property
    def open(self) -> list[str]:
        """The networks whose cheapest row is at an edge of what was measured: of them, and so of
        the line, only a bound is known.
        """
        return [name for name, point in self.points.items() if point.edge]

    def __str__(self) -> str:
        if not self.points:
            return f"{self.setting}: not measured yet (published {self.published:.3g} d)"
        found = ", ".join(f"{name} at {point}" for name, point in self.points.items())
        verdict = f"; not determined: {', '.join(self.open)} at an edge" if self.open else ""
        return (
            f"{self.setting}: least for {found}; line {self.slope:.3g} d (published "
            f"{self.published:.3g} d){verdict}"
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


def _points(entry: Entry, rule: Rule, values: Values, setting: str) -> dict[str, Point]:
    """Network -> its cheapest row, without networks that have not been measured."""
    found = {}
    for network, size in rule.sizes.items():
        point = _cheapest(rule, size, _costs(entry, values, entry.cost_of(setting, network)))
        if point is not None:
            found[network] = point
    return found


def _costs(entry: Entry, values: Values, column: str) -> dict[str, float]:
    """Mean cost of each row that was measured, over the seeds that all of them have; infinite where
    one of its own missed the target.
    """
    found = {row: its for row in entry.rows if (its := values.get((row, column), {}))}
    common = set.intersection(*(set(its) for its in found.values())) if found else set()
    return {
        row: float(np.mean([its[seed] for seed in sorted(common)]))
        if all(map(math.isfinite, its.values()))
        else math.inf
        for row, its in found.items()
        if common
    }


def _cheapest(rule: Rule, size: float, costs: dict[str, float]) -> Point | None:
    """The row with the least of the ``costs``; None if no row reached the target."""
    best, *others = sorted(costs, key=lambda row: costs[row]) or [""]
    if not math.isfinite(costs.get(best, math.inf)):
        return None
    margin = costs[others[0]] / costs[best] - 1 if others else math.inf
    factors = [rule.factors[row] for row in costs]
    mine = rule.factors[best]
    # a row that missed the target is beyond, too: it costs more
    edge = "smallest" if mine == min(factors) else "largest" if mine == max(factors) else ""
    return Point(size, size * mine, margin, edge)
