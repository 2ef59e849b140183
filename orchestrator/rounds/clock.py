"""When a run is evaluated: after rounds, or on a clock of local steps that knows no rounds."""

from __future__ import annotations

import numpy as np

from algorithms.local_config import LocalConfig
from orchestrator.config.schema import EvaluationConfig


class Clock:
    """Counts the local steps of the longest client, which are the same for every way to cut them
    into rounds.
    """

    def __init__(
        self, evaluation: EvaluationConfig, local: LocalConfig, samples: np.ndarray
    ) -> None:
        """``samples`` [N] are the clients' training rows."""
        self.epoch = max(1, local.steps_per_epoch(int(samples.max(initial=0))))
        """Mini-batches in the longest client's pass over its data."""
        given = evaluation.every_steps
        self.steps = self.epoch if given == "epoch" else given
        """Local steps between two evaluations; None: rounds are counted instead."""
        self.rounds = evaluation.every

    def due(self, t: int, before: float, after: float) -> bool:
        """Whether round ``t``, which went from ``before`` to ``after`` local steps, is one after
        which to evaluate.
        """
        if self.steps is None:
            return t % self.rounds == 0
        return after // self.steps > before // self.steps
