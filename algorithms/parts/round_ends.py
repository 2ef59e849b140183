"""Round ends: when local training stops and the models are collected (FDA's are in ``fda``)."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from algorithms.contract import Training
from algorithms.local import Tensors
from algorithms.part import Part, option

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class RoundState:
    """What a round end may know of the round."""

    seed: int
    round: int
    w: Tensor
    """The model that was sent to the cohort [d]."""
    memory: Tensors
    """What the round end keeps from one round to the next; it may change the entries."""
    pass_steps: int
    """Mini-batches in the longest pass over a cohort member's data."""
    work_steps: int
    """Local steps τ of the config's local work, on the member with the most."""
    weights: np.ndarray
    """How much each client of the cohort counts [m] (float64, sum 1): as in the aggregator's sum,
    or 1/m (counting repeated draws) where it makes none; 0 for a server that trains beside them."""
    server: bool = False
    """Whether the cohort's last is such a server."""


class RoundEnd(Part):
    """Drives a cohort's local training up to the moment of collection."""

    lock_step: ClassVar[bool] = True
    """Whether all clients of the cohort do equally many steps between two questions."""

    def follows(self, about: RoundState) -> bool:
        """Whether only clients that were in the last round, too, can work out :meth:`known`."""
        return False

    def known(self, about: RoundState) -> Tensors:
        """What clients must know for the questions to come, and can work out for themselves."""
        return {}

    @abstractmethod
    def run(self, training: Training, about: RoundState) -> dict[str, float]:
        """Advance ``training`` to its end; returns scalars worth recording for the round."""


class Fixed(RoundEnd):
    """Every client does the local work of the config: ``local.steps`` or ``local.epochs``."""

    name: str = "fixed"
    steps: Literal["own", "longest"] = option(
        "own",
        "with local.epochs: the mini-batches of each client's own passes, or as many for all as "
        "for the cohort's longest client (as the FDA round ends have it)",
    )

    def run(self, training: Training, about: RoundState) -> dict[str, float]:
        training.advance(about.work_steps if self.steps == "longest" else None)
        return {}
