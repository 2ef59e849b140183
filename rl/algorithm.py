"""DDPG and TD3 as RLlib algorithms.

Usable with ``Algorithm.train()`` and Ray Tune on any Gymnasium task with a Box of actions, and the
source of learner, module and buffer where a federated server drives the agent itself.
"""

from __future__ import annotations

from typing import ClassVar, Self

from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.dqn import DQN
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.utils.typing import StateDict

from rl.learner import DDPGTorchLearner
from rl.options import HEADS, DdpgOptions, Td3Options
from rl.private import refuse, start_over
from rl.replay import SeededEpisodeReplayBuffer
from rl.rl_module import DDPGTorchRLModule


class DDPGConfig(AlgorithmConfig):
    """Deep deterministic policy gradients; :meth:`agent` takes the algorithm's own options,
    :meth:`training` those of every RLlib algorithm.
    """

    options_class: ClassVar[type[DdpgOptions]] = DdpgOptions

    def __init__(self, algo_class: type[Algorithm] | None = None) -> None:
        super().__init__(algo_class=algo_class or DDPG)
        # a dict, because RLlib turns its configs into dicts and back, and Tune finds the spaces to
        # search only in dicts
        self.agent_options = self.options_class().to_dict()
        # one environment step and one update an iteration: DQN's would be a thousand steps
        self.rollout_fragment_length = 1
        self.train_batch_size_per_learner = 64
        self.min_time_s_per_iteration = None
        self.min_sample_timesteps_per_iteration = 1
        # what DQN's loop reads besides
        self.n_step = 1
        self.count_steps_by = "env_steps"
        self.num_env_runners = 0
        self.exploration_config: dict[str, object] = {}

    def agent(self, options: DdpgOptions) -> Self:
        """Set the algorithm's own options; raises TypeError for DDPG's given to TD3."""
        if not isinstance(options, self.options_class):
            wanted = self.options_class.__name__
            raise TypeError(f"{type(self).__name__} takes {wanted}, not {type(options).__name__}")
        self.agent_options = options.to_dict()
        return self

    @property
    def options(self) -> DdpgOptions:
        """The algorithm's own options."""
        return self.options_class.from_dict(self.agent_options)

    def validate(self) -> None:
        super().validate()
        head = self.options.head
        if head not in HEADS:
            refuse(self, f"head must be one of {', '.join(HEADS)}, not {head!r}")
        if self.options.train_noise and self.options.smoothing:
            refuse(self, "train_noise would take the place of the targets' smoothing; give one")
        # RLlib maps a normalised action to the space's bounds, off the simplex that the critic saw
        if head != "tanh" and (self.normalize_actions or self.clip_actions):
            refuse(
                self, "a head on the simplex needs normalize_actions=False and clip_actions=False"
            )

    @property
    def num_steps_sampled_before_learning_starts(self) -> int:
        """DQN's name for ``learning_starts``."""
        return self.options.learning_starts

    @property
    def training_intensity(self) -> float | None:
        """As DQN's loop reads it."""
        return self.options.training_intensity

    @property
    def replay_buffer_config(self) -> dict[str, object]:
        """As DQN's loop reads it."""
        return {
            "type": "SeededEpisodeReplayBuffer",
            "capacity": self.options.capacity,
            "seed": self.seed or 0,
        }

    def get_rollout_fragment_length(self, worker_index: int = 0) -> int:
        wanted: int | str = self.rollout_fragment_length  # "auto" would fill a batch
        return 1 if wanted == "auto" else int(wanted)

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        return RLModuleSpec(module_class=DDPGTorchRLModule)

    def get_default_learner_class(self) -> type[DDPGTorchLearner]:
        return DDPGTorchLearner

    @property
    def _model_config_auto_includes(self) -> dict[str, object]:
        """Private in RLlib, but the only way in which its own algorithms, too, hand their options
        to a module. Without it the module would have no ``model_config["agent"]`` to set up from.
        """
        own = {"agent": self.options.to_dict(), "seed": self.seed or 0}
        return {**super()._model_config_auto_includes, **own}


class TD3Config(DDPGConfig):
    """Twin critics, delayed policy updates and smoothed targets (Fujimoto et al. 2018)."""

    options_class = Td3Options

    def __init__(self, algo_class: type[Algorithm] | None = None) -> None:
        super().__init__(algo_class=algo_class or TD3)


class DDPG(DQN):
    """DDPG with DQN's loop of sampling, storing and learning."""

    @classmethod
    def get_default_config(cls) -> AlgorithmConfig:
        return DDPGConfig()

    def _create_local_replay_buffer_if_necessary(
        self, config: DDPGConfig
    ) -> SeededEpisodeReplayBuffer:
        """Private in RLlib, whose own finds only buffers of RLlib by their names. Were it no longer
        called, building the algorithm would fail on that name.
        """
        return SeededEpisodeReplayBuffer(config.options.capacity, seed=config.seed or 0)

    def get_state(self, *given: object, **named: object) -> StateDict:
        state = super().get_state(*given, **named)
        # RLlib stores no buffer of the new stack, whatever ``store_buffer_in_checkpoints`` says
        return {**state, "replay_buffer": self.local_replay_buffer.get_state()}

    def set_state(self, state: StateDict) -> None:
        super().set_state(state)
        if "replay_buffer" in state:
            self.local_replay_buffer.set_state(state["replay_buffer"])
            if self.env_runner is not None:
                start_over(self.env_runner)


class TD3(DDPG):
    """DDPG with TD3's defaults."""

    @classmethod
    def get_default_config(cls) -> AlgorithmConfig:
        return TD3Config()
