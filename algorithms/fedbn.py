"""FedBN — Li et al. (ICLR 2021), "FedBN: Federated Learning on Non-IID Features via Local Batch
Normalization".

Algorithm 1: FedAvg over all layers but batch normalisation, whose weights and statistics stay with
each client. What is judged are the clients' models. The server's own model, for metrics on the
whole test set, takes the mean of the cohort's batch-norm layers, which nobody transmits. Without
batch-norm layers this is FedAvg.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from algorithms.fedavg import FedAvg
from algorithms.flat import ParamSpec, slices
from algorithms.local import LocalRule, Tensors, Work

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class LocalNormalisation(LocalRule):
    """Local training in which ``kept`` parts of the model are the client's own."""

    kept: tuple[slice, ...]
    """Slices of the vector; none: plain local training."""

    initial: Tensor = field(compare=False)
    """The entries there of the run's first model, which all clients know from the seed."""

    @property
    def private(self) -> tuple[slice, ...]:
        return self.kept

    def state(self, received: Tensors, spec: ParamSpec) -> Tensors:
        return {"kept": self.initial} if self.kept else {}

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
            work.state["kept"] = picked(work.w, self.kept)
        # against the server's model, not against ``start``: added to it, the mean of these gives
        # the server the mean of the clients' batch-norm layers
        return {"delta": work.w - work.received["w"]}


def picked(w: Tensor, parts: Sequence[slice]) -> Tensor:
    """The entries [..., k] of models [..., d] in these parts."""
    return torch.cat([w[..., s] for s in parts], -1) if parts else w[..., :0]


class FedBn(FedAvg):
    """FedAvg with local batch normalisation."""

    class Options(FedAvg.Options):
        """FedAvg over everything but the batch-norm layers."""

        name: str = "fedbn"
        defaults = {"buffers": "local"}

    def start(self) -> None:
        super().start()
        # what has running statistics is a batch-norm layer; other norms are shared
        normalising = set(self.setting.statistics.layers)
        self.private = slices(e for e in self.setting.spec.segments if e.layer in normalising)
        self.initial = picked(self.w, self.private)

    def remarks(self) -> Iterator[str]:
        yield from super().remarks()
        if not self.private:
            yield "fedbn: the network has no batch normalisation, and so this is fedavg"

    def rule(self) -> LocalRule:
        return LocalNormalisation(self.private, self.initial)

    def personal_rule(self) -> LocalRule | None:
        return self.rule() if self.setting.statistics.size else None
