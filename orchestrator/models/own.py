"""A network of the user's own: any ``nn.Module`` class, or function that makes one, in a plugin."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from orchestrator.models.base import Model
from orchestrator.plugins import Own, raised


class OwnModule(Own, Model):
    """What a plugin has under a name, called with what its signature asks for; a config says it in
    short as ``model: ./nets.py:Net``.

    It may ask for the inputs' ``shape`` (or ``input_shape``), ``channels`` (``in_channels``),
    ``features`` (``in_features``: their product), and for ``classes`` (``num_classes``,
    ``n_classes``); all else is for ``options`` to say.
    """

    name: str = "own"

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        module = self.made("model", _facts(shape, classes))
        if not isinstance(module, nn.Module):
            raise ValueError(f"model: {self.of} makes a {type(module).__name__}, and no nn.Module")
        if module.training and len(shape) in (1, 3):
            _require_logits(self.of, module, shape, classes)
        return module


def _facts(shape: tuple[int, ...], classes: int) -> dict[str, Any]:
    """Everything that a signature may ask for."""
    product = math.prod(shape)
    return {
        "shape": shape, "input_shape": shape, "channels": shape[0], "in_channels": shape[0],
        "features": product, "in_features": product,
        "classes": classes, "num_classes": classes, "n_classes": classes,
    }  # fmt: skip


def _require_logits(of: str, module: nn.Module, shape: tuple[int, ...], classes: int) -> None:
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
