"""A clock of local steps that goes on inside a round, at whose ticks the clients' mean model is
looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from algorithms.contract import Cohort
from algorithms.local import Tensors


@dataclass
class Watch:
    """One round of it; a look changes nothing, is not transmitted, and costs nobody a byte."""

    before: int
    """Local steps of the rounds before."""
    every: int
    """Local steps from tick to tick, counted from the run's first."""
    weights: Callable[[Cohort], np.ndarray]
    """How much each client of a cohort counts [m]."""
    notice: Callable[[int, Tensors], bool]
    """Hears of local steps so far, and of the weighted mean of what the clients have: ``delta``
    [d], and ``buffers`` [b] where a network has them. Says whether enough has been seen."""
    over: bool = False
    """Whether it has."""

    def pieces(self, done: int, steps: int) -> Iterator[int]:
        """``steps`` after ``done`` of the round, cut at the ticks."""
        while steps:
            piece = min(steps, self.every - (self.before + done) % self.every)
            yield piece
            done, steps = done + piece, steps - piece

    def due(self, done: int) -> bool:
        """Whether the clock ticks after ``done`` local steps of the round, and is listened to."""
        return not self.over and (self.before + done) % self.every == 0

    def look(self, done: int, mean: Tensors) -> None:
        """What the clients' ``mean`` is after ``done`` local steps of the round."""
        self.over = self.notice(self.before + done, mean)
