"""FedAA's client selection (Algorithm 1): the clients whose models lie nearest to all others."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from algorithms.flat import ParamSpec, slices
from algorithms.parts.distances import pairwise

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Selected:
    """The K selected rows, nearest first."""

    rows: np.ndarray
    """Row numbers [K]."""
    sums: np.ndarray
    """Their sums of distances to all participants [K], ascending."""


def row_sums(rows: Tensor, finite: Tensor) -> Tensor:
    """Σ_j ‖w_i − w_j‖ [m] over the rows that are ``finite`` (mask [m]; lines 2–7); ∞ for others."""
    table = pairwise(rows)
    sums = torch.where(finite[None, :], table, 0.0).sum(1)
    return torch.where(finite, sums, torch.inf)


def nearest(rows: Tensor, keep: int, finite: Tensor | None = None) -> Selected:
    """The ``keep`` rows with the least sums (lines 7–8), ties to the lower row number.

    Rows that are not ``finite`` (mask [m], where ``rows`` are a part of what was sent; or by
    themselves) come last.
    """
    sums = row_sums(rows, rows.isfinite().all(1) if finite is None else finite)
    order = sums.argsort(stable=True)[:keep]
    return Selected(order.numpy(), sums[order].numpy())


def layers(spec: ParamSpec, which: str) -> tuple[slice, ...]:
    """Slices of the layers that the distances look at.

    ``all``; ``last_hidden``: weights and biases of the last linear or convolutional layer before
    the output layer (the output layer itself in a model of one layer); else a regular expression
    over tensor names. Raises ValueError if nothing matches.
    """
    if which == "all":
        return (slice(0, spec.size),)
    if which == "last_hidden":
        # layers with a matrix or kernel: norms, which have vectors only, do not count
        mixing = list(dict.fromkeys(e.layer for e in spec.segments if len(e.shape) > 1))
        hidden = mixing[-2] if len(mixing) > 1 else spec.layers[-1]
        which = f"^{re.escape(hidden)}\\.[^.]+$"
    return slices(spec.chosen(which))


def columns(rows: Tensor, pieces: tuple[slice, ...]) -> Tensor:
    """The chosen columns of ``rows`` [m, d]; a view where they are one slice."""
    if len(pieces) == 1:
        return rows[:, pieces[0]]
    return torch.cat([rows[:, s] for s in pieces], 1)
