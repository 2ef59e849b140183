"""DR-DSGD — Issaid et al. (2022), "DR-DSGD: A Distributionally Robust Decentralized Learning
Algorithm over Graphs".

KL-regularised robust objective  min_θ μ log (1/K Σ_i exp(f_i(θ)/μ)), without a server. Algorithm 1,
every round:
    θ_i ← Σ_j W_ij (θ_j − η (h_j/μ) g_j(θ_j)),      h_j = exp(ℓ_j(θ_j)/μ),
with g_j and ℓ_j on the same mini-batch and W a doubly stochastic mixing matrix. μ → ∞ with ηh/μ
fixed is DSGD, which ``robust: false`` gives (steps η g_j). The server process stands in for the
network: it holds the clients' models and applies W; the ledger books what neighbours send each
other. The judged model is the mean over clients; each client's own model is judged as a personal
one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import torch
from pydantic import SerializeAsAny

from algorithms.algorithm import (
    Algorithm,
    AlgorithmOptions,
    everyone,
    fixed_work,
    nothing_sent,
    steps_by_itself,
    uniform,
)
from algorithms.contract import Clients, Influence
from algorithms.figure import Figure
from algorithms.local import GivenModel, Work
from algorithms.part import chosen_from, option
from algorithms.parts.graphs import Graph, Ring
from algorithms.setting import Composition

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class RobustStep(GivenModel):
    """A step from the client's own model, scaled by h/μ."""

    mu: float | None
    transmitted = False

    def direction(self, gradient: Tensor, work: Work) -> Tensor:
        if self.mu is None:
            return gradient
        # h_j/μ [C], from the losses of the very mini-batches that gave the gradients
        return gradient.mul_((work.loss / self.mu).exp().div(self.mu).unsqueeze(1))


class DRDSGD(Algorithm):
    """Distributionally robust decentralised SGD."""

    class Options(AlgorithmOptions):
        """Gossip over a graph with local steps that weigh high losses exponentially."""

        name: str = "drdsgd"
        records = {"consensus_gap": "mean distance of the clients' models from their mean"}
        figures = (
            Figure(
                "consensus",
                "How far the clients' models are apart",
                "mean distance of the models from their mean, which gossip brings down",
                "L2 distance",
                {"consensus_gap": "mean distance from the mean"},
            ),
        )
        needs_rows = True
        keeps_models = True
        common = "the mean of the clients' models"
        mu: float = option(6.0, "temperature of the KL regulariser", "μ", gt=0)
        robust: bool = option(True, "scale steps by exp(ℓ/μ)/μ; false: plain decentralised SGD")
        graph: Annotated[SerializeAsAny[Graph], chosen_from(Graph)] = option(
            Ring(), "who talks to whom", "W"
        )
        defaults = {"cohort": 1.0, "local.steps": 1, "buffers": "local"}
        needs_whole_cohort = True

        def refuses(self, parts: Composition) -> str | None:
            return (
                nothing_sent(self.name, parts)
                or fixed_work(self.name, parts)
                or everyone(self.name, parts)
                or steps_by_itself(self.name, parts)
            )

    options: Options
    server_state: ClassVar[tuple[str, ...]] = ("w", "buffers", "models")

    def start(self) -> None:
        n = self.setting.clients
        self.models = self.w.expand(n, -1).clone()
        self.mixing = self.options.graph.mixing(n, self.setting.seed)

    def round(self, t: int, clients: Clients) -> dict[str, float]:
        cohort = self.draw(t)
        rule = RobustStep(self.options.mu if self.options.robust else None)
        known = {"w": self.w, "buffers": self.buffers}
        updates, report = self.train(
            t, clients, cohort, rule, {}, known, own={"model": self.models}
        )
        moved = self.models + updates.rows("delta")
        # the judged model is the clients' mean, and so are its statistics
        self.influence = Influence(updates.clients, uniform(cohort))
        self.take_buffers(updates)
        self.models = torch.from_numpy(self.mixing).to(moved) @ moved
        # less one, since Metropolis weights are positive on the diagonal, too
        neighbours = (self.mixing > 0).sum(1) - 1
        clients.exchange(cohort.ids, neighbours * self.w.numel() * self.w.element_size())
        self.w = self.models.mean(0)
        gap = torch.linalg.vector_norm(self.models - self.w, dim=1).mean()
        return report | {"consensus_gap": float(gap)}

    def personal_models(self) -> Tensor:
        return self.models
