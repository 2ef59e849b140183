"""FedProx — Li et al., "Federated Optimization in Heterogeneous Networks" (MLSys 2020).

Local objective (Eq. 2):  h_k(w; w_t) = F_k(w) + μ/2 ‖w − w_t‖²;  so the direction of a local step
is  g + μ (w − w_t).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from algorithms.fedavg import FedAvg
from algorithms.local import LocalRule, Work
from algorithms.part import option

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Proximal(LocalRule):
    """Gradient of the proximal term added to the mini-batch gradient."""

    mu: float

    def direction(self, gradient: Tensor, work: Work) -> Tensor:
        return gradient.add_(work.w - work.start, alpha=self.mu)


class FedProx(FedAvg):
    """FedAvg with a proximal local objective; μ = 0 is FedAvg."""

    class Options(FedAvg.Options):
        """FedAvg whose clients are held near the global model by μ/2 ‖w − w_t‖²."""

        name: str = "fedprox"
        mu: float = option(0.01, "weight of the proximal term", "μ", ge=0)

    options: Options

    def rule(self) -> LocalRule:
        return Proximal(self.options.mu)
