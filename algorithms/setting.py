"""What an algorithm is told of its run: the parts around it, and the fixed facts."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from algorithms.flat import ParamSpec
from algorithms.local_config import LocalConfig
from algorithms.parts.aggregators import Aggregator
from algorithms.parts.iterates import Last, Output
from algorithms.parts.round_ends import RoundEnd
from algorithms.parts.samplers import Sampler
from algorithms.parts.server_optimizers import ServerOptimizer


@dataclass(frozen=True)
class Composition:
    """The parts that a config puts together around an algorithm."""

    clients: int
    """N."""
    cohort: int
    """m, the clients drawn in a round (with repeats), 1 to N."""
    sampler: Sampler
    round_end: RoundEnd
    aggregator: Aggregator
    server_optimizer: ServerOptimizer
    local: LocalConfig
    output: Output = field(default_factory=Last)
    compressed: bool = False
    """Whether anything is compressed on its way."""
    compressed_down: bool = False
    """Whether broadcasts are."""


@dataclass(frozen=True)
class Setting:
    """The fixed facts of a run that an algorithm may use."""

    seed: int
    samples: np.ndarray
    """Training samples of each client, n_k [N]."""
    spec: ParamSpec
    parts: Composition
    heldout: int = 0
    """Rows held out at the server."""
    statistics: ParamSpec = field(default_factory=lambda: ParamSpec(()))
    """Layout of the batch-norm statistics."""
    labels: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    """The commonest label among each client's training samples [N]."""

    @property
    def clients(self) -> int:
        """N."""
        return len(self.samples)

    @property
    def server(self) -> int:
        """The id under which the server itself trains, on its held-out rows."""
        return len(self.samples)

    def sizes(self, ids: np.ndarray) -> np.ndarray:
        """Training samples of ``ids``, of which one may be the server."""
        return np.append(self.samples, self.heldout)[ids]
