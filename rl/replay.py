"""RLlib's episode replay buffer with a seed, and with a state that a restored one takes over."""

from __future__ import annotations

import copy

import numpy as np
from ray.rllib.utils.replay_buffers.episode_replay_buffer import EpisodeReplayBuffer
from ray.rllib.utils.typing import StateDict


class SeededEpisodeReplayBuffer(EpisodeReplayBuffer):
    """Samples single transitions with replacement from a generator of its own."""

    def __init__(self, capacity: int = 100_000, *, seed: int = 0) -> None:
        super().__init__(capacity)
        self.rng = np.random.default_rng(seed)

    def get_state(self) -> StateDict:
        # RLlib gives out its own lists, which go on growing
        return copy.deepcopy({**super().get_state(), "rng": self.rng.bit_generator.state})

    def set_state(self, state: StateDict) -> None:
        self.episodes.clear()  # or the stored episodes would be ignored
        super().set_state(copy.deepcopy(state))
        self.rng.bit_generator.state = state["rng"]
