"""How the local learning rate changes, from round to round or within a round."""

from __future__ import annotations

import math
from abc import abstractmethod

from algorithms.contract import Broken
from algorithms.part import Part, option


class Schedule(Part):
    """A factor of ``local.lr`` for each round (``local.schedule``), or for each of a client's steps
    in any round (``local.within``).
    """

    warmup: int = option(
        0, "first rounds (steps) in which the rate rises in equal parts to its value", ge=0,
        le=10**9,
    )  # fmt: skip

    def factor(self, t: int) -> float:
        """Of round (step) ``t``, from 1; 0 or more. Raises Broken if :meth:`after` returns what is
        no such number.
        """
        rise = min(1.0, t / (self.warmup + 1))
        found = self.after(max(0, t - 1 - self.warmup))
        try:
            good = math.isfinite(found) and found >= 0
        except TypeError:
            good = False
        if not good:
            raise Broken(
                f"schedule {self.name}: its factor of round or step {t} is {str(found)[:50]}, and "
                "not a number of 0 or more"
            )
        return rise * float(found)

    @property
    def ends_at_zero(self) -> bool:
        """Whether the rate comes to be 0."""
        return False

    @abstractmethod
    def after(self, rounds: int) -> float:
        """The factor, 0 or more, so many rounds (steps) after the first one at full rate."""


class Constant(Schedule):
    """The same always."""

    name: str = "constant"

    def after(self, rounds: int) -> float:
        return 1.0


class Step(Schedule):
    """Multiplied by ``gamma`` after every so many rounds (steps)."""

    name: str = "step"
    every: int = option(30, "rounds (steps)", ge=1, le=10**9)
    gamma: float = option(0.1, "the factor", "γ", gt=0, le=1)

    def after(self, rounds: int) -> float:
        return self.gamma ** (rounds // self.every)


class Cosine(Schedule):
    """Half a cosine from 1 down to ``floor``, where it stays (Loshchilov and Hutter 2017, without
    restarts).
    """

    name: str = "cosine"
    over: int = option(100, "rounds (steps) until the floor is reached", ge=1, le=10**9)
    floor: float = option(0.0, "the last factor", ge=0, le=1)

    @property
    def ends_at_zero(self) -> bool:
        return self.floor == 0

    def after(self, rounds: int) -> float:
        part = min(1.0, rounds / self.over)
        return self.floor + (1 - self.floor) * (1 + math.cos(math.pi * part)) / 2


class Linear(Schedule):
    """A straight line from 1 down to ``floor``, where it stays."""

    name: str = "linear"
    over: int = option(100, "rounds (steps) until the floor is reached", ge=1, le=10**9)
    floor: float = option(0.0, "the last factor", ge=0, le=1)

    @property
    def ends_at_zero(self) -> bool:
        return self.floor == 0

    def after(self, rounds: int) -> float:
        part = min(1.0, rounds / self.over)
        return 1 - (1 - self.floor) * part
