"""A cheap stand-in for a federated run, in which FedAA's agents can be pre-trained.

The model is a point x in R^p and every client pulls it towards an optimum of its own near the
origin; malicious clients send noise many times as large. State, action and reward are FedAA's: the
relative sums of distances of the K nearest updates, weights on the simplex, and an accuracy that
falls with the distance of x from the origin. What is simulated is the geometry of updates, not
learning.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch

from algorithms.parts.selection import nearest


class AggregationEnv(gym.Env):
    """Rounds of aggregation; an episode is truncated after ``rounds`` of them.

    Options (``env_config``): participants N, slots K ≤ N, attackers (largest number; each episode
    draws 0 to that many), dimension p, rate (how far a round of local training moves), spread (of
    the clients' optima), error (size of a malicious update relative to an honest one), rounds.
    """

    def __init__(self, options: dict[str, Any] | None = None) -> None:
        given = {"participants": 10, "slots": 10, "attackers": 3, "dimension": 16, "rate": 0.3,
                 "spread": 0.5, "error": 20.0, "rounds": 50, **(options or {})}  # fmt: skip
        self.participants, self.slots, self.attackers = (
            given["participants"],
            given["slots"],
            given["attackers"],
        )
        self.dimension, self.rate, self.spread = given["dimension"], given["rate"], given["spread"]
        self.error, self.rounds = given["error"], given["rounds"]
        if not 1 <= self.slots <= self.participants or not 0 <= self.attackers < self.participants:
            raise ValueError(
                "slots must be within 1 to participants, and attackers fewer than participants"
            )
        self.observation_space = gym.spaces.Box(0.0, 1.0, (self.slots,), np.float32)
        self.action_space = gym.spaces.Box(0.0, 1.0, (self.slots,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        rng = self.np_random
        self.t = 0
        self.x = rng.normal(size=self.dimension) * 2 / self.dimension**0.5
        self.optima = (
            rng.normal(size=(self.participants, self.dimension)) * self.spread / self.dimension**0.5
        )
        self.bad = rng.choice(self.participants, rng.integers(0, self.attackers + 1), replace=False)
        return self._train(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        weights = np.abs(np.asarray(action, np.float64))
        total = weights.sum()
        weights = weights / total if total > 0 else np.full(self.slots, 1 / self.slots)
        self.x = self.x + weights @ self.moves
        self.t += 1
        reward = float(np.exp(-np.linalg.norm(self.x)))
        return self._train(), reward, False, self.t >= self.rounds, {}

    def _train(self) -> np.ndarray:
        """Everyone's update at x; keeps the K selected ones, returns their relative sums of
        distances.
        """
        moves = self.rate * (self.optima - self.x)
        size = np.linalg.norm(moves, axis=1).mean() / self.dimension**0.5
        moves[self.bad] = (
            self.np_random.normal(size=(len(self.bad), self.dimension)) * size * self.error
        )
        selected = nearest(torch.from_numpy(moves), self.slots)
        self.moves = moves[selected.rows]
        top = selected.sums.max()
        return (selected.sums / top if top > 0 else np.ones(self.slots)).astype(np.float32)
