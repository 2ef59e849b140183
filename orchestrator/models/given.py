"""A network that a Python process has made itself."""

from __future__ import annotations

import copy
import hashlib

from torch import nn

from algorithms.part import option
from orchestrator.models.base import Model

GIVEN: dict[str, nn.Module] = {}
"""Digest -> what this process has handed over."""


class GivenModule(Model):
    """A module that a Python process has handed over (``fedorch.Experiment(model=...)``), with the
    weights that it had: nobody else can build it.
    """

    name: str = "given"
    sha256: str = option("", "digest of its layers and weights")

    @property
    def foreign(self) -> str:
        return "the module"

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        if self.sha256 not in GIVEN:
            raise ValueError(
                "model: this is a module of a Python process; hand it over again "
                "(fedorch.Experiment(model=...)), or name its file (./nets.py:Net)"
            )
        return copy.deepcopy(GIVEN[self.sha256]).train()


def give(module: nn.Module) -> str:
    """Keep a copy of a module for this process; returns its digest."""
    sha = hashlib.sha256(repr(module).encode())
    for name, tensor in module.state_dict().items():
        sha.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        sha.update(tensor.detach().cpu().contiguous().flatten().view(-1).numpy().tobytes())
    digest = sha.hexdigest()
    GIVEN.setdefault(digest, copy.deepcopy(module))
    return digest
