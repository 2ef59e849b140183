"""FedAvg — McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized
Data" (2017).

Algorithm 1: sample a cohort, train locally from w_t, average. Written in the FedOpt form (Reddi et
al. 2021, Algorithm 2): the server optimiser steps along the aggregate of Δ_k = w_k − w_t; SGD with
η = 1 is plain FedAvg. Uniform averaging is the default, ``aggregator: weighted_mean`` gives n_k/n.
"""

from __future__ import annotations

from typing import ClassVar

from algorithms.algorithm import Algorithm, AlgorithmOptions
from algorithms.contract import Clients, Updates
from algorithms.local import LocalRule, Tensors
from algorithms.parts.server_optimizers import ServerSgd


class FedAvg(Algorithm):
    """Federated averaging with any server optimiser."""

    class Options(AlgorithmOptions):
        """Federated averaging: local training from w_t, then the (weighted) mean of the local
        models.
        """

        name: str = "fedavg"

    server_state: ClassVar[tuple[str, ...]] = ("w", "buffers", "optimizer")

    def start(self) -> None:
        self.optimizer = self.setting.parts.server_optimizer.start(self.w)

    @property
    def averages(self) -> bool:
        parts = self.setting.parts
        # what is derived from it trains or steps in a way of its own
        plain = type(self) is FedAvg and parts.server_optimizer == ServerSgd()
        return plain and not parts.aggregator.needs_rows

    def rule(self) -> LocalRule:
        """The client side; subclasses with a different local objective override this."""
        return LocalRule()

    def broadcast(self) -> Tensors:
        """What every client of the cohort receives."""
        return {"w": self.w, "buffers": self.buffers}

    def round(self, t: int, clients: Clients) -> dict[str, float]:
        cohort = self.draw(t)
        updates, report = self.train(
            t, clients, cohort, self.rule(), self.broadcast(), weights=self.weights(cohort)
        )
        self.apply(updates)
        return report

    def apply(self, updates: Updates) -> None:
        """The server step: w_{t+1} from the aggregated update."""
        # with plain SGD, η = 1: w_t + mean_k (w_k − w_t), the mean of the local models
        self.w = self.setting.parts.server_optimizer.step(
            self.optimizer, self.w, self.aggregate(updates, "delta")
        )
        self.take_buffers(updates)
