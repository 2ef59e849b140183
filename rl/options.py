"""The options of DDPG and TD3, each in one place: what it means, its default, the paper's symbol.

``DDPGConfig`` carries them; module and learner read the same object. The general ones of every
RLlib algorithm (gamma, train_batch_size_per_learner ...) stay with ``DDPGConfig.training``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self, get_args

Head = Literal["l1", "softmax", "tanh"]
"""From an actor's outputs u to an action: |u|/‖u‖₁ or softmax, on the simplex of K weights, or tanh
in [−1, 1]^K."""
HEADS: tuple[Head, ...] = get_args(Head)

Noise = Literal["hidden", "logit", "action", "none"]
"""What exploration noise is added to: the last hidden activations, u, the action, or nothing."""


@dataclass(frozen=True)
class DdpgOptions:
    """Networks, exploration and learning of deep deterministic policy gradients."""

    # networks
    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of actor and critics."""
    head: Head = "tanh"
    bound: float | None = None
    """b > 0: softmax sees b·tanh(u/b); None: u."""
    join: int = 1
    """The critics' hidden layer that the action enters before; 0: together with the state."""
    twin_q: bool = False
    """Two critics, of which targets take the smaller value."""

    # exploration
    noise: Noise = "action"
    """𝒩"""
    sigma: float = 0.1
    """σ ≥ 0, the standard deviation of the noise at first; of noise on actions in their own unit:
    1/K on the simplex, 1 under tanh."""
    sigma_end: float | None = None
    """Its value after ``sigma_steps``; None: constant."""
    sigma_steps: int = 0
    """Environment steps over which it changes linearly."""
    warmup: int = 1000
    """First environment steps with random actions."""
    train_noise: bool = False
    """The noise is on while learning, too (FedAA's published code); not together with
    ``smoothing``."""

    # learning
    actor_lr: float = 1e-3
    critic_lr: float = 1e-3
    weight_decay: float = 0.0
    """L2 penalty on all networks."""
    tau: float = 0.005
    """ε in (0, 1]: target networks move by this part."""
    target_network_update_freq: int = 1
    """Updates between two moves of the target networks, which move only as the actor does."""
    policy_delay: int = 1
    """Critic updates between two of the actor (and so of the target networks)."""
    smoothing: float = 0.0
    """Standard deviation of the noise on the target's action (TD3), in the unit of actions: 1/K on
    the simplex, 1 under tanh; 0: none."""
    smoothing_clip: float = 0.5
    """And its bound, in the same unit."""
    logit_penalty: float = 0.0
    """Weight of mean u² in the actor's loss, against saturation."""
    capacity: int = 100_000
    """Transitions that the replay buffer keeps."""
    learning_starts: int = 1000
    """Environment steps before the first update."""
    training_intensity: float | None = None
    """Transitions learned from per transition sampled; None: one update a step."""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The inverse of :meth:`to_dict`; options that are missing have their defaults. Raises
        TypeError for one that does not exist.
        """
        return cls(**values)

    def to_dict(self) -> dict[str, object]:
        """Every option by its name, as RLlib's configs and checkpoints hold them."""
        return asdict(self)


@dataclass(frozen=True)
class Td3Options(DdpgOptions):
    """TD3's defaults: twin critics, delayed policy updates, smoothed targets."""

    join: int = 0
    twin_q: bool = True
    target_network_update_freq: int = 2
    policy_delay: int = 2
    smoothing: float = 0.2
