"""Two methods on the same seeds: a seed fixes the data and the first weights, and who takes part
where the method does not draw that itself, so their runs are pairs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

CONFIDENCE = 0.95
"""Of the intervals."""
ROUNDING = 1e-9
"""Spread of differences, in parts of the values, that is none: numbers such as 86.8 − 86.4 and
92.6 − 92.2 differ in their last digits."""


SUMMED = 1e-5
"""Spread over seeds, in parts of the values, that is none: by the order in which float32 numbers
are added up a loss differs in its sixth digit."""


@dataclass(frozen=True)
class Paired:
    """How far one of two is ahead of the other, over the seeds that both have run."""

    n: int
    """Pairs."""
    numbers: int
    """Of these, the ones that have two numbers."""
    difference: float
    """Mean over these; NaN without one."""
    low: float
    high: float
    """Ends of the confidence interval of the difference, by Student's t; NaN with fewer than two
    pairs, of differences that are all the same, and where a run has no number: the others are no
    fair sample then."""
    effect: float
    """The difference in standard deviations of the pairs' differences (Cohen's d_z); NaN
    likewise."""
    p: float
    """Two-sided, that neither is ahead: paired t-test, or, where a run of a pair has no number, a
    test on signed ranks in which it loses, or, where all differ by the same, one of signs; NaN with
    fewer than two pairs, where nothing differs, and where both have one number each (or none) on
    all seeds, which decide nothing then, and are no repetitions."""
    missed: tuple[int, int]
    """Runs without a number (target missed, diverged) of the one and of the other."""
    ahead: bool
    behind: bool
    """Whether it is ahead, or behind, at all."""

    @property
    def by_signs(self) -> bool:
        """Whether p is of the signs of differences that are all the same."""
        return math.isnan(self.effect) and not any(self.missed) and not math.isnan(self.p)


def compare(
    one: Mapping[int, float], other: Mapping[int, float], high: bool, counted: bool = False
) -> Paired:
    """``one`` against the ``other`` (seed -> value, NaN for a run without a number); ``high``: more
    is better; ``counted``: values are counts of what runs of their own have done (rounds to a
    target), which may be the same whatever else seeds decide.
    """
    common = [seed for seed in one if seed in other]
    a, b = (np.array([side[seed] for seed in common], float) for side in (one, other))
    missed = int((~np.isfinite(a)).sum()), int((~np.isfinite(b)).sum())
    worst = -math.inf if high else math.inf
    a, b = (np.where(np.isfinite(side), side, worst) for side in (a, b))
    # two runs that have both missed are as good as each other
    gaps = np.where(a == b, 0.0, np.subtract(a, b, where=a != b, out=np.zeros(len(a))))
    gaps = gaps if high else -gaps
    known = gaps[np.isfinite(a) & np.isfinite(b)]
    size = max(np.abs(side[np.isfinite(side)]).max(initial=0.0) for side in (a, b))
    least = ROUNDING * size
    mean, spread = _moments(known, least)
    half = effect = math.nan
    idle = not counted and all(_is_one(side, size) for side in (a, b))
    lead, p = _rank_test(gaps, least) if any(missed) else (mean, _t_test(mean, spread, len(known)))
    if idle:
        p = math.nan
    elif spread > 0 and not any(missed):
        half, effect = _half_width(spread, len(known)), mean / spread
    ends = mean - half, mean + half
    return Paired(len(common), len(known), mean, *ends, effect, p, missed, lead > 0, lead < 0)


def is_tied(one: float, other: float) -> bool:
    """Whether two numbers are the same but for the order in which they were added up."""
    return abs(one - other) <= ROUNDING * max(abs(one), abs(other))


def holm(values: Sequence[float], coming: int = 0) -> list[float]:
    """p-values adjusted for being so many (Holm 1979), and for ``coming`` others that are not known
    yet: as if these were larger, with which no adjusted value is smaller than it will be.

    NaN stays, and is not counted.
    """
    known = sorted((p, i) for i, p in enumerate(values) if not math.isnan(p))
    adjusted, least = list(values), 0.0
    for rank, (p, i) in enumerate(known):
        least = max(least, min(1.0, (len(known) + coming - rank) * p))
        adjusted[i] = least
    return adjusted


def _is_one(values: np.ndarray, size: float) -> bool:
    """Whether all are the same, but for the order of sums of numbers of that ``size``."""
    known = values[np.isfinite(values)]
    return len(known) in (0, len(values)) and not _deviation(known) > SUMMED * size


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else math.nan


def _moments(gaps: np.ndarray, least: float) -> tuple[float, float]:
    """Mean and deviation of differences; what is no larger than rounding (``least``) is 0."""
    mean, spread = _mean(gaps), _deviation(gaps)
    return 0.0 if abs(mean) <= least else mean, 0.0 if spread <= least else spread


def _deviation(values: np.ndarray) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else math.nan


def _half_width(spread: float, n: int) -> float:
    if n < 2:
        return math.nan
    return float(scipy.stats.t.ppf((1 + CONFIDENCE) / 2, n - 1)) * spread / math.sqrt(n)


def _t_test(mean: float, spread: float, n: int) -> float:
    """Two-sided p of a mean of ``n`` differences, by Student's t; where all are the same, and not
    0, by flipping signs: two of all ways are as far from 0.
    """
    if n < 2 or (spread == 0 and mean == 0):
        return math.nan
    if spread == 0:
        return 2.0 ** (1 - n)
    return float(2 * scipy.stats.t.sf(abs(mean) / spread * math.sqrt(n), n - 1))


def _rank_test(gaps: np.ndarray, least: float) -> tuple[float, float]:
    """The sum of the signed ranks of ``gaps``, which may be infinite, and its two-sided p by
    flipping signs (in all ways, up to 13 numbers). What is no further apart than rounding
    (``least``) has one rank.
    """
    gaps = gaps[np.abs(gaps) > least]
    signed = scipy.stats.rankdata(_classes(np.abs(gaps), least)) * np.sign(gaps)
    if len(gaps) < 2:
        return float(signed.sum()), math.nan
    found = scipy.stats.permutation_test(
        (signed,), np.sum, permutation_type="samples", alternative="two-sided", n_resamples=9999,
        vectorized=True, rng=0,
    )  # fmt: skip
    return float(signed.sum()), float(found.pvalue)


def _classes(values: np.ndarray, least: float) -> np.ndarray:
    """A number for each of ``values``, as they are ordered; the same for those that follow one
    another by no more than ``least``.
    """
    ordered = np.sort(values)
    finite = np.where(np.isfinite(ordered), ordered, np.finfo(float).max)
    classes = np.concatenate([[0], np.cumsum(np.diff(finite) > least)])
    return classes[np.searchsorted(ordered, values)]
