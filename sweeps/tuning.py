"""The first of two stages: what each row of an entry is tried with, and what it is left with."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from orchestrator.analysis.paired import is_tied
from orchestrator.files import read_sealed, write_sealed
from orchestrator.rounds.metrics import on_validation
from sweeps.entry import Column, Grid, Settings, Tuning
from sweeps.spaces import Yaml, as_settings, numbers_of

FILE = "tuned.json"
EXTENSIONS = 6
"""How often the neighbours of the best settings are tried that are not in the grids."""


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
        where = f" @ {self.column}" if self.column else ""
        return f"{self.row} / {', '.join(self.settings)}{where}"


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
class Neighbour:
    """What lies next to the best setting on one axis, with all others as they are."""

    path: str
    at: float
    """The best value."""
    value: float
    """The next one: of the grid, or beyond its end, by the factor of its last step."""
    candidate: Candidate

    def __str__(self) -> str:
        side = "above" if self.value > self.at else "below"
        return f"{self.path} = {self.at:g}, with nothing tried {side}"


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
    def edges(self) -> list[Neighbour]:
        """The neighbours of the best setting that have not been tried: it may not be the best
        there is.
        """
        if math.isnan(self.best.score):
            return []
        known = {one.candidate.values for one in self.scored}
        found = [one for path, _ in self.best.candidate.values for one in self._beside(path)]
        return [one for one in found if one.candidate.values not in known]

    def numbers(self, path: str) -> list[int | float]:
        """All that was tried on an axis of numbers, ascending; nothing on any other."""
        return numbers_of([dict(one.candidate.values)[path] for one in self.scored])

    def _beside(self, path: str) -> list[Neighbour]:
        """The best setting's neighbours on an axis of numbers."""
        best = self.best.candidate
        numbers, at = self.numbers(path), dict(best.values)[path]
        if len(numbers) < 2:
            return []
        assert isinstance(at, int | float)
        place = numbers.index(at)
        below = numbers[place - 1] if place else _beyond(numbers[0], numbers[1])
        last = place == len(numbers) - 1
        above = _beyond(numbers[-1], numbers[-2]) if last else numbers[place + 1]
        return [
            Neighbour(path, at, value, _moved(best, path, value))
            for value in (below, above)
            if value is not None
        ]


def _moved(one: Candidate, path: str, value: float) -> Candidate:
    """The same with another value on one axis."""
    values = tuple((key, value if key == path else old) for key, old in one.values)
    return replace(one, values=values)


def _beyond(last: float, before: float) -> float | None:
    """The next number of a geometric series, whole where ``last`` is; None beyond zero, where an
    axis ends.
    """
    if last <= 0:
        return None
    number = last * last / before if before > 0 else 2 * last
    if not isinstance(last, int):
        return float(f"{number:.3g}")
    return round(number) if number >= 1 else None


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
    between: tuple[str, ...]
    """The ends of each axis of numbers, in words."""
    edges: tuple[str, ...]
    """Sentences: where nothing was tried beside the best."""
    failed: int = 0
    """Settings among them that have no score: a run of theirs failed, or has no number."""
    tied: int = 1
    """Settings that are as good as the best, which is the first of them."""

    @classmethod
    def of(cls, search: Search) -> Chosen:
        """The best of a search."""
        best, scores = search.best, [one.score for one in search.scored]
        return cls(
            best.candidate.row, best.candidate.column, best.candidate.settings,
            None if math.isnan(best.score) else best.score, len(search.scored),
            tuple(_between(search)), tuple(map(str, search.edges)),
            sum(map(math.isnan, scores)), sum(is_tied(one, best.score) for one in scores),
        )  # fmt: skip

    @property
    def place(self) -> str:
        """The row, and the column where it is for one."""
        return f"{self.row} ({self.column})" if self.column else self.row


def _between(search: Search) -> Iterator[str]:
    """The ends of each axis of numbers."""
    for path, _ in search.best.candidate.values:
        if numbers := search.numbers(path):
            yield f"{path} {numbers[0]:g} to {numbers[-1]:g}"


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
        criterion = judged_by(tuning)
        told = (
            f"tuned on validation rows by {criterion.metric} ({criterion.statistic}), on seeds of "
            f"their own ({', '.join(map(str, tuning.seeds))}), "
            f"{'each column for itself' if tuning.each_column else tuning.where}"
        )
        edges = [f"{one.place}: {edge}" for one in self.chosen for edge in one.edges]
        return [
            told,
            *map(_said, self.chosen),
            *[f"warning: the best is on an edge of its grid: {edge}" for edge in edges],
        ]

    def write(self, folder: Path) -> None:
        """Leave them in ``folder``/tuned.json."""
        write_sealed(folder / FILE, [asdict(one) for one in self.chosen])

    @classmethod
    def read(cls, folder: Path) -> Tuned:
        """What ``write`` has left there; raises UserError if it is damaged."""
        return cls(tuple(read_sealed(folder / FILE, list[Chosen])))


def _said(one: Chosen) -> str:
    """What a row was left with, of how many settings."""
    if not one.settings:
        return f"{one.place}: nothing to tune"
    many = f"{one.trials} settings"
    if one.score is None:
        return f"{one.place}: {', '.join(one.settings)}, not tuned: none of {many} has a number"
    many += f", {one.failed} without a number" if one.failed else ""
    many += f", the first of {one.tied} that are tied" if one.tied > 1 else ""
    among = "; ".join([many, *one.between])
    return f"{one.place}: {', '.join(one.settings)} ({among})"


def by_row(found: Mapping[Candidate, float], high: bool) -> list[Search]:
    """What was tried, for each row (and column) for itself; ``found``: candidate -> score."""
    groups: dict[tuple[str, str], list[Scored]] = {}
    for one, score in found.items():
        groups.setdefault((one.row, one.column), []).append(Scored(one, score))
    return [Search(tuple(scored), high) for scored in groups.values()]
