"""Meanings: random compositions, each held against a slow and readable model of its rounds."""

from __future__ import annotations

from pathlib import Path
from random import Random

from tests.fuzz.family import Family, Pieces, Wrong
from tests.meanings.comparison import Disagreement, compare
from tests.meanings.compositions import composed, drawn


class Meanings(Family):
    """Three rounds of parts that the model knows; what a run of all parts must fulfil besides is the
    family of compositions'.
    """

    name = "meanings"
    deadline = 30.0
    quick = 8

    def draw(self, rng: Random) -> Pieces:
        return list(drawn(rng))

    def play(self, pieces: Pieces, folder: Path) -> None:
        try:
            compare(*composed(pieces))
        except Disagreement as error:
            raise Wrong(str(error)) from error
