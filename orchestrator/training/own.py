"""Losses and metrics of a user's own: functions in plugins."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import torch

from algorithms.part import option
from algorithms.parts.losses import Loss
from algorithms.parts.metrics import Metric, dummy
from orchestrator.errors import UserError
from orchestrator.plugins.own import Own

if TYPE_CHECKING:
    from torch import Tensor


def _facts(outputs: Tensor, targets: Tensor) -> dict[str, Any]:
    """Everything that a signature may ask for."""
    return {
        "outputs": outputs, "logits": outputs, "predictions": outputs, "input": outputs,
        "targets": targets, "target": targets, "labels": targets,
    }  # fmt: skip


class OwnLoss(Own, Loss):
    """A function of a model's ``outputs`` [n, o] and the ``targets`` ([n] classes; [n, o] numbers;
    [n, L] classes of tokens, where outputs are [n, L, o]) that returns the samples' losses [n]; a
    config says it in short as ``loss: ./losses.py:focal``.
    """

    name: str = "own"
    numbers = True
    tokens = True

    def per_sample(self, outputs: Tensor, targets: Tensor) -> Tensor:
        try:
            losses = self.made("loss", _facts(outputs, targets))
        except ValueError as error:
            raise UserError(f"config: {error}") from error
        n = len(outputs)
        if not isinstance(losses, torch.Tensor) or losses.shape != (n,):
            found = (
                tuple(losses.shape) if isinstance(losses, torch.Tensor) else type(losses).__name__
            )
            raise UserError(
                f"config: loss: {self.of} returns {found} for {n} samples, and not a loss for each "
                f"({n},)"
            )
        return losses

    def refuses(self, outputs: int, targets: Tensor) -> str | None:
        """Try it: it must be a loss of each sample, which no other sample has a part in."""
        made, wanted = dummy(5, outputs, targets)
        made.requires_grad_()
        losses = self.per_sample(made, wanted)
        if losses.dtype != torch.float32:
            return f"{self.of} returns {losses.dtype}, and not float32"
        if not losses.requires_grad:
            return f"{self.of} has no gradient: compute it with torch, of the outputs themselves"
        alone = torch.cat([self.per_sample(made[i : i + 1], wanted[i : i + 1]) for i in range(5)])
        if not torch.allclose(losses, alone, rtol=1e-4, atol=1e-5, equal_nan=True):
            return f"{self.of}: a sample's loss depends on the other samples of its batch"
        return None


class OwnMetric(Own, Metric):
    """A function of a model's ``outputs`` [n, o] and the ``targets`` of n rows that returns a
    number; a config says it in short as ``evaluation.metrics: [./metrics.py:mine]``.
    """

    name: str = "own"
    better: Literal["more", "less"] | None = option(
        None,
        "which way it is better; unset: as its name says (less of a loss or an error, more of an "
        "accuracy), or neither, and no client is the worst",
    )

    @property
    def called(self) -> str:
        return self.of.rpartition(":")[2]

    @property
    def more_is_better(self) -> bool | None:  # type: ignore[override]
        return None if self.better is None else self.better == "more"

    def value(self, outputs: Tensor, targets: Tensor) -> float:
        found = self.made("evaluation.metrics", _facts(outputs, targets))
        try:
            return float(found)
        except OverflowError:  # a whole number beyond all floats
            return math.inf if found > 0 else -math.inf
        except (TypeError, ValueError, RuntimeError) as error:
            kind = type(found).__name__
            raise ValueError(
                f"evaluation.metrics: {self.of} returns a {kind}, and no number"
            ) from error

    def refuses(self, targets: Tensor) -> str | None:
        """Anything is taken that makes a number of what it is tried on."""
        outputs = targets.shape[1] if targets.is_floating_point() else int(targets.max()) + 1
        value = self.value(*dummy(8, outputs, targets))
        return f"{self.of} is infinite" if math.isinf(value) else None
