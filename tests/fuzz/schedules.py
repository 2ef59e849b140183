"""Dispatch: schedules of lateness, death, restart and shutdown."""

from __future__ import annotations

from pathlib import Path
from random import Random

from tests.fuzz.family import Family, Pieces
from tests.orchestrator.test_dispatch import require_right_end


class Schedules(Family):
    """Each ends, with every result or the right refusal; the test's own, under other seeds."""

    name = "schedules"
    deadline = 5.0
    quick = 20

    def draw(self, rng: Random) -> Pieces:
        return [rng.randrange(2**60)]

    def play(self, pieces: Pieces, folder: Path) -> None:
        for seed in pieces:
            require_right_end(Random(seed))
