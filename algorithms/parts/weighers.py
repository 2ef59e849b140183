"""Weighers: how FedAA's server weighs the clients that it has selected.

The paper's answer is a reinforcement-learning agent (package ``rl``); it must be measured against
the rules here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from algorithms.draws import generator
from algorithms.part import Part, option


@dataclass(frozen=True)
class Situation:
    """What a round's weights may depend on, for the K selected clients (nearest first)."""

    seed: int
    round: int
    state: np.ndarray
    """The agent's observation [K] or [K + 1] in [0, 1]: distances, and perhaps the last held-out
    accuracy."""
    distances: np.ndarray
    """Sums of distances [K], divided by the largest."""
    samples: np.ndarray
    """Training samples [K]."""
    accuracy: Callable[[np.ndarray], float]
    """Held-out accuracy of the model that given weights [K] would make."""


class Agent(Protocol):
    """A weigher at work in a run."""

    def act(self, situation: Situation) -> np.ndarray:
        """Weights of the selected clients [K] on the simplex."""

    def observe(self, reward: float, state: np.ndarray) -> dict[str, float]:
        """Learn what became of the last action: its reward and the next state [K] or [K + 1].

        Returns scalars worth recording.
        """

    def state(self) -> Mapping[str, object]:
        """All that a checkpoint must hold: nested dicts of arrays and JSON values."""

    def restore(self, state: Any) -> None:
        """The inverse of :meth:`state`."""


class Weigher(Part):
    """Chooses aggregation weights."""

    @abstractmethod
    def start(self, slots: int, observation: int, seed: int) -> Agent:
        """An agent for K = ``slots`` weights that sees ``observation`` numbers.

        Raises ValueError if a policy that it is to start from does not fit.
        """


class Rule(Weigher):
    """A weigher that learns nothing."""

    def start(self, slots: int, observation: int, seed: int) -> Agent:
        return _Ruled(self)

    @abstractmethod
    def weigh(self, situation: Situation) -> np.ndarray:
        """Weights [K] on the simplex."""


class _Ruled:
    def __init__(self, rule: Rule) -> None:
        self.act = rule.weigh

    def observe(self, reward: float, state: np.ndarray) -> dict[str, float]:
        return {}

    def state(self) -> Mapping[str, object]:
        return {}

    def restore(self, state: Mapping[str, object]) -> None:
        """Nothing to restore."""


class UniformWeights(Rule):
    """1/K each."""

    name: str = "uniform"

    def weigh(self, situation: Situation) -> np.ndarray:
        return np.full(len(situation.samples), 1 / len(situation.samples))


class RandomWeights(Rule):
    """A point of the simplex drawn uniformly, anew each round."""

    name: str = "random"

    def weigh(self, situation: Situation) -> np.ndarray:
        return generator(situation.seed, "weights", situation.round).dirichlet(
            np.ones(len(situation.samples))
        )


class SampleWeights(Rule):
    """n_k / Σ n_j over the selected clients."""

    name: str = "samples"

    def weigh(self, situation: Situation) -> np.ndarray:
        return situation.samples / situation.samples.sum()


class DistanceWeights(Rule):
    """exp(−κ d_k), normalised, with distances d_k divided by the largest."""

    name: str = "distance"
    kappa: float = option(12.0, "how fast weights fall with distance", "κ", ge=0)

    def weigh(self, situation: Situation) -> np.ndarray:
        return falling(situation.distances, self.kappa)


class GreedyWeights(Rule):
    """The best held-out accuracy along the line of weights exp(−κ d_k): a line search over κ, each
    round anew.
    """

    name: str = "greedy"
    kappas: tuple[float, ...] = option(
        (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0), "values of κ tried; 0 is uniform", "κ"
    )

    def weigh(self, situation: Situation) -> np.ndarray:
        tried = [falling(situation.distances, k) for k in self.kappas]
        return max(tried, key=situation.accuracy)


def falling(distances: np.ndarray, kappa: float) -> np.ndarray:
    """exp(−κ d) for distances [K] ≥ 0, normalised to sum 1."""
    # less the smallest, which changes nothing but keeps a large κ from making all of them 0
    p = np.exp(-kappa * (distances - distances.min()))
    return p / p.sum()
