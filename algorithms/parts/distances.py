"""Euclidean distances between the rows of an update matrix, exact for any size of entries.

Differences are taken entry by entry: ‖x‖² + ‖y‖² − 2 x·y would lose the distance of two rows whose
common part is large (a same-value attacker's rows are about 100 in every entry). Sums of squares
are float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

ELEMENTS = 2**20
"""Entries of a block of columns: short sums of squares in float32 (relative error 1e-6), and little
memory."""


def pairwise(rows: Tensor) -> Tensor:
    """Distances ‖x_i − x_j‖ [m, m] in float64; infinite to and from a row that is not finite.

    O(m² d) time; memory beyond the rows is O(m²) and one block of columns.
    """
    m = len(rows)
    # NaN and ∞ both survive a maximum, so this finds the rows that are not finite, too
    largest = torch.stack([block.abs().amax(1) for block in _columns(rows, rows.dtype)]).amax(0)
    finite = largest.isfinite()
    total = torch.zeros(m * (m - 1) // 2, dtype=torch.float64)
    safe = bool((largest[finite] < 1e15).all())  # squares stay within float32
    for block in _columns(rows, rows.dtype if safe else torch.float64):
        total += torch.pdist(torch.where(finite[:, None], block, 0.0)).double().square_()
    table = torch.zeros(m, m, dtype=torch.float64)
    # pdist's order: the upper triangle, row by row
    i, j = torch.triu_indices(m, m, 1)
    table[i, j] = table[j, i] = total.sqrt()
    table[~finite] = torch.inf
    table[:, ~finite] = torch.inf
    return table.fill_diagonal_(0.0)


def norms(rows: Tensor, point: Tensor | None = None) -> Tensor:
    """Distances ‖x_i − z‖ [m] in float64; ``point`` [d] is the origin if None."""
    total = torch.zeros(len(rows), dtype=torch.float64)
    start = 0
    for block in _columns(rows, torch.float64):
        piece = block if point is None else block - point[start : start + block.shape[1]].double()
        total += piece.square().sum(1)
        start += block.shape[1]
    return total.sqrt()


def _columns(rows: Tensor, dtype: torch.dtype) -> Iterator[Tensor]:
    """The matrix as blocks of columns."""
    width = max(1, ELEMENTS // max(1, len(rows)))
    for start in range(0, rows.shape[1], width):
        # converted block by block: the whole matrix in float64 would be twice its size
        yield rows[:, start : start + width].to(dtype)
