"""Local training without communication: every client has its own model, from a common initial one.

The "local" column of the FedAA tables: the same local work per round as the other methods, nothing
exchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from algorithms.algorithm import (
    Algorithm,
    AlgorithmOptions,
    fixed_work,
    nothing_sent,
    steps_by_itself,
    uniform,
)
from algorithms.contract import Clients
from algorithms.flat import ParamSpec
from algorithms.local import LocalRule, Tensors, Work
from algorithms.setting import Composition

if TYPE_CHECKING:
    from torch import Tensor


class OwnModel(LocalRule):
    """Train the client's own model, which never leaves it."""

    transmitted = False
    personal = True

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
        defaults = {"cohort": 1.0, "buffers": "local"}
        keeps_models = True
        makes_common = False

        def refuses(self, parts: Composition) -> str | None:
            return (
                nothing_sent(self.name, parts)
                or fixed_work(self.name, parts)
                or steps_by_itself(self.name, parts)
            )

    def round(self, t: int, clients: Clients) -> dict[str, float]:
        cohort = self.draw(t)
        known = {"w": self.w, "buffers": self.buffers}
        _, report = self.train(t, clients, cohort, OwnModel(), {}, known, weights=uniform(cohort))
        return report

    def personal_rule(self) -> LocalRule:
        return OwnModel()
