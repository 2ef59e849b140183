"""DDPG and TD3 as RLlib algorithms: usable with ``Algorithm.train()`` and Ray Tune on any Gymnasium
task with a Box of actions, and the source of learner, module and buffer where a federated server
drives the agent itself.
"""

from __future__ import annotations

from typing import Any

from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.dqn import DQN
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

from rl.learner import DDPGTorchLearner
from rl.networks import HEADS
from rl.replay import SeededEpisodeReplayBuffer
from rl.rl_module import DDPGTorchRLModule

_TRAINING = (
    "hidden", "head", "bound", "join", "noise", "sigma", "sigma_end", "sigma_steps", "warmup",
    "train_noise",
    "actor_lr", "critic_lr", "weight_decay", "tau", "target_network_update_freq", "policy_delay",
    "twin_q", "smoothing",
    "smoothing_clip", "logit_penalty", "capacity", "learning_starts", "training_intensity",
)  # fmt: skip
_MODEL = (
    "hidden",
    "head",
    "bound",
    "join",
    "twin_q",
    "noise",
    "sigma",
    "sigma_end",
    "sigma_steps",
    "warmup",
)


class DDPGConfig(AlgorithmConfig):
    """Deep deterministic policy gradients; :meth:`training` takes the options listed in its
    docstring.
    """

    def __init__(self, algo_class: type[Algorithm] | None = None) -> None:
        super().__init__(algo_class=algo_class or DDPG)
        self.hidden: tuple[int, ...] = (256, 256)
        self.head = "tanh"
        self.bound: float | None = None
        self.join = 1
        self.noise = "action"
        self.sigma = 0.1
        self.sigma_end: float | None = None
        self.sigma_steps = 0
        self.warmup = 1000
        self.train_noise = False
        self.actor_lr = self.critic_lr = 1e-3
        self.weight_decay = 0.0
        self.tau = 0.005
        self.target_network_update_freq = 1
        self.policy_delay = 1
        self.twin_q = False
        self.smoothing = 0.0
        self.smoothing_clip = 0.5
        self.logit_penalty = 0.0
        self.capacity = 100_000
        self.learning_starts = 1000
        self.training_intensity: float | None = None
        # one environment step and one update an iteration
        self.rollout_fragment_length = 1
        self.train_batch_size_per_learner = 64
        self.min_time_s_per_iteration = None
        self.min_sample_timesteps_per_iteration = 1
        self.n_step = 1
        self.count_steps_by = "env_steps"
        self.num_env_runners = 0
        self.exploration_config: dict[str, Any] = {}

    def training(self, **options: Any) -> DDPGConfig:
        """Set RLlib's general training options, and these.

        Networks: hidden (widths), head (l1 | softmax | tanh), bound (of softmax logits), join (the
        critic's layer that the action enters before), twin_q. Exploration: noise (hidden | logit |
        action | none), sigma, sigma_end, sigma_steps, warmup (random actions), train_noise (also
        while learning). Learning: actor_lr, critic_lr, weight_decay, tau (soft update rate ε),
        target_network_update_freq and policy_delay (in updates), smoothing and smoothing_clip
        (TD3's target noise), logit_penalty, capacity (of the buffer), learning_starts (steps),
        training_intensity (transitions learned from per transition sampled; unset: one update a
        step).
        """
        for name in _TRAINING:
            if name in options:
                setattr(self, name, options.pop(name))
        super().training(**options)
        return self

    def validate(self) -> None:
        super().validate()
        if self.head not in HEADS:
            self._value_error(f"head must be one of {', '.join(HEADS)}, not {self.head!r}")
        if self.head != "tanh" and (self.normalize_actions or self.clip_actions):
            self._value_error(
                "a head on the simplex needs normalize_actions=False and clip_actions=False"
            )

    @property
    def num_steps_sampled_before_learning_starts(self) -> int:
        """RLlib's name for ``learning_starts``."""
        return self.learning_starts

    @property
    def replay_buffer_config(self) -> dict[str, Any]:
        """What :class:`DDPG` builds its buffer from."""
        return {
            "type": "SeededEpisodeReplayBuffer",
            "capacity": self.capacity,
            "seed": self.seed or 0,
        }

    def get_rollout_fragment_length(self, worker_index: int = 0) -> int:
        return 1 if self.rollout_fragment_length == "auto" else int(self.rollout_fragment_length)

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        return RLModuleSpec(module_class=DDPGTorchRLModule)

    def get_default_learner_class(self) -> type[DDPGTorchLearner]:
        return DDPGTorchLearner

    @property
    def _model_config_auto_includes(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in _MODEL}
        return {**super()._model_config_auto_includes, **own, "seed": self.seed or 0}


class TD3Config(DDPGConfig):
    """Twin critics, delayed policy updates and smoothed targets (Fujimoto et al. 2018)."""

    def __init__(self, algo_class: type[Algorithm] | None = None) -> None:
        super().__init__(algo_class=algo_class or TD3)
        self.twin_q = True
        self.policy_delay = self.target_network_update_freq = 2
        self.smoothing = 0.2
        self.join = 0


class DDPG(DQN):
    """DDPG with DQN's loop of sampling, storing and learning."""

    @classmethod
    def get_default_config(cls) -> AlgorithmConfig:
        return DDPGConfig()

    def _create_local_replay_buffer_if_necessary(self, config: Any) -> SeededEpisodeReplayBuffer:
        options = self.config.replay_buffer_config
        return SeededEpisodeReplayBuffer(options["capacity"], seed=options["seed"])

    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        state = super().get_state(*args, **kwargs)
        return {**state, "replay_buffer": self.local_replay_buffer.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        if "replay_buffer" in state:
            self.local_replay_buffer.set_state(state["replay_buffer"])
            if (
                self.env_runner is not None
            ):  # a newer episode under way does not continue the restored ones
                self.env_runner._needs_initial_reset = True


class TD3(DDPG):
    """DDPG with TD3's defaults."""

    @classmethod
    def get_default_config(cls) -> AlgorithmConfig:
        return TD3Config()
