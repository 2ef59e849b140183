"""A network of the user's own: any ``torch.nn.Module`` class, or function that makes one."""

from __future__ import annotations

import math
from typing import Any

import torch

from orchestrator.models.base import Model
from orchestrator.plugins.own import Own


class OwnModule(Own, Model):
    """What a plugin has under a name, called with what its signature asks for; a config says it in
    short as ``model: ./nets.py:Net``.

    It may ask for the inputs' ``shape`` (or ``input_shape``), ``channels`` (``in_channels``),
    ``features`` (``in_features``: their product), and for ``classes`` (``num_classes``,
    ``n_classes``); all else is for ``options`` to say.
    """

    name: str = "own"

    @property
    def foreign(self) -> str:
        return self.of

    def build(self, shape: tuple[int, ...], classes: int) -> torch.nn.Module:
        module = self.made("model", _facts(shape, classes))
        if not isinstance(module, torch.nn.Module):
            raise ValueError(f"model: {self.of} makes a {type(module).__name__}, and no nn.Module")
        return module


def _facts(shape: tuple[int, ...], classes: int) -> dict[str, Any]:
    """Everything that a signature may ask for."""
    product = math.prod(shape)
    return {
        "shape": shape, "input_shape": shape, "channels": shape[0], "in_channels": shape[0],
        "features": product, "in_features": product,
        "classes": classes, "num_classes": classes, "n_classes": classes,
    }  # fmt: skip
