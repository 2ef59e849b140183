"""First-order optimisers on flat vectors, for one model ``[d]`` or a batch of clients ``[C, d]`` at
once.

State tensors have the shape of the model, except the step count ``t`` [..., 1]. Every row is
independent of the others, so a batch gives each client what it would get alone. Update rules are
PyTorch's unless said otherwise; of parameters on which a loss does not depend gradients are zeros.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, Self, TypeAlias

import torch
from pydantic import model_validator

from algorithms.flat import ParamSpec
from algorithms.part import Part, option

if TYPE_CHECKING:
    from torch import Tensor

State: TypeAlias = "dict[str, Tensor]"


@lru_cache(maxsize=4)  # asked for by every lane of every round
def _matrices(spec: ParamSpec) -> Tensor:
    """1 for entries [d] of tensors with two dimensions or more, 0 for others; never written to."""
    mask = torch.zeros(spec.size)
    for segment in spec.segments:
        mask[segment.start : segment.stop] = float(len(segment.shape) > 1)
    return mask


class Optimizer(Part):
    """A client's local optimiser (the learning rate is the config's ``local.lr``)."""

    weight_decay: float = option(0.0, "decay of the weights per step", "λ", ge=0)
    decayed: Literal["all", "matrices"] = option(
        "all", "what it is of: all tensors, or those with two dimensions or more (no biases, norms)"
    )

    def decays(self, spec: ParamSpec) -> Tensor | None:
        """Which entries [d] of a model decay (1, or 0); None where all or none do."""
        if not self.weight_decay or self.decayed == "all":
            return None
        return _matrices(spec)

    @abstractmethod
    def start(self, w: Tensor) -> State:
        """Fresh state for models ``w`` [..., d]."""

    @abstractmethod
    def step(
        self, state: State, w: Tensor, g: Tensor, lr: float, decays: Tensor | None = None
    ) -> None:
        """Move ``w`` [..., d] against the gradient ``g`` [..., d] and change ``state``, in place.

        ``g`` may be overwritten. ``decays`` is what :meth:`decays` says of the model.
        """

    def _decay(self, w: Tensor, g: Tensor, lr: float, decays: Tensor | None) -> None:
        """Weight decay, in the gradient ``g``: its own derivative (λ/2)‖w‖²."""
        if not self.weight_decay:
            return
        if decays is None:
            g.add_(w, alpha=self.weight_decay)
        else:
            g.addcmul_(w, decays, value=self.weight_decay)


def require_momentum(momentum: float, nesterov: bool) -> None:
    """Raise ValueError for a rule that looks ahead along no momentum."""
    if nesterov and not momentum:
        raise ValueError("nesterov looks ahead along the momentum, which is 0; set momentum, too")


class Sgd(Optimizer):
    """Stochastic gradient descent with optional (Nesterov) momentum: b ← ρb + g, w ← w − η b."""

    name: str = "sgd"
    momentum: float = option(0.0, "momentum factor", "ρ", ge=0, lt=1)
    nesterov: bool = option(False, "look ahead along the momentum")

    @model_validator(mode="after")
    def _looks_along_a_momentum(self) -> Self:
        require_momentum(self.momentum, self.nesterov)
        return self

    def start(self, w: Tensor) -> State:
        return {"momentum": torch.zeros_like(w)} if self.momentum else {}

    def step(
        self, state: State, w: Tensor, g: Tensor, lr: float, decays: Tensor | None = None
    ) -> None:
        self._decay(w, g, lr, decays)
        if self.momentum:
            # in place, here and below: the state may be a view of the first rows of a larger one
            b = state["momentum"].mul_(self.momentum).add_(g)
            g = g.add_(b, alpha=self.momentum) if self.nesterov else b
        w.sub_(g, alpha=lr)


class _Adaptive(Optimizer):
    """Shared shape of the adaptive rules: w ← w − η m / (√v + ε)."""

    beta1: float = option(0.9, "decay of the first moment", "β1", ge=0, lt=1)
    beta2: float = option(0.999, "decay of the second moment", "β2", ge=0, lt=1)
    eps: float = option(1e-8, "added to the denominator", "ε", ge=0)
    bias_correction: bool = option(True, "divide the moments by 1 − β^t (Kingma & Ba 2015)")
    eps_hat: bool = option(
        False, "with it: add ε to √v before that is corrected (Keras; ε̂ of Kingma & Ba, section 2)"
    )

    def start(self, w: Tensor) -> State:
        return {
            "first": torch.zeros_like(w),
            "second": torch.zeros_like(w),
            # one count for each client, since not all do equally many steps
            "t": torch.zeros(*w.shape[:-1], 1, device=w.device, dtype=torch.float64),
        }

    def step(
        self, state: State, w: Tensor, g: Tensor, lr: float, decays: Tensor | None = None
    ) -> None:
        self._decay(w, g, lr, decays)
        t = state["t"].add_(1)
        m = state["first"].lerp_(g, 1 - self.beta1)
        v = self._second(state["second"], g)
        root = v.sqrt()
        if self.bias_correction:
            # powers in float64
            correction = (1 - self.beta2**t).sqrt().to(w.dtype)
            lr_t = (lr / (1 - self.beta1**t)).to(w.dtype)
            # as PyTorch does it, ε is added after √v has been corrected
            root = root.add_(self.eps).div_(correction) if self.eps_hat else root.div_(correction)
            w.sub_(m.div(root if self.eps_hat else root.add_(self.eps)).mul_(lr_t))
        else:
            w.addcdiv_(m, root.add_(self.eps), value=-lr)

    def _second(self, v: Tensor, g: Tensor) -> Tensor:
        """The next second moment, in ``v`` [..., d] itself."""
        return v.mul_(self.beta2).addcmul_(g, g, value=1 - self.beta2)


class Adam(_Adaptive):
    """Adam (Kingma & Ba 2015); weight decay enters the gradient."""

    name: str = "adam"


class AdamW(_Adaptive):
    """AdamW (Loshchilov & Hutter 2019): weight decay is decoupled, w ← (1 − ηλ) w first."""

    name: str = "adamw"
    weight_decay: float = option(0.01, "decoupled decay of the weights per step", "λ", ge=0)

    def _decay(self, w: Tensor, g: Tensor, lr: float, decays: Tensor | None) -> None:
        w.mul_(1 - lr * self.weight_decay * (1.0 if decays is None else decays))


class Yogi(_Adaptive):
    """Yogi (Zaheer et al. 2018): v ← v − (1 − β2) g² sign(v − g²)."""

    name: str = "yogi"

    def _second(self, v: Tensor, g: Tensor) -> Tensor:
        square = g * g
        return v.addcmul_(square, torch.sign(v - square), value=-(1 - self.beta2))


class AdaGrad(Optimizer):
    """AdaGrad (Duchi et al. 2011): v ← v + g², w ← w − η g / (√v + ε)."""

    name: str = "adagrad"
    eps: float = option(1e-10, "added to the denominator", "ε", ge=0)
    initial: float = option(0.0, "initial value of the accumulator v", "v0", ge=0)

    def start(self, w: Tensor) -> State:
        return {"second": torch.full_like(w, self.initial)}

    def step(
        self, state: State, w: Tensor, g: Tensor, lr: float, decays: Tensor | None = None
    ) -> None:
        self._decay(w, g, lr, decays)
        v = state["second"].addcmul_(g, g)
        w.addcdiv_(g, v.sqrt().add_(self.eps), value=-lr)
