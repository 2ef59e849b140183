"""A client's stream of mini-batches: a function of (seed, round, client, session in the round)."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from algorithms.draws import generator
from algorithms.local_config import LocalConfig

AHEAD = 16
"""Batches drawn at a time for a client led step by step; each alone costs several times more."""


class Batches:
    """Row numbers of successive mini-batches."""

    def __init__(
        self, rows: np.ndarray, local: LocalConfig, seed: int, t: int, client: int, session: int = 0
    ) -> None:
        self.rows = rows
        self.local = local
        self.seed, self.key = seed, (t, client, *([session] if session else []))
        self.rng = generator(seed, "batches", *self.key)
        self.order = np.empty(0, np.int64)
        self.ready: list[np.ndarray] = []
        # nothing is drawn ahead for the first call: it may be the only one, for all local work
        self.led = False

    @cached_property
    def changing(self) -> np.random.Generator:
        """What changes of the inputs are drawn by, batch after batch."""
        return generator(self.seed, "augment", *self.key)

    def take(self, steps: int) -> list[np.ndarray]:
        """The next ``steps`` batches; one smaller than b is an epoch's last, or of a client with
        fewer rows.
        """
        missing = steps - len(self.ready)
        if missing > 0:
            self.ready += [
                self._next() for _ in range(max(missing, AHEAD) if self.led else missing)
            ]
        self.led = True
        batches, self.ready = self.ready[:steps], self.ready[steps:]
        return batches

    def _next(self) -> np.ndarray:
        b = self.local.batch_size
        if self.local.sampling == "independent":
            return self.rng.choice(self.rows, min(b, len(self.rows)), replace=False)
        # with drop_last a client of fewer than b rows never comes here: it does not train
        if len(self.order) < (b if self.local.drop_last else 1):
            self.order = self.rng.permutation(self.rows)
        batch, self.order = self.order[:b], self.order[b:]
        return batch


def stacked(batches: list[list[np.ndarray]], width: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Each client's batches as arrays: rows [S, C, w], short ones filled up with their first row,
    and true sizes [S, C], 0 after a client's last; w is the largest size, or ``width``.

    The first client has the most batches, at least one.
    """
    lengths = [[len(batch) for batch in mine] for mine in batches]
    width = max(width, *(n for theirs in lengths for n in theirs))
    sizes = np.zeros((len(batches[0]), len(batches)), np.int64)
    rows = np.zeros((*sizes.shape, width), np.int64)
    for c, (mine, theirs) in enumerate(zip(batches, lengths, strict=True)):
        sizes[: len(mine), c] = theirs
        if mine and min(theirs) == width:
            rows[: len(mine), c] = mine
            continue
        for line, batch in zip(rows[:, c], mine, strict=False):
            line[: len(batch)] = batch
            # any row would do: engines count only the first ones, and this one is valid
            line[len(batch) :] = batch[0]
    return rows, sizes


def common_width(batch_size: int, largest: int) -> int:
    """A width for all batches of clients that train together, of whom the largest has so many rows.

    It takes few different values, for each of which a computation has to be recorded: batch_size,
    or the next number from the largest that has three binary digits and zeros, which is less than a
    quarter more.
    """
    step = 1 << max(largest.bit_length() - 3, 0)
    return min(batch_size, -(-largest // step) * step)
