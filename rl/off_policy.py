"""DDPG and TD3 driven by a federated server: act, run the round, observe what came of it, learn.

One run is one episode without an end. Module, learner and buffer are the RLlib algorithm's own.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils.metrics import NUM_ENV_STEPS_SAMPLED_LIFETIME

from algorithms.parts.weighers import Situation
from rl.algorithm import DDPGConfig
from rl.learning import build_learner, learner_state, recorded
from rl.replay import SeededEpisodeReplayBuffer

EPISODE = "federated run"


class OffPolicyAgent:
    """Implements :class:`algorithms.parts.weighers.Agent`; one learning phase a round."""

    def __init__(self, config: DDPGConfig, slots: int, observation: int, seed: int, updates: int = 1) -> None:
        seen = gym.spaces.Box(0.0, 1.0, (observation,), np.float32)
        weights = gym.spaces.Box(0.0, 1.0, (slots,), np.float32)
        self.config = config.debugging(seed=seed).environment(normalize_actions=False, clip_actions=False)
        self.learner = build_learner(self.config, seen, weights, seed)
        self.module = self.learner.module[DEFAULT_MODULE_ID].unwrapped()
        self.updates = updates
        self.seed = seed
        self._begin_buffer()
        self.observations: list[np.ndarray] = []
        self.actions: list[np.ndarray] = []
        self.rewards: list[float] = []

    def act(self, situation: Situation) -> np.ndarray:
        """Weights [K] of the actor with exploration noise."""
        return self.choose(situation.state)

    def choose(self, state: np.ndarray, explore: bool = True) -> np.ndarray:
        """The action [K] in ``state`` [n]; without exploration it leaves no trace."""
        batch = {Columns.OBS: torch.from_numpy(np.asarray(state, np.float32))[None]}
        with torch.no_grad():
            if not explore:
                return self.module.forward_inference(batch)[Columns.ACTIONS][0].numpy()
            action = self.module.forward_exploration(batch, t=len(self.rewards))[Columns.ACTIONS][0].numpy()
        if not self.observations:
            self.observations.append(np.asarray(state, np.float32))
            self.ongoing.add_env_reset(self.observations[0])
        self.actions.append(action)
        return action

    def observe(self, reward: float, state: np.ndarray) -> dict[str, float]:
        """Store the transition that the last action led to, and learn."""
        self.observations.append(np.asarray(state, np.float32))
        self.rewards.append(float(reward))
        self._store(len(self.rewards) - 1)
        if len(self.rewards) < self.config.learning_starts:
            return {}
        losses: dict[str, float] = {}
        for _ in range(self.updates):
            episodes = self.buffer.sample(
                num_items=self.config.train_batch_size_per_learner,
                n_step=1,
                gamma=self.config.gamma,
                sample_episodes=True,
            )
            steps = {NUM_ENV_STEPS_SAMPLED_LIFETIME: len(self.rewards)}
            losses |= recorded(self.learner.update(episodes=episodes, timesteps=steps))
        return losses

    def state(self) -> dict[str, Any]:
        return {
            "learner": learner_state(self.learner),
            "exploration": self.module.get_exploration_state(),
            "replay": self.buffer.rng.bit_generator.state,
            "observations": np.array(self.observations),
            "actions": np.array(self.actions),
            "rewards": np.array(self.rewards),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.learner.set_state(state["learner"])
        self.module.set_exploration_state(state["exploration"])
        self.observations, self.actions = list(state["observations"]), list(state["actions"])
        self.rewards = [float(r) for r in state["rewards"]]
        self._begin_buffer()
        if self.observations:
            self.ongoing.add_env_reset(self.observations[0])
        for t in range(len(self.rewards)):
            self._store(t)
        self.buffer.rng.bit_generator.state = state["replay"]

    def _begin_buffer(self) -> None:
        self.buffer = SeededEpisodeReplayBuffer(self.config.capacity, seed=self.seed)
        self.ongoing = SingleAgentEpisode(id_=EPISODE)

    def _store(self, t: int) -> None:
        """Transition ``t`` to the buffer."""
        self.ongoing.add_env_step(self.observations[t + 1], self.actions[t], self.rewards[t])
        piece = self.ongoing
        self.ongoing = piece.cut()
        self.buffer.add(piece)
