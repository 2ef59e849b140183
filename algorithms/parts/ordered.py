"""The values of each coordinate in order: what medians and trimmed means are made of.

Taken by blocks of columns: a matrix of all values in order, and the places that a sort returns with
them, would be three times the rows. NumPy sorts a column of float32 ten times faster than torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from torch import Tensor

ELEMENTS = 2**18
"""Entries of a block: what a core's cache holds."""


def over_columns(rows: Tensor, of: Callable[[Tensor], Tensor]) -> Tensor:
    """``of`` of the values of each column of ``rows`` [m, d]: it is given [w, m] and returns
    [w]; all of them [d].
    """
    width = max(1, ELEMENTS // max(1, len(rows)))
    found = rows.new_empty(rows.shape[1])
    for start in range(0, rows.shape[1], width):
        some = slice(start, start + width)
        found[some] = of(rows[:, some].T.contiguous())
    return found


def ascending(columns: Tensor) -> Tensor:
    """Each row of ``columns`` [w, m] in ascending order."""
    return torch.from_numpy(np.sort(columns.numpy(), axis=1))


def coordinate_median(x: Tensor) -> Tensor:
    """Coordinate-wise median [d] of ``x`` [m, d] (the mean of the two middle values for even m)."""
    return over_columns(x, _median)


def trimmed_mean(x: Tensor, f: int) -> Tensor:
    """Coordinate-wise mean [d] of ``x`` [m, d] without the ``f`` smallest and largest values."""
    return over_columns(x, lambda columns: ascending(columns)[:, f : len(x) - f].mean(1))


def mean_of_nearest(x: Tensor, kept: int) -> Tensor:
    """Coordinate-wise mean [d] of the ``kept`` values of ``x`` [m, d] nearest to their median; of
    two as near, that of the earlier row.
    """

    def of(columns: Tensor) -> Tensor:
        away = (columns - _median(columns)[:, None]).abs()
        return columns.gather(1, away.argsort(dim=1, stable=True)[:, :kept]).mean(1)

    return over_columns(x, of)


def _median(columns: Tensor) -> Tensor:
    values, m = ascending(columns), columns.shape[1]
    # halved before they are added, so that their sum cannot overflow
    return values[:, (m - 1) // 2] / 2 + values[:, m // 2] / 2
