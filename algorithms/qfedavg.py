"""q-FedAvg — Li et al., "Fair Resource Allocation in Federated Learning" (ICLR 2020), Algorithm 2.

The q-FFL objective is min_w Σ p_k/(q+1) F_k(w)^{q+1}. With L the Lipschitz estimate and
Δw_k = L (w^t − w̄_k) after local training from w^t:
    Δ_k = F_k(w^t)^q Δw_k,    h_k = q F_k(w^t)^{q−1} ‖Δw_k‖² + L F_k(w^t)^q,
    w^{t+1} = w^t − Σ_S Δ_k / Σ_S h_k.
q = 0 is FedAvg. L = 1/η (the local learning rate) unless given, as the paper sets it. Clients by
n_k in the paper: ``sampler: weighted``.
"""

from __future__ import annotations

import numpy as np
import torch

from algorithms.algorithm import steps_by_itself
from algorithms.contract import Clients
from algorithms.fedavg import FedAvg
from algorithms.local import LocalRule, Tensors, Work
from algorithms.part import option
from algorithms.setting import Composition


class WithNorm(LocalRule):
    """Plain local training that also tells the squared length of the update."""

    def upload(self, work: Work) -> Tensors:
        delta = work.w - work.start
        return {"delta": delta, "square": (delta * delta).sum(1)}


class QFedAvg(FedAvg):
    """Fairer federated averaging: clients with a high loss count more."""

    class Options(FedAvg.Options):
        """FedAvg on the q-fair objective."""

        name: str = "qfedavg"
        q: float = option(1.0, "fairness; 0 is FedAvg", "q", ge=0)
        needs_whole_cohort = True
        lipschitz: float | None = option(
            None,
            "estimate of the losses' Lipschitz constant; unset: 1/local.lr of the first round",
            "L",
            gt=0,
        )

        def refuses(self, parts: Composition) -> str | None:
            return steps_by_itself(self.name, parts)

    options: Options

    def round(self, t: int, clients: Clients) -> dict[str, float]:
        cohort, q = self.draw(t), self.options.q
        lipschitz = self.options.lipschitz or 1 / self.setting.parts.local.lr
        losses = torch.zeros(0)

        def weights() -> np.ndarray:
            nonlocal losses
            # the clients answer with their loss at the model that they got for training, on all
            # their data; not quite 0, where F^{q−1} is infinite for q < 1
            answers = clients.loss(cohort.ids, self.w, self.buffers, known=True)
            losses = answers.double().clamp_min(1e-10)
            return (losses**q / (losses**q).sum()).numpy()

        updates, report = self.train(
            t, clients, cohort, WithNorm(), self.broadcast(), weights=weights
        )
        powers = losses**q
        squares = lipschitz**2 * updates.scalars["square"].double()
        # Σ_S Δ_k is −L Σ_k F_k^q times the mean below, whose weights are F_k^q / Σ_j F_j^q
        h = q * losses ** (q - 1) * squares + lipschitz * powers
        self.w = self.w + lipschitz * float(powers.sum() / h.sum()) * self.mean(updates, "delta")
        self.take_buffers(updates)
        return report
