"""SCALLION and SCAFCOM — Huang, Li & Li, "Stochastic Controlled Averaging for Federated Learning
with Communication Compression" (ICLR 2024).

SCAFFOLD told in one message instead of two, made of what the server cannot know yet, so that it may
be compressed (``compression.uplink``): as c_i approaches the client's gradient, there is less and
less to say. Client i in S:
    y ← y − η_l (g_i(y) − c_i + c), K times from x
    ḡ_i = (x − y)/(K η_l) + c_i − c          the mean of its g_i(y)
    v_i ← (1 − β) v_i + β ḡ_i                β = 1: SCALLION; less: SCAFCOM, for biased compressors
    send δ_i = C(α (v_i − c_i));             c_i ← c_i + δ_i
Server:
    x ← x − η_g K η_l (c + mean_S δ_i)                c ← c + (|S|/N) mean_S δ_i
With α = β = 1 and nothing compressed it is SCAFFOLD: δ_i is then its Δc, and c + δ_i is its
−Δy/(K η_l). Written down from that equivalence and the authors' description; all c_i, c and v_i
start at 0. Where clients do unequal numbers of steps, K is their mean (fedorch's reading).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from algorithms.contract import Updates
from algorithms.flat import ParamSpec
from algorithms.local import LocalRule, Tensors, Work
from algorithms.part import option
from algorithms.scaffold import SMALLEST, ControlVariate, Scaffold


@dataclass(frozen=True)
class Increment(ControlVariate):
    """SCAFFOLD's local steps; sends only what its control variate lacks."""

    scale: float
    """α in (0, 1]."""
    momentum: float
    """β in (0, 1]."""

    def state(self, received: Tensors, spec: ParamSpec) -> Tensors:
        own = super().state(received, spec)
        return own if self.momentum == 1 else own | {"momentum": torch.zeros_like(own["control"])}

    def upload(self, work: Work) -> Tensors:
        reach = work.reach
        trained = (work.steps > 0).unsqueeze(1)
        control = work.state["control"]
        gradient = (
            (work.start - work.w) / reach.clamp_min(SMALLEST).unsqueeze(1)
            + control
            - work.received["control"]
        )
        # a client without a batch keeps its v_i, and sends 0
        if self.momentum < 1:
            before = work.state["momentum"]
            gradient = torch.where(trained, before + self.momentum * (gradient - before), before)
            work.state["momentum"] = gradient
        return {"increment": self.scale * (gradient - control) * trained, "reach": reach}

    def sent(self, work: Work, messages: Tensors) -> None:
        # not in ``upload``: c_i must move by what the server gets, so that c stays their mean
        work.state["control"] = work.state["control"] + messages["increment"]


class Scallion(Scaffold):
    """SCAFFOLD at half the upload, and with compressed uploads."""

    class Options(Scaffold.Options):
        """SCAFFOLD whose clients send one vector, which may be compressed."""

        name: str = "scallion"
        scale: float = option(
            1.0,
            "part of the difference that is sent; less for coarser compressors",
            "α",
            gt=0,
            le=1,
        )
        momentum: float = option(
            1.0, "weight of the newest gradient: 1 is SCALLION, less SCAFCOM", "β", gt=0, le=1
        )
        sends_differences = True

    options: Options

    def rule(self) -> LocalRule:
        return Increment(self.part, self.options.scale, self.options.momentum)

    def apply(self, updates: Updates) -> None:
        assert updates.weights is not None  # Scaffold's options admit no aggregator that needs rows
        reach = updates.scalars["reach"].to(updates.weights)
        # a client without a batch has reached nowhere, and stays at x
        trained = float(updates.weights @ (reach > 0).to(reach))
        increment = self.aggregate(updates, "increment")
        step = -float(updates.weights @ reach) * (self.control + increment / max(trained, 1e-12))
        self.w = self.setting.parts.server_optimizer.step(self.optimizer, self.w, step)
        self.take_buffers(updates)
        self.control = self.control + len(updates.clients) / self.setting.clients * increment
