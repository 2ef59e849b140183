"""What runs were to reach (``stop``), what they have spent until then, and when that says nothing:
what one did and sent until its last round is no cost of a goal that it has not reached.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from orchestrator.config import Config
from orchestrator.config.goal import Goal, sound, steps_of
from orchestrator.rounds.metrics import is_budget, more_is_better

ALIKE = 1.1
"""Ratio up to which runs were looked at as often."""


def ends_of(config: Config) -> dict[str, Goal]:
    """All that may end a run before its last round."""
    return {name: Goal.read(goal) for name, goal in config.stop.items()}


def goals_of(config: Config) -> dict[str, Goal]:
    """What a run was to reach: neither how much it may spend, nor how bad it may become; nor,
    beside others, what nobody can say of whether it is good.
    """
    gives_up, declared = limits_of(config), config.evaluation.metrics
    found = {
        name: goal
        for name, goal in ends_of(config).items()
        if not is_budget(name) and name not in gives_up
    }
    good = {n: goal for n, goal in found.items() if more_is_better(n, declared) is not None}
    return good or found


def limits_of(config: Config) -> dict[str, Goal]:
    """What a run was given up at: goals on the worse side of a metric."""
    declared = config.evaluation.metrics
    return {
        name: goal
        for name, goal in ends_of(config).items()
        if not is_budget(name) and more_is_better(name, declared) is goal.falling
    }


def met(goals: Iterable[tuple[str, Goal]], rounds: pd.DataFrame) -> list[str]:
    """The metrics whose goals a run's last round meets."""
    return [
        name
        for name, goal in goals
        if name in rounds and len(rounds) and goal.met(float(sound(rounds, name).iloc[-1]))
    ]


def gave_up(config: Config, rounds: pd.DataFrame) -> bool:
    """Whether a run ended because it had become too bad."""
    return bool(met(limits_of(config).items(), rounds))


def missed(config: Config, rounds: pd.DataFrame) -> bool:
    """Whether a run was to reach a goal, and has reached none; or was given up."""
    goals = goals_of(config)
    return gave_up(config, rounds) or (bool(goals) and not met(goals.items(), rounds))


@dataclass(frozen=True)
class Spent:
    """What a run has spent until its end."""

    value: float
    missed: bool
    """Whether it has not reached its goal by then."""


def is_cut_short(one: Mapping[int, Spent], other: Mapping[int, Spent]) -> bool:
    """Whether on some seed one run has missed its goal after less than the other took to reach it:
    nobody knows what it would have taken.
    """
    pairs = [(one[seed], other[seed]) for seed in one.keys() & other.keys()]
    return any(
        (a.missed and not b.missed and a.value < b.value)
        or (b.missed and not a.missed and b.value < a.value)
        for a, b in pairs
    )


def looks_said(groups: Mapping[str, Sequence[pd.DataFrame]], metric: str) -> str:
    """How often the runs of each group (their rounds) were looked at, where that is not the same;
    or "".
    """
    if not all(metric in one for some in groups.values() for one in some):
        return ""
    means = {
        name: float(np.mean([_local_steps_a_look(one, metric) for one in some]))
        for name, some in groups.items()
        if some
    }
    if not means or max(means.values()) <= ALIKE * min(means.values()):
        return ""
    shown = ", ".join(f"{mean:.3g} in {name}" for name, mean in means.items())
    return (
        f"looked at every so many local steps: {shown}; who is looked at more often is seen to "
        "reach it earlier"
    )


def _local_steps_a_look(rounds: pd.DataFrame, metric: str) -> float:
    """Local steps from one number of the metric to the next, in the mean."""
    return steps_of(rounds) / max(1, int(rounds[metric].notna().sum()))
