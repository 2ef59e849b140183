"""FedDyn — Acar et al., "Federated Learning Based on Dynamic Regularization" (ICLR 2021).

Algorithm 1. Client k in P_t takes local steps towards
    θ_k ≈ argmin L_k(θ) − ⟨∇L_k(θ_k^{t−1}), θ⟩ + α/2 ‖θ − θ^{t−1}‖²
along  g − g_k + α (θ − θ^{t−1});        then  g_k ← g_k − α (θ_k − θ^{t−1}).
Server: h ← h − (α/m) Σ_{P_t} (θ_k − θ^{t−1});   θ^t = mean_{P_t} θ_k − h/α,   with m clients in
all. g_k estimates client k's gradient at the solution and starts at 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from algorithms.algorithm import steps_by_itself
from algorithms.contract import Updates
from algorithms.fedavg import FedAvg
from algorithms.flat import ParamSpec
from algorithms.local import LocalRule, Tensors, Work, zeros
from algorithms.part import option
from algorithms.setting import Composition

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class DynamicRegularizer(LocalRule):
    """The client side of FedDyn and DRDM: two penalties, and the stored local gradient g_k."""

    mu: float
    """α in FedDyn, μ in DRDM; positive."""
    radius: float | None = None
    """Project local models onto the L2 ball of this radius after every step; None: do not."""

    def state(self, received: Tensors, spec: ParamSpec) -> Tensors:
        return {"gradient": zeros(spec)}

    def direction(self, gradient: Tensor, work: Work) -> Tensor:
        # DRDM Eq. 6
        return gradient.sub_(work.state["gradient"]).add_(work.w - work.start, alpha=self.mu)

    def after_step(self, work: Work) -> None:
        # DRDM Eq. 5: W is a ball around 0, and models inside it are left alone
        if self.radius is not None:
            norms = torch.linalg.vector_norm(work.w, dim=1, keepdim=True)
            work.w.mul_((self.radius / norms.clamp_min(1e-12)).clamp_max(1.0))

    def upload(self, work: Work) -> Tensors:
        delta = work.w - work.start
        # the first-order condition of the local problem (DRDM Eq. 4): no gradient is computed anew
        work.state["gradient"] = work.state["gradient"] - self.mu * delta
        return {"delta": delta}


class FedDyn(FedAvg):
    """Dynamic regularisation with the config's sampler."""

    class Options(FedAvg.Options):
        """FedAvg with a local penalty that makes the clients' optima agree with the global one."""

        name: str = "feddyn"
        mu: float = option(0.1, "weight of the dynamic regulariser", "α", gt=0)

        def refuses(self, parts: Composition) -> str | None:
            return steps_by_itself(self.name, parts)

    options: Options
    server_state = (*FedAvg.server_state, "control")

    def start(self) -> None:
        super().start()
        self.control = zeros(self.setting.spec)

    def rule(self) -> LocalRule:
        return DynamicRegularizer(self.options.mu)

    def apply(self, updates: Updates) -> None:
        delta, mu = self.mean(updates, "delta"), self.options.mu
        # |P_t|/m times a mean is (1/m) Σ; clients that were dropped have not changed their g_k
        self.control = self.control - mu * len(updates.clients) / self.setting.clients * delta
        self.w = self.w + delta - self.control / mu
        self.take_buffers(updates)
