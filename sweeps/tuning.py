"""The first of two stages: what each row of an entry is tried with, and what it is left with."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.files import read_json, write_json
from sweeps.entry import Settings, Tuning
from sweeps.spaces import as_settings

FILE = "tuned.json"


@dataclass(frozen=True)
class Candidate:
    """One combination of a row's grid."""

    row: str
    settings: Settings

    @property
    def label(self) -> str:
        """Label of its trials."""
        return f"{self.row} / {', '.join(self.settings)}"


def candidates(tuning: Tuning, row: str) -> list[Candidate]:
    """Every combination of the row's grid, in order; a row without a grid has one, which is
    empty.
    """
    grid = tuning.grids.get(row, {})
    combinations = itertools.product(*grid.values())
    return [
        Candidate(row, tuple(as_settings(dict(zip(grid, values, strict=True)))))
        for values in combinations
    ]


def size(tuning: Tuning, row: str) -> int:
    """How many candidates the row has."""
    return math.prod(map(len, tuning.grids.get(row, {}).values()))


@dataclass(frozen=True)
class Scored:
    """What a candidate has reached."""

    candidate: Candidate
    score: float
    """The criterion, mean over the tuning's seeds; NaN if a trial failed or has not ended."""

    def place(self, high: bool) -> tuple[bool, float]:
        """Where it stands among others, the least first; one without a score comes last."""
        return math.isnan(self.score), -self.score if high else self.score


def best(scored: Sequence[Scored], high: bool) -> Scored:
    """The one with the highest (or the lowest) score; the first of those that are as good, and of
    all if none has a score.
    """
    return min(scored, key=lambda one: one.place(high))


@dataclass(frozen=True)
class Tuned:
    """The settings that each row was left with."""

    rows: Mapping[str, Settings] = field(default_factory=dict)

    def of(self, row: str) -> Settings:
        """The row's settings; none for a row that was not tuned."""
        return self.rows.get(row, ())

    def write(self, folder: Path) -> None:
        """Leave them in ``folder``/tuned.json."""
        write_json(folder / FILE, dict(self.rows))

    @classmethod
    def read(cls, folder: Path) -> Tuned:
        """What ``write`` has left there; raises UserError if it is damaged."""
        rows = read_json(folder / FILE, dict[str, list[str]])
        return cls({row: tuple(settings) for row, settings in rows.items()})
