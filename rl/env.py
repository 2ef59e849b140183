"""A cheap stand-in for a federated run, in which FedAA's agents can be pre-trained.

The model is a point x in R^p and every client pulls it towards an optimum of its own near the
origin; malicious clients send noise many times as large. State, action and reward are FedAA's: the
relative sums of distances of the K nearest updates, weights on the simplex, and an accuracy that
falls with the distance of x from the origin. What is simulated is the geometry of updates, not
learning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from algorithms.parts.selection import nearest


@dataclass(frozen=True)
class Simulation:
    """A simulated federation; raises ValueError if K of its clients cannot be selected."""

    participants: int = 10
    """N"""
    slots: int = 10
    """K in 1..N, the clients that get a weight."""
    attackers: int = 3
    """Largest number of malicious clients, in 0..N−1; each episode draws 0 to that many."""
    dimension: int = 16
    """p, of the model."""
    rate: float = 0.3
    """The part of its way to the optimum that a client's local training goes in a round."""
    spread: float = 0.5
    """Typical distance of a client's optimum from the origin."""
    error: float = 20.0
    """Size of a malicious update relative to an honest one."""
    rounds: int = 50
    """Length of an episode."""

    def __post_init__(self) -> None:
        if not 1 <= self.slots <= self.participants or not 0 <= self.attackers < self.participants:
            raise ValueError(
                "slots must be within 1 to participants, and attackers fewer than participants"
            )


class AggregationEnv(gym.Env[np.ndarray, np.ndarray]):
    """Rounds of aggregation; an episode is truncated after ``Simulation.rounds`` of them.

    ``options`` (RLlib's ``env_config``) are fields of :class:`Simulation`; raises TypeError for one
    that is not, and ValueError as it does.
    """

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self.simulation = Simulation(**(options or {}))
        shape = (self.simulation.slots,)
        self.observation_space = gym.spaces.Box(0.0, 1.0, shape, np.float32)
        self.action_space = gym.spaces.Box(0.0, 1.0, shape, np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        rng, given = self.np_random, self.simulation
        shrunk = given.dimension**0.5  # a vector of N(0, 1/p) has a norm near 1
        self.t = 0
        self.x = rng.normal(size=given.dimension) * 2 / shrunk
        everyone = (given.participants, given.dimension)
        self.optima = rng.normal(size=everyone) * given.spread / shrunk
        self.bad = rng.choice(
            given.participants, rng.integers(0, given.attackers + 1), replace=False
        )
        return self._train(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        # brought to the simplex here, too: RLlib's own algorithms know only the Box
        weights = np.abs(np.asarray(action, np.float64))
        total = weights.sum()
        weights = weights / total if total > 0 else np.full(len(weights), 1 / len(weights))
        self.x = self.x + weights @ self.moves
        self.t += 1
        reward = float(np.exp(-np.linalg.norm(self.x)))
        # truncated, never terminated: no state of a federated run is its last by itself
        return self._train(), reward, False, self.t >= self.simulation.rounds, {}

    def _train(self) -> np.ndarray:
        """Everyone's update at x; keeps the K selected ones, returns their relative sums [K]."""
        given = self.simulation
        moves = given.rate * (self.optima - self.x)
        # an entry of N(0, size²) noise makes a vector as long as an honest update
        size = np.linalg.norm(moves, axis=1).mean() / given.dimension**0.5
        noise = self.np_random.normal(size=(len(self.bad), given.dimension))
        moves[self.bad] = noise * size * given.error
        selected = nearest(torch.from_numpy(moves), given.slots)
        self.moves = moves[selected.rows]
        top = selected.sums.max()
        return (selected.sums / top if top > 0 else np.ones(given.slots)).astype(np.float32)
