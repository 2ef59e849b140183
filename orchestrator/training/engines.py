"""Mini-batch gradients of one client, or of many at once: the same mathematics, run in two ways."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from algorithms.parts.losses import Loss
from orchestrator.models.net import Net

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Contrast:
    """Loss terms beside the loss itself (see :meth:`algorithms.local.LocalRule.contrast`)."""

    models: list[Tensor]
    """Reference models [C, d]."""
    buffers: Tensor
    """Batch-norm statistics [C, b] of the local models, which the reference models use too."""
    term: Callable[[Tensor, list[Tensor]], Tensor]


class Engine(ABC):
    """Computes gradients of the mean loss on a mini-batch."""

    def __init__(self, net: Net, loss: Loss) -> None:
        self.net, self.loss = net, loss

    def views(self, w: Tensor, buffers: Tensor) -> list[Tensor]:
        """What :meth:`attach` takes for models [C, d], buffers [C, b]; made once for all steps."""
        return []

    def attach(self, views: list[Tensor]) -> None:
        """Announce the models and buffers that the next steps change in place, in training mode."""
        # an evaluation has left it in its mode; train() walks over all modules, so not every time
        if not self.net.module.training:
            self.net.module.train()

    @abstractmethod
    def gradients(
        self,
        w: Tensor,
        x: Tensor,
        y: Tensor,
        sizes: Tensor,
        out: Tensor,
        contrast: Contrast | None = None,
    ) -> Tensor:
        """Losses [C] and, in ``out`` [C, d], gradients at ``w`` [C, d] for inputs x [C, B, ...],
        targets y [C, B] (numbers: [C, B, o]).

        Only the first ``sizes[c]`` rows of client c's batch count; ``sizes`` [C] lies on the CPU.
        """


class Sequential(Engine):
    """One client (C = 1): the module's own tensors are views of the client's vector.

    Gradients are those of the whole mini-batch, computed in pieces of ``piece`` rows (None: at
    once) and added.
    """

    def __init__(self, net: Net, loss: Loss, piece: int | None = None) -> None:
        super().__init__(net, loss)
        self.piece = piece

    def views(self, w: Tensor, buffers: Tensor) -> list[Tensor]:
        return self.net.views(w[0], buffers[0])

    def attach(self, views: list[Tensor]) -> None:
        self.net.attach(views)
        super().attach(views)

    def gradients(
        self,
        w: Tensor,
        x: Tensor,
        y: Tensor,
        sizes: Tensor,
        out: Tensor,
        contrast: Contrast | None = None,
    ) -> Tensor:
        n = int(sizes[0])
        x, y = x[0, :n], y[0, :n]
        if self.piece is None or n <= self.piece:
            loss = self._mean(x, y, contrast)
            self.net.gradient(loss, out[0])
            return loss.detach().unsqueeze(0)
        out.zero_()
        part, total = torch.empty_like(out[0]), torch.zeros(1, device=out.device)
        for some, theirs in zip(x.split(self.piece), y.split(self.piece), strict=True):
            loss = self._mean(some, theirs, contrast) * (len(some) / n)
            out[0] += self.net.gradient(loss, part)
            total += loss.detach()
        return total

    def _mean(self, x: Tensor, y: Tensor, contrast: Contrast | None) -> Tensor:
        """The mean loss of rows of a mini-batch."""
        if contrast is None:
            return self.loss.mean(self.net.module(x), y)
        logits, features = self.net.featured(x)
        with torch.no_grad():
            others = [self.net.at(m[0], contrast.buffers[0], x)[1][None] for m in contrast.models]
        return self.loss.mean(logits, y) + contrast.term(features[None], others).mean()


class Vectorized(Engine):
    """C clients as one batched computation over stacked parameters (``torch.func.vmap``).

    For networks without buffers and without dropout; a client's bits depend on the block it is in,
    but on nothing else.
    """

    def __init__(self, net: Net, loss: Loss) -> None:
        super().__init__(net, loss)
        self.forward = torch.func.vmap(net.functional())
        self.featured = torch.func.vmap(net.functional(featured=True))

    def gradients(
        self,
        w: Tensor,
        x: Tensor,
        y: Tensor,
        sizes: Tensor,
        out: Tensor,
        contrast: Contrast | None = None,
    ) -> Tensor:
        # leaves of their own for autograd, which share the memory of w
        params = {
            name: view.detach().requires_grad_() for name, view in self.net.spec.views(w).items()
        }
        if contrast is None:
            logits, extra = self.forward(params, x), None
        else:
            logits, features = self.featured(params, x)
            with torch.no_grad():
                others = [self.featured(self.net.spec.views(m), x)[1] for m in contrast.models]
            extra = contrast.term(features, others)
        losses = self.loss.per_sample(logits.flatten(0, 1), y.flatten(0, 1)).view(y.shape[:2])
        losses = losses if extra is None else losses + extra
        # padding counts 0, so each mean is over the client's true batch
        sizes, places = sizes.to(y.device), torch.arange(y.shape[1], device=y.device)
        counted = (places < sizes.unsqueeze(1)) / sizes.unsqueeze(1)
        means = (losses * counted).sum(1)
        # no client's mean depends on another's parameters: the sum's gradient is each one's own
        grads = torch.autograd.grad(means.sum(), list(params.values()))
        self.net.spec.write(grads, out)
        return means.detach()


def vectorizable(net: Net) -> str | None:
    """Why this network cannot be trained vectorised, or None if it can."""
    if net.buffer_spec.size:
        return "it has batch-norm statistics, which a padded batch would change"
    if net.mixes:
        return "what it makes of an input in training depends on the others of the batch"
    if net.stochastic:
        return "it may have dropout, whose draws could not be keyed by client"
    if any(isinstance(module, torch.nn.RNNBase) for module in net.module.modules()):
        return "it has recurrent layers, which torch cannot batch over clients"
    return None
