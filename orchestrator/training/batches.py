"""A client's stream of mini-batches: a function of (seed, round, client) and the session within the round."""

from __future__ import annotations

import numpy as np

from algorithms.draws import generator
from orchestrator.training.local_config import LocalConfig


class Batches:
    """Row numbers of successive mini-batches."""

    def __init__(self, rows: np.ndarray, local: LocalConfig, seed: int, t: int, client: int, session: int = 0) -> None:
        self.rows = rows
        self.local = local
        self.rng = generator(seed, "batches", t, client, *([session] if session else []))
        self.order = np.empty(0, np.int64)

    def take(self, steps: int, out: np.ndarray) -> np.ndarray:
        """Write the next ``steps`` batches to ``out`` [steps, b]; returns their true sizes [steps].

        A batch smaller than b (an epoch's last, or a client with fewer rows) leaves the rest of its line as it is.
        """
        sizes = np.empty(steps, np.int64)
        for s in range(steps):
            batch = self._next()
            sizes[s] = len(batch)
            out[s, : len(batch)] = batch
        return sizes

    def _next(self) -> np.ndarray:
        b = self.local.batch_size
        if self.local.sampling == "independent":
            return self.rng.choice(self.rows, min(b, len(self.rows)), replace=False)
        if len(self.order) < (b if self.local.drop_last else 1):
            self.order = self.rng.permutation(self.rows)
        batch, self.order = self.order[:b], self.order[b:]
        return batch
