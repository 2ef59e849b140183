"""Packages that only some parts and commands need, and the extra that brings each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.errors import UserError

EXTRAS = {
    "torchvision": "vision",
    "transformers": "text",
    "datasets": "text",
    "peft": "text",
    "ot": "transport",
    "gymnasium": "rl",
    "tree": "rl",
    "lz4": "rl",
    "ray.rllib": "rl",
    "tensorboardX": "tune",
    "optuna": "optuna",
    "torchmetrics": "metrics",
    "timm": "timm",
    "onnx": "onnx",
    "onnxscript": "onnx",
}
"""Module -> extra of this distribution."""


@contextmanager
def named_if_missing() -> Iterator[None]:
    """Raise UserError, with the extra to install, for an import of a module that is not there."""
    try:
        yield
    except ImportError as error:
        name = error.name or ""
        found = next((key for key in (name, name.partition(".")[0]) if key in EXTRAS), None)
        if found is None:
            raise
        raise UserError(
            f"this needs the package {found}, which is not installed here: pip install "
            f"'fedorch[{EXTRAS[found]}]'"
        ) from error
