"""Clustered FL — Sattler et al., "Clustered Federated Learning" (IEEE TNNLS 2021), Algorithms 2, 3.

Every cluster c of clients runs FedAvg on its own model. When a cluster is near a stationary point
of its joint objective, ‖mean_i Δθ_i‖ < ε₁, while some client still wants to move, max_i ‖Δθ_i‖ >
ε₂, it is split in two so that the largest cosine similarity across the cut is smallest (Eq. 26);
cutting the single-linkage tree of the similarities finds exactly that bipartition. Both halves
start from the cluster's model. Means are unweighted (the paper weights by |D_i|); batch-norm
statistics, if any, are shared by all clusters.

The paper's separation criterion is the option ``noise``: the cut is made only if γ_max < √((1 −
α_cross)/2), with α_cross the largest similarity across it. Updates that are off their cluster's
direction by a relative error of at most γ are less than 2 arcsin γ apart, so that their similarity
is at least 1 − 2γ²: a cut that fails the criterion may have gone through one true cluster. By
default, and in the experiments of the published code, ε₁ and ε₂ decide alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch

from algorithms.algorithm import Algorithm, AlgorithmOptions, everyone, fixed_work, steps_by_itself
from algorithms.contract import Clients, Cohort
from algorithms.figure import Figure
from algorithms.local import GivenModel, LocalRule
from algorithms.part import option
from algorithms.setting import Composition

if TYPE_CHECKING:
    from torch import Tensor


class OfCluster(GivenModel):
    """A cluster's model, judged with the statistics with which its client has trained it."""

    personal = False


class Clustered(Algorithm):
    """Recursive bipartition of the clients by the cosine similarity of their updates."""

    class Options(AlgorithmOptions):
        """FedAvg within clusters that are found on the way."""

        name: str = "clustered"
        records = {"clusters": "clusters that there are"}
        figures = (
            Figure(
                "clusters",
                "Clusters of clients",
                "one at first; a stationary one whose clients pull apart is divided",
                "clusters",
                {"clusters": "clusters"},
            ),
        )
        needs_rows = True
        common = "the mean of the clients' clusters' models"
        one_broadcast = False
        eps1: float = option(
            0.4, "a cluster is stationary when its mean update is shorter than this", "ε₁", gt=0
        )
        eps2: float = option(
            1.6, "and is split when some client's update is longer than this", "ε₂", gt=0
        )
        noise: float | None = option(
            None,
            "largest relative error of an update as an estimate of its cluster's: a cluster is cut "
            "only where the similarities cannot be due to it; unset: not asked",
            "γ_max",
            ge=0,
            le=1,
        )
        least: int = option(2, "clients that a cluster needs to be split", ge=2)
        defaults = {"cohort": 1.0}

        needs_whole_cohort = True

        def refuses(self, parts: Composition) -> str | None:
            return (
                fixed_work(self.name, parts)
                or everyone(self.name, parts)
                or steps_by_itself(self.name, parts)
            )

    options: Options
    server_state: ClassVar[tuple[str, ...]] = ("w", "buffers", "models", "cluster")

    def start(self) -> None:
        self.models = self.w.unsqueeze(0)
        self.cluster = np.zeros(self.setting.clients, np.int64)

    def round(self, t: int, clients: Clients) -> dict[str, float]:
        # copies: a cluster that is split in this round has trained as one to its end
        models, cluster = self.models.clone(), self.cluster.copy()
        statistics = []
        for c in range(len(self.models)):
            members = np.flatnonzero(self.cluster == c)
            cohort = Cohort.of(members)
            received = {"w": self.models[c], "buffers": self.buffers}
            updates, _ = self.train(t, clients, cohort, LocalRule(), received)
            rows = updates.rows("delta")
            models[c] += rows.mean(0)
            half = self.split(rows)
            if half is not None:
                cluster[members[half]] = len(models)
                models = torch.cat([models, models[c : c + 1]])
            statistics.append(updates.vectors.get("buffers", self.buffers.expand(len(members), -1)))
        self.models, self.cluster = models, cluster
        self.buffers = torch.cat(statistics).mean(0)
        # no client has this model; it is the mean over clients, for metrics on the whole test set
        self.w = models[torch.from_numpy(cluster)].mean(0)
        return {"clusters": float(len(models))}

    def split(self, rows: Tensor) -> np.ndarray | None:
        """Which of a cluster's clients leave it (mask [m]), by their updates [m, d]; None: none."""
        norms = torch.linalg.vector_norm(rows, dim=1)
        stationary = torch.linalg.vector_norm(rows.mean(0)) < self.options.eps1
        if len(rows) < self.options.least or not stationary or norms.max() <= self.options.eps2:
            return None
        # half a second, which no other run need wait for
        from scipy.cluster.hierarchy import cut_tree, linkage

        unit = (rows / norms.clamp_min(1e-12).unsqueeze(1)).double()
        # rounding may leave 1 − cos just below 0
        distance = (1 - unit @ unit.T).clamp_min(0).numpy()
        # the upper triangle, row by row, is SciPy's condensed form; single linkage joins clusters
        # by their most similar pair, so its last join is across the cut that is wanted
        tree = linkage(distance[np.triu_indices(len(rows), 1)], "single")
        # whose height is 1 − α_cross
        noise = self.options.noise
        if noise is not None and noise >= np.sqrt(tree[-1, 2] / 2):
            return None
        return cut_tree(tree, 2).ravel() == 1

    def personal_rule(self) -> LocalRule:
        return OfCluster()

    def personal_models(self) -> Tensor:
        return self.models[torch.from_numpy(self.cluster)]
