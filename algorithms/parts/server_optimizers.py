"""Server optimisers of the FedOpt family: the mean client update is read as a negative gradient.

Reddi et al., "Adaptive Federated Optimization" (ICLR 2021), Algorithm 2: Δ_t = mean of (w_k − w_t),
then one step of an ordinary optimiser on −Δ_t. Reddi et al. use no bias correction and a large ε
(their τ); set ``bias_correction: true`` and ``eps: 1e-8`` for PyTorch's Adam, as the FDA-Opt
experiments do.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Self

from pydantic import model_validator

from algorithms.part import Part, option
from algorithms.parts.optimizers import (
    AdaGrad,
    Adam,
    AdamW,
    Optimizer,
    Sgd,
    State,
    Yogi,
    require_momentum,
)

if TYPE_CHECKING:
    from torch import Tensor


class ServerOptimizer(Part):
    """How the server turns the aggregated update into the next model."""

    lr: float = option(1.0, "server learning rate", "η", gt=0)

    @abstractmethod
    def rule(self) -> Optimizer:
        """The update rule on flat vectors."""

    def start(self, w: Tensor) -> State:
        """Fresh state for the model ``w`` [d]."""
        return self.rule().start(w)

    def step(self, state: State, w: Tensor, update: Tensor) -> Tensor:
        """The next model [d] from ``w`` [d] and the update Δ [d]; changes ``state`` in place."""
        # w itself must stay as it is: others hold it (LinearFDA makes ξ of the last two models)
        after = w.clone()
        self.rule().step(state, after, -update, self.lr)
        return after


class ServerSgd(ServerOptimizer):
    """w ← w + η Δ, optionally with server momentum (FedAvg: η = 1; FedAvgM: Hsu et al. 2019)."""

    name: str = "sgd"
    momentum: float = option(0.0, "server momentum", "β", ge=0, lt=1)
    nesterov: bool = option(False, "look ahead along the momentum")

    @model_validator(mode="after")
    def _looks_along_a_momentum(self) -> Self:
        require_momentum(self.momentum, self.nesterov)
        return self

    def rule(self) -> Optimizer:
        return Sgd(momentum=self.momentum, nesterov=self.nesterov)


class _ServerAdaptive(ServerOptimizer):
    lr: float = option(0.01, "server learning rate", "η", gt=0)
    beta1: float = option(0.9, "decay of the first moment", "β1", ge=0, lt=1)
    beta2: float = option(0.99, "decay of the second moment", "β2", ge=0, lt=1)
    eps: float = option(1e-3, "degree of adaptivity, added to √v", "τ", ge=0)
    bias_correction: bool = option(False, "divide the moments by 1 − β^t")
    eps_hat: bool = option(False, "with it: add ε to √v before that is corrected, as Keras does")

    def _moments(self) -> dict[str, float]:
        return {
            k: getattr(self, k) for k in ("beta1", "beta2", "eps", "bias_correction", "eps_hat")
        }


class ServerAdam(_ServerAdaptive):
    """FedAdam's server step."""

    name: str = "adam"

    def rule(self) -> Optimizer:
        return Adam(**self._moments())


class ServerAdamW(_ServerAdaptive):
    """FedAdamW's server step: decoupled weight decay."""

    name: str = "adamw"
    weight_decay: float = option(0.01, "decoupled weight decay", "λ", ge=0)

    def rule(self) -> Optimizer:
        return AdamW(weight_decay=self.weight_decay, **self._moments())


class ServerYogi(_ServerAdaptive):
    """FedYogi's server step."""

    name: str = "yogi"

    def rule(self) -> Optimizer:
        return Yogi(**self._moments())


class ServerAdaGrad(ServerOptimizer):
    """FedAdaGrad's server step."""

    name: str = "adagrad"
    lr: float = option(0.01, "server learning rate", "η", gt=0)
    eps: float = option(1e-3, "degree of adaptivity, added to √v", "τ", ge=0)
    initial: float = option(0.0, "initial value of the accumulator", "v0", ge=0)

    def rule(self) -> Optimizer:
        return AdaGrad(eps=self.eps, initial=self.initial)
