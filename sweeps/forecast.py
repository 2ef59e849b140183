"""What a sweep will take on this machine, before it is run: one trial of each kind is timed for a
round or two.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from orchestrator.clients.plane import InProcess
from orchestrator.config import Config
from orchestrator.config.goal import Goal
from orchestrator.errors import Diverged
from orchestrator.rounds.experiment import Experiment
from orchestrator.rounds.metrics import Record
from sweeps.choice import Choice
from sweeps.data import Shelf
from sweeps.plan import Sweep
from sweeps.spaces import Yaml

TIMED = 2
"""Rounds that a trial is timed for, of which the last counts: the first prepares what others use.
"""


RATED = ("algorithm", "local", "server_optimizer")
"""Sections whose fractions are learning rates and their like, and no shares of anything."""


@dataclass(frozen=True)
class Kind:
    """Trials that differ in rates and seeds at most, and so take as long as one another."""

    label: str
    """Of the first of them."""
    first: Config
    trials: int


@dataclass(frozen=True)
class Timed:
    """What a kind takes."""

    kind: Kind
    rounds: int
    """That a trial of it has, up to its limits of steps and epochs."""
    round_seconds: float

    @property
    def seconds(self) -> float:
        """Of all of its trials, one after another, if none reaches a goal before."""
        return self.kind.trials * self.rounds * self.round_seconds


def begun_with(plans: Sequence[Sweep]) -> Shelf:
    """A shelf with the first trial's data; raises UserError at once where they are not here."""
    plan, shelf = plans[0], Shelf({})
    shelf.data(Choice(plan.planned()[0], _draws(plan)[0][0]).config(plan.raw()))
    return shelf


def kinds(plans: Sequence[Sweep]) -> list[Kind]:
    """The trials of ``plans`` by kind; raises UserError for settings that are no config."""
    found: dict[str, Kind] = {}
    for plan in plans:
        base, shares = plan.raw(), _draws(plan)
        for planned in plan.planned():
            for drawn, trials in shares:
                choice = Choice(planned, drawn)
                config = choice.config(base)
                key = _key(config)
                known = found.get(key, Kind(choice.setting, config, 0))
                found[key] = replace(known, trials=known.trials + trials)
    return list(found.values())


def _draws(plan: Sweep) -> list[tuple[dict[str, Yaml], int]]:
    """What stands for the draws of the random axes (all choices, the ends of ranges), and for how
    many of them each.
    """
    values = {path: plan.axes[path].some() for path in plan.drawn()}
    different = min(plan.samples, max(map(len, values.values()), default=1))
    return [
        (
            {path: some[i % len(some)] for path, some in values.items()},
            len(range(i, plan.samples, different)),
        )
        for i in range(different)
    ]


def _key(config: Config) -> str:
    """All that decides how long a round takes: everything but rates."""
    told = config.model_dump(mode="json", exclude={"name", "seed"})
    return json.dumps(told | {name: _without_rates(told[name]) for name in RATED}, sort_keys=True)


def _without_rates(value: Yaml) -> Yaml:
    """Without fractions, which are rates in the sections ``RATED``."""
    if isinstance(value, dict):
        return {key: _without_rates(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_without_rates(one) for one in value]
    return None if isinstance(value, float) else value


def forecast(found: Sequence[Kind], shelf: Shelf | None = None) -> Iterator[Timed]:
    """Time one trial of each kind, in this process, on data of the ``shelf`` where it has them;
    raises UserError for data that are not here.
    """
    shelf = shelf or Shelf({})
    for kind in found:
        yield _timed(kind, shelf)


def _timed(kind: Kind, shelf: Shelf) -> Timed:
    config = kind.first
    experiment = Experiment(config, InProcess, shelf.data(config))
    begun = time.perf_counter()
    # at a rate at which it cannot go on it has taken its time, too
    with contextlib.closing(experiment), contextlib.suppress(Diverged):
        for _ in range(min(TIMED, config.rounds)):
            begun = time.perf_counter()
            experiment.step()
    return Timed(kind, _rounds(config, experiment.records), time.perf_counter() - begun)


def _rounds(config: Config, records: Sequence[Record]) -> int:
    """How many there will be, if what adds up (steps_total ...) goes on as in ``records``."""
    last = records[-1] if records else {}
    limits = {metric: Goal.read(goal).limit for metric, goal in config.stop.items()}
    ends = [
        math.ceil(len(records) * limit / last[metric])
        for metric, limit in limits.items()
        if metric.endswith("_total") and last.get(metric)
    ]
    return min([config.rounds, *ends])
