"""Round ends: when local training stops and the models are collected."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from algorithms.part import Part

if TYPE_CHECKING:
    from algorithms.algorithm import Training


class RoundEnd(Part):
    """Drives a cohort's local training up to the moment of collection."""

    @abstractmethod
    def run(self, training: Training) -> dict[str, float]:
        """Advance ``training`` to its end; returns scalars worth recording for the round."""


class Fixed(RoundEnd):
    """Every client does the local work of the config: ``local.steps`` or ``local.epochs``."""

    name: str = "fixed"

    def run(self, training: Training) -> dict[str, float]:
        training.advance()
        return {}
