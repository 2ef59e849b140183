"""Which model a run is judged by and leaves: the last iterate of w_1, w_2, …, or a mean of them."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from algorithms.part import Part, option

if TYPE_CHECKING:
    from torch import Tensor

Past = dict[str, Any]
"""What is remembered of the iterates: their number t and means of them; nothing for ``last``."""


class Output(Part):
    """What becomes of the models after each round; none of it changes how training goes on."""

    is_a_mean: ClassVar[bool] = True
    """Or else the last iterate itself."""

    @abstractmethod
    def joined(self, past: Past, w: Tensor) -> Past:
        """``past`` ({} at first) with one more iterate ``w`` [d]."""

    @abstractmethod
    def model(self, past: Past, w: Tensor) -> Tensor:
        """The model [d] that is judged, where ``w`` [d] is the last iterate."""


class Last(Output):
    """The last iterate."""

    name: str = "last"
    is_a_mean = False

    def joined(self, past: Past, w: Tensor) -> Past:
        return past

    def model(self, past: Past, w: Tensor) -> Tensor:
        return w


class _Mean(Output):
    """A running mean, which needs no store of iterates; without the initial model."""

    def joined(self, past: Past, w: Tensor) -> Past:
        t = past.get("t", 0) + 1
        mean = past["mean"] + (w - past["mean"]) * self._share(t) if t > 1 else w
        return {"t": t, "mean": mean}

    def model(self, past: Past, w: Tensor) -> Tensor:
        return past["mean"] if past else w

    @abstractmethod
    def _share(self, t: int) -> float:
        """How much the iterate ``t`` counts in the mean that it joins, in (0, 1]."""


class Average(_Mean):
    """The mean of all iterates, which is what theorems on saddle points are about."""

    name: str = "average"

    def _share(self, t: int) -> float:
        return 1 / t


class MovingAverage(_Mean):
    """Iterates count less by β with each that follows (Polyak's exponential average), and their
    weights have the sum 1 from the first on: β^(t−s) (1 − β)/(1 − β^t) for w_s.
    """

    name: str = "ema"
    decay: float = option(0.9, "of an iterate's weight with each that follows", "β", gt=0, lt=1)

    def _share(self, t: int) -> float:
        return (1 - self.decay) / (1 - self.decay**t)


class Tail(Output):
    """The mean of the iterates after the largest power of two that is at most t/2, so of at least
    the last half and less than the last three quarters (suffix averaging, Rakhlin et al. 2012, with
    epochs that double: it need not know the last round, and keeps two means).
    """

    name: str = "tail"

    def joined(self, past: Past, w: Tensor) -> Past:
        before = past.get("t", 0)
        t = before + 1
        # a tail's mean starts again after each power of two
        counted = before - power(before)
        mean = past["mean"] + (w - past["mean"]) / (counted + 1) if counted else w
        return {"t": t, "mean": mean, "older": mean if power(t) == t else past["older"]}

    def model(self, past: Past, w: Tensor) -> Tensor:
        if not past:
            return w
        newer, older = past["t"] - power(past["t"]), max(1, power(past["t"]) // 2)
        # ``older`` has the iterates after P/2 up to P, the largest power of two ≤ t; ``mean``
        # those after P, where there are any
        return past["older"] + (past["mean"] - past["older"]) * (newer / (newer + older))


def power(t: int) -> int:
    """The largest power of two that is at most ``t``; 0 for 0."""
    return 1 << (t.bit_length() - 1) if t else 0
