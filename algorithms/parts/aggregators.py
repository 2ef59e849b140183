"""Aggregators: how the server makes one update out of the cohort's.

A mean needs only a weighted sum, which the client actors can form themselves; everything else asks
for the rows (see ``robust``).
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch

from algorithms.flat import ParamSpec
from algorithms.local import Tensors
from algorithms.part import Part

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Rows:
    """What an aggregator that needs the rows is shown."""

    updates: Tensor
    """The uploads [m, d], in client order."""
    samples: np.ndarray
    """Training samples n_k of each row [m]."""
    reference: Tensor | None = None
    """The server's own update [d], for aggregators that ask for it."""
    memory: Tensors = field(default_factory=dict)
    """What the aggregator remembers from one round to the next; it may change the entries."""
    spec: ParamSpec | None = None
    """Which tensors the d entries are."""


@dataclass(frozen=True)
class Combined:
    """One update out of many."""

    vector: Tensor
    """The aggregate [d]."""
    weights: Tensor | None
    """Weights [m] with ``vector`` = weights @ updates; None: coordinates are chosen one by one."""
    shares: Tensor | None = None
    """How much each client counts [m], where that is not in proportion to ``weights``."""
    report: dict[str, float] = field(default_factory=dict)
    """Numbers worth recording."""


class Aggregator(Part):
    """Combines the rows of an update matrix [m, d] into one vector [d]."""

    needs_reference: ClassVar[bool] = False
    """Whether the server must train on its own held-out rows beside the cohort."""

    @abstractmethod
    def weights(self, samples: np.ndarray, counts: np.ndarray) -> np.ndarray | None:
        """Weights [m] (sum 1) when a weighted sum is enough, else None.

        ``samples`` [m] are the sizes n_k, ``counts`` [m] how often each client was drawn.
        """

    @property
    def needs_rows(self) -> bool:
        """Whether no weighted sum of the updates is enough."""
        return self.weights(np.ones(1), np.ones(1)) is None

    @abstractmethod
    def combine(self, rows: Rows) -> Combined:
        """The aggregate of ``rows``; only called when ``weights`` is None."""

    def check(self, spec: ParamSpec) -> None:
        """Raise ValueError if the model lacks what this aggregator is asked to look at."""

    def refuses(self, cohort: int) -> str | None:
        """Why a cohort of this size is too small, in one sentence; None if it is not."""
        return None


class _Mean(Aggregator):
    def combine(self, rows: Rows) -> Combined:
        raise TypeError(f"{self.name} is a weighted sum and needs no rows")


class Mean(_Mean):
    """Unweighted mean over the cohort."""

    name: str = "mean"

    def weights(self, samples: np.ndarray, counts: np.ndarray) -> np.ndarray:
        return counts / counts.sum()


class WeightedMean(_Mean):
    """Mean weighted by the clients' sample counts, n_k / Σ n_j (McMahan et al. 2017, Algorithm
    1)."""

    name: str = "weighted_mean"

    def weights(self, samples: np.ndarray, counts: np.ndarray) -> np.ndarray:
        return samples * counts / np.sum(samples * counts)


def weighted_sum(rows: Tensor, weights: np.ndarray) -> Tensor:
    """Σ_c p_c rows[c], added in row order; rows of weight 0 are skipped, even if not finite."""
    # not ``weights @ rows``, whose order of addition, and so its last bits, BLAS would choose
    total = torch.zeros_like(rows[0])
    for row, p in zip(rows, weights.tolist(), strict=True):
        if p:
            total.add_(row, alpha=p)
    return total
