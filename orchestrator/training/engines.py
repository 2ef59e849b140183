"""Mini-batch gradients of one client, or of many at once: two executions of the same mathematics."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import vmap

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
        if not self.net.module.training:
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
        self.forward = vmap(net.functional())

    def gradients(self, w: Tensor, x: Tensor, y: Tensor, sizes: Tensor, out: Tensor) -> Tensor:
        params = {name: view.detach().requires_grad_() for name, view in self.net.spec.views(w).items()}
        logits = self.forward(params, x)
        losses = F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="none").view(y.shape)
        places = torch.arange(y.shape[1], device=y.device)
        counted = (places < sizes.unsqueeze(1)) / sizes.unsqueeze(1)
        means = (losses * counted).sum(1)
        grads = torch.autograd.grad(means.sum(), list(params.values()))
        self.net.spec.write(grads, out)
        return means.detach()


def vectorizable(net: Net) -> str | None:
    """Why this network cannot be trained vectorised, or None if it can."""
    if net.buffer_spec.size:
        return "it has batch-norm statistics, which a padded batch would change"
    if net.stochastic:
        return "it may have dropout, whose draws could not be keyed by client"
    return None
