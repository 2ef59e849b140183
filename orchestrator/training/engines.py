"""Mini-batch gradients of one client, or of many at once: two executions of the same mathematics."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import grad_and_value, vmap

from orchestrator.models.net import Net


class Engine(ABC):
    """Computes gradients of the mean cross-entropy on a mini-batch."""

    def __init__(self, net: Net) -> None:
        self.net = net

    def attach(self, w: Tensor, buffers: Tensor) -> None:
        """Announce the models [C, d] and buffers [C, b] that the next steps work on (they are changed in place)."""

    @abstractmethod
    def gradients(self, w: Tensor, x: Tensor, y: Tensor, sizes: Tensor, out: Tensor) -> Tensor:
        """Losses [C] and, in ``out`` [C, d], gradients at ``w`` [C, d] for inputs x [C, B, ...], labels y [C, B].

        Only the first ``sizes[c]`` rows of client c's batch count.
        """


class Sequential(Engine):
    """One client (C = 1): the module's own tensors are views of the client's vector."""

    def attach(self, w: Tensor, buffers: Tensor) -> None:
        self.net.bind(w[0], buffers[0])
        self.net.module.train()

    def gradients(self, w: Tensor, x: Tensor, y: Tensor, sizes: Tensor, out: Tensor) -> Tensor:
        n = int(sizes[0])
        loss = F.cross_entropy(self.net.module(x[0, :n]), y[0, :n])
        self.net.gradient(loss, out[0])
        return loss.detach().unsqueeze(0)


class Vectorized(Engine):
    """C clients as one batched computation over stacked parameters (``torch.func.vmap``).

    For networks without buffers and without dropout; a client's bits depend on the block it is in, but on nothing
    else.
    """

    def __init__(self, net: Net) -> None:
        super().__init__(net)
        call = net.functional()

        def loss(params: dict[str, Tensor], x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
            return (F.cross_entropy(call(params, x), y, reduction="none") * weight).sum()

        self.batched = vmap(grad_and_value(loss))

    def gradients(self, w: Tensor, x: Tensor, y: Tensor, sizes: Tensor, out: Tensor) -> Tensor:
        places = torch.arange(y.shape[1], device=y.device)
        weight = (places < sizes.unsqueeze(1)) / sizes.unsqueeze(1)
        grads, losses = self.batched(self.net.spec.views(w), x, y, weight)
        self.net.spec.write(list(grads.values()), out)
        return losses


def vectorizable(net: Net) -> str | None:
    """Why this network cannot be trained vectorised, or None if it can."""
    if net.buffer_spec.size:
        return "it has batch-norm statistics, which a padded batch would change"
    if net.stochastic:
        return "it has dropout, whose draws could not be keyed by client"
    return None
