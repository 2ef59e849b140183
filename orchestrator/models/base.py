"""The family of models that a config can name."""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal

import torch
from torch import nn

from algorithms.part import Part, Width, option
from orchestrator.plugins import raised


class Model(Part):
    """Builds a classifier for inputs of a given shape."""

    init: Literal["default", "glorot"] = option(
        "default", "initial weights: PyTorch's defaults, or Glorot-uniform weights with zero biases"
    )

    projection: Width | None = option(
        None, "width of a two-layer projection head put before the last dense layer (MOON)"
    )

    @abstractmethod
    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """A module from inputs [B, *shape] to logits [B, classes].

        Raises ValueError for a shape that it cannot take.
        """

    def create(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Build, then initialise as the option says (from torch's global generator)."""
        module = self.build(shape, classes)
        # before the initialisation, which is for the head, too
        if self.projection is not None:
            project(module, self.projection)
        if self.init == "glorot":
            module.apply(glorot)
        return module


def project(module: nn.Module, width: int) -> None:
    """Put F → F → ReLU → ``width`` before the last dense layer F → classes; raises ValueError if
    there is none.
    """
    dense = [(name, m) for name, m in module.named_modules() if isinstance(m, nn.Linear)]
    if not dense:
        raise ValueError("model.projection: the model has no dense layer")
    name, last = dense[-1]
    parent, _, child = name.rpartition(".")
    features, classes = last.in_features, last.out_features
    head = nn.Sequential(
        nn.Linear(features, features),
        nn.ReLU(),
        nn.Linear(features, width),
        nn.Linear(width, classes),
    )
    setattr(module.get_submodule(parent), child, head)


def glorot(module: nn.Module) -> None:
    """Glorot-uniform weights and zero biases for linear and convolutional layers."""
    if isinstance(module, nn.Linear | nn.Conv2d):
        nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


def require_logits(of: str, module: nn.Module, shape: tuple[int, ...], classes: int) -> None:
    """Raises ValueError unless inputs [2, *shape] become float32 [2, classes]."""
    module.eval()
    try:
        with torch.no_grad():
            out = module(torch.zeros(2, *shape))
    except Exception as error:  # whatever code of others may raise
        raise ValueError(f"model: {of}: inputs of shape {(2, *shape)}: {raised(error)}") from error
    finally:
        module.train()
    if not isinstance(out, torch.Tensor) or out.shape != (2, classes) or out.dtype != torch.float32:
        found = (
            f"{out.dtype} of shape {tuple(out.shape)}"
            if isinstance(out, torch.Tensor)
            else type(out).__name__
        )
        raise ValueError(
            f"model: {of} makes {found} of inputs of shape {(2, *shape)}, and not torch.float32 of "
            f"shape {(2, classes)}"
        )


def image_shape(shape: tuple[int, ...], least: int, model: str) -> tuple[int, int, int]:
    """(channels, height, width); raises ValueError unless images have ``least`` pixels a side."""
    if len(shape) != 3 or min(shape[1:]) < least:
        raise ValueError(
            f"model {model!r} needs images of at least {least}x{least}, and the inputs have shape "
            f"{shape}"
        )
    return shape[0], shape[1], shape[2]
