"""Samplers: which clients take part in a round."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from algorithms.draws import generator
from algorithms.part import Part, option

Ids = np.ndarray


@dataclass(frozen=True)
class Draw:
    """What a sampler may look at."""

    seed: int
    """The run's."""
    round: int
    """From 1."""
    samples: np.ndarray
    """Training samples of each client, n_k [N]."""

    @property
    def clients(self) -> int:
        """N."""
        return len(self.samples)


class Sampler(Part):
    """Draws the cohort S_t of a round."""

    @property
    def distinct(self) -> bool:
        """Whether no client can be drawn twice in a round."""
        return True

    @abstractmethod
    def sample(self, draw: Draw, size: int) -> Ids:
        """``size`` client ids in 0..N − 1, ascending; a client drawn twice is listed twice."""

    def wrong(self, drawn: np.ndarray, clients: int, size: int) -> str:
        """What ``drawn`` is, in words, if not ``size`` of ``clients`` as it says; else ""."""
        whole = drawn.shape == (size,) and drawn.dtype.kind in "iu"
        if not whole or not 0 <= drawn.min() <= drawn.max() < clients:
            return f"what is not {size} whole numbers from 0 to {clients - 1} ({drawn.tolist()})"
        if self.distinct and len(np.unique(drawn)) < size:
            return f"clients twice, though it says that they are distinct ({drawn.tolist()})"
        return ""


class Uniform(Sampler):
    """Uniform without replacement."""

    name: str = "uniform"

    def sample(self, draw: Draw, size: int) -> Ids:
        if size == draw.clients:
            return np.arange(size)
        return np.sort(
            generator(draw.seed, "cohort", draw.round).choice(draw.clients, size, replace=False)
        )


class Weighted(Sampler):
    """Client k with probability proportional to its sample count n_k."""

    name: str = "weighted"
    replace: bool = option(
        False, "draw with replacement (multinomial); a client's update then counts once per draw"
    )

    @property
    def distinct(self) -> bool:
        return not self.replace

    def sample(self, draw: Draw, size: int) -> Ids:
        return by_probability(
            generator(draw.seed, "cohort", draw.round), draw.samples, size, self.replace
        )


class Cyclic(Sampler):
    """Fixed disjoint groups in turn, reshuffled after each has served (the FDA-Opt experiments'
    sampler).
    """

    name: str = "cyclic"

    def sample(self, draw: Draw, size: int) -> Ids:
        turns = draw.clients // size
        epoch, turn = divmod(draw.round - 1, turns)
        # keyed by the epoch, not by the round: its rounds must cut up one and the same order
        order = generator(draw.seed, "cohort", epoch).permutation(draw.clients)
        return np.sort(order[turn * size : (turn + 1) * size])


def by_probability(rng: np.random.Generator, weights: np.ndarray, size: int, replace: bool) -> Ids:
    """``size`` ids, ascending, with probability proportional to ``weights`` [N] ≥ 0.

    Without replacement they are drawn one after the other, each from the weights that are left.
    Raises ValueError if fewer than ``size`` weights are positive and ``replace`` is false.
    """
    p = np.asarray(weights, np.float64)
    return np.sort(rng.choice(len(p), size, replace=replace, p=p / p.sum()))
