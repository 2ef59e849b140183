"""lp-proj — Lin et al. (NeurIPS 2022), "Personalized Federated Learning towards Communication
Efficiency, Robustness and Fairness".

Every client keeps a model θ_k; what it shares is a d'-dimensional ω_k, held to the
projection P θ_k. With P [d', d] the same for all (rows drawn from N(0, I) and brought to length 1,
from the shared seed, so never transmitted), client k minimises f_k(θ) + R(ω − P θ) in turns,
starting from the server's ω:
    θ ← θ − η (∇f_k(θ) + λ Pᵀ r(P θ − ω_k))      ``steps_between`` times (or what is left of the
                                                 local work)
    ω_k ← ω_k − η λ r(ω_k − P θ)
    lp-proj-2:  R = λ/2 ‖·‖²,   r(z) = z
    lp-proj-1:  R = λ ‖·‖₁,     r(z) = sign(z)
The server mixes in the aggregate of the cohort: ω ← (1 − β) ω + β mean_k ω_k. ω starts at 0. There
is no global model: clients are judged by θ_k.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch

from algorithms.algorithm import Algorithm, AlgorithmOptions, fixed_work
from algorithms.contract import Clients
from algorithms.draws import torch_generator
from algorithms.local import LocalRule, Tensors, Work
from algorithms.local_only import OwnModel
from algorithms.part import option
from algorithms.parts.barycenters import BarycentricMean
from algorithms.parts.server_optimizers import ServerSgd
from algorithms.setting import Composition

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Projected(OwnModel):
    """Alternating steps on the client's model and on its projection; sends the projection."""

    p: int = 2
    """The norm, 1 or 2."""
    strength: float = 0.0
    """λ ≥ 0."""
    steps_between: int = 1
    """Steps of θ_k between two of ω_k, at least 1."""
    transmitted = True

    def begin(self, work: Work) -> Tensor:
        rows = len(work.clients)
        work.extras["reference"] = work.received["reference"].expand(rows, -1).clone()
        work.extras["done"] = torch.zeros(rows, device=work.samples.device)
        work.extras["rate"] = torch.full_like(work.extras["done"], work.lr)
        return work.state["model"]

    def direction(self, gradient: Tensor, work: Work) -> Tensor:
        # rows are clients: r P here is the formula's Pᵀ r
        return gradient.add_(self._pull(work) @ work.received["projection"], alpha=self.strength)

    def after_step(self, work: Work) -> None:
        # clients do not all step equally often, so each has its own count of steps
        work.extras["done"] += 1
        work.extras["rate"].fill_(work.lr)
        self._turn(work, work.extras["done"] % self.steps_between == 0)

    def upload(self, work: Work) -> Tensors:
        # a turn that the end of the local work has cut short is owed its step of ω_k
        self._turn(work, work.extras["done"] % self.steps_between != 0)
        super().upload(work)
        return {"reference": work.extras["reference"]}

    def _turn(self, work: Work, whose: Tensor) -> None:
        """The step of ω_k for the clients in the mask ``whose`` [C]."""
        # plus, because r is odd: −r(ω − P θ) = r(P θ − ω)
        # each client's last rate: they do not all end at once
        rate = (work.extras["rate"] * whose).unsqueeze(1)
        work.extras["reference"] += rate * self.strength * self._pull(work)

    def _pull(self, work: Work) -> Tensor:
        """r(P θ − ω) [C, d']."""
        gap = work.w @ work.received["projection"].T - work.extras["reference"]
        return gap if self.p == 2 else gap.sign()


class LpProj(Algorithm):
    """Personal models tied together in a low-dimensional space."""

    class Options(AlgorithmOptions):
        """Personal models whose random projections are held to a shared point; only projections are
        sent.
        """

        name: str = "lp_proj"
        p: Literal[1, 2] = option(2, "norm of the penalty: lp-proj-1 or lp-proj-2", "p")
        dimension: int = option(10, "dimension of the shared space", "d'", ge=1, le=10_000)
        strength: float = option(15.0, "weight of the penalty", "λ", ge=0)
        mixing: float = option(
            1.0, "how much of the cohort's aggregate the server takes", "β", gt=0, le=1
        )
        steps_between: int = option(20, "local steps between two steps of ω_k", ge=1)

        defaults = {"buffers": "local"}
        keeps_models = True
        makes_common = False

        def refuses(self, parts: Composition) -> str | None:
            if parts.server_optimizer != ServerSgd():
                return "lp_proj has its own server step; leave server_optimizer at plain sgd"
            if isinstance(parts.aggregator, BarycentricMean):
                return (
                    "lp_proj's clients send points of its shared space, which have no layers; "
                    f"aggregator {parts.aggregator.name} goes by them"
                )
            return fixed_work(self.name, parts)

    options: Options
    server_state = ("w", "buffers", "reference")

    def start(self) -> None:
        d, dimension = self.setting.spec.size, self.options.dimension
        if dimension > d:
            raise ValueError(
                f"lp_proj's dimension {dimension} is larger than the model's {d} parameters"
            )
        draw = torch_generator(self.setting.seed, "projection")
        rows = torch.randn(dimension, d, generator=draw)
        self.projection = (rows / torch.linalg.vector_norm(rows, dim=1, keepdim=True)).to(self.w)
        self.reference = torch.zeros(dimension).to(self.w)

    def round(self, t: int, clients: Clients) -> dict[str, float]:
        cohort = self.draw(t)
        known = {"w": self.w, "buffers": self.buffers, "projection": self.projection}
        received = {"reference": self.reference}
        updates, report = self.train(
            t, clients, cohort, self.rule(), received, known, weights=self.weights(cohort)
        )
        beta = self.options.mixing
        self.reference = (1 - beta) * self.reference + beta * self.aggregate(updates, "reference")
        return report

    def personal_rule(self) -> LocalRule:
        return OwnModel()

    def rule(self) -> LocalRule:
        """The client side."""
        return Projected(self.options.p, self.options.strength, self.options.steps_between)
