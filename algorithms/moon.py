"""MOON — Li, He, Song, "Model-Contrastive Federated Learning" (CVPR 2021).

Local loss (Eqs. 3-4):  ℓ = CE + μ ℓ_con,  ℓ_con = −log( e^{cos(z,z_g)/T} / (e^{cos(z,z_g)/T} +
e^{cos(z,z_prev)/T}) ), with z, z_g, z_prev the features of a sample under the local, the global,
and the client's previous local model. The features are what enters the last layer;
``model.projection`` puts the paper's projection head before it. A client without a previous model
uses the first global one that it receives: ℓ_con is then constant, as if it were absent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from algorithms.fedavg import FedAvg
from algorithms.flat import ParamSpec
from algorithms.local import LocalRule, Tensors, Work
from algorithms.part import option

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Contrastive(LocalRule):
    """Features pulled towards the global model's, away from those of the client's last model."""

    mu: float
    """μ ≥ 0."""
    temperature: float
    """T > 0."""

    def state(self, received: Tensors, spec: ParamSpec) -> Tensors:
        return {"previous": received["w"]}

    def references(self, work: Work) -> list[Tensor]:
        return [work.start, work.state["previous"]] if self.mu else []

    def contrast(self, features: Tensor, references: list[Tensor]) -> Tensor:
        near, far = (
            torch.nn.functional.cosine_similarity(features, z, dim=-1) / self.temperature
            for z in references
        )
        # Eq. 3: −log(e^a/(e^a + e^b)), which for a small T would overflow as written
        return self.mu * (torch.logaddexp(near, far) - near)

    def upload(self, work: Work) -> Tensors:
        work.state["previous"] = work.w.clone()
        return super().upload(work)


class Moon(FedAvg):
    """FedAvg with the model-contrastive loss; μ = 0 is FedAvg."""

    class Options(FedAvg.Options):
        """FedAvg whose clients' features stay near the global model's."""

        name: str = "moon"
        compares_features = True
        mu: float = option(1.0, "weight of the contrastive loss", "μ", ge=0)
        temperature: float = option(0.5, "temperature of the similarities", "T", gt=0)

    options: Options

    def rule(self) -> LocalRule:
        return Contrastive(self.options.mu, self.options.temperature)
