"""Metrics beside accuracy and loss: what an evaluation says of a model's outputs on some rows."""

from __future__ import annotations

import re
import warnings
from abc import abstractmethod
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch

from algorithms.contract import Broken
from algorithms.part import Part
from algorithms.parts.losses import IGNORED, Loss

if TYPE_CHECKING:
    from torch import Tensor


BAD = "_(loss|error|error_rate|mae|mse|rmse|nll|perplexity|brier|brier_score|ece)"
"""How names of metrics end of which less is better."""
GOOD = (
    "(accuracy|acc|f1|f1_macro|f1_score|auroc|auc|r2|precision|recall|specificity|sensitivity"
    "|kappa|mcc|iou|dice|bleu|rouge)"
)
"""The last words of names of those of which more is."""


def side_of(name: str) -> bool | None:
    """Whether more of a metric of that name is better; None: it does not say, as of what is turned
    round (``neg_mse``).
    """
    if re.match("(neg|negative|minus|inverse)_", name, re.IGNORECASE):
        return None
    if re.search(f"{BAD}$", f"_{name}", re.IGNORECASE):
        return False
    return True if re.search(f"_{GOOD}$", f"_{name}", re.IGNORECASE) else None


def nameable(name: object) -> bool:
    """Whether a number can have this name in every form in which tables are written."""
    return isinstance(name, str) and name != "" and name.isprintable()


class Metric(Part):
    """A number for the outputs [n, o] of a model on n rows with ``targets`` (see
    :class:`algorithms.parts.losses.Loss`). Where these are of tokens, the rows are tokens.
    """

    more_is_better: ClassVar[bool | None] = None
    """None: as its name says (:func:`side_of`); of one that does not, neither is."""
    classes: ClassVar[bool] = True
    """Whether targets are classes, or else numbers; None: both will do."""
    given: ClassVar[Literal["outputs", "scores", "odds"]] = "outputs"
    """What it is made from: the model's outputs, or the loss's ``scores`` of them; with ``odds``
    these are to be probabilities."""

    @property
    def called(self) -> str:
        """What it is recorded as, after test_, validation_ and so on."""
        return self.name

    @property
    def side(self) -> bool | None:
        """Whether more is better; None where nobody has said it: then no client is the worst."""
        return side_of(self.called) if self.more_is_better is None else self.more_is_better

    @abstractmethod
    def value(self, outputs: Tensor, targets: Tensor) -> float:
        """Of at least one row; NaN where there is none for these."""

    def number(self, outputs: Tensor, targets: Tensor) -> float:
        """:meth:`value` as a float; raises Broken if that is no number."""
        found = self.value(outputs, targets)
        if not isinstance(found, Real) or isinstance(found, bool):
            kind = type(found).__name__
            raise Broken(f"metric {self.name}: its value is a {kind}; give a number (float)")
        return float(found)

    def refuses(self, targets: Tensor) -> str | None:
        """Why it is nothing for such targets, or None."""
        if targets.is_floating_point() != self.classes:
            return None
        kinds = ("numbers", "classes") if self.classes else ("classes", "numbers")
        return f"{self.name} is of {kinds[1]}, and the data's targets are {kinds[0]}"

    def refuses_loss(self, loss: Loss) -> str | None:
        """Why it is nothing for models that are trained by such a ``loss``, or None."""
        if self.given != "odds" or loss.softmax is not False:
            return None
        return f"{self.name} is of probabilities, and a model of loss {loss.name} gives none"


class _OfTorchmetrics(Metric):
    """One of torchmetrics' for several classes (``pip install 'fedorch[metrics]'``)."""

    function: ClassVar[str]
    settings: ClassVar[dict[str, Any]] = {}

    def value(self, outputs: Tensor, targets: Tensor) -> float:
        return float(self._found(outputs, targets))

    def _found(self, outputs: Tensor, targets: Tensor) -> Tensor:
        import torchmetrics.functional.classification as functional

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of classes without rows, which clients have
            one = getattr(functional, self.function)
            many = outputs.shape[1]
            found: Tensor = one(outputs.double(), targets, num_classes=many, **self.settings)
            return found

    def refuses(self, targets: Tensor) -> str | None:
        try:
            import torchmetrics  # noqa: F401
        except ImportError:
            return f"{self.name} is torchmetrics': pip install 'fedorch[metrics]'"
        return super().refuses(targets)


class MacroF1(_OfTorchmetrics):
    """F1 = 2 TP / (2 TP + FP + FN) of each class, meaned over the classes that have rows or are
    predicted for some (which then is 0 where the class has none), as in scikit-learn.
    """

    name: str = "f1_macro"
    function = "multiclass_f1_score"
    settings = {"average": "macro"}


class BalancedAccuracy(_OfTorchmetrics):
    """Accuracy within each class, meaned over the classes that have rows."""

    name: str = "balanced_accuracy"
    function = "multiclass_accuracy"
    settings = {"average": "none"}

    def value(self, outputs: Tensor, targets: Tensor) -> float:
        # torchmetrics counts a class without rows as 0 as soon as a row is taken for one of it
        return float(self._found(outputs, targets)[targets.unique()].mean())


class Auroc(_OfTorchmetrics):
    """Area under the receiver operating characteristic of each class against the others, by its
    scores, meaned over the classes that have rows; NaN for rows of one class only.
    """

    name: str = "auroc"
    given = "scores"
    function = "multiclass_auroc"
    settings = {"average": "none"}

    def value(self, outputs: Tensor, targets: Tensor) -> float:
        there = targets.unique()
        if len(there) < 2 or outputs.isnan().any():
            return float("nan")
        # torchmetrics counts a class without rows as 0, and a client's rows are of few classes
        return float(self._found(_up_to_one(outputs), targets)[there].mean())


def _up_to_one(scores: Tensor) -> Tensor:
    """In the same order, each class by itself: of others than 0 to 1 torchmetrics would take the
    softmax.
    """
    if scores.min() >= 0 and scores.max() <= 1:
        return scores
    low, high = scores.double().amin(0), scores.double().amax(0)
    return (scores.double() - low) / torch.where(high > low, high - low, 1.0)


class CalibrationError(_OfTorchmetrics):
    """Expected calibration error: confidence against accuracy in 15 bins (Naeini et al. 2015)."""

    name: str = "calibration_error"
    given = "odds"
    function = "multiclass_calibration_error"
    more_is_better = False


class MeanAbsoluteError(Metric):
    """Mean of |output − target| over rows and outputs."""

    name: str = "mae"
    more_is_better = False
    classes = False

    def value(self, outputs: Tensor, targets: Tensor) -> float:
        return float((outputs.double() - targets).abs().mean())


class RootMeanSquare(Metric):
    """Root of the mean of (output − target)² over rows and outputs."""

    name: str = "rmse"
    more_is_better = False
    classes = False

    def value(self, outputs: Tensor, targets: Tensor) -> float:
        return float((outputs.double() - targets).square().mean().sqrt())


class R2(Metric):
    """1 − Σ (output − target)² / Σ (target − mean target)² of each output, meaned over outputs; NaN
    where the targets do not differ.
    """

    name: str = "r2"
    classes = False

    def value(self, outputs: Tensor, targets: Tensor) -> float:
        y = targets.double()
        total = (y - y.mean(0)).square().sum(0)
        if not (total > 0).all():
            return float("nan")
        return float((1 - (outputs.double() - y).square().sum(0) / total).mean())


def each_token(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs [n, L, o] and classes [n, L] of tokens as those of rows, [N, o] and [N]: the tokens
    that have a class, for metrics of classes.
    """
    counted = targets != IGNORED
    return outputs[counted], targets[counted]


def dummy(n: int, outputs: int, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs [n, o] and targets of the kind of ``targets``, to try a loss or metric on."""
    generator = torch.Generator().manual_seed(0)
    made = torch.randn(n, outputs, generator=generator)
    if targets.is_floating_point():
        return made, torch.rand(n, outputs, generator=generator)
    if targets.dim() > 1:
        places = targets.shape[1]
        made = torch.randn(n, places, outputs, generator=generator)
        return made, (torch.arange(n * places) % outputs).view(n, places)
    return made, torch.arange(n) % outputs
