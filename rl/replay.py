"""RLlib's episode replay buffer with a seed, and with a state that a restored buffer really takes
over.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from ray.rllib.utils.replay_buffers.episode_replay_buffer import EpisodeReplayBuffer


class SeededEpisodeReplayBuffer(EpisodeReplayBuffer):
    """Samples single transitions with replacement from a generator of its own."""

    def __init__(self, capacity: int = 100_000, *, seed: int = 0, **kwargs: Any) -> None:
        super().__init__(capacity, **kwargs)
        self.rng = np.random.default_rng(seed)

    def get_state(self) -> dict[str, Any]:
        return copy.deepcopy({**super().get_state(), "rng": self.rng.bit_generator.state})

    def set_state(self, state: dict[str, Any]) -> None:
        self.episodes.clear()  # or the stored episodes would be ignored
        super().set_state(copy.deepcopy(state))
        self.rng.bit_generator.state = state["rng"]
