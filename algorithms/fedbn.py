"""FedBN — Li et al. (ICLR 2021), "FedBN: Federated Learning on Non-IID Features via Local Batch
Normalization".

Algorithm 1: FedAvg over all layers but batch normalisation, whose weights and statistics stay with
each client. What is judged are the clients' models. The server's own model, for metrics on the
whole test set, takes the mean of the cohort's batch-norm layers, which nobody transmits. Without
batch-norm layers this is FedAvg.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from algorithms.fedavg import FedAvg
from algorithms.flat import ParamSpec, slices
from algorithms.local import LocalRule, Tensors, Work


@dataclass(frozen=True)
class LocalNormalisation(LocalRule):
    """Local training in which ``kept`` parts of the model are the client's own."""

    kept: tuple[slice, ...]
    """Slices of the vector; none: plain local training."""

    @property
    def private(self) -> int:
        return sum(s.stop - s.start for s in self.kept)

    def state(self, received: Tensors, spec: ParamSpec) -> Tensors:
        return {"kept": self._pick(received["w"])} if self.kept else {}

    def begin(self, work: Work) -> Tensor:
        start = super().begin(work)
        if not self.kept:
            return start
        # the broadcast is one row seen C times, and must become C rows to be written to
        start = start.clone()
        for s, own in zip(
            self.kept,
            work.state["kept"].split([s.stop - s.start for s in self.kept], 1),
            strict=True,
        ):
            start[:, s] = own
        return start

    def upload(self, work: Work) -> Tensors:
        if self.kept:
            work.state["kept"] = self._pick(work.w)
        # against the server's model, not against ``start``: added to it, the mean of these gives
        # the server the mean of the clients' batch-norm layers
        return {"delta": work.w - work.received["w"]}

    def _pick(self, w: Tensor) -> Tensor:
        return torch.cat([w[..., s] for s in self.kept], -1)


class FedBn(FedAvg):
    """FedAvg with local batch normalisation."""

    class Options(FedAvg.Options):
        """FedAvg over everything but the batch-norm layers."""

        name: str = "fedbn"
        defaults = {"buffers": "local"}

    def rule(self) -> LocalRule:
        # what has running statistics is a batch-norm layer; other norms are shared
        normalising = set(self.setting.statistics.layers)
        return LocalNormalisation(
            slices(e for e in self.setting.spec.segments if e.layer in normalising)
        )

    def personal_rule(self) -> LocalRule | None:
        return self.rule() if self.setting.statistics.size else None
