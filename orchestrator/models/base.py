"""The family of models that a config can name."""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal

import torch

from algorithms.part import Part, Width, option


class Model(Part):
    """Builds a classifier for inputs of a given shape."""

    init: Literal["default", "glorot"] = option(
        "default",
        "initial weights: PyTorch's defaults, or Glorot-uniform weights with zero biases of dense "
        "and 2-d convolutional layers",
    )

    projection: Width | None = option(
        None, "width of a two-layer projection head put before the last dense layer (MOON)"
    )

    @property
    def foreign(self) -> str:
        """What a network that is none of ours is called, which is tried before anything starts."""
        return "" if type(self).__module__.startswith("orchestrator.") else self.name

    def forgets(self) -> str | None:
        """What it would load and then draw anew, which nobody can mean, in a sentence; or None."""
        return None

    @property
    def tags(self) -> bool:
        """Whether it says a class for each token of an input, and not one for the input."""
        return False

    @abstractmethod
    def build(self, shape: tuple[int, ...], classes: int) -> torch.nn.Module:
        """A module from inputs [B, *shape] to logits [B, classes].

        Raises ValueError for a shape that it cannot take.
        """

    def create(self, shape: tuple[int, ...], classes: int) -> torch.nn.Module:
        """Build, then initialise as the option says (from torch's global generator)."""
        module = self.build(shape, classes)
        # before the initialisation, which is for the head, too
        if self.projection is not None:
            project(module, self.projection)
        if self.init == "glorot":
            module.apply(glorot)
        return module


def project(module: torch.nn.Module, width: int) -> None:
    """Put F → F → ReLU → ``width`` before the last dense layer F → classes; raises ValueError if
    there is none.
    """
    dense = [(name, m) for name, m in module.named_modules() if isinstance(m, torch.nn.Linear)]
    if not dense:
        raise ValueError("model.projection: the model has no dense layer")
    name, last = dense[-1]
    parent, _, child = name.rpartition(".")
    features, classes = last.in_features, last.out_features
    head = torch.nn.Sequential(
        torch.nn.Linear(features, features),
        torch.nn.ReLU(),
        torch.nn.Linear(features, width),
        torch.nn.Linear(width, classes),
    )
    setattr(module.get_submodule(parent), child, head)


def glorot(module: torch.nn.Module) -> None:
    """Glorot-uniform weights and zero biases for linear and convolutional layers that are
    trained.
    """
    if isinstance(module, torch.nn.Linear | torch.nn.Conv2d) and module.weight.requires_grad:
        torch.nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            torch.nn.init.zeros_(module.bias)


def image_shape(shape: tuple[int, ...], least: int, model: str) -> tuple[int, int, int]:
    """(channels, height, width); raises ValueError unless images have ``least`` pixels a side."""
    if len(shape) != 3 or min(shape[1:]) < least:
        raise ValueError(
            f"model {model!r} needs images of at least {least}x{least}, and the inputs have shape "
            f"{shape}"
        )
    return shape[0], shape[1], shape[2]
