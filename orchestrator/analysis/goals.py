"""What runs were to reach (``stop``), what they have spent until then, and when that says nothing:
what one did and sent until its last round is no cost of a goal that it has not reached.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pandas as pd

from orchestrator.config import Config
from orchestrator.config.goal import Goal, sound, steps_of, up_to
from orchestrator.rounds.metrics import is_budget, more_is_better

Looked: TypeAlias = "tuple[Config, pd.DataFrame]"
"""A run, and its rounds."""
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


def sought(config: Config, rounds: pd.DataFrame) -> dict[str, Goal]:
    """Of :func:`goals_of` a run those whose metrics it has looked at."""
    return {name: goal for name, goal in goals_of(config).items() if name in rounds}


def is_blind(config: Config, rounds: pd.DataFrame) -> bool:
    """Whether a run was to reach a goal, and has never looked for it."""
    return bool(goals_of(config)) and not sought(config, rounds)


def missed(config: Config, rounds: pd.DataFrame) -> bool:
    """Whether a run was to reach a goal, and has looked for it, and reached none; or was given
    up.
    """
    goals = sought(config, rounds)
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


def looks_said(groups: Mapping[str, Sequence[Looked]], metric: str) -> str:
    """How often the runs of each group were looked at, where that is not the same; or ""."""
    if not all(metric in rounds for some in groups.values() for _, rounds in some):
        return ""
    each = {
        name: [local_steps_a_look(*one, metric) for one in some] for name, some in groups.items()
    }
    known = {name: [one for one in some if one is not None] for name, some in each.items()}
    means = {name: float(np.mean(some)) for name, some in known.items() if some}
    if not means or max(means.values()) <= ALIKE * min(means.values()):
        return ""
    shown = ", ".join(f"{mean:.3g} in {name}" for name, mean in means.items())
    return (
        f"looked at every so many local steps: {shown}; who is looked at more often is seen to "
        "reach it earlier"
    )


def local_steps_a_look(
    config: Config, rounds: pd.DataFrame, metric: str, until: float = math.inf
) -> float | None:
    """Local steps from one number of the metric to the next, in the mean (of rounds ``until`` one);
    None where none was due by the clock that looks, which does not know the run's end.
    """
    known = rounds[rounds[metric].notna() & (rounds["round"] <= until)]
    if config.evaluation.every_steps is None:
        # what was looked at before a run's last round was due, if by another clock of then
        due = known["round"] % config.evaluation.every == 0
        known = known[due | (known["round"] < rounds["round"].max())]
    elif len(known) > 1:
        known = known.iloc[:-1]
    if not len(known):
        return None
    # where they are of a run of before, the looks within a round are not counted
    looks = known["judged"].clip(lower=1).sum() if "judged" in known else len(known)
    return steps_of(known) / float(looks)


def _until(rounds: pd.DataFrame, metric: str, goal: Goal) -> pd.DataFrame:
    """The rounds to the first that was seen to meet the goal; all if none was."""
    reached = up_to(rounds, metric, goal) if metric in rounds else None
    return rounds if reached is None else reached


def hidden_said(runs: Sequence[Looked], metric: str, goal: Goal) -> str:
    """That a goal may have been reached earlier than it was seen, inside a round, of which the last
    look is recorded; or "".
    """
    unseen = [
        "judged" in rounds
        and ends_of(config).get(metric) != goal
        and bool((_until(rounds, metric, goal)["judged"] > 1).any())
        for config, rounds in runs
    ]
    if not any(unseen):
        return ""
    return (
        f"models were looked at inside rounds, of which the last look is kept: {metric} may have "
        f"been at {goal} earlier (the goal of stop is seen at once)"
    )
