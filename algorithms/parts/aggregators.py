"""Aggregators: how the server makes one update out of the cohort's.

A mean needs only a weighted sum, which the client actors can form themselves; everything else asks for the rows.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from torch import Tensor

from algorithms.part import Part


class Aggregator(Part):
    """Combines the rows of an update matrix [m, d] into one vector [d]."""

    @abstractmethod
    def weights(self, samples: np.ndarray, counts: np.ndarray) -> np.ndarray | None:
        """Weights [m] (sum 1) when a weighted sum is enough, else None.

        ``samples`` [m] are the sizes n_k, ``counts`` [m] how often each client was drawn.
        """

    @abstractmethod
    def combine(self, rows: Tensor, samples: np.ndarray) -> Tensor:
        """The aggregate [d] of ``rows`` [m, d]; only called when ``weights`` is None."""


class _Mean(Aggregator):
    def combine(self, rows: Tensor, samples: np.ndarray) -> Tensor:
        raise TypeError(f"{self.name} is a weighted sum and needs no rows")


class Mean(_Mean):
    """Unweighted mean over the cohort."""

    name: str = "mean"

    def weights(self, samples: np.ndarray, counts: np.ndarray) -> np.ndarray:
        return counts / counts.sum()


class WeightedMean(_Mean):
    """Mean weighted by the clients' sample counts, n_k / Σ n_j (McMahan et al. 2017, Algorithm 1)."""

    name: str = "weighted_mean"

    def weights(self, samples: np.ndarray, counts: np.ndarray) -> np.ndarray:
        return samples * counts / np.sum(samples * counts)
