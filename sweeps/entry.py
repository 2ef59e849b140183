"""A table or figure of a paper as data: what is run, what each cell shows, what the paper says
there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from sweeps.apart import differing, leaves, under
from sweeps.spaces import Yaml

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from orchestrator.results.run_folder import RunFolder

Settings = tuple[str, ...]
"""Config keys as ``--set`` takes them: ``local.lr=0.1``; later ones win."""
Values = Mapping[tuple[str, str], Mapping[int, float]]
"""(row, column) -> seed -> measured value; NaN where a target was not reached."""
Diverged = Mapping[tuple[str, str], Collection[int]]
"""(row, column) -> the seeds whose run ended with a model, or a loss, that is NaN or infinite."""
Grid = Mapping[str, tuple[Yaml, ...]]
"""Config key -> values."""


Statistic = Literal[
    "last", "best", "tail", "sum",
    "rounds_to", "steps_to", "gigabytes_to", "seconds_to", "cost_to",
]  # fmt: skip
Kind = Literal["", "curves", "axis", "scatter", "clouds"]
Drawing = Callable[[Mapping[str, "Sequence[RunFolder]"]], "tuple[Figure, pd.DataFrame]"]
"""Row -> its runs, one a seed -> a picture and its data."""


@dataclass(frozen=True)
class Column:
    """What a column (or a figure's panel, or a point on its axis) shows of a run."""

    metric: str = "test_accuracy"
    """Column of a run's rounds.parquet."""
    settings: Settings = ()
    """How the runs of this column differ from those of others; columns with equal settings share
    their runs."""
    statistic: Statistic = "last"
    """Of the metric over rounds: its last value, its best, the mean of the last ``tail`` values,
    the sum; or what it took until the metric reached ``target``."""
    tail: int = 1
    target: float | None = None
    falling: bool = False
    """Whether the metric falls to its target (a loss)."""
    scale: float = 1.0
    """The value is multiplied by this (100: percent)."""
    better: Literal["high", "low"] = "high"
    """Which values of the cell are better."""
    digits: int = 2
    cost: Callable[[float, float], float] | None = None
    """For ``cost_to``: what steps and bytes cost together."""
    panel: str = ""
    """Title of the panel of an ``axis`` figure that its point is in, empty: the figure's own; or
    the setting of a rule that it is the cost of."""
    x: float | str | None = None
    """Where on the panel's axis the point is: at a number, or in turn under a word; None: under
    the column's name."""
    group: str = ""
    """What its runs have in common with those of other columns, which budgets take or leave
    together: a split of the data, a network, a stand-in."""

    @property
    def shows(self) -> str:
        """What its cells are, in words."""
        if self.target is not None:
            spent = self.statistic.removesuffix("_to")
            way = "down to" if self.falling else "up to"
            words = f"{spent} until {self.metric} is {way} {self.target:g}"
        else:
            last = "1 value" if self.tail == 1 else f"{self.tail} values"
            how = {"tail": f"mean of the last {last}", "sum": "summed"}
            words = f"{self.metric}, {how.get(self.statistic, self.statistic)}"
        units = {1.0: "", 100.0: ", in percent"}
        return words + units.get(self.scale, f", times {self.scale:.3g}")

    @property
    def mode(self) -> Literal["max", "min"]:
        """Which way the metric itself is better: the cost of reaching a target is low where the
        metric is high.
        """
        if self.statistic.endswith("_to"):
            return "min" if self.falling else "max"
        return "max" if self.better == "high" else "min"


@dataclass(frozen=True)
class Published:
    """A number of the paper."""

    value: float | None
    """None: the paper marks the cell (failed, not run)."""
    spread: float | None = None
    """What the paper gives after ±, or in parentheses."""
    note: str = ""
    exists: bool = True
    """Whether the method has such a number at all."""


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper of the form "A is better than B"."""

    text: str
    better: str
    """Row that is said to be ahead."""
    worse: tuple[str, ...]
    columns: tuple[str, ...] = ()
    """Columns that it is said of; empty: all."""


@dataclass(frozen=True)
class Budget:
    """How much of the paper's work is done."""

    settings: Settings = ()
    seeds: tuple[int, ...] = (0,)
    rows: tuple[str, ...] = ()
    """Rows that are run; empty: all."""
    columns: tuple[str, ...] = ()
    reduced: str = ""
    """What was reduced, for the reader; empty: nothing."""


@dataclass(frozen=True)
class Tuning:
    """The first of two stages: each row's best setting by one criterion, on seeds that are not used
    again, and on rows that are kept back for it (``data.validation``).
    """

    grids: Mapping[str, Grid]
    """Row -> its grid. Every row must have as many combinations, so that no method is tuned
    harder."""
    criterion: Column
    """What is to be best; a metric of test rows is taken of validation rows instead."""
    seeds: tuple[int, ...] = (1000,)
    settings: Settings = ()
    """What is different from the final runs (fewer rounds)."""
    each_column: bool = False
    """Whether each column's problem gets settings of its own; else all have those that are best
    where the criterion is."""
    where: str = "for all columns"
    """Where the criterion is, in words; for those who read the table."""
    kept_back: float = 0.1
    """Part of the training rows that the criterion is of."""


@dataclass(frozen=True)
class Rule:
    """A rule of thumb y = c x: the line through the origin and the points of the cheapest rows.

    It looks at the columns whose ``panel`` is a setting and whose ``group`` is a network; they
    show costs.
    """

    factors: Mapping[str, float]
    """Row -> y/x."""
    sizes: Mapping[str, float]
    """Network -> x."""
    published: Mapping[str, float]
    """Setting -> the paper's c."""


@dataclass(frozen=True)
class Entry:
    """One table or figure."""

    id: str
    """``paper/table1``."""
    title: str
    rows: Mapping[str, Settings]
    """Methods (or a figure's curves) and how their configs differ."""
    columns: Mapping[str, Column]
    base: Settings
    """Settings of all runs at the paper's own scale."""
    budgets: Mapping[str, Budget]
    """``smoke`` (seconds), ``reduced`` (minutes to an hour on two cores), ``full`` (the
    paper's)."""
    published: Mapping[tuple[str, str], Published] = field(default_factory=dict)
    """(row, column) -> number."""
    claims: tuple[Claim, ...] = ()
    figure: Kind = ""
    """A table; or curves of the columns' metrics over rounds; or rows' cells over the columns as an
    axis; or one column against the other; or the same with a panel for each pair of columns and the
    density of each strategy's runs."""
    rule: Rule | None = None
    """A figure of this rule's points and lines instead."""
    drawn: Drawing | None = None
    """A figure of what its runs have left instead."""
    over: str = "round"
    """What curves are drawn over: a column of rounds.parquet."""
    along: str = ""
    """What the numbers ``x`` of the columns are (K, Θ), to be written under an axis."""
    strategies: Mapping[str, str] = field(default_factory=dict)
    """Row -> the strategy whose cloud its run is part of; a row that is not there is its own."""
    logarithmic: bool = False
    """Whether a figure's values span orders of magnitude."""
    tuning: Tuning | None = None
    unavailable: str = ""
    """Why the paper's own data or models cannot be had, where that is so; ``reduced`` then says
    what stands in."""

    @cached_property
    def apart(self) -> frozenset[str]:
        """The keys by which rows, or columns, are told apart; a part's name by the part's key."""
        columns = [column.settings for column in self.columns.values()]
        return differing(self.rows.values()) | differing(columns)

    def alike_without(self, key: str) -> bool:
        """Whether rows, or columns, that differ would be one if all said the same of ``key``."""
        columns = [column.settings for column in self.columns.values()]
        return any(
            len({_without(one, key) for one in groups}) < len({_without(one, "") for one in groups})
            for groups in (self.rows.values(), columns)
        )

    @property
    def picture(self) -> Kind | Literal["rule", "runs"]:
        """What is drawn of it; empty for a table."""
        if self.drawn is not None:
            return "runs"
        return "rule" if self.rule is not None else self.figure

    def cost_of(self, setting: str, network: str) -> str:
        """The column that a rule looks at for a setting and a network."""
        return next(n for n, c in self.columns.items() if (c.panel, c.group) == (setting, network))


def _without(settings: Settings, key: str) -> frozenset[tuple[str, str]]:
    """What settings say beside ``key``."""
    return frozenset(said for said in leaves(settings) if not under(key, [said[0]]))
