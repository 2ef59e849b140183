"""Groups of runs against one of them, in pairs of seeds, and what is said of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from orchestrator.analysis.paired import Paired, compare, holm

TOLD_APART = 0.05
"""Largest p of a difference that is called one."""


@dataclass(frozen=True)
class Difference:
    """Of one group from the other that all are tested against."""

    group: str
    pair: Paired
    p: float
    """Corrected for the number of groups (Holm)."""

    @property
    def told_apart(self) -> bool:
        """Not where there is no p, either."""
        return self.p < TOLD_APART


@dataclass(frozen=True)
class PairedTests:
    """The last ``metric`` of each group against that of one, ``against``, on the seeds that both
    have, two-sided, with Holm's correction where there are several.
    """

    metric: str
    against: str
    more_is_better: bool | None
    """None where that is not known."""
    each: tuple[Difference, ...] = ()
    """Of the groups that have two pairs and more."""
    groups: int = 0
    """Differences that Holm's correction is over."""

    @classmethod
    def of(
        cls, metric: str, values: Mapping[str, Mapping[int, float]], against: str,
        more_is_better: bool | None,
    ) -> PairedTests:  # fmt: skip
        """``values``: group -> seed -> the last ``metric``, NaN of a run without a number."""
        high = more_is_better is not False
        pairs = {
            name: compare(theirs, values[against], high)
            for name, theirs in values.items()
            if name != against
        }
        corrected = holm([pair.p for pair in pairs.values()])
        found = (Difference(*one, p) for one, p in zip(pairs.items(), corrected, strict=True))
        each = tuple(one for one in found if one.pair.n > 1)
        return cls(metric, against, more_is_better, each, len(pairs))

    @property
    def about(self) -> str:
        """What the numbers are, or "" where there are none."""
        if not self.each:
            return ""
        pairs = sorted({one.pair.numbers for one in self.each})
        many = " or ".join(filter(None, [", ".join(map(str, pairs[:-1])), str(pairs[-1])]))
        how = "paired t-tests"
        if any(any(one.pair.missed) for one in self.each):
            how += " (signed ranks where a run has no number, which loses)"
        if self.groups > 1:
            how += f", p by Holm over {self.groups}"
        return (
            f"{self.metric} minus that of {self.against}, over {many} pairs of numbers; 95 % "
            f"intervals, each by itself; two-sided {how}"
        )

    def table(self) -> pd.DataFrame:
        """A line of texts for each, as it is printed."""
        return pd.DataFrame([self._line(one) for one in self.each])

    def records(self) -> list[dict[str, object]]:
        """The numbers behind it; differences are of the metric, whichever side is better."""
        return [
            {
                "metric": self.metric, "group": one.group, "against": self.against,
                "difference": self._signed(one.pair.difference),
                "low": self._ends(one.pair)[0], "high": self._ends(one.pair)[1],
                "d_z": self._signed(one.pair.effect), "pairs": one.pair.n,
                "missed": list(one.pair.missed), "p": one.pair.p, "p_holm": one.p,
                "verdict": self._verdict(one),
            }
            for one in self.each
        ]  # fmt: skip

    def _line(self, one: Difference) -> dict[str, str]:
        pair, (low, high) = one.pair, self._ends(one.pair)
        missed = f", missed {pair.missed[0]} : {pair.missed[1]}" if any(pair.missed) else ""
        return {
            "group": one.group,
            "difference": f"{_number(self._signed(pair.difference), '+.4f')}{missed}",
            "95 % interval": "" if math.isnan(low) else f"[{low:+.4f}, {high:+.4f}]",
            "d_z": _number(self._signed(pair.effect), ".2f"),
            "p": _number(one.p, ".4f") or "none",
            "": self._verdict(one),
        }

    def _verdict(self, one: Difference) -> str:
        if math.isnan(one.p):
            return "too few pairs, or all differ by the same"
        if not one.told_apart:
            return "not told apart"
        if self.more_is_better is None:
            return "told apart"
        return "better" if one.pair.ahead else "worse"

    def _signed(self, value: float) -> float:
        """A pair's numbers are towards the better; 0 has no sign."""
        return (-value if self.more_is_better is False else value) + 0

    def _ends(self, pair: Paired) -> Sequence[float]:
        return sorted((self._signed(pair.low), self._signed(pair.high)))


def _number(value: float, how: str) -> str:
    return "" if math.isnan(value) else f"{value:{how}}"
