"""The paper's claims against what was measured: in which cells each holds."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import dataclass

import pandas as pd

from orchestrator.analysis.paired import Paired, compare, holm
from sweeps.entry import Claim, Column, Entry, Values

LEVEL = 0.05
"""Below this p, adjusted for the number of the claim's cells, a claim holds, or its opposite."""
WORDS = {
    "holds": f"holds (p < {LEVEL})",
    "leans": "leans so",
    "even": "is even",
    "against": "leans against it",
    "contradicted": f"is contradicted (p < {LEVEL})",
    "open": "not measured",
}
"""A verdict's word -> how a summary says it."""


@dataclass(frozen=True)
class Verdict:
    """One cell's comparison behind a claim."""

    better: str
    worse: str
    column: str
    paired: Paired
    """``better`` against ``worse``, in the column's unit."""
    adjusted: float
    """Its p after Holm's correction for the claim's cells."""
    opposed: float
    """The opposite's p after the same correction."""

    @property
    def word(self) -> str:
        """holds, leans, even, against, contradicted or open."""
        if not self.paired.n:
            return "open"
        if self.paired.ahead:
            return "holds" if self.adjusted < LEVEL else "leans"
        if not self.paired.behind:
            return "even"
        return "contradicted" if self.opposed < LEVEL else "against"


def verdicts(entry: Entry, values: Values) -> dict[str, list[Verdict]]:
    """Each claim of the paper, cell by cell; cells that this budget leaves out have no verdict."""
    return {claim.text: _cells(entry, claim, values) for claim in entry.claims}


def summaries(entry: Entry, values: Values) -> list[str]:
    """A sentence for each claim of the paper: in how many cells it holds (adjusted p < 0.05), leans
    so, leans against it, is contradicted, or is open.
    """
    return [f"{text}: {_summary(found)}" for text, found in verdicts(entry, values).items()]


def differences(entry: Entry, values: Values) -> pd.DataFrame:
    """Every pair of cells behind the claims: a line each, as it is printed."""
    lines = [
        _line(verdict, entry.columns[verdict.column])
        for found in verdicts(entry, values).values()
        for verdict in found
        if verdict.paired.n
    ]
    # two claims may be about the same cells
    return pd.DataFrame(lines).drop_duplicates() if lines else pd.DataFrame()


def _cells(entry: Entry, claim: Claim, values: Values) -> list[Verdict]:
    columns = claim.columns or tuple(dict.fromkeys(column for _, column in values))
    pairs = [
        (worse, column)
        for worse, column in itertools.product(claim.worse, columns)
        if (claim.better, column) in values and (worse, column) in values
    ]
    found = [
        compare(
            values[claim.better, column],
            values[worse, column],
            entry.columns[column].better == "high",
        )
        for worse, column in pairs
    ]
    adjusted, opposed = holm([one.p for one in found]), holm([one.opposite for one in found])
    return [
        Verdict(claim.better, *pairs[i], found[i], adjusted[i], opposed[i])
        for i in range(len(pairs))
    ]


def _line(verdict: Verdict, column: Column) -> dict[str, str]:
    one, digits = verdict.paired, column.digits
    missed = f"missed {one.missed[0]} : {one.missed[1]}" if any(one.missed) else ""
    return {
        "pair": f"{verdict.better} against {verdict.worse}",
        "column": verdict.column,
        "n": str(one.n),
        "ahead by": ", ".join(filter(None, [_number(one.difference, digits), missed])),
        "95 % interval": ""
        if math.isnan(one.low)
        else f"[{_number(one.low, digits)}, {_number(one.high, digits)}]",
        "d_z": _number(one.effect, 2),
        "p": _number(one.p, 4),
        "p, Holm": _number(verdict.adjusted, 4),
        "verdict": verdict.word,
    }


def _number(value: float, digits: int) -> str:
    return "" if math.isnan(value) else f"{value:.{digits}f}"


def _summary(found: list[Verdict]) -> str:
    words = Counter(verdict.word for verdict in found)
    if not found or words["open"] == len(found):
        return "not measured yet"
    counted = ", ".join(f"{said} in {words[word]}" for word, said in WORDS.items() if words[word])
    return f"{counted} of {len(found)} cells"
