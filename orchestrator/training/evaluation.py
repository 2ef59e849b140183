"""Evaluation, sample by sample: each metric is a sum over rows of the same per-sample results."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from orchestrator.models.net import Net
from orchestrator.training.world import World

if TYPE_CHECKING:
    from torch import Tensor

BATCH = 500
"""Rows of one forward pass. It divides the chunks of an evaluation (``federation.CHUNK``), so a row
is computed in the same batch whether they are cut or not."""


class PerSample(NamedTuple):
    """What a model makes of n rows, on the CPU."""

    loss: Tensor
    """[n]."""
    hit: Tensor
    """Whether it is right [n]; NaN of targets that are numbers; of tokens, which part of them."""
    outputs: Tensor
    """[n, o] (of tokens [n, L * o]), where ``world.outputs`` asks for them; else [n, 0]."""

    @classmethod
    def joined(cls, pieces: Iterable[PerSample], n: int) -> PerSample:
        """``pieces``, n rows in all and at least one, one after the other, where the first is."""
        # each is copied as it comes: kept ones would lie, small, among batches that are freed, the
        # next batch would fit in no gap, and memory would grow with the rows
        kept: PerSample | None = None
        end = 0
        for piece in pieces:
            kept = kept or cls(*(part.new_empty(n, *part.shape[1:]) for part in piece))
            start, end = end, end + len(piece.loss)
            for whole, part in zip(kept, piece, strict=True):
                whole[start:end] = part
        assert kept is not None
        assert end == n
        return kept


def per_sample(
    world: World, net: Net, w: Tensor, buffers: Tensor, rows: np.ndarray, flip: bool = False
) -> PerSample:
    """What the model ``w`` makes of ``rows``; ``flip``: by the labels that a label-flipping client
    gives them.
    """
    if not len(rows):
        return PerSample(torch.zeros(0), torch.zeros(0, dtype=torch.bool), torch.zeros(0, 0))
    net.bind(w, buffers)
    net.module.eval()
    batches = (_of_batch(world, net, rows[i : i + BATCH], flip) for i in range(0, len(rows), BATCH))
    with torch.no_grad():
        found = PerSample.joined(batches, len(rows))
    return PerSample(*(part.cpu() for part in found))


def _of_batch(world: World, net: Net, rows: np.ndarray, flip: bool) -> PerSample:
    x, y = _batch(world, rows, flip)
    out = net.module(x)
    outputs = out.flatten(1)[:, : None if world.outputs else 0].clone()
    # before the loss is asked, which may be a user's own, and write over what it is given
    hit = world.loss.correct(out, y)
    return PerSample(world.loss.per_sample(out, y), hit, outputs)


def _batch(world: World, rows: np.ndarray, flip: bool) -> tuple[Tensor, Tensor]:
    x, y = world.batch(rows)
    return x, world.flip(y) if flip else y


def mean_loss(world: World, net: Net, w: Tensor, buffers: Tensor, rows: np.ndarray) -> float:
    """Mean loss of the model ``w`` on ``rows``."""
    return float(per_sample(world, net, w, buffers, rows).loss.double().mean())


def summed_gradient(
    world: World, net: Net, w: Tensor, buffers: Tensor, rows: np.ndarray, flip: bool = False
) -> Tensor:
    """∇ Σ_i ℓ_i(w) [d] over ``rows``, in evaluation mode; ``flip`` as in :func:`per_sample`."""
    net.bind(w, buffers)
    net.module.eval()
    total, part = torch.zeros_like(w), torch.empty_like(w)
    for i in range(0, len(rows), BATCH):
        x, y = _batch(world, rows[i : i + BATCH], flip)
        total += net.gradient(world.loss.sum(net.module(x), y), part)
    return total


def per_client(loss: Tensor, hit: Tensor, sizes: np.ndarray) -> Tensor:
    """Per-sample results in groups of ``sizes`` [K] rows -> [K, 3]: correct, summed loss, rows."""
    group = torch.repeat_interleave(torch.arange(len(sizes)), torch.from_numpy(np.asarray(sizes)))
    # float64: counts stay whole, and sums of float32 losses hardly round
    table = torch.zeros(len(sizes), 3, dtype=torch.float64)
    for column, values in enumerate(
        (hit.double(), loss.double(), torch.ones(len(group), dtype=torch.float64))
    ):
        table[:, column].index_add_(0, group, values)
    return table
