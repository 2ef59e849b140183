"""The RLModule of DDPG and TD3: actor, one or two critics, their targets, and exploration."""

from __future__ import annotations

from typing import TypedDict

import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.utils import make_target_network
from ray.rllib.core.rl_module.apis import InferenceOnlyAPI, QNetAPI, TargetNetworkAPI
from ray.rllib.core.rl_module.torch import TorchRLModule
from torch import Tensor, nn

from rl.networks import Actor, Critic
from rl.options import DdpgOptions

Batch = dict[str, Tensor]


class ExplorationState(TypedDict):
    """What a checkpoint holds of a module's exploration."""

    draws: Tensor
    """The generator's state, bytes."""
    explored: int
    """Actions taken."""


class DDPGTorchRLModule(TorchRLModule, InferenceOnlyAPI, TargetNetworkAPI, QNetAPI):
    """Deterministic policy with exploration noise.

    ``model_config`` holds ``agent``, the :class:`DdpgOptions` as a dict, and ``seed``. The noise
    comes from a generator of the module's own, never from the global one. The generator is not a
    buffer: weights that are synchronised from the learner must not rewind it.
    """

    def setup(self) -> None:
        self.options = o = DdpgOptions.from_dict(self.model_config["agent"])
        n, k = self.observation_space.shape[0], self.action_space.shape[0]
        self.actor = Actor(n, k, o.hidden, o.head, o.bound)
        self.critics = nn.ModuleList(Critic(n, k, o.hidden, o.join) for _ in range(1 + o.twin_q))
        # here too, or a module restored from a checkpoint would lack them
        self.make_target_networks()
        self.began = 0
        """Steps of the policy that it begins with: exploration goes on from there."""
        self.explored = 0
        self.draws = torch.Generator().manual_seed(int(self.model_config["seed"]))

    def make_target_networks(self) -> None:
        self.target_actor = make_target_network(self.actor)
        self.target_critics = make_target_network(self.critics)

    def get_target_network_pairs(self) -> list[tuple[nn.Module, nn.Module]]:
        return [(self.actor, self.target_actor), (self.critics, self.target_critics)]

    def get_non_inference_attributes(self) -> list[str]:
        return ["critics", "target_actor", "target_critics"]

    def sigma(self, step: int) -> float:
        """Standard deviation of the exploration noise at step ``step`` of the policy."""
        o = self.options
        part = min(1.0, step / o.sigma_steps) if o.sigma_steps else 1.0
        end = o.sigma if o.sigma_end is None else o.sigma_end
        return float(o.sigma + part * (end - o.sigma))

    def noise(self, like: Tensor, sigma: float) -> Tensor:
        """N(0, σ²) in the shape of ``like``."""
        # on the CPU, where the generator is, whatever device learns
        drawn = torch.randn(like.shape, generator=self.draws, dtype=like.dtype)
        return sigma * drawn.to(like.device)

    def noisy_action(self, actor: Actor, state: Tensor, sigma: float) -> Tensor:
        """The actor's action with noise of the configured kind."""
        kind = self.options.noise
        if kind == "hidden":
            activations = state.new_empty(len(state), actor.out.in_features)
            return actor.action(actor.outputs(state, self.noise(activations, sigma)))
        outputs = actor.outputs(state)
        if kind == "logit":
            return actor.action(outputs + self.noise(outputs, sigma))
        action = actor.action(outputs)
        return action if kind == "none" else actor.moved(action, self.noise(action, sigma))

    def random_action(self, like: Tensor) -> Tensor:
        """Uniform in the space of actions, in the shape of ``like``."""
        u = torch.rand(like.shape, generator=self.draws, dtype=like.dtype).to(like.device)
        if self.actor.head == "tanh":
            return 2 * u - 1
        # exponential draws, normalised, are uniform on the simplex
        gaps = -u.clamp_min(1e-12).log()
        return gaps / gaps.sum(-1, keepdim=True)

    def _forward_inference(self, batch: Batch, **unused: object) -> Batch:
        return {Columns.ACTIONS: self.actor(batch[Columns.OBS])}

    def _forward_exploration(self, batch: Batch, t: int | None = None, **unused: object) -> Batch:
        state = batch[Columns.OBS]
        step = self.explored if t is None else t
        self.explored = step + 1
        step += self.began
        with torch.no_grad():
            action = self.noisy_action(self.actor, state, self.sigma(step))
            # not RLlib's own random actions, which it would store in the environment's units
            if step < self.options.warmup:
                action = self.random_action(action)
        return {Columns.ACTIONS: action}

    def _forward_train(self, batch: Batch, **unused: object) -> Batch:
        """Nothing: the learner's two phases ask actor and critics themselves."""
        return {}

    def forward_target(self, batch: Batch) -> Batch:
        """Q'(s, π'(s)) without noise, the smaller of two critics."""
        state = batch[Columns.OBS]
        return {"q": self.target_value(state, self.target_actor(state))}

    def target_value(self, state: Tensor, action: Tensor) -> Tensor:
        """min over the target critics [B]."""
        return torch.stack([q(state, action) for q in self.target_critics]).amin(0)

    def compute_q_values(self, batch: Batch) -> Batch:
        return {"q": self.critics[0](batch[Columns.OBS], batch[Columns.ACTIONS])}

    def get_exploration_state(self) -> ExplorationState:
        """The generator and the number of actions taken."""
        return {"draws": self.draws.get_state(), "explored": self.explored}

    def set_exploration_state(self, state: ExplorationState) -> None:
        """The inverse of :meth:`get_exploration_state`."""
        self.draws.set_state(torch.as_tensor(state["draws"], dtype=torch.uint8))
        self.explored = int(state["explored"])
