"""How sharp a minimum is: curvature and rise of the mean loss around it, in evaluation mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh
from torch.nn.attention import SDPBackend, sdpa_kernel

from algorithms.draws import torch_generator
from orchestrator.errors import UserError
from orchestrator.models.net import Net
from orchestrator.training.evaluation import BATCH, mean_loss, summed_gradient
from orchestrator.training.world import World

if TYPE_CHECKING:
    from torch import Tensor

RESTARTS = 50
"""Of Lanczos' method, with some twenty products each, before it is given up."""


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
        # of its other ways torch does not know the second derivative
        with sdpa_kernel(SDPBackend.MATH):
            loss = world.loss.sum(net.module(x), y)
        grads = torch.autograd.grad(loss, params, create_graph=True, materialize_grads=True)
        # ∇(∇f · v) = ∇²f v for a constant v, so the Hessian itself is never formed
        inner = torch.stack([(g * a).sum() for g, a in zip(grads, along, strict=True)]).sum()
        total += net.gradient(inner, part)
    return total / len(rows)


def largest_eigenvalue(
    product: Callable[[Tensor], Tensor], size: int, seed: int, tolerance: float = 1e-3
) -> float:
    """The largest eigenvalue of a symmetric matrix [size, size] that is known by its products with
    vectors, to a relative ``tolerance``, by Lanczos' method (ARPACK).

    The largest as a number, not in magnitude: at a saddle, power iteration finds the most negative.
    Raises UserError where it does not converge.
    """

    def times(v: np.ndarray) -> np.ndarray:
        return product(torch.from_numpy(v.astype(np.float32).ravel())).numpy()

    if size == 1:  # of which ARPACK wants no part
        return float(times(np.ones(1))[0])
    start = torch.randn(size, generator=torch_generator(seed, "eigenvalue")).numpy()
    if not times(start).any():
        return 0.0  # of a matrix of zeros, which ARPACK does not take
    matrix = LinearOperator((size, size), matvec=times, dtype=np.float32)
    try:
        found = eigsh(
            matrix, 1, which="LA", v0=start, tol=tolerance, maxiter=RESTARTS,
            return_eigenvectors=False,
        )  # fmt: skip
    except ArpackError as error:
        raise UserError(f"the Hessian's largest eigenvalue was not found ({error})") from error
    return float(found[0])


def rise(world: World, net: Net, w: Tensor, buffers: Tensor, rows: np.ndarray, rho: float) -> float:
    """f(w + ρ ∇f/‖∇f‖) − f(w), SAM's first-order estimate of the largest rise within ``rho``."""
    gradient = summed_gradient(world, net, w, buffers, rows)
    length = gradient.norm()
    if length == 0:
        return 0.0
    above = mean_loss(world, net, w + rho * gradient / length, buffers, rows)
    return above - mean_loss(world, net, w, buffers, rows)
