"""A module seen as a flat vector: what trainers and evaluators work on."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.func import functional_call

from algorithms.draws import torch_seed
from algorithms.flat import ParamSpec, floating_buffers, trainable
from orchestrator.models.base import Model

STOCHASTIC = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)


class Net:
    """One module, its parameter layout, its buffer layout, and its initial vectors.

    The module's parameters can be bound to a flat vector: they become views of it, so that a training step on the
    vector is a training step on the module and nothing is copied.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.params = trainable(module)
        self.buffers = floating_buffers(module)
        self.spec = ParamSpec.of(self.params)
        self.buffer_spec = ParamSpec.of(self.buffers)
        self.initial = self.spec.flatten(self.params)
        self.initial_buffers = self.buffer_spec.flatten(self.buffers)

    @classmethod
    def of(cls, model: Model, shape: tuple[int, ...], classes: int, seed: int) -> Net:
        """Build ``model`` with initial weights that are a function of ``seed`` alone."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(torch_seed(seed, "model"))
            return cls(model.create(shape, classes))

    @cached_property
    def stochastic(self) -> bool:
        """Whether training may draw random numbers inside the network (dropout)."""
        return any(
            getattr(m, "may_draw", False) or (isinstance(m, STOCHASTIC) and m.p > 0) for m in self.module.modules()
        )

    def to(self, device: torch.device) -> Net:
        """Move what is not part of the flat vectors (frozen tensors, integer buffers) to ``device``."""
        self.module.to(device)
        return self

    def bind(self, w: Tensor, buffers: Tensor) -> None:
        """Make the module's parameters and statistics views of ``w`` [d] and ``buffers`` [b]."""
        for p, view in zip(self.params.values(), self.spec.views(w).values(), strict=True):
            p.data = view
        for b, view in zip(self.buffers.values(), self.buffer_spec.views(buffers).values(), strict=True):
            b.data = view

    def gradient(self, loss: Tensor, out: Tensor) -> Tensor:
        """∇ loss as a flat vector written to ``out`` [d]."""
        grads = torch.autograd.grad(loss, list(self.params.values()), materialize_grads=True)
        return self.spec.write(grads, out)

    def functional(self) -> Callable[[dict[str, Tensor], Tensor], Tensor]:
        """The module as a function of its named parameters and one batch of inputs."""
        return lambda params, x: functional_call(self.module, params, (x,))
