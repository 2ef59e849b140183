"""A sweep as a config: what varies, on which seeds, who schedules it, and what is looked at."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, ValidationError, model_validator

from algorithms.section import Section
from orchestrator.analysis.goals import goals_of
from orchestrator.config import Config
from orchestrator.config.parsing import parse
from orchestrator.config.paths import at, has
from orchestrator.config.reading import placed, read_whole, with_plugins
from orchestrator.config.sentences import sentence
from orchestrator.errors import UserError
from orchestrator.rounds.metrics import (
    TOTALS,
    is_budget,
    is_cost,
    is_of_its_own,
    more_is_better,
    on_test,
    on_validation,
)
from sweeps.asked import is_by_the_loss, require_metric
from sweeps.choice import Choice, Planned
from sweeps.entry import Column
from sweeps.spaces import (
    Axis,
    Yaml,
    as_settings,
    bounds_of,
    cells,
    mutations,
    problem,
    require_few,
    require_free,
    within,
)

if TYPE_CHECKING:
    from ray.tune.search.sample import Domain

    from sweeps.schedulers import Remembering


MOST_LOOKED_AT = 100
"""Configs of a sweep whose goals are looked at."""
KEPT_BACK = {"clients": 0.1}
"""``data.validation`` of a sweep that chooses by validation rows and does not say which."""
Setting = Annotated[str, Field(max_length=100_000)]
"""``key=value``, where the value may be a list with a number for each client."""


class Scheduler(Section):
    """Who ends trials early."""

    name: Literal["fifo", "asha", "median", "pbt"] = "fifo"
    grace: int = Field(1, ge=1, description="asha, median: rounds that every trial gets")
    reduction: float = Field(
        3.0, gt=1, description="asha: one in so many trials goes on at each rung"
    )
    interval: int = Field(5, ge=1, description="pbt: rounds between exploitations")

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, value: Yaml) -> Yaml:
        return {"name": value} if isinstance(value, str) else value

    def start(self, rounds: int, drawn: Mapping[str, Domain]) -> Remembering | None:
        """A scheduler for trials of ``rounds`` rounds, of which pbt may change the ``drawn`` axes;
        None for one after the other.
        """
        from sweeps.schedulers import ROUND, Halving, Median, Population

        if self.name == "asha":
            return Halving(
                time_attr=ROUND, max_t=max(rounds, self.grace), grace_period=self.grace,
                reduction_factor=self.reduction,
            )  # fmt: skip
        if self.name == "median":
            return Median(time_attr=ROUND, grace_period=self.grace)
        if self.name == "pbt":
            return Population(
                time_attr=ROUND, perturbation_interval=self.interval,
                hyperparam_mutations=mutations(drawn), require_attrs=False,
                custom_explore_fn=partial(within, bounds_of(drawn)),
            )  # fmt: skip
        return None


class Cell(Section):
    """Settings that belong together, under a name."""

    label: str
    settings: tuple[Setting, ...] = ()


class Sweep(Section):
    """What ``fedorch sweep FILE`` reads; ``fedorch sweep PAPER/TABLE`` makes one from an entry."""

    name: str = Field("sweep", pattern=r"^[\w][\w.-]*$", max_length=50)
    base: str | dict[str, Yaml] = Field(
        default_factory=dict, description="a config, or a path beside the sweep"
    )
    set: tuple[Setting, ...] = Field((), description="key=value for every trial")
    cells: tuple[Cell, ...] = Field(
        (), description="named groups of settings, crossed with the axes"
    )
    also: tuple[Setting, ...] = Field(
        (), description="what --set has changed: wins over all but the axes"
    )
    axes: dict[str, Axis] = Field(default_factory=dict, description="config key -> values")
    seeds: tuple[int, ...] = Field((0,), min_length=1)
    samples: int = Field(1, ge=1, description="draws of the random axes for each cell of the grid")
    metric: str = Field("validation_accuracy", description="what is compared")
    choose_on: Literal["validation", "test", "nothing"] = Field(
        "validation",
        description="data that the metric is of: validation; test, which tables then say, for who "
        "chooses on it has nothing left to judge by; or nothing is chosen (a plain comparison)",
    )
    mode: Literal["max", "min", "auto"] = Field(
        "auto",
        description="what is best; auto: as evaluation.metrics says of the metric, else min of "
        "losses and their like and of what runs spend, and max of all others",
    )
    statistic: Literal["last", "best", "tail"] = "last"
    tail: int = Field(1, ge=1, description="values averaged by statistic tail")
    scheduler: Scheduler = Scheduler()
    searcher: Literal["random", "optuna"] = Field("random", description="who draws the random axes")
    retries: int = Field(1, ge=0, description="new starts of a trial whose process died")
    report_every: int | None = Field(
        None,
        ge=1,
        description="rounds between reports to Tune; unset: under fifo every two seconds, else "
        "every round",
    )
    checkpoint_every: int = Field(5, ge=1, description="reports between checkpoints")
    at_once: int | None = Field(None, ge=1, description="most trials that run at the same time")
    loggers: tuple[Literal["tensorboard", "mlflow", "wandb"], ...] = ("tensorboard",)

    @model_validator(mode="before")
    @classmethod
    def _seed_of_the_base(cls, given: Yaml) -> Yaml:
        """A base with a seed is meant on that seed, not on seed 0."""
        base = given.get("base") if isinstance(given, dict) else None
        seed = base.get("seed") if isinstance(base, dict) else None
        if isinstance(given, dict) and isinstance(seed, int) and "seeds" not in given:
            return {**given, "seeds": (seed,)}
        return given

    @model_validator(mode="after")
    def _fits_together(self) -> Sweep:
        for require in (
            self._require_few,
            self._require_distinct,
            self._require_settings,
            self._require_searchable,
            self._require_schedulable,
            self._require_draws,
            self._require_choice,
        ):
            require()
        return self

    def _require_few(self) -> None:
        grid = 1 if self.searcher == "optuna" else len(cells(self.axes))
        many = grid * max(1, len(self.cells)) * len(self.seeds) * self.samples
        require_few(many, "with all cells, seeds and samples there are")

    def _require_distinct(self) -> None:
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("seeds: a seed is there twice")
        if len({cell.label for cell in self.cells}) < len(self.cells):
            raise ValueError("cells: two of them have the same label")

    def _require_settings(self) -> None:
        require_free((*self.set, *self.also, *(s for cell in self.cells for s in cell.settings)))
        if wrong := problem(self.axes):
            raise ValueError(wrong)
        require_free(f"{key}=" for key in self.axes)

    def _require_searchable(self) -> None:
        # it compares trials by one number each, in a space that has the same axes everywhere
        conditional = any(axis.when for axis in self.axes.values())
        if self.searcher == "optuna" and (len(self.seeds) > 1 or conditional):
            raise ValueError(
                "optuna chooses each trial by the last ones: give it one seed and unconditional "
                "axes"
            )
        if self.searcher == "optuna" and len(self.cells) > 1:
            raise ValueError(
                f"cells: optuna searches in one of them, and there are {len(self.cells)}; give "
                "each a sweep of its own, or make them an axis"
            )

    def _require_schedulable(self) -> None:
        if self.scheduler.name != "fifo" and is_cost(self.metric):
            raise ValueError(
                f"metric: {self.metric} grows as a trial goes on, and {self.scheduler.name} would "
                "keep those that have done least; take another metric, or no scheduler"
            )
        if self.scheduler.name == "pbt" and self._all_on_the_grid:
            raise ValueError("pbt changes drawn axes, and this sweep has none")
        if self.scheduler.name == "pbt" and (len(self.seeds) > 1 or len(self.cells) > 1):
            raise ValueError(
                "pbt has trials take over from one another, whatever seed or cell they are of: "
                "give it one of each"
            )
        if self.scheduler.name == "pbt" and (grid := self._grids):
            raise ValueError(
                f"axes: pbt has trials take over from one another, whatever value of the grid they "
                f"are of; let {grid[0]} be drawn (choice), or give it one value"
            )
        if self.scheduler.name == "pbt" and (fixed := self._drawn_states):
            raise ValueError(
                f"axes: pbt has trials take over the state of others, which is of their data and "
                f"model, and {fixed[0]} is drawn: give it a value, or take another scheduler"
            )

    def _require_draws(self) -> None:
        if self.samples > 1 and self.searcher != "optuna" and self._all_on_the_grid:
            raise ValueError(
                "samples: there are no random axes to draw from, so they would all be the same "
                "trial"
            )

    def _require_choice(self) -> None:
        other = on_validation(self.metric)
        if self.choose_on == "validation" and other is not None:
            raise ValueError(
                f"metric: {self.metric} is of test data, on which nothing is to be chosen; take "
                f"{other}, or say choose_on: test (tables say so, too), or choose_on: nothing for "
                "a comparison without a choice"
            )
        if self.choose_on == "test" and other is None:
            raise ValueError(f"choose_on: test, but metric {self.metric} is not of test data")
        chooses = self.scheduler.name != "fifo" or self.searcher != "random"
        if self.choose_on == "nothing" and chooses:
            who = self.searcher if self.searcher != "random" else self.scheduler.name
            raise ValueError(f"choose_on: nothing, but {who} chooses by the metric")

    def _require_one_loss(self) -> None:
        """Of sweeps that are to be run: those that have been are read."""
        settings = (*self.axes, *(s for cell in self.cells for s in cell.settings))
        varies = any(re.match(r"loss\b", one) for one in settings)
        if varies and self.choose_on != "nothing" and is_by_the_loss(self.metric):
            raise UserError(
                f"metric: {self.metric}, and trials have losses of their own, by which it is "
                "another number in each; choose by a metric that is one for all "
                "(validation_accuracy, or of numbers validation_rmse)"
            )

    @property
    def _grids(self) -> list[str]:
        """Axes of several values, each of which is tried."""
        return [path for path, axis in self.axes.items() if len(axis.grid or ()) > 1]

    @property
    def _drawn_states(self) -> list[str]:
        """Drawn axes that say what a run's state is of."""
        drawn = (path for path, axis in self.axes.items() if axis.grid is None)
        return [path for path in drawn if re.match(r"(data|model)\b|algorithm$", path)]

    @property
    def _all_on_the_grid(self) -> bool:
        return all(axis.grid is not None for axis in self.axes.values())

    @property
    def direction(self) -> Literal["max", "min"]:
        """``mode``, settled; raises UserError if the first of the configs is none."""
        if self.mode != "auto":
            return self.mode
        declared = next(self.configs()).evaluation.metrics
        if is_of_its_own(self.metric, declared):
            raise UserError(
                f"metric: {self.metric} is a loss that each trial weighs in its own way, of which "
                "the least need not be the best; take another metric, or say mode: min"
            )
        more = more_is_better(self.metric, declared)
        if more is None:
            raise UserError(
                f"metric: nobody has said which way {self.metric} is better; say mode: max or min "
                "(fedorch describe columns lists what runs report)"
            )
        return "max" if more else "min"

    @property
    def chooses(self) -> bool:
        """Whether one of its settings is the best: not where it only compares, nor where a goal
        ends trials, whose models then say how far each overshot it.
        """
        if self.choose_on == "nothing" or is_budget(self.metric):
            return self.choose_on != "nothing"
        return not any(map(goals_of, itertools.islice(self.configs(), MOST_LOOKED_AT)))

    @property
    def column(self) -> Column:
        """The compared metric as a table's column."""
        better: Literal["high", "low"] = "high" if self.direction == "max" else "low"
        statistic = "sum" if self._adds_up else self.statistic
        return Column(self.metric, statistic=statistic, tail=self.tail, better=better, digits=4)

    @property
    def _adds_up(self) -> bool:
        """Whether a trial's number is what all its rounds have spent."""
        return self.metric in TOTALS and self.statistic == "last"

    @property
    def how(self) -> str:
        """Of which rounds a trial's number is: in tables, in the status, where one is chosen."""
        if self._adds_up:
            return "all rounds"
        if self.statistic == "tail":
            return f"mean of the last {self.tail} values"
        return f"{self.statistic} round"

    def changed(self, settings: Sequence[str], at_once: int | None) -> Sweep:
        """This sweep with further settings and a limit on trials at the same time, and with its
        mode settled; raises UserError for a seed.
        """
        try:
            require_free(settings)
        except ValueError as error:
            raise UserError(f"--set {error}") from error
        also, most = (*self.also, *settings), at_once or self.at_once
        changed = self.model_copy(update={"also": also, "at_once": most})
        return changed.model_copy(update={"mode": changed.direction})

    @property
    def rounds_a_report(self) -> int:
        """``report_every``, settled; 0: by the clock, which only a scheduler that looks at no
        reports allows.
        """
        return self.report_every or (0 if self.scheduler.name == "fifo" else 1)

    def raw(self) -> dict[str, Yaml]:
        """The base config as a mapping; one whose metric, or goal, is of validation rows has such
        rows.
        """
        base = dict(self.base) if isinstance(self.base, dict) else {}
        if not self._asks_validation(base) or self._says_validation(base):
            return base
        data = base.get("data")
        if data is None or isinstance(data, dict):
            base["data"] = {**(data or {}), "validation": KEPT_BACK}
        return base

    def _asks_validation(self, base: Mapping[str, Yaml]) -> bool:
        stop = base.get("stop")
        asked = [self.metric, *(stop if isinstance(stop, dict) else ())]
        # as stop={validation_loss: "<= 1"} or stop.validation_loss=...
        asked += [name for one in self._said for name in re.findall(r"^stop\b\W*(\w+)", one)]
        return any(on_test(name) is not None for name in asked)

    def _says_validation(self, base: Mapping[str, Yaml]) -> bool:
        """Whether the base says which rows are kept back; that of a finished run says of none, too,
        and has the word only where nothing else does.
        """
        if not has(base, "data.validation"):
            return False
        kept = at(base, "data.validation")
        some = not isinstance(kept, dict) or any(kept.values())
        return some or any(re.match(r"data(\.validation\b|=)", one) for one in self._said)

    @property
    def _said(self) -> tuple[str, ...]:
        """All settings, and names of axes."""
        of_cells = (one for cell in self.cells for one in cell.settings)
        return tuple(one.strip() for one in (*self.set, *self.also, *self.axes, *of_cells))

    def planned(self) -> list[Planned]:
        """The cells of the grid, each on its seeds; under optuna there is one, which draws all
        axes.
        """
        grid = [{}] if self.searcher == "optuna" else cells(self.axes)
        groups = self.cells or (Cell(label=""),)
        return [
            self._planned(group, as_settings(cell), seed)
            for group, cell, seed in itertools.product(groups, grid, self.seeds)
        ]

    @property
    def trials(self) -> int:
        """How many there are in all."""
        return len(self.planned()) * self.samples

    def _planned(self, group: Cell, cell: list[str], seed: int) -> Planned:
        label = ", ".join(filter(None, [group.label, *cell])) or self.name
        return Planned(label, (*self.set, *group.settings, *self.also, *cell), seed)

    def drawn(self) -> dict[str, Domain]:
        """Random axes as Tune's domains; under optuna the grid's, too."""
        from ray import tune

        domains = {path: axis.domain() for path, axis in self.axes.items()}
        found = {path: domain for path, domain in domains.items() if domain is not None}
        if self.searcher == "optuna":
            # after the others: the order is that in which a seed's numbers are drawn
            found |= {
                path: tune.choice(list(axis.grid))
                for path, axis in self.axes.items()
                if axis.grid is not None
            }
        return found

    def configs(self) -> Iterator[Config]:
        """Configs that stand for all trials: every cell of the grid, and of ranges the ends and a
        number between; raises UserError.
        """
        self._require_one_loss()
        base, planned = self.raw(), self.planned()
        for one in planned:
            yield self._checked(Choice(one).config(base))
        for path in self.drawn():
            axis = self.axes[path]
            between = [low + (high - low) / math.pi for low, high in filter(None, [axis.range])]
            for value in (*axis.some(), *between):
                yield self._checked(Choice(planned[0], {path: value}).config(base))

    def _checked(self, config: Config) -> Config:
        """The config; raises UserError if its rounds end by test data, where nothing is to be
        chosen on them, if it names trackers of its own, or could not report the metric.
        """
        if config.track != Config.model_fields["track"].default:
            raise UserError("track: trials are passed on by the sweep's loggers; name them there")
        of_test = [name for name in config.stop if on_validation(name) is not None]
        if self.choose_on == "validation" and of_test:
            raise UserError(
                f"stop: a run that ends by {of_test[0]} is chosen on test data; take "
                f"{on_validation(of_test[0])}, or say choose_on: test (or nothing)"
            )
        require_metric(self.metric, config)
        return config


def place_settings(raw: dict[str, Yaml], folder: Path) -> None:
    """Make paths from the file's ``folder`` of those that begin with ./ in key=value settings."""
    cells = raw.get("cells")
    groups = [raw, *(cells if isinstance(cells, list) else [])]
    for group, key in zip(groups, ["set", *["settings"] * len(groups)], strict=False):
        if isinstance(group, dict) and isinstance(settings := group.get(key), list):
            group[key] = [_placed(one, folder) for one in settings]


def _placed(setting: Yaml, folder: Path) -> Yaml:
    key, equals, text = setting.partition("=") if isinstance(setting, str) else ("", "", "")
    if not equals or "./" not in text:
        return setting
    value = parse(text, f"{key}: the value")
    return as_settings({key: placed(value, folder)})[0]


def read_sweep(path: Path, called: str = "") -> Sweep:
    """A sweep from YAML; raises UserError with one sentence that names it, as ``called`` or by its
    path.
    """
    raw = read_whole(path, "sweep")
    if isinstance(raw.get("base"), dict):
        # trials find plugins by what is in them, wherever they run
        raw["base"] = with_plugins(raw["base"])
    place_settings(raw, path.parent)
    try:
        return Sweep.model_validate(raw)
    except ValidationError as error:
        raise UserError(sentence(error, raw, Sweep, called or str(path))) from error
