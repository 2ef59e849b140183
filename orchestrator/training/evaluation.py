"""Evaluation, sample by sample: each metric is a sum over rows of the same per-sample results."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from orchestrator.models.net import Net
from orchestrator.training.world import World

BATCH = 500
"""Rows of one forward pass. It divides the chunks of an evaluation (``federation.CHUNK``), so a row
is computed in the same batch whether they are cut or not."""


@torch.no_grad()
def per_sample(
    world: World, net: Net, w: Tensor, buffers: Tensor, rows: np.ndarray, flip: bool = False
) -> tuple[Tensor, Tensor]:
    """Cross-entropy [n] and correctness [n] of the model ``w`` on ``rows``, on the CPU; ``flip``:
    by the labels that a label-flipping client gives them.
    """
    # torch.cat wants at least one batch
    if not len(rows):
        return torch.zeros(0), torch.zeros(0, dtype=torch.bool)
    net.bind(w, buffers)
    net.module.eval()
    losses, hits = [], []
    for i in range(0, len(rows), BATCH):
        x, y = _batch(world, rows[i : i + BATCH], flip)
        logits = net.module(x)
        losses.append(F.cross_entropy(logits, y, reduction="none"))
        hits.append(logits.argmax(1) == y)
    return torch.cat(losses).cpu(), torch.cat(hits).cpu()


def _batch(world: World, rows: np.ndarray, flip: bool) -> tuple[Tensor, Tensor]:
    x, y = world.batch(rows)
    return x, world.flip(y) if flip else y


def mean_loss(world: World, net: Net, w: Tensor, buffers: Tensor, rows: np.ndarray) -> float:
    """Mean cross-entropy of the model ``w`` on ``rows``."""
    return float(per_sample(world, net, w, buffers, rows)[0].double().mean())


def summed_gradient(
    world: World, net: Net, w: Tensor, buffers: Tensor, rows: np.ndarray, flip: bool = False
) -> Tensor:
    """∇ Σ_i ℓ_i(w) [d] over ``rows``, in evaluation mode; ``flip`` as in :func:`per_sample`."""
    net.bind(w, buffers)
    net.module.eval()
    total, part = torch.zeros_like(w), torch.empty_like(w)
    for i in range(0, len(rows), BATCH):
        x, y = _batch(world, rows[i : i + BATCH], flip)
        total += net.gradient(F.cross_entropy(net.module(x), y, reduction="sum"), part)
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
