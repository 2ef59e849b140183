"""Groups of runs against one of them, in pairs of seeds, and what is said of it."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd
import scipy

from orchestrator.analysis.paired import Paired, compare, holm
from orchestrator.terminal import decimals

FEW = 5
"""Pairs up to which it is said what they can tell apart."""
TOLD_APART = 0.05
"""Largest p of a difference that is called one."""


@dataclass(frozen=True)
class Measured:
    """What groups of runs had of a metric at their ends."""

    metric: str
    values: Mapping[str, Mapping[int, float]]
    """Group -> seed -> the value, NaN of a run without a number."""
    more_is_better: bool | None
    """None where that is not known."""
    counted: Collection[str] = ()
    """The groups of which it counts what runs did until a goal ended them, as ``compare`` has
    it."""

    def against(self, group: str, other: str) -> Paired:
        """Another group's values compared with those of a group."""
        high, counted = self.more_is_better is not False, bool({group, other} & {*self.counted})
        return compare(self.values[other], self.values[group], high, counted)


@dataclass(frozen=True)
class Difference:
    """Of one group from the other that all are tested against, in one metric."""

    metric: str
    more_is_better: bool | None
    group: str
    pair: Paired
    p: float
    """Corrected for the number of differences (Holm)."""

    @property
    def told_apart(self) -> bool:
        """Not where there is no p, either."""
        return self.p < TOLD_APART

    @property
    def verdict(self) -> str:
        """In a word or a few."""
        if math.isnan(self.p):
            numbers, differs = self.pair.numbers, self.pair.ahead or self.pair.behind
            several = numbers > 1 and differs and not any(self.pair.missed)
            same = "all seeds are one: nothing repeats"
            return same if several else "too few pairs, or nothing differs"
        if not self.told_apart:
            return "not told apart"
        if self.more_is_better is None:
            return "told apart"
        return "better" if self.pair.ahead else "worse"

    def record(self) -> dict[str, object]:
        """The numbers behind it; differences are of the metric, whichever side is better."""
        return {
            "metric": self.metric, "group": self.group,
            "difference": self._signed(self.pair.difference),
            "low": self._ends[0], "high": self._ends[1],
            "d_z": self._signed(self.pair.effect), "pairs": self.pair.n,
            "missed": list(self.pair.missed), "p": self.pair.p, "p_holm": self.p,
            "verdict": self.verdict,
        }  # fmt: skip

    def line(self) -> dict[str, str]:
        """Its texts, as they are printed."""
        pair, (low, high) = self.pair, self._ends
        missed = [f"missed {pair.missed[0]} : {pair.missed[1]}"] if any(pair.missed) else []
        scale = max(filter(math.isfinite, map(abs, (pair.difference, low, high))), default=0.0)
        known = [_decimal(self._signed(pair.difference), scale)]
        return {
            "group": self.group,
            "metric": self.metric,
            "difference": ", ".join(filter(None, [*known, *missed])),
            "95 % interval": ""
            if math.isnan(low)
            else f"[{_decimal(low, scale)}, {_decimal(high, scale)}]",
            "d_z": _number(self._signed(pair.effect), ".2f"),
            "p": _number(self.p, ".4f") or "none",
            "": self.verdict,
        }

    def _signed(self, value: float) -> float:
        """A pair's numbers are towards the better; 0 has no sign."""
        return (-value if self.more_is_better is False else value) + 0

    @property
    def _ends(self) -> Sequence[float]:
        return sorted((self._signed(self.pair.low), self._signed(self.pair.high)))


@dataclass(frozen=True)
class PairedTests:
    """The last values of metrics in each group against those in one, ``against``, on the seeds that
    both have, two-sided, with Holm's correction over all groups and metrics.
    """

    against: str = ""
    each: tuple[Difference, ...] = ()
    """Of the groups that have two pairs and more."""
    counted: int = 0
    """Differences that Holm's correction is over."""

    @classmethod
    def of(cls, measured: Sequence[Measured], against: str) -> PairedTests:
        """A group that shares fewer than two seeds with the other has no line."""
        pairs = [
            (one, name, one.against(against, name))
            for one in measured
            for name in one.values
            if name != against
        ]
        # who has no number has lost, and where no side is better nobody knows what that is
        pairs = [
            (one, name, replace(pair, p=math.nan) if _undecided(one, pair) else pair)
            for one, name, pair in pairs
        ]
        corrected = holm([pair.p for _, _, pair in pairs])
        each = tuple(
            Difference(one.metric, one.more_is_better, name, pair, p)
            for (one, name, pair), p in zip(pairs, corrected, strict=True)
            if pair.n > 1
        )
        return cls(against, each, sum(not math.isnan(pair.p) for _, _, pair in pairs))

    @property
    def metrics(self) -> list[str]:
        """Of the differences."""
        return list(dict.fromkeys(one.metric for one in self.each))

    @property
    def about(self) -> str:
        """What the numbers are, or "" where there are none."""
        if not self.each:
            return ""
        pairs = sorted({one.pair.numbers for one in self.each})
        many = " or ".join(filter(None, [", ".join(map(str, pairs[:-1])), str(pairs[-1])]))
        how = self._kinds
        if self.counted > 1:
            how += f", p by Holm over {self.counted}"
        what = self.metrics[0] if len(self.metrics) == 1 else "metrics"
        those = "that" if len(self.metrics) == 1 else "those"
        return (
            f"{what} minus {those} of {self.against}, over {many} "
            f"pair{'' if many == '1' else 's'} of numbers; 95 % "
            f"intervals, each by itself; two-sided {how}{self._power}"
        )

    @property
    def _kinds(self) -> str:
        """Of which kinds the tests are."""
        others = []
        if any(any(one.pair.missed) for one in self.each):
            others.append("signed ranks where a run has no number, which loses")
        if any(one.pair.by_signs for one in self.each):
            others.append("signs where all pairs differ by the same")
        if others and all(math.isnan(one.pair.effect) for one in self.each):
            return f"tests on {' and on '.join(others)}"
        return f"paired t-tests ({'; '.join(others)})" if others else "paired t-tests"

    @property
    def _power(self) -> str:
        """What few pairs can tell apart at all, by t-tests and Holm's correction; "" of many, and
        of other tests.
        """
        by_t = [one for one in self.each if not math.isnan(one.pair.effect)]
        fewest = min((one.pair.numbers for one in by_t), default=0)
        if not 1 < fewest <= FEW:
            return ""

        def least(tests: int) -> str:
            t = scipy.stats.t.ppf(1 - TOLD_APART / tests / 2, fewest - 1)
            # rounded up: what is as large as is said is told apart
            return f"{math.ceil(100 * t / math.sqrt(fewest)) / 100:.2f}"

        many = self.counted
        first = f" (the largest of {many}: {least(many)})" if many > 1 else ""
        return (
            f"; d_z is a difference over its deviation from pair to pair: with {fewest} pairs it "
            f"has to be {least(1)} to be told apart{first}"
        )

    def table(self) -> pd.DataFrame:
        """A line of texts for each, as it is printed."""
        lines = pd.DataFrame([one.line() for one in self.each])
        pairs = [str(one.pair.numbers) for one in self.each]
        if len({*pairs}) > 1:
            lines.insert(2, "pairs", pairs)
        return lines.drop(columns="metric") if len(self.metrics) == 1 else lines

    def records(self) -> list[dict[str, object]]:
        """The numbers behind them."""
        return [one.record() | {"against": self.against} for one in self.each]


def _undecided(one: Measured, pair: Paired) -> bool:
    return one.more_is_better is None and any(pair.missed)


def _decimal(value: float, scale: float) -> str:
    """With its sign, and digits of numbers of that ``scale``."""
    return _number(value, f"+.{decimals(scale, 4)}f")


def _number(value: float, how: str) -> str:
    return "" if math.isnan(value) else f"{value:{how}}"
