"""The paper's claims against what was measured: in which cells each holds."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
from scipy import stats

from sweeps.entry import Claim, Entry, Values

LEVEL = 0.05
"""Below this p a claim holds."""
WORDS = {
    "holds": f"holds (p < {LEVEL})", "leans": "leans so", "fails": "fails", "open": "not measured",
}  # fmt: skip
"""A verdict's word -> how a summary says it."""


@dataclass(frozen=True)
class Verdict:
    """One cell's comparison behind a claim."""

    better: str
    worse: str
    column: str
    difference: float
    """How much better, mean over the seeds, in the column's unit; NaN without common seeds."""
    p: float
    """One-sided paired t-test over seeds; NaN with fewer than two."""

    @property
    def word(self) -> str:
        """holds (p < 0.05), leans, fails or open."""
        if math.isnan(self.difference):
            return "open"
        if self.difference <= 0:
            return "fails"
        return "holds" if self.p < LEVEL else "leans"


def verdicts(entry: Entry, values: Values) -> dict[str, list[Verdict]]:
    """Each claim of the paper, cell by cell; cells that this budget leaves out have no verdict."""
    return {claim.text: _cells(entry, claim, values) for claim in entry.claims}


def summaries(entry: Entry, values: Values) -> list[str]:
    """A sentence for each claim of the paper: in how many cells it holds (p < 0.05), leans so,
    fails, or is open.
    """
    return [f"{text}: {_summary(found)}" for text, found in verdicts(entry, values).items()]


def _cells(entry: Entry, claim: Claim, values: Values) -> list[Verdict]:
    columns = claim.columns or tuple(dict.fromkeys(column for _, column in values))
    return [
        _compare(values, claim.better, worse, column, entry.columns[column].better == "high")
        for worse, column in itertools.product(claim.worse, columns)
        if (claim.better, column) in values and (worse, column) in values
    ]


def _compare(values: Values, better: str, worse: str, column: str, high: bool) -> Verdict:
    """The two rows on the seeds that both have: a seed fixes the data and the first weights, so
    the runs are pairs.
    """
    a, b = values[better, column], values[worse, column]
    common = [s for s in a if s in b and math.isfinite(a[s]) and math.isfinite(b[s])]
    gaps = np.array([a[s] - b[s] for s in common]) * (1 if high else -1)
    p = math.nan
    if len(gaps) > 1 and gaps.std() > 0:
        p = float(stats.ttest_1samp(gaps, 0.0, alternative="greater").pvalue)
    return Verdict(better, worse, column, float(gaps.mean()) if len(gaps) else math.nan, p)


def _summary(found: list[Verdict]) -> str:
    words = Counter(verdict.word for verdict in found)
    if not found or words["open"] == len(found):
        return "not measured yet"
    counted = ", ".join(f"{said} in {words[word]}" for word, said in WORDS.items() if words[word])
    return f"{counted} of {len(found)} cells"
