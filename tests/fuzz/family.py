"""What a family of cases is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from random import Random
from typing import Any, ClassVar

Pieces = list[Any]
"""What a case is made of. Any part of them is a case, too, so a failure is made smaller by leaving
some out."""


class Wrong(Exception):
    """What was accepted is not as it must be."""


class Family(ABC):
    """Cases of one kind: the pieces of each are a function of seed and number."""

    name: ClassVar[str]
    deadline: ClassVar[float]
    """Seconds that a case may take."""
    quick: ClassVar[int]
    """Cases in ``make test``."""

    def pieces(self, seed: int, number: int) -> Pieces:
        """What case ``number`` of a campaign is made of."""
        return self.draw(Random(f"{self.name} {seed} {number}"))

    @abstractmethod
    def draw(self, rng: Random) -> Pieces:
        """The pieces of a case."""

    @abstractmethod
    def play(self, pieces: Pieces, folder: Path) -> None:
        """Give them to the product; ``folder`` is empty, and this case's own.

        Raises UserError where they are refused, Wrong where what was accepted is not right; any
        other exception is a failure, too.
        """
