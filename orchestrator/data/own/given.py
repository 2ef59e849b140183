"""Arrays of a Python process, which no file holds."""

from __future__ import annotations

import numpy as np

from algorithms.part import option
from orchestrator.data.own.arrays import samples_of
from orchestrator.data.samples import Dataset, Request, Samples
from orchestrator.errors import UserError


class GivenArrays(Dataset):
    """Arrays that a Python process has handed over (``fedorch.Experiment(data=...)``): nobody else
    can load them.
    """

    name: str = "given"
    sha256: str = option("", "digest of the samples, which stand in no file")

    def read(self, request: Request) -> Samples:
        raise UserError(
            "data.dataset: these are arrays of a Python process; hand them over again "
            "(fedorch.Experiment(data=...)), or save them and name the file (npz)"
        )


def samples_from(
    x: np.ndarray, y: np.ndarray, clients: np.ndarray | None, test: float | np.ndarray
) -> Samples:
    """Samples of inputs ``x`` [n, ...], ``y`` [n] (of numbers: [n] or [n, o] floats) and whose
    rows are (names [n], or None); ``test``: part of the rows of each client (of each class, without
    clients), or a mask [n]. Raises UserError for what is none of the types of ``npz``.
    """
    return samples_of(np.asarray(x), np.asarray(y), clients, test, "data")
