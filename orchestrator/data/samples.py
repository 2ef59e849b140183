"""The samples of a dataset in memory, and the family of datasets that a config can name."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from algorithms.part import Part


@dataclass(frozen=True)
class Samples:
    """All samples of a dataset: training rows first, then test rows.

    Images are uint8 and scaled when a batch is drawn, x ↦ (x/255 − mean) / std per channel; other
    inputs are used as they are (float32 features, integer token ids).
    """

    x: np.ndarray
    """Inputs [n, ...]: images [n, C, H, W] uint8, features [n, p] float32, or token ids [n, L]
    int32."""
    y: np.ndarray
    """Labels [n] int64 in 0..classes-1."""
    train: int
    """Number of training rows; the rest are test rows."""
    classes: int
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    owner: np.ndarray | None = None
    """Natural client of each row [n], where the dataset has natural clients."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return tuple(self.x.shape[1:])


@dataclass(frozen=True)
class Request:
    """What a dataset may depend on: the run's seed and number of clients (for generated data)."""

    seed: int
    clients: int


class Dataset(Part):
    """A dataset that a config can name."""

    generated: ClassVar[bool] = False
    """Whether the samples depend on the request."""

    @abstractmethod
    def load(self, request: Request) -> Samples:
        """Read or generate all samples.

        Raises UserError, naming the places searched, if they cannot be had.
        """


def join(
    train: tuple[np.ndarray, np.ndarray],
    test: tuple[np.ndarray, np.ndarray],
    classes: int,
    mean: tuple[float, ...] = (),
    std: tuple[float, ...] = (),
) -> Samples:
    """Samples from (inputs, labels) of both splits; images [n, H, W(, C)] become [n, C, H, W]."""
    x = np.concatenate([train[0], test[0]])
    if x.dtype == np.uint8:
        # channels first, as torch has them
        x = x[:, None] if x.ndim == 3 else np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    y = np.concatenate([train[1], test[1]]).astype(np.int64)
    return Samples(x, y, len(train[1]), classes, mean, std)
