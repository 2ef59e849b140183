"""Parts of one's own: clients whose whole update is clipped, and a partition by halves.

fedorch run examples/plugins/clipped.yaml
fedorch describe clipped_fedavg --plugin examples/plugins/clipped.py
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from fedorch import FedAvg, LocalRule, Partitioner, Pool, Work, option


@dataclass(frozen=True)
class Clipped(LocalRule):
    """Sends Δ min(1, C/‖Δ‖): every row for itself."""

    norm: float

    def upload(self, work: Work) -> dict[str, Tensor]:
        sent = super().upload(work)
        length = sent["delta"].norm(dim=1, keepdim=True)
        return {**sent, "delta": sent["delta"] * (self.norm / length).clamp(max=1.0)}


class ClippedFedAvg(FedAvg):
    """FedAvg of clipped updates."""

    class Options(FedAvg.Options):
        """FedAvg whose clients send updates of at most a norm."""

        name: str = "clipped_fedavg"
        norm: float = option(1.0, "largest ‖Δ‖ of an update", "C", gt=0)

    options: Options

    def rule(self) -> LocalRule:
        return Clipped(self.options.norm)


class Halves(Partitioner):
    """The first half of the clients share the lower half of the classes, the others the rest."""

    name: str = "halves"

    def split(self, pool: Pool) -> list[np.ndarray]:
        low = pool.labels < pool.classes // 2
        first = pool.clients // 2
        rows = [np.flatnonzero(low), np.flatnonzero(~low)]
        shares = [np.array_split(pool.rng().permutation(r), n)
                  for r, n in zip(rows, (first, pool.clients - first), strict=True)]  # fmt: skip
        return [np.sort(share) for half in shares for share in half]
