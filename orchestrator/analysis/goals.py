"""Whether runs that were to end at a goal (``stop``) have reached it: what others did and sent
until their last round is no cost of it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import pandas as pd

from orchestrator.config import Config
from orchestrator.config.goal import Goal
from orchestrator.rounds.metrics import is_cost


def ends_of(config: Config) -> dict[str, Goal]:
    """All that may end a run before its last round."""
    return {name: Goal.read(goal) for name, goal in config.stop.items()}


def goals_of(config: Config) -> dict[str, Goal]:
    """What a run was to reach, but for budgets."""
    return {name: goal for name, goal in ends_of(config).items() if not is_cost(name)}


def met(stop: Mapping[str, float | str], rounds: pd.DataFrame) -> list[str]:
    """The metrics of ``stop`` whose goals a run's last round meets."""
    last = rounds.iloc[-1] if len(rounds) else pd.Series(dtype=float)
    return [name for name, goal in stop.items() if Goal.read(goal).met(last.get(name, math.nan))]


def missed(config: Config, rounds: pd.DataFrame) -> bool:
    """Whether a run was to reach a goal, and has reached none."""
    goals = goals_of(config)
    return bool(goals) and not {*goals} & {*met(config.stop, rounds)}


def counts_of_the_diverged(metric: str) -> bool:
    """Whether a number of a model that is NaN, which says one class to all, is to be compared: its
    accuracy is one; but how alike it is for all clients is none.
    """
    return re.search("_(std|var|angle|kl|jain)$", metric) is None
