"""FedNova — Wang et al. (2020), "Tackling the Objective Inconsistency Problem in Heterogeneous
Federated Optimization".

Client i sends its normalised update d_i = (w − x_i) / a_i, where a_i (the paper's ‖a_i‖₁, §4) adds
up the weights of its K_i local steps:
    plain SGD     a_i = K_i
    momentum ρ    a_i = (K_i − ρ (1 − ρ^{K_i})/(1 − ρ)) / (1 − ρ), from a velocity of 0
    proximal μ    a ← a (1 − ημ) + 1 a step
Server (Eq. 5):  w ← w − τ_eff Σ p_i d_i,  τ_eff = Σ p_i a_i.
The local learning rate is inside d_i. p_i = n_i/n with ``aggregator: weighted_mean`` (the default
here, as in the paper), 1/m with ``mean``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from algorithms.contract import Updates
from algorithms.fedavg import FedAvg
from algorithms.local import LocalRule, Tensors, Work
from algorithms.part import option
from algorithms.parts.aggregators import WeightedMean
from algorithms.parts.optimizers import Optimizer, Sgd
from algorithms.setting import Composition

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Normalised(LocalRule):
    """Updates divided by the weight of the local steps."""

    momentum: float
    mu: float
    unit = "weight"

    def direction(self, gradient: Tensor, work: Work) -> Tensor:
        return gradient.add_(work.w - work.start, alpha=self.mu) if self.mu else gradient

    def step_weights(self, steps: Tensor, lr: float) -> Tensor:
        """a_i [C] for ``steps`` K_i ≥ 1 [C] with the learning rate ``lr``."""
        if not self.mu and not self.momentum:
            return steps
        # added up, in double precision: the closed forms take differences of nearly equal numbers
        # where ημ is near 0 or ρ near 1
        powers = torch.arange(int(steps.max()), dtype=torch.float64)
        keep = 1 - lr * self.mu if self.mu else self.momentum
        sums = (keep**powers).cumsum(0)
        sums = sums if self.mu else sums.cumsum(0)
        return sums.to(steps)[steps.long() - 1]

    def upload(self, work: Work) -> Tensors:
        # a client without a batch sends 0/1, with weight 0
        a = self.step_weights(work.steps.clamp_min(1), work.lr)
        return {"delta": (work.w - work.start) / a.unsqueeze(1), "weight": a * (work.steps > 0)}


class FedNova(FedAvg):
    """Normalised averaging: clients that do more steps do not count more."""

    class Options(FedAvg.Options):
        """FedAvg with updates normalised by each client's amount of local work."""

        name: str = "fednova"
        mu: float = option(0.0, "weight of a proximal term", "μ", ge=0)
        defaults = {"aggregator": WeightedMean()}

        def refuses(self, parts: Composition) -> str | None:
            local = parts.local.optimizer
            if not isinstance(local, Sgd) or local.nesterov or local.weight_decay:
                return (
                    "fednova's normalisation is for sgd with or without momentum; change "
                    "local.optimizer"
                )
            if local.momentum and parts.local.optimizer_state != "reset":
                return (
                    "fednova's normalisation of momentum counts from a velocity of 0; set "
                    "local.optimizer_state to reset"
                )
            if not parts.local.steady:
                return "fednova's normalisation is for equal rates; leave local.within at constant"
            if self.mu and local.momentum:
                return (
                    "fednova normalises momentum or a proximal term, not both; set algorithm.mu or "
                    "the momentum to 0"
                )
            if parts.aggregator.needs_rows:
                return (
                    "fednova sums updates by weights of its own; leave aggregator at weighted_mean "
                    "or mean"
                )
            if parts.server_optimizer.name != "sgd":
                return "fednova has its own server step; leave server_optimizer at sgd"
            return None

    options: Options

    def rule(self) -> LocalRule:
        return Normalised(_momentum(self.setting.parts.local.optimizer), self.options.mu)

    def apply(self, updates: Updates) -> None:
        assert updates.weights is not None  # refuses() has seen to it
        effective = float(updates.weights @ updates.scalars["weight"].to(updates.weights))
        # Eq. 5 with its minus in ``delta``: the server optimiser adds what it is given
        step = effective * self.mean(updates, "delta")
        self.w = self.setting.parts.server_optimizer.step(self.optimizer, self.w, step)
        self.take_buffers(updates)


def _momentum(optimizer: Optimizer) -> float:
    return optimizer.momentum if isinstance(optimizer, Sgd) else 0.0
