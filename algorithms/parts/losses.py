"""Losses: what local training minimises, sample by sample."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated, ClassVar

import torch
from pydantic import Field

from algorithms.part import Part, option

if TYPE_CHECKING:
    from torch import Tensor

IGNORED = -100
"""In place of the class of a token that has none: padding, or the rest of a word."""


class Loss(Part):
    """ℓ(outputs, targets) of each sample by itself: any batch's loss is the mean over its samples.

    ``outputs`` [n, o] are the model's. ``targets`` are classes [n] int64 in 0..o-1; of data without
    classes, numbers [n, o] float32; or a class for each of L tokens [n, L] int64, ``IGNORED`` where
    there is none, to outputs [n, L, o].
    """

    classes: ClassVar[bool] = True
    """Whether targets may be classes."""
    numbers: ClassVar[bool] = False
    """Whether they may be numbers."""
    tokens: ClassVar[bool] = False
    """Whether they may be classes of tokens."""
    softmax: ClassVar[bool | None] = None
    """Whether a softmax of the outputs says how likely each class is; None: nobody has said it."""

    @abstractmethod
    def per_sample(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Losses [n]."""

    def mean(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Their mean, a scalar."""
        return self.per_sample(outputs, targets).mean()

    def sum(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Their sum, a scalar."""
        return self.per_sample(outputs, targets).sum()

    def correct(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Which samples [n] are predicted right: of classes, those whose output is largest (bool);
        of numbers nobody can say it (NaN). Of tokens, which part of a sample's (float32).
        """
        if targets.is_floating_point():
            return torch.full((len(targets),), torch.nan, device=targets.device)
        hit = outputs.argmax(-1) == targets
        return hit if targets.dim() == 1 else over_tokens(hit.float(), targets)

    def scores(self, outputs: Tensor) -> Tensor:
        """A number [n, o] of each class, the larger the likelier: its probability by a softmax, or,
        where that says nothing of it, the output itself.
        """
        made = outputs.double()
        return made if self.softmax is False else made.softmax(1)

    def refuses(self, outputs: int, targets: Tensor) -> str | None:
        """Why a model of so many outputs cannot be trained towards ``targets``, or None."""
        numbers = targets.is_floating_point()
        if targets.dim() > 1 and not numbers and not self.tokens:
            return f"{self.name} is not of tokens, and the data's targets are; take cross_entropy"
        if numbers and not self.numbers:
            return f"{self.name} is of classes, and the data's targets are numbers; take mse or bce"
        if not numbers and not self.classes:
            return f"{self.name} is of numbers, and the data's targets are classes"
        return None


def over_tokens(values: Tensor, targets: Tensor) -> Tensor:
    """Means [n] of ``values`` [n, L] over each sample's tokens that have a class."""
    counted = targets != IGNORED
    return (values * counted).sum(1) / counted.sum(1).clamp_min(1)


def as_numbers(outputs: Tensor, targets: Tensor) -> Tensor:
    """Targets [n, o] float32: numbers as they are, classes as one-hot rows."""
    if targets.is_floating_point():
        return targets
    return torch.nn.functional.one_hot(targets, outputs.shape[1]).to(outputs.dtype)


class CrossEntropy(Loss):
    """−log softmax(outputs)[y], of classes; of tokens, the mean over each sample's."""

    name: str = "cross_entropy"
    softmax = True
    tokens = True
    label_smoothing: float = option(
        0.0, "part of each target that is spread evenly over all classes", ge=0, lt=1
    )
    weight: tuple[Annotated[float, Field(ge=0)], ...] = option(
        (),
        "factor of each class's term of the losses, in their order; unset: 1. The mean is over "
        "rows (torch's divides by the sum of the rows' factors)",
        max_length=100_000,
    )

    def per_sample(self, outputs: Tensor, targets: Tensor) -> Tensor:
        tokens = targets.dim() > 1
        weight = outputs.new_tensor(self.weight) if self.weight else None
        losses = torch.nn.functional.cross_entropy(
            outputs.movedim(-1, 1) if tokens else outputs,
            targets,
            weight,
            reduction="none",
            label_smoothing=self.label_smoothing,
            ignore_index=IGNORED,
        )
        return over_tokens(losses, targets) if tokens else losses

    def mean(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if self.weight or targets.dim() > 1:
            return super().mean(outputs, targets)
        # one kernel in place of two
        return torch.nn.functional.cross_entropy(
            outputs, targets, label_smoothing=self.label_smoothing
        )

    def sum(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if self.weight or targets.dim() > 1:
            return super().sum(outputs, targets)
        return torch.nn.functional.cross_entropy(
            outputs, targets, reduction="sum", label_smoothing=self.label_smoothing
        )

    def refuses(self, outputs: int, targets: Tensor) -> str | None:
        if self.weight and len(self.weight) != outputs:
            return f"weight has {len(self.weight)} numbers, and there are {outputs} classes"
        if self.weight and not any(self.weight):
            return "weight is 0 for every class, so that nothing is to be learnt"
        return super().refuses(outputs, targets)


class Focal(Loss):
    """−(1 − p)^γ log p with p = softmax(outputs)[y] (Lin et al. 2017, Equation 4)."""

    name: str = "focal"
    softmax = True
    gamma: float = option(2.0, "how much less well-predicted samples count", "γ", ge=0, le=100)

    def per_sample(self, outputs: Tensor, targets: Tensor) -> Tensor:
        log_p = -torch.nn.functional.cross_entropy(outputs, targets, reduction="none")
        # 1 − p as such would be 0 where p rounds to 1, and its power's derivative infinite
        return -(torch.expm1(log_p).neg().clamp_min(1e-12) ** self.gamma) * log_p


class MeanSquares(Loss):
    """Σ_j (outputs_j − target_j)² / o, of numbers; of classes, of their one-hot rows."""

    name: str = "mse"
    softmax = False
    numbers = True

    def per_sample(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - as_numbers(outputs, targets)).square().mean(1)


class MeanMagnitudes(Loss):
    """Σ_j |outputs_j − target_j| / o, of numbers; of classes, of their one-hot rows."""

    name: str = "l1"
    softmax = False
    numbers = True

    def per_sample(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - as_numbers(outputs, targets)).abs().mean(1)


class Huber(Loss):
    """Squares of differences up to δ, their magnitudes beyond (Huber 1964), meaned over outputs."""

    name: str = "huber"
    softmax = False
    numbers = True
    delta: float = option(1.0, "where squares end", "δ", gt=0, le=1e30)

    def per_sample(self, outputs: Tensor, targets: Tensor) -> Tensor:
        wanted = as_numbers(outputs, targets)
        return torch.nn.functional.huber_loss(
            outputs, wanted, reduction="none", delta=self.delta
        ).mean(1)


class BinaryCrossEntropy(Loss):
    """Cross-entropy of each output's sigmoid, meaned over outputs: several labels a sample, each 0
    or 1; of classes, of their one-hot rows.
    """

    name: str = "bce"
    softmax = False
    numbers = True

    def per_sample(self, outputs: Tensor, targets: Tensor) -> Tensor:
        wanted = as_numbers(outputs, targets)
        return torch.nn.functional.binary_cross_entropy_with_logits(
            outputs, wanted, reduction="none"
        ).mean(1)

    def correct(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if not targets.is_floating_point():
            return super().correct(outputs, targets)
        # all labels of a sample
        return ((outputs > 0) == (targets > 0.5)).all(1)

    def refuses(self, outputs: int, targets: Tensor) -> str | None:
        if targets.is_floating_point() and not ((targets >= 0) & (targets <= 1)).all():
            return "bce is of labels, each 0 or 1 (or between), and the data's targets are others"
        return super().refuses(outputs, targets)
