"""The first of two stages: what each row of an entry is tried with, and what it is left with."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from orchestrator.files import read_sealed, write_sealed
from orchestrator.rounds.metrics import on_validation
from sweeps.entry import Column, Grid, Settings, Tuning
from sweeps.spaces import Yaml, as_settings

FILE = "tuned.json"
EXTENSIONS = 3
"""How often the grids are extended where a best setting is on an edge."""


@dataclass(frozen=True)
class Candidate:
    """One combination of a row's grid."""

    row: str
    column: str
    """The column that it is for; empty: all."""
    values: tuple[tuple[str, Yaml], ...]
    """Config key and value, of each axis."""

    @property
    def settings(self) -> Settings:
        """As ``--set`` takes them."""
        return tuple(as_settings(dict(self.values)))

    @property
    def label(self) -> str:
        """Label of its trials."""
        return f"{self.row} / {', '.join(self.settings)}" + (
            f" @ {self.column}" * bool(self.column)
        )


def candidates(tuning: Tuning, row: str, column: str = "") -> list[Candidate]:
    """Every combination of the row's grid, in order; a row without a grid has one, which is
    empty.
    """
    return list(_product(row, column, tuning.grids.get(row, {})))


def _product(row: str, column: str, grid: Grid) -> Iterator[Candidate]:
    for values in itertools.product(*grid.values()):
        yield Candidate(row, column, tuple(zip(grid, values, strict=True)))


def size(tuning: Tuning, row: str) -> int:
    """How many candidates the row has."""
    return math.prod(map(len, tuning.grids.get(row, {}).values()))


def judged_by(tuning: Tuning) -> Column:
    """The criterion on validation rows."""
    metric = tuning.criterion.metric
    return replace(tuning.criterion, metric=on_validation(metric) or metric)


def kept_back(tuning: Tuning) -> Settings:
    """The rows that the criterion is of: each client's own, or the server's."""
    whose = "clients" if judged_by(tuning).metric.startswith(("client_", "personal_")) else "server"
    return (f"data.validation={{{whose}: {tuning.kept_back}}}",)


@dataclass(frozen=True)
class Scored:
    """What a candidate has reached."""

    candidate: Candidate
    score: float
    """The criterion, mean over the tuning's seeds; NaN if a trial failed or has not ended."""

    def place(self, high: bool) -> tuple[bool, float]:
        """Where it stands among others, the least first; one without a score comes last."""
        return math.isnan(self.score), -self.score if high else self.score


@dataclass(frozen=True)
class Edge:
    """A best value with nothing tried beyond it."""

    path: str
    value: float
    which: str
    """smallest or largest"""
    beyond: float
    """The value to be tried next: the grid goes on by the same factor."""

    def __str__(self) -> str:
        return f"{self.path} = {self.value:g} is the {self.which} tried"


@dataclass(frozen=True)
class Search:
    """All that has been tried for a row (in one column, or for all), with what came of it."""

    scored: tuple[Scored, ...]
    high: bool
    """Whether a high score is the better one."""

    @property
    def best(self) -> Scored:
        """The first of those that are best, and of all if none has a score."""
        return min(self.scored, key=lambda one: one.place(self.high))

    @property
    def edges(self) -> list[Edge]:
        """The axes on which the best setting has no neighbour on one side."""
        if math.isnan(self.best.score):
            return []
        found = [
            _edge(path, value, self._tried(path)) for path, value in self.best.candidate.values
        ]
        return [edge for edge in found if edge is not None]

    def _tried(self, path: str) -> list[Yaml]:
        return [dict(one.candidate.values)[path] for one in self.scored]

    def further(self, grid: Grid) -> list[Candidate]:
        """Candidates beyond the edges, with all that the ``grid`` has for the other axes."""
        at, known = self.best.candidate, {one.candidate.values for one in self.scored}
        found = [
            one
            for edge in self.edges
            for one in _product(at.row, at.column, {**grid, edge.path: (edge.beyond,)})
        ]
        return [one for one in dict.fromkeys(found) if one.values not in known]


def _edge(path: str, value: Yaml, tried: Sequence[Yaml]) -> Edge | None:
    """Whether ``value`` is the smallest or the largest of several numbers."""
    if any(isinstance(v, bool) or not isinstance(v, int | float) for v in tried):
        return None
    numbers = sorted({float(v) for v in tried if isinstance(v, int | float)})
    assert isinstance(value, int | float)
    if len(numbers) < 2 or value not in (numbers[0], numbers[-1]):
        return None
    # zero, or what is below it, is where an axis ends
    if value == numbers[0] and numbers[0] > 0:
        return Edge(path, float(value), "smallest", _beyond(value, numbers[0], numbers[1]))
    if value == numbers[-1] and numbers[-1] > 0:
        return Edge(path, float(value), "largest", _beyond(value, numbers[-1], numbers[-2]))
    return None


def _beyond(value: float, last: float, before: float) -> float:
    """The next number of a geometric series; whole where ``value`` is."""
    number = last * last / before if before > 0 else 2 * last
    return max(1, round(number)) if isinstance(value, int) else float(f"{number:.3g}")


@dataclass(frozen=True)
class Chosen:
    """What a row was left with."""

    row: str
    column: str
    """The column that it is for; empty: all."""
    settings: Settings
    score: float | None
    """Of the best; None if no trial has succeeded."""
    trials: int
    """Settings tried."""
    edges: tuple[str, ...]
    """Sentences: where nothing was tried beyond the best."""

    @classmethod
    def of(cls, search: Search) -> Chosen:
        """The best of a search."""
        best = search.best
        return cls(
            best.candidate.row, best.candidate.column, best.candidate.settings,
            None if math.isnan(best.score) else best.score, len(search.scored),
            tuple(map(str, search.edges)),
        )  # fmt: skip

    @property
    def place(self) -> str:
        """The row, and the column where it is for one."""
        return f"{self.row} ({self.column})" if self.column else self.row


@dataclass(frozen=True)
class Tuned:
    """The settings that each row was left with."""

    chosen: tuple[Chosen, ...] = ()

    def of(self, row: str, column: str) -> Settings:
        """The row's settings in a column; none for a row that was not tuned."""
        for one in self.chosen:
            if one.row == row and one.column in ("", column):
                return one.settings
        return ()

    def sentences(self, tuning: Tuning) -> list[str]:
        """How the rows were tuned, for those who read the table."""
        if not self.chosen:
            return []
        criterion, counts = judged_by(tuning), [one.trials for one in self.chosen]
        few, many = min(counts), max(counts)
        found = [
            f"tuned on validation rows by {criterion.metric} ({criterion.statistic}), on seeds of "
            f"their own ({', '.join(map(str, tuning.seeds))}), "
            f"{'each column for itself' if tuning.each_column else tuning.where}, with "
            f"{many if few == many else f'{few} to {many}'} settings a method",
            *[f"{c.place}: {', '.join(c.settings) or 'nothing to tune'}" for c in self.chosen],
        ]
        edges = [f"{one.place}: {edge}" for one in self.chosen for edge in one.edges]
        return found + [f"warning: on the edge of its grid: {edge}" for edge in edges]

    def write(self, folder: Path) -> None:
        """Leave them in ``folder``/tuned.json."""
        write_sealed(folder / FILE, [asdict(one) for one in self.chosen])

    @classmethod
    def read(cls, folder: Path) -> Tuned:
        """What ``write`` has left there; raises UserError if it is damaged."""
        return cls(tuple(read_sealed(folder / FILE, list[Chosen])))


def by_row(found: Mapping[Candidate, float], high: bool) -> list[Search]:
    """What was tried, for each row (and column) for itself; ``found``: candidate -> score."""
    groups: dict[tuple[str, str], list[Scored]] = {}
    for one, score in found.items():
        groups.setdefault((one.row, one.column), []).append(Scored(one, score))
    return [Search(tuple(scored), high) for scored in groups.values()]
