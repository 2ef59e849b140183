"""How sharp a minimum is: curvature and rise of the mean loss around it, in evaluation mode."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from algorithms.draws import torch_generator
from orchestrator.models.net import Net
from orchestrator.training.evaluation import BATCH, mean_loss, summed_gradient
from orchestrator.training.world import World


def hessian_product(
    world: World, net: Net, w: Tensor, buffers: Tensor, rows: np.ndarray, v: Tensor
) -> Tensor:
    """∇² f(w) v [d] of the mean loss f over ``rows`` for a vector v [d]."""
    net.bind(w, buffers)
    net.module.eval()
    params = list(net.params.values())
    along = list(net.spec.views(v).values())
    total, part = torch.zeros_like(w), torch.empty_like(w)
    for i in range(0, len(rows), BATCH):
        x, y = world.batch(rows[i : i + BATCH])
        loss = F.cross_entropy(net.module(x), y, reduction="sum")
        grads = torch.autograd.grad(loss, params, create_graph=True)
        # ∇(∇f · v) = ∇²f v for a constant v, so the Hessian itself is never formed
        inner = torch.stack([(g * a).sum() for g, a in zip(grads, along, strict=True)]).sum()
        total += net.gradient(inner, part)
    return total / len(rows)


def largest_eigenvalue(
    world: World, net: Net, w: Tensor, buffers: Tensor, rows: np.ndarray, seed: int,
    iterations: int = 50,
    tolerance: float = 1e-3,
) -> float:  # fmt: skip
    """The Hessian's eigenvalue of largest magnitude, by power iteration up to ``tolerance``."""
    v = torch.randn(w.shape, generator=torch_generator(seed, "power iteration"))
    v /= v.norm()
    value = 0.0
    for _ in range(iterations):
        product = hessian_product(world, net, w, buffers, rows, v)
        # Rayleigh's quotient, which keeps the sign of the eigenvalue
        before, value = value, float(v @ product)
        length = float(product.norm())
        if length == 0 or abs(value - before) <= tolerance * abs(value):
            break
        v = product / length
    return value


def rise(world: World, net: Net, w: Tensor, buffers: Tensor, rows: np.ndarray, rho: float) -> float:
    """f(w + ρ ∇f/‖∇f‖) − f(w), SAM's first-order estimate of the largest rise within ``rho``."""
    gradient = summed_gradient(world, net, w, buffers, rows)
    length = gradient.norm()
    if length == 0:
        return 0.0
    above = mean_loss(world, net, w + rho * gradient / length, buffers, rows)
    return above - mean_loss(world, net, w, buffers, rows)
