"""A value that a metric is to reach, from below or from above."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from algorithms.parts.metrics import BAD
from orchestrator.errors import UserError

if TYPE_CHECKING:
    from algorithms.parts.metrics import Metric

LOSSES = ("test_loss", "client_loss_mean", "client_loss_worst")
PERSONAL = ("personal_loss_mean", "personal_loss_worst")
"""Of the models that a round judges, one for all or the clients' own."""


@dataclass(frozen=True)
class Goal:
    """``0.98`` or ``>= 0.98``: at least that; ``<= 0.1``: at most."""

    limit: float
    falling: bool = False
    """Whether the metric is to fall to the limit."""

    @classmethod
    def read(cls, text: float | str) -> Goal:
        """Raises ValueError for anything else."""
        words = str(text).strip()
        falling = words.startswith("<=")
        try:
            limit = float(words.removeprefix("<=" if falling else ">="))
        except ValueError:
            limit = math.nan
        if not math.isfinite(limit):
            raise ValueError(f'{text!r} is not a number that is reached, nor like "<= 0.1"')
        return cls(limit, falling)

    def __str__(self) -> str:
        return f"{'<= ' if self.falling else ''}{self.limit:g}"

    def met(self, value: float) -> bool:
        """Whether ``value`` is there; NaN never is."""
        return value <= self.limit if self.falling else value >= self.limit


JUDGED = "(test|validation|heldout|client|client_validation)_"
"""How names of metrics begin that are of the judged model's outputs."""
LEVELS = "(_mean|_worst|_worst10|_best10|_weighted)?"
UNEVEN = "(_std|_var|_angle|_kl)"
"""How names of metrics over clients end."""


def measured_by(metric: str, declared: Iterable[Metric], ends: str = LEVELS) -> Metric | None:
    """Which of the metrics that a run has ``declared`` (``evaluation.metrics``) a column is of."""
    for one in declared:
        if re.fullmatch(JUDGED + re.escape(one.called) + ends, metric):
            return one
    return None


def goal_of(metric: str, text: float | str, declared: Iterable[Metric] = ()) -> Goal:
    """What ``text`` means of a metric. Raises ValueError for what is no goal, and for a bare number
    of a loss or an error (it is above any of them after the first round, which nobody means), or of
    one of the ``declared`` metrics of which nobody has said that more is better.
    """
    goal = Goal.read(text)
    if str(text).strip().startswith(("<=", ">=")):
        return goal
    low, high = f'"<= {goal.limit:g}"', f'">= {goal.limit:g}"'
    one = measured_by(metric, declared)
    if one is not None and one.side is None:
        raise ValueError(
            f"nobody has said which way {metric} is better: say {low} or {high}, or better: in "
            "evaluation.metrics"
        )
    falls = "loss" in metric or re.search(BAD, metric) if one is None else not one.side
    if falls:
        raise ValueError(f"{metric} is to fall: say {low}, or {high} if that is meant")
    return goal


def target_goal(target: str | None, metric: str, declared: Iterable[Metric] = ()) -> Goal | None:
    """The goal that ``--target`` names for the metric; raises UserError for none."""
    if target is None:
        return None
    try:
        return goal_of(metric, target, declared)
    except ValueError as error:
        raise UserError(f"--target: {error}") from error


def counts_of_the_diverged(metric: str) -> bool:
    """Whether a number of a model that is NaN, which says one class to all, is to be compared: its
    accuracy is one; but how alike it is for all clients is none.
    """
    return re.search("_(std|var|angle|kl|jain)$", metric) is None


def is_sound(record: Mapping[str, float], metric: str) -> bool:
    """Whether a metric of a round says something: of a model that has diverged not all do."""
    loss = next((record[name] for name in _losses(metric) if name in record), 0.0)
    return math.isfinite(loss) or counts_of_the_diverged(metric)


def sound(rounds: pd.DataFrame, metric: str) -> pd.Series[float]:
    """A metric over rounds, NaN where it says nothing of a model that has diverged by then: its
    loss is no number, though it was judged.
    """
    loss = next((rounds[name].astype(float) for name in _losses(metric) if name in rounds), None)
    if loss is None or counts_of_the_diverged(metric) or "judged" not in rounds:
        return rounds[metric]
    gone = ~loss.map(math.isfinite) & (rounds["judged"] > 0)
    return rounds[metric].mask(gone)


def _losses(metric: str) -> tuple[str, ...]:
    """Of the models that a metric is of."""
    return PERSONAL if metric.startswith("personal_") else LOSSES


def steps_of(rounds: pd.DataFrame) -> float:
    """Local steps when the last of these rounds was evaluated, or had ended."""
    last = rounds.iloc[-1]
    # in the middle of a round, where a clock of steps ran through it
    then = last.get("evaluated_steps", math.nan)
    return float(last["steps_total"] if math.isnan(then) else then)


def up_to(rounds: pd.DataFrame, metric: str, goal: Goal | None) -> pd.DataFrame | None:
    """The rounds up to the first that reached the goal (all without one); None if none did.

    Raises UserError if the run does not report the metric.
    """
    if goal is None:
        return rounds
    if metric not in rounds:
        raise UserError(f"the run does not report {metric!r}")
    hits = rounds.index[sound(rounds, metric).map(goal.met)]
    return rounds.loc[: hits[0]] if len(hits) else None
