"""A network of the user's own: any ``nn.Module`` class, or function that makes one, in a plugin."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from pydantic import JsonValue
from torch import nn

from algorithms.part import nearest, option
from orchestrator.models.base import Model
from orchestrator.plugins import find


class OwnModule(Model):
    """What a plugin has under a name, called with what its signature asks for; a config says it in
    short as ``model: ./nets.py:Net``.

    It may ask for the inputs' ``shape`` (or ``input_shape``), ``channels`` (``in_channels``),
    ``features`` (``in_features``: their product), and for ``classes`` (``num_classes``,
    ``n_classes``); all else is for ``options`` to say.
    """

    name: str = "own"
    of: str = option("", "PLUGIN:NAME, a plugin (its file's name without .py) and what is called")
    options: dict[str, JsonValue] = option({}, "keyword arguments of the call")

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        try:
            module = self._called(find(self.of), shape, classes)
        except ValueError:
            raise
        except Exception as error:  # whatever code of others may raise
            raise ValueError(f"model: {self.of}: {_why(error)}") from error
        if not isinstance(module, nn.Module):
            raise ValueError(f"model: {self.of} makes a {type(module).__name__}, and no nn.Module")
        if module.training and len(shape) in (1, 3):
            _require_logits(self.of, module, shape, classes)
        return module

    def _called(self, made: object, shape: tuple[int, ...], classes: int) -> object:
        if not callable(made):
            raise ValueError(f"model: {self.of} is a {type(made).__name__}, which cannot be called")
        return made(**_arguments(self.of, made, _facts(shape, classes), self.options))


def _facts(shape: tuple[int, ...], classes: int) -> dict[str, Any]:
    """Everything that a signature may ask for."""
    product = math.prod(shape)
    return {
        "shape": shape, "input_shape": shape, "channels": shape[0], "in_channels": shape[0],
        "features": product, "in_features": product,
        "classes": classes, "num_classes": classes, "n_classes": classes,
    }  # fmt: skip


def _arguments(
    of: str, made: Callable[..., object], facts: Mapping[str, Any], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Keyword arguments for a call; raises ValueError for options that it does not take, or that
    are missing.
    """
    parameters = inspect.signature(made).parameters
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    unknown = [name for name in options if name not in parameters and not takes_all]
    if unknown:
        raise ValueError(
            f"model: {of} takes no {unknown[0]!r}; {nearest(unknown[0], [*parameters])}"
        )
    given = {name: facts[name] for name in parameters if name in facts} | dict(options)
    variable = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    missing = [
        name
        for name, p in parameters.items()
        if p.default is p.empty and p.kind not in variable and name not in given
    ]
    if missing:
        raise ValueError(
            f"model: {of} needs {', '.join(missing)}: give it among the options, or a default"
        )
    return given


def _require_logits(of: str, module: nn.Module, shape: tuple[int, ...], classes: int) -> None:
    """Raises ValueError unless inputs [2, *shape] become float32 [2, classes]."""
    module.eval()
    try:
        with torch.no_grad():
            out = module(torch.zeros(2, *shape))
    except Exception as error:  # whatever code of others may raise
        raise ValueError(f"model: {of}: inputs of shape {(2, *shape)}: {_why(error)}") from error
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


def _why(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]
