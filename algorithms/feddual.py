"""FedDUAL — "FedDUAL: A Dual-Strategy with Adaptive Loss and Dynamic Aggregation for Mitigating
Data Heterogeneity".

Client k (Eqs. 6-10), with p = softmax(w_k) and q = softmax(w_t) over all trained entries:
    L = (1 − β_k) CE + β_k KL(p ‖ q),            ∂KL/∂w_i = p_i (log p_i/q_i − KL),
    β_k = σ(acc_local − acc_global)  (Eq. 9)     on the client's training data,
acc_global before training. Server (Eqs. 13-16): w_{t+1} = w_t − barycenter of the clients' signals
in the last layers, w_t + mean Δ_k elsewhere; see ``parts/barycenters``, where ``aggregator: mean``
leaves out this half of the method.

The text leaves three things open, and the published code decides them against itself; ``reading``
chooses:
``ot``        acc_local is that of the local model as each local epoch begins (β = ½ in the first);
              the signal is the pseudo-gradient w_t − w_k; exact one-dimensional W₂ barycenters.
``paper_eq``  the same client; the iteration of Eqs. 15-16, normalised in the log domain.
``authors``   the published code: both accuracies before training, so that β = ½; a KL term that has
              no gradient; the signal of the last dense layer is the gradient of the summed loss at
              w_k; the iteration with 1e-10 in its denominator, which as a rule ends at zero, so
              that this layer keeps its initial values.

KL of two softmaxes over d entries is tiny, about Var_p(w_k − w_t)/2, and its gradient is smaller by
1/d than FedProx's: ``kl_scale`` of the order of d makes it felt.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch

from algorithms.fedavg import FedAvg
from algorithms.flat import slices
from algorithms.local import LocalRule, Tensors, Work
from algorithms.part import option
from algorithms.parts.barycenters import Authors, BarycentricMean, Exact, Iterated
from algorithms.setting import Composition

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class DualRule(LocalRule):
    """The loss (1 − β_k) CE + β_k KL, with β_k followed over the local epochs or fixed at ½."""

    adaptive: bool
    """False: plain cross-entropy."""
    kl_scale: float
    watches_accuracy: bool
    gradient_places: tuple[slice, ...] = ()
    """Where the upload holds −∇Σℓ at the trained model (the published code)."""
    asks_gradient: bool = False

    def begin(self, work: Work) -> Tensor:
        if self.watches_accuracy:
            work.extras["global_accuracy"] = torch.full_like(work.steps, math.nan)
            work.extras["beta"] = torch.full_like(work.steps, 0.5)
        return super().begin(work)

    def epoch(self, work: Work, starting: Tensor, accuracy: Tensor) -> None:
        known = work.extras
        # the first pass of a round starts at w_t: this is acc_global
        first = starting & known["global_accuracy"].isnan()
        known["global_accuracy"][first] = accuracy[first]
        gap = accuracy - known["global_accuracy"]
        # others are in the middle of a pass, where ``accuracy`` says nothing
        known["beta"][starting] = torch.sigmoid(gap[starting])

    def direction(self, gradient: Tensor, work: Work) -> Tensor:
        if not self.adaptive:
            return gradient
        # Eq. 12, with β = ½ where nobody measures accuracies
        beta: Any = work.extras["beta"].unsqueeze(1) if "beta" in work.extras else 0.5
        gradient.mul_(1 - beta)
        if self.kl_scale:
            gradient.add_(kl_gradient(work.w, work.start) * (self.kl_scale * beta))
        return gradient

    def upload(self, work: Work) -> Tensors:
        delta = work.w - work.start
        for s in self.gradient_places:
            # minus: the aggregate is added to w_t, and the published code subtracts its barycenter
            delta[:, s] = -work.extras["gradient"][:, s]
        return {"delta": delta}


def kl_gradient(w: Tensor, reference: Tensor) -> Tensor:
    """∇_w KL(softmax(w) ‖ softmax(reference)) [C, d], for each row of ``w`` [C, d]."""
    log_p = torch.log_softmax(w, 1)
    ratio = log_p - torch.log_softmax(reference, 1)
    p = log_p.exp_()
    return p * (ratio - (p * ratio).sum(1, keepdim=True))


class FedDual(FedAvg):
    """Adaptive loss at the clients, Wasserstein barycenters of the last layers at the server."""

    class Options(FedAvg.Options):
        """Cross-entropy and KL to the global model in adaptive parts; barycentric aggregation of
        the last layers.
        """

        name: str = "feddual"
        needs_classes = True
        reading: Literal["ot", "paper_eq", "authors"] = option(
            "ot", "sound transport, the paper's text, or its code"
        )
        adaptive_loss: bool = option(True, "use the adaptive loss; false: plain cross-entropy")
        beta: Literal["epoch", "half"] = option(
            "epoch", "measure the local accuracy at each epoch; or β = 1/2", "β"
        )
        kl_scale: float = option(1.0, "factor of the KL term; 0 leaves it out", ge=0)
        signal: Literal["update", "gradient"] = option(
            "update",
            "what the barycenter's layers send: the update, or the gradient of the summed loss "
            "after training",
        )

        presets_by: ClassVar[str] = "reading"
        presets: ClassVar[dict[str, dict[str, Any]]] = {
            "ot": {"aggregator": BarycentricMean(method=Exact())},
            "paper_eq": {"aggregator": BarycentricMean(method=Iterated())},
            "authors": {
                "aggregator": BarycentricMean(method=Authors(), layers=1),
                "algorithm.beta": "half",
                "algorithm.kl_scale": 0.0,
                "algorithm.signal": "gradient",
            },
        }

        def refuses(self, parts: Composition) -> str | None:
            if self.signal == "gradient" and not isinstance(parts.aggregator, BarycentricMean):
                return (
                    "feddual sends summed gradients only to a barycenter; set algorithm.signal to "
                    "update"
                )
            return super().refuses(parts)

    options: Options

    def rule(self) -> LocalRule:
        options, aggregator = self.options, self.setting.parts.aggregator
        watches = options.adaptive_loss and options.beta == "epoch"
        last: tuple[slice, ...] = ()
        if options.signal == "gradient" and isinstance(aggregator, BarycentricMean):
            last = slices(self.setting.spec.chosen(aggregator.layers))
        return DualRule(
            options.adaptive_loss, options.kl_scale, watches, last, asks_gradient=bool(last)
        )
