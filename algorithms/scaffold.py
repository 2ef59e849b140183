"""SCAFFOLD — Karimireddy et al., "Stochastic Controlled Averaging for Federated Learning" (2020).

Algorithm 1, option II. Client i in S (line numbers of the paper's box):
    line 10:  y ← y − η_l (g_i(y) − c_i + c)
    line 12:  c_i⁺ ← c_i − c + (x − y) / (K η_l)      (Σ η_l of its steps, where these differ)
    line 13:  send (Δy, Δc) = (y − x, c_i⁺ − c_i)
Server:
    lines 16–17:  x ← x + η_g mean_S Δy,     c ← c + (|S|/N) mean_S Δc
Control variates start at 0; K is the number of steps that the client did.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from algorithms.contract import Clients, Updates
from algorithms.fedavg import FedAvg
from algorithms.figure import Figure
from algorithms.flat import ParamSpec
from algorithms.local import LocalRule, Tensors, Work
from algorithms.parts.aggregators import Mean
from algorithms.parts.optimizers import Sgd
from algorithms.setting import Composition

if TYPE_CHECKING:
    from torch import Tensor

SMALLEST = 1e-30
"""Reach of a client that did no step, in a division of 0."""


@dataclass(frozen=True)
class ControlVariate(LocalRule):
    """SCAFFOLD's client: gradients corrected in one part of the model, and option II for c_i."""

    part: slice
    """The corrected entries of the vector, as many as c and c_i have."""

    def state(self, received: Tensors, spec: ParamSpec) -> Tensors:
        return {"control": torch.zeros_like(received["control"])}

    def direction(self, gradient: Tensor, work: Work) -> Tensor:
        # line 10
        gradient[:, self.part].sub_(work.state["control"]).add_(work.received["control"])
        return gradient

    def upload(self, work: Work) -> Tensors:
        delta = work.w - work.start
        scale = work.reach.clamp_min(SMALLEST).unsqueeze(1)
        # line 12 less c_i: only its change is needed, and c_i cancels out
        change = -work.received["control"] - delta[:, self.part] / scale
        # a client without a batch learns nothing about its gradient
        change = change * (work.steps > 0).unsqueeze(1)
        work.state["control"] = work.state["control"] + change
        return {"delta": delta, "control": change}


class Scaffold(FedAvg):
    """Drift-corrected federated averaging with control variates."""

    class Options(FedAvg.Options):
        """FedAvg whose clients correct their gradients by the difference of control variates c −
        c_i.
        """

        name: str = "scaffold"
        records = {"control_norm": "‖c‖, L2 norm of the server's control variate"}
        figures = (
            Figure(
                "control",
                "The server's control variate",
                "‖c‖: c is the mean of the clients' c_i, which are gradients",
                "L2 norm",
                {"control_norm": "‖c‖"},
            ),
        )

        def refuses(self, parts: Composition) -> str | None:
            local = parts.local.optimizer
            if not isinstance(local, Sgd) or local.momentum or local.weight_decay:
                return (
                    f"{self.name}'s control variates are gradients of plain SGD; set "
                    "local.optimizer to sgd"
                )
            if parts.local.schedule.ends_at_zero:
                return (
                    f"{self.name} divides by the local rate, which this schedule lets end at 0; "
                    "give local.schedule a floor"
                )
            if not isinstance(parts.aggregator, Mean):
                return f"{self.name} averages uniformly over the cohort; set aggregator to mean"
            if not parts.sampler.distinct:
                return (
                    f"{self.name} needs distinct clients, and the sampler {parts.sampler.name!r} "
                    "may repeat them"
                )
            return None

    server_state = (*FedAvg.server_state, "control")

    def start(self) -> None:
        super().start()
        self.control = torch.zeros_like(self.w[self.part])

    @property
    def part(self) -> slice:
        """The part of the model whose gradients are corrected: all of it."""
        return slice(0, self.setting.spec.size)

    def rule(self) -> LocalRule:
        return ControlVariate(self.part)

    def broadcast(self) -> Tensors:
        return {**super().broadcast(), "control": self.control}

    def round(self, t: int, clients: Clients) -> dict[str, float]:
        report = super().round(t, clients)
        return report | {"control_norm": float(self.control.norm())}

    def apply(self, updates: Updates) -> None:
        super().apply(updates)
        # who was dropped has not changed its c_i
        participation = len(updates.clients) / self.setting.clients
        self.control = self.control + participation * updates.mean("control")
