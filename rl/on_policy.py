"""PPO, as RLlib ships it, driven by a federated server: k rounds of experience, then an update.

The action is a vector of logits in R^K; the server uses softmax(temperature · logits). A single
round has no advantage to learn from (RLlib standardises advantages per update), so experience is
collected first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypedDict

import gymnasium as gym
import numpy as np
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.env.single_agent_episode import SingleAgentEpisode

from algorithms.draws import torch_generator, torch_seed
from algorithms.parts.weighers import Situation
from rl.learning import LearnerState, build_learner, learner_state, recorded
from rl.private import take_given_weights
from rl.randomness import isolated


class OnPolicyState(TypedDict):
    """What a run's checkpoint holds of the agent: its learner, the rounds it has acted in, and its
    memory as arrays.
    """

    learner: LearnerState
    step: int
    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    logps: np.ndarray
    inputs: np.ndarray


@dataclass
class Memory:
    """The rounds since the last update; one more observation than rewards."""

    observations: list[np.ndarray] = field(default_factory=list)
    actions: list[np.ndarray] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    logps: list[np.ndarray] = field(default_factory=list)
    """Log-probabilities of the actions."""
    inputs: list[np.ndarray] = field(default_factory=list)
    """Means and log standard deviations that the actions were drawn with."""


class OnPolicyAgent:
    """Implements :class:`algorithms.parts.weighers.Agent`."""

    def __init__(
        self,
        config: PPOConfig,
        slots: int,
        observation: int,
        seed: int,
        temperature: float,
        one_step: bool,
    ) -> None:
        seen = gym.spaces.Box(0.0, 1.0, (observation,), np.float32)
        logits = gym.spaces.Box(-1.0, 1.0, (slots,), np.float32)
        self.config = config.debugging(seed=seed)
        self.learner = build_learner(self.config, seen, logits, seed)
        self.module = self.learner.module[DEFAULT_MODULE_ID].unwrapped()
        self.seed, self.temperature, self.one_step = seed, temperature, one_step
        self.step = 0
        self.memory = Memory()

    def act(self, situation: Situation) -> np.ndarray:
        """Weights [K] from sampled logits."""
        return self.choose(situation.state)

    def intended(self, state: np.ndarray) -> np.ndarray:
        """The weights [K] of the mean logits."""
        return self.choose(state, explore=False)

    def choose(self, state: np.ndarray, explore: bool = True) -> np.ndarray:
        """The weights [K] in ``state`` [n]; without exploration (the mean logits) it leaves no
        trace.
        """
        seen = np.asarray(state, np.float32)
        with torch.no_grad():
            batch = {Columns.OBS: torch.from_numpy(seen)[None]}
            inputs = self.module.forward_exploration(batch)[Columns.ACTION_DIST_INPUTS]
            mean, log_std = inputs.chunk(2, dim=-1)
            if not explore:
                return self._weights(mean[0])
            # drawn here, because RLlib's distribution would use torch's global generator
            draws = torch_generator(self.seed, "ppo action", self.step)
            action = mean + log_std.exp() * torch.randn(mean.shape, generator=draws)
            logp = self.module.get_exploration_action_dist_cls().from_logits(inputs).logp(action)
        if not self.memory.observations:  # later ones are there, as the end of the last transition
            self.memory.observations.append(seen)
        self.memory.actions.append(action[0].numpy())
        self.memory.logps.append(logp[0].numpy())
        self.memory.inputs.append(inputs[0].numpy())
        self.step += 1
        return self._weights(action[0])

    def _weights(self, logits: torch.Tensor) -> np.ndarray:
        weights: np.ndarray = (self.temperature * logits.double()).softmax(-1).numpy()
        return weights

    def observe(self, reward: float, state: np.ndarray) -> dict[str, float]:
        """Remember what the last action led to; learn when enough has been collected."""
        self.memory.rewards.append(float(reward))
        self.memory.observations.append(np.asarray(state, np.float32))
        if len(self.memory.rewards) < self.config.train_batch_size_per_learner:
            return {}
        # RLlib shuffles minibatches by NumPy's global generator
        with isolated(torch_seed(self.seed, "ppo update", self.step)):
            results = self.learner.update(
                episodes=self._episodes(),
                num_epochs=self.config.num_epochs,
                minibatch_size=self.config.minibatch_size,
                shuffle_batch_per_epoch=True,
                timesteps={"num_env_steps_sampled_lifetime": self.step},
            )
        self.memory = Memory(observations=self.memory.observations[-1:])
        return recorded(results)

    def _episodes(self) -> list[SingleAgentEpisode]:
        """The collected rounds: each an episode that ends (a contextual bandit), or all one that
        does not.
        """
        m, n = self.memory, len(self.memory.rewards)
        pieces = [(t, t + 1) for t in range(n)] if self.one_step else [(0, n)]
        # the long one is truncated, so that RLlib adds the value of its last state: a run goes on
        return [
            SingleAgentEpisode(
                id_=f"rounds {self.step - n + a} to {self.step - n + b}",
                observations=m.observations[a : b + 1],
                actions=m.actions[a:b],
                rewards=m.rewards[a:b],
                extra_model_outputs={
                    Columns.ACTION_LOGP: m.logps[a:b],
                    Columns.ACTION_DIST_INPUTS: m.inputs[a:b],
                },
                terminated=self.one_step,
                truncated=not self.one_step,
                len_lookback_buffer=0,
            )
            for a, b in pieces
        ]

    def state(self) -> OnPolicyState:
        return {
            "learner": learner_state(self.learner),
            "step": self.step,
            "observations": np.array(self.memory.observations),
            "actions": np.array(self.memory.actions),
            "rewards": np.array(self.memory.rewards),
            "logps": np.array(self.memory.logps),
            "inputs": np.array(self.memory.inputs),
        }

    def restore(self, state: OnPolicyState) -> None:
        # DDPG's learner does this by itself; PPO's is RLlib's own
        take_given_weights(self.learner)
        self.learner.set_state(state["learner"])
        self.step = int(state["step"])
        self.memory = Memory(
            observations=list(state["observations"]),
            actions=list(state["actions"]),
            rewards=[float(reward) for reward in state["rewards"]],
            logps=list(state["logps"]),
            inputs=list(state["inputs"]),
        )
