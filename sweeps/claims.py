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
"""Below this two-sided p, adjusted for the number of the claim's cells, a claim holds, or its
opposite."""
WORDS = {
    "holds": f"holds (p < {LEVEL})",
    "ahead": "ahead but not told apart",
    "even": "even",
    "behind": "behind but not told apart",
    "contradicted": f"contradicted (p < {LEVEL})",
    "open": "not measured",
}
"""A verdict's word -> how a summary says it."""
APART = "not told apart"


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

    @property
    def word(self) -> str:
        """holds, ahead, even, behind, contradicted or open."""
        if not self.paired.n:
            return "open"
        told = self.adjusted < LEVEL
        if self.paired.ahead:
            return "holds" if told else "ahead"
        if self.paired.behind:
            return "contradicted" if told else "behind"
        return "even"


def verdicts(entry: Entry, values: Values) -> dict[str, list[Verdict]]:
    """Each claim of the paper, cell by cell; cells that this budget leaves out have no verdict.

    What is said of several rows in the same words is called by its row, too.
    """
    texts = Counter(claim.text for claim in entry.claims)
    rows = {claim: f" ({claim.better})" if texts[claim.text] > 1 else "" for claim in entry.claims}
    return {claim.text + row: _cells(entry, claim, values) for claim, row in rows.items()}


def summaries(entry: Entry, values: Values) -> list[str]:
    """A sentence for each claim of the paper: in how many columns it holds against all rivals, and
    the verdicts on single pairs.
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
            counted=entry.columns[column].statistic.endswith("_to"),
        )
        for worse, column in pairs
    ]
    # cells that were not run, or on too few seeds so far, are part of what the claim is tested in
    coming = sum(one.n < 2 for one in found)
    adjusted = holm([one.p for one in found], coming)
    return [Verdict(claim.better, *pairs[i], found[i], adjusted[i]) for i in range(len(pairs))]


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
        "verdict": {"ahead": APART, "behind": APART}.get(verdict.word, verdict.word),
    }


def _number(value: float, digits: int) -> str:
    return "" if math.isnan(value) else f"{value:.{digits}f}"


def _summary(found: list[Verdict]) -> str:
    if not found:
        return "not run at this budget"
    words = Counter(verdict.word for verdict in found)
    if words["open"] == len(found):
        return "not measured yet"
    counted = ", ".join(f"{said} in {words[word]}" for word, said in WORDS.items() if words[word])
    if len({verdict.worse for verdict in found}) == 1:
        return f"{counted} of {len(found)} cells"
    by_column: dict[str, list[str]] = {}
    for verdict in found:
        by_column.setdefault(verdict.column, []).append(verdict.word)
    whole = sum(set(theirs) == {"holds"} for theirs in by_column.values())
    all_rivals = f"holds against all rivals in {whole} of {len(by_column)} columns"
    return f"{all_rivals}; {counted} of {len(found)} pairs"
