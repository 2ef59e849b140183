"""Local training without communication: every client keeps its own model from the common initial one.

The "local" column of the FedAA tables: the same local work per round as the other methods, nothing exchanged.
"""

from __future__ import annotations

from torch import Tensor

from algorithms.algorithm import Algorithm, AlgorithmOptions, Clients, uniform
from algorithms.flat import ParamSpec
from algorithms.local import LocalRule, Tensors, Work


class OwnModel(LocalRule):
    """Train the client's own model, which never leaves it."""

    def state(self, received: Tensors, spec: ParamSpec) -> Tensors:
        return {"model": received["w"]}

    def begin(self, work: Work) -> Tensor:
        return work.state["model"]

    def upload(self, work: Work) -> Tensors:
        work.state["model"] = work.w.clone()
        return {}


class Local(Algorithm):
    """No communication; judged by the personal models."""

    class Options(AlgorithmOptions):
        """Each client trains alone on its own data."""

        name: str = "local"
        defaults = {"cohort": 1.0}

    def round(self, t: int, clients: Clients) -> dict[str, float]:
        cohort = self.draw(t)
        known = {"w": self.w, "buffers": self.buffers}
        with clients.train(cohort, OwnModel(), received={}, known=known) as training:
            training.advance()
            training.collect(uniform(cohort))
        return {}

    def personal_rule(self) -> LocalRule:
        return OwnModel()
