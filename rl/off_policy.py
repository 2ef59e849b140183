"""DDPG and TD3 driven by a federated server: act, run the round, observe what came of it, learn.

Rounds never end an episode. Module, learner and buffer are the RLlib algorithm's own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TypedDict

import gymnasium as gym
import numpy as np
import torch
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils.metrics import NUM_ENV_STEPS_SAMPLED_LIFETIME

from algorithms.parts.weighers import Situation
from rl.algorithm import DDPGConfig
from rl.learning import LearnerState, build_learner, learner_state, recorded
from rl.replay import SeededEpisodeReplayBuffer
from rl.rl_module import ExplorationState

Transition = tuple[np.ndarray, np.ndarray, float, np.ndarray]
"""State, action, reward, next state."""


class Transitions(TypedDict):
    """The buffer's transitions, oldest first, as columns [T, ...]."""

    states: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    next_states: np.ndarray


class OffPolicyState(TypedDict):
    """What a run's checkpoint holds of the agent."""

    learner: LearnerState
    exploration: ExplorationState
    replay: Mapping[str, object]
    """State of the generator that samples the buffer."""
    transitions: Transitions
    pending: list[np.ndarray] | None
    """State and action whose reward has not been observed."""
    rounds: int


class OffPolicyAgent:
    """Implements :class:`algorithms.parts.weighers.Agent`; ``updates`` updates a round."""

    def __init__(
        self, config: DDPGConfig, slots: int, observation: int, seed: int, updates: int = 1
    ) -> None:
        seen = gym.spaces.Box(0.0, 1.0, (observation,), np.float32)
        weights = gym.spaces.Box(0.0, 1.0, (slots,), np.float32)
        self.config = config.debugging(seed=seed).environment(
            normalize_actions=False, clip_actions=False
        )
        self.options = self.config.options
        self.learner = build_learner(self.config, seen, weights, seed)
        self.module = self.learner.module[DEFAULT_MODULE_ID].unwrapped()
        self.updates = updates
        self.seed = seed
        self.buffer = SeededEpisodeReplayBuffer(self.options.capacity, seed=seed)
        self.rounds = 0
        self.pending: tuple[np.ndarray, np.ndarray] | None = None
        """State and action whose reward has not been observed."""
        self.transitions: deque[Transition] = deque(maxlen=self.options.capacity)

    def act(self, situation: Situation) -> np.ndarray:
        """Weights [K] of the actor with exploration noise."""
        return self.choose(situation.state)

    def intended(self, state: np.ndarray) -> np.ndarray:
        """π(s) [K] without noise."""
        return self.choose(state, explore=False)

    def choose(self, state: np.ndarray, explore: bool = True) -> np.ndarray:
        """The action [K] in ``state`` [n]; without exploration it leaves no trace."""
        batch = {Columns.OBS: torch.from_numpy(np.asarray(state, np.float32))[None]}
        with torch.no_grad():
            if not explore:
                return self.module.forward_inference(batch)[Columns.ACTIONS][0].numpy()
            explored = self.module.forward_exploration(batch, t=self.rounds)
        action = explored[Columns.ACTIONS][0].numpy()
        self.pending = np.asarray(state, np.float32), action
        return action

    def observe(self, reward: float, state: np.ndarray) -> dict[str, float]:
        """Store the transition that the last action led to, and learn."""
        assert self.pending is not None, "observe follows act"
        self._store((*self.pending, float(reward), np.asarray(state, np.float32)))
        self.rounds += 1
        self.pending = None
        if self.rounds < self.options.learning_starts:
            return {}
        losses: dict[str, float] = {}
        for _ in range(self.updates):
            episodes = self.buffer.sample(
                num_items=self.config.train_batch_size_per_learner,
                n_step=1,
                gamma=self.config.gamma,
                sample_episodes=True,
            )
            # RLlib's schedules of learning rates go by environment steps: rounds
            steps = {NUM_ENV_STEPS_SAMPLED_LIFETIME: self.rounds}
            losses |= recorded(self.learner.update(episodes=episodes, timesteps=steps))
        return losses

    def state(self) -> OffPolicyState:
        columns = zip(*self.transitions, strict=True) if self.transitions else ((),) * 4
        states, actions, rewards, next_states = (np.array(column) for column in columns)
        return {
            "learner": learner_state(self.learner),
            "exploration": self.module.get_exploration_state(),
            "replay": self.buffer.rng.bit_generator.state,
            "transitions": {
                "states": states,
                "actions": actions,
                "rewards": rewards,
                "next_states": next_states,
            },
            "pending": None if self.pending is None else list(self.pending),
            "rounds": self.rounds,
        }

    def restore(self, state: OffPolicyState) -> None:
        self.learner.set_state(state["learner"])
        self.module.set_exploration_state(state["exploration"])
        self.rounds = int(state["rounds"])
        pending = state["pending"]
        self.pending = None if pending is None else (pending[0], pending[1])
        self.buffer = SeededEpisodeReplayBuffer(self.options.capacity, seed=self.seed)
        self.transitions.clear()
        kept = state["transitions"]
        for before, action, reward, after in zip(
            kept["states"], kept["actions"], kept["rewards"], kept["next_states"], strict=True
        ):
            self._store((before, action, float(reward), after))
        # the buffer is new and filled in the old order, so equal draws give equal transitions
        self.buffer.rng.bit_generator.state = state["replay"]

    def _store(self, transition: Transition) -> None:
        """To the buffer, as an episode of its own: RLlib evicts whole episodes."""
        before, action, reward, after = transition
        episode = SingleAgentEpisode(
            observations=[before, after], actions=[action], rewards=[reward], len_lookback_buffer=0
        )
        self.buffer.add(episode)
        self.transitions.append(transition)
