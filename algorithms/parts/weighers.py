"""Weighers: how FedAA's server weighs the clients that it has selected.

The paper's answer is a reinforcement-learning agent (package ``rl``); it must be measured against
the rules here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import numpy as np

from algorithms.draws import generator
from algorithms.part import Part, option

Loss = Callable[[np.ndarray], float]
"""Of the model that weights [K] make."""
_HALVINGS = 20


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
    loss: Loss
    """Its mean held-out loss; infinite where it is not finite."""


class Agent(Protocol):
    """A weigher at work in a run."""

    def act(self, situation: Situation) -> np.ndarray:
        """Weights of the selected clients [K] on the simplex."""

    def intended(self, state: np.ndarray) -> np.ndarray | None:
        """What the policy would do in ``state`` [n] without exploration: weights [K]; None of a
        weigher that has no policy. Leaves no trace.
        """

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

    uses_heldout: ClassVar[bool] = True
    """Whether they depend on the labelled rows that the server holds out: on rewards, or on how the
    models that weights make do there."""

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

    def intended(self, state: np.ndarray) -> None:
        return None

    def observe(self, reward: float, state: np.ndarray) -> dict[str, float]:
        return {}

    def state(self) -> Mapping[str, object]:
        return {}

    def restore(self, state: Mapping[str, object]) -> None:
        """Nothing to restore."""


class UniformWeights(Rule):
    """1/K each."""

    name: str = "uniform"
    uses_heldout = False

    def weigh(self, situation: Situation) -> np.ndarray:
        return np.full(len(situation.samples), 1 / len(situation.samples))


class RandomWeights(Rule):
    """A point of the simplex drawn uniformly, anew each round."""

    name: str = "random"
    uses_heldout = False

    def weigh(self, situation: Situation) -> np.ndarray:
        return generator(situation.seed, "weights", situation.round).dirichlet(
            np.ones(len(situation.samples))
        )


class SampleWeights(Rule):
    """n_k / Σ n_j over the selected clients."""

    name: str = "samples"
    uses_heldout = False

    def weigh(self, situation: Situation) -> np.ndarray:
        return situation.samples / situation.samples.sum()


class DistanceWeights(Rule):
    """exp(−κ d_k), normalised, with distances d_k divided by the largest."""

    name: str = "distance"
    uses_heldout = False
    kappa: float = option(12.0, "how fast weights fall with distance", "κ", ge=0)

    def weigh(self, situation: Situation) -> np.ndarray:
        return falling(situation.distances, self.kappa)


class GreedyWeights(Rule):
    """The best held-out accuracy along the line of weights exp(−κ d_k): a line search over κ, each
    round anew.
    """

    name: str = "greedy"
    kappas: tuple[float, ...] = option(
        (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0),
        "values of κ tried; 0 is uniform",
        "κ",
        min_length=1,
    )

    def weigh(self, situation: Situation) -> np.ndarray:
        tried = [falling(situation.distances, k) for k in self.kappas]
        return max(tried, key=situation.accuracy)


class GreedySelection(Rule):
    """Equal weights on the clients that forward selection by the held-out set finds, each round
    anew (Caruana et al. 2004, without replacement).

    One client at a time joins, the one with which the mean of the chosen models is best, until all
    K have; the best of the K means on that way is taken. All K at once is one of them, so it is
    never worse on the held-out set than uniform weights. K (K + 1) / 2 models are tried.
    """

    name: str = "greedy_selection"
    criterion: Literal["loss", "accuracy"] = option("loss", "held-out loss, or accuracy")

    def weigh(self, situation: Situation) -> np.ndarray:
        k = len(situation.samples)
        chosen: list[int] = []
        ways: list[tuple[float, np.ndarray]] = []
        while len(chosen) < k:
            tried = [
                (self._cost(situation, one), c, one)
                for c in range(k)
                if c not in chosen
                for one in [_equal(k, [*chosen, c])]
            ]
            cost, joined, weights = min(tried, key=lambda t: t[:2])
            chosen.append(joined)
            ways.append((cost, weights))
        return min(ways, key=lambda way: way[0])[1]

    def _cost(self, situation: Situation, weights: np.ndarray) -> float:
        if self.criterion == "loss":
            return situation.loss(weights)
        return -situation.accuracy(weights)


class ExponentiatedGradient(Rule):
    """Weights of low held-out loss L anywhere on the simplex, each round anew (exponentiated
    gradient: Kivinen and Warmuth 1997).

    From uniform weights, ``steps`` times p ← p exp(−η g) / Σ p exp(−η g), where g_k is the slope
    (L((1 − h) p + h e_k) − L(p)) / h towards client k alone. η is halved until L falls, and doubled
    after a step; so L never rises, and ends below uniform weights' or at it. About K + 2 models a
    step are tried.
    """

    name: str = "exponentiated_gradient"
    steps: int = option(10, "steps a round", ge=1, le=10_000)
    rate: float = option(1.0, "step size tried first, for slopes over the largest", "η", gt=0)
    width: float = option(0.01, "of the differences", "h", gt=0, lt=1)

    def weigh(self, situation: Situation) -> np.ndarray:
        k = len(situation.samples)
        p, eta = np.full(k, 1 / k), self.rate
        best = situation.loss(p)
        for _ in range(self.steps):
            slopes = self._slopes(situation.loss, p, best)
            size = np.abs(slopes).max()
            if size == 0:
                break
            p, best, eta = _descend(situation.loss, p, best, slopes / size, eta)
        return p

    def _slopes(self, loss: Loss, p: np.ndarray, here: float) -> np.ndarray:
        """Slopes [K] of the loss from ``p`` towards each vertex; the largest of them where a loss
        is not finite, 0 where none is.
        """
        towards = (1 - self.width) * p + self.width * np.eye(len(p))
        slopes = np.array([loss(one) - here for one in towards]) / self.width
        finite = np.isfinite(slopes)
        return np.where(finite, slopes, np.abs(slopes[finite]).max(initial=0.0))


def _descend(
    loss: Loss, p: np.ndarray, here: float, slopes: np.ndarray, eta: float
) -> tuple[np.ndarray, float, float]:
    """The next point [K] below the loss ``here``, its loss, and the step size to try next."""
    for _ in range(_HALVINGS):
        # less the smallest, which changes nothing but keeps a large η from making all of them 0
        tried = p * np.exp(-eta * (slopes - slopes.min()))
        tried = tried / tried.sum()
        there = loss(tried)
        if there < here:
            return tried, there, 2 * eta
        eta /= 2
    return p, here, eta


def _equal(slots: int, chosen: Sequence[int]) -> np.ndarray:
    """Equal weights [K] on ``chosen``."""
    weights = np.zeros(slots)
    weights[list(chosen)] = 1 / len(chosen)
    return weights


def falling(distances: np.ndarray, kappa: float) -> np.ndarray:
    """exp(−κ d) for distances [K] ≥ 0, normalised to sum 1."""
    # less the smallest, which changes nothing but keeps a large κ from making all of them 0
    p = np.exp(-kappa * (distances - distances.min()))
    return p / p.sum()
