"""Monitors of the variance of local models (FDA thesis, chapter 3).

With drifts Δ_k = w_k − w_t0 since the last synchronisation, Var = mean ‖Δ_k‖² − ‖mean Δ_k‖² (Eq.
3.4). Every client sends a small local state; from the mean of the states the server computes an
estimate H of Var.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch

from algorithms.draws import torch_generator
from algorithms.local import Probe, Tensors, Work
from algorithms.part import Part, option
from algorithms.parts.sketch import shared, squared_norm

if TYPE_CHECKING:
    from torch import Tensor

XI = "xi"


class Monitor(Part):
    """Estimates the variance of the clients' models from the mean of small local states."""

    def follows(self, memory: Tensors) -> bool:
        """Whether only clients that heard the last two broadcasts can work out :meth:`known`.

        To be asked before it, which changes ``memory``.
        """
        return False

    @abstractmethod
    def probe(self, size: int, seed: int) -> Probe:
        """The question to clients with models [d], d = ``size``; they answer with states [k]."""

    @abstractmethod
    def estimate(self, mean: Tensor) -> float:
        """H from the mean state [k]."""

    def known(self, w: Tensor, memory: Tensors) -> Tensors:
        """What clients can work out from earlier broadcasts; changes ``memory``, which is kept."""
        return {}


def drift_of(work: Work) -> Tensor:
    """Δ_k [C, d]; 0 where entries stay with each client, and so are synchronised by nobody."""
    drift = work.w - work.start
    for part in work.private:
        drift[:, part] = 0.0
    return drift


CHUNK = 2**16
"""Entries that a CPU adds in single precision; over 10⁸ entries, a norm would lose 2.6 %."""


def square(rows: Tensor) -> Tensor:
    """‖row‖² [C, 1]."""
    return _total(
        [torch.linalg.vector_norm(piece, dim=1, keepdim=True).square_() for piece in _pieces(rows)]
    )


def along(rows: Tensor, direction: Tensor) -> Tensor:
    """⟨direction, row⟩ [C, 1]."""
    pairs = zip(_pieces(rows), _pieces(direction), strict=True)
    return _total([(piece @ part)[:, None] for piece, part in pairs])


def _pieces(vectors: Tensor) -> Sequence[Tensor]:
    """``vectors`` [..., d] in pieces that can be added in single precision."""
    # a GPU adds pairwise, which loses next to nothing
    return [vectors] if vectors.is_cuda else vectors.split(CHUNK, -1)


def _total(pieces: list[Tensor]) -> Tensor:
    """Their sum, added in double precision."""
    return pieces[0] if len(pieces) == 1 else torch.stack(pieces).double().sum(0).to(pieces[0])


@dataclass(frozen=True)
class Drift(Probe):
    """(‖Δ_k‖², Δ_k)."""

    transmitted: bool = True

    def answer(self, work: Work) -> Tensor:
        drift = drift_of(work)
        return torch.cat([square(drift), drift], 1)


class Exact(Monitor):
    """The variance itself, for the price of the models."""

    name: str = "exact"

    def probe(self, size: int, seed: int) -> Probe:
        return Drift()

    def estimate(self, mean: Tensor) -> float:
        # Eq. 3.4, from ‖Δ_k‖² and Δ_k averaged together
        return float(mean[0]) - float(mean[1:].double().square().sum())


class Length(Probe):
    """‖Δ_k‖²."""

    def answer(self, work: Work) -> Tensor:
        return square(drift_of(work))


class Naive(Monitor):
    """H = mean ‖Δ_k‖², an upper bound."""

    name: str = "naive"

    def probe(self, size: int, seed: int) -> Probe:
        return Length()

    def estimate(self, mean: Tensor) -> float:
        return float(mean[0])


@dataclass(frozen=True)
class Sketched(Probe):
    """(‖Δ_k‖², sketch of Δ_k)."""

    size: int
    rows: int
    columns: int
    seed: int

    def answer(self, work: Work) -> Tensor:
        drift = drift_of(work)
        sketches = shared(self.size, self.rows, self.columns, self.seed).apply(drift)
        return torch.cat([square(drift), sketches.flatten(1)], 1)


class AmsSketch(Monitor):
    """SketchFDA: H = mean ‖Δ_k‖² − M2(mean sk(Δ_k)) / (1 + ε) (Theorem 1).

    M2 exceeds (1 + ε) ‖mean Δ_k‖², so that H falls below the variance, with a probability that
    falls with rows and columns: about 8 % for the thesis' 5 x 250 and ε = 1/√250.
    """

    name: str = "sketch"
    rows: int = option(5, "rows; the median over them is taken", "l", ge=1, le=100)
    columns: int = option(250, "buckets a row", "m", ge=1, le=1_000_000)
    epsilon: float | None = option(None, "slack; unset: 1/√m", "ε", ge=0)

    def probe(self, size: int, seed: int) -> Probe:
        return Sketched(size, self.rows, self.columns, seed)

    def estimate(self, mean: Tensor) -> float:
        # a sketch is linear, so the mean of the sketches is the sketch of the mean drift
        slack = self.columns**-0.5 if self.epsilon is None else self.epsilon
        return float(mean[0]) - squared_norm(mean[1:].view(self.rows, self.columns)) / (1 + slack)


@dataclass(frozen=True)
class Projected(Probe):
    """(‖Δ_k‖², ⟨ξ, Δ_k⟩)."""

    def answer(self, work: Work) -> Tensor:
        drift = drift_of(work)
        return torch.cat([square(drift), along(drift, work.received[XI])], 1)


class Linear(Monitor):
    """LinearFDA: H = mean ‖Δ_k‖² − ⟨ξ, mean Δ_k⟩² with a unit vector ξ, never below the variance
    (Theorem 2).

    ξ is the direction of the last synchronised step, w_t0 − w_t−1, which the clients know; in the
    first round it is a fixed random direction (published code).
    """

    name: str = "linear"
    direction: Literal["last", "random"] = option(
        "last", "ξ: the last step of the model, or always random", "ξ"
    )

    def follows(self, memory: Tensors) -> bool:
        return self.direction == "last" and "previous" in memory

    def probe(self, size: int, seed: int) -> Probe:
        return Projected()

    def estimate(self, mean: Tensor) -> float:
        return float(mean[0]) - float(mean[1]) ** 2

    def known(self, w: Tensor, memory: Tensors) -> Tensors:
        step = w - memory["previous"] if "previous" in memory else torch.zeros_like(w)
        if self.direction == "random" or not step.any():
            # seed 0, not the run's: one fixed vector for each d, as in the published code
            step = torch.randn(len(w), generator=torch_generator(0, "xi")).to(w)
        memory["previous"] = w.clone()  # an algorithm may go on to change its model in place
        return {XI: step / square(step[None]).sqrt()[0]}
