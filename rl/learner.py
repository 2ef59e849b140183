"""The learner of DDPG and TD3 (FedAA's Equations 1–3): the critics first, then the actor against
the updated critic.

    Eq. 3   y = r + γ Q'(s', π'(s')), 0 after a terminal state
    Eq. 2   critics: mean (y − Q(s, a))²
    Eq. 1   actor: ascent on mean Q(s, π(s)), every ``policy_delay`` updates
Targets follow by θ' ← ε θ + (1 − ε) θ' every ``target_network_update_freq`` updates.
"""

from __future__ import annotations

from typing import Any

import torch
from ray.rllib.algorithms.dqn.dqn_learner import DQNLearner
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.torch.torch_learner import TorchLearner
from ray.rllib.core.learner.utils import update_target_network
from torch import Tensor

CRITIC, POLICY = "critic", "policy"


class DDPGTorchLearner(DQNLearner, TorchLearner):
    """Two optimisers, stepped one after the other."""

    def build(self) -> None:
        super().build()
        self.phase = CRITIC
        self.updates = 0

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        module = self.module[module_id]
        for name, net, lr in (
            (CRITIC, module.critics, config.critic_lr),
            (POLICY, module.actor, config.actor_lr),
        ):
            params = self.get_parameters(net)
            self.register_optimizer(
                module_id=module_id,
                optimizer_name=name,
                optimizer=torch.optim.Adam(params, weight_decay=config.weight_decay),
                params=params,
                lr_or_lr_schedule=lr,
            )

    def _uncompiled_update(self, batch: Any, **kwargs: Any) -> Any:
        self.phase = CRITIC
        result = super()._uncompiled_update(batch, **kwargs)
        self.updates += 1
        if self.updates % self.config.policy_delay == 0:
            self.phase = POLICY
            super()._uncompiled_update(batch, **kwargs)
        return result

    def compute_losses(self, *, fwd_out: Any, batch: Any) -> dict[str, Tensor]:
        return {
            mid: self.compute_loss_for_module(
                module_id=mid, config=self.config, batch=batch[mid], fwd_out={}
            )
            for mid in batch
            if mid in self.module
        }

    def compute_loss_for_module(
        self, *, module_id: str, config: Any, batch: Any, fwd_out: Any
    ) -> Tensor:
        module = self.module[module_id].unwrapped()
        if self.phase == CRITIC:
            loss = self.critic_loss(module, config, batch)
            self.metrics.log_value((module_id, "critic_loss"), loss.detach(), window=1)
        else:
            loss = self.policy_loss(module, config, batch)
            self.metrics.log_value((module_id, "policy_loss"), loss.detach(), window=1)
        return loss

    def critic_loss(self, module: Any, config: Any, batch: Any) -> Tensor:
        """Equations 2 and 3; the sum over two critics for TD3."""
        with torch.no_grad():
            after = batch[Columns.NEXT_OBS]
            value = module.target_value(after, self.target_action(module, config, after))
            going = 1.0 - batch[Columns.TERMINATEDS].float()
            y = (batch[Columns.REWARDS] + config.gamma * going * value).float()
        state, action = batch[Columns.OBS], batch[Columns.ACTIONS]
        return torch.stack([(y - q(state, action)).square().mean() for q in module.critics]).sum()

    def target_action(self, module: Any, config: Any, state: Tensor) -> Tensor:
        """π'(s'), with the noise that training has in FedAA's code, or TD3's clipped noise."""
        actor = module.target_actor
        if config.train_noise:
            return module.noisy_action(actor, state, config.model_config["sigma"])
        if not config.smoothing:
            return actor(state)
        outputs = actor.outputs(state)
        noise = module.noise(outputs, config.smoothing).clamp(
            -config.smoothing_clip, config.smoothing_clip
        )
        if actor.head == "tanh":
            return (actor.action(outputs) + noise).clamp(-1, 1)
        return actor.action(outputs + noise)  # on the simplex: noise before the head

    def policy_loss(self, module: Any, config: Any, batch: Any) -> Tensor:
        """Equation 1, and a penalty on the actor's raw outputs against saturation."""
        state = batch[Columns.OBS]
        outputs = module.actor.outputs(state)
        if config.train_noise:
            action = module.noisy_action(module.actor, state, config.model_config["sigma"])
        else:
            action = module.actor.action(outputs)
        loss = -module.critics[0](state, action).mean()
        return (
            loss + config.logit_penalty * outputs.square().mean() if config.logit_penalty else loss
        )

    def compute_gradients(
        self, loss_per_module: dict[str, Tensor], **kwargs: Any
    ) -> dict[Any, Tensor]:
        """Gradients of this phase's parameters only; the other optimiser must find None, or its
        moments would decay.
        """
        gradients: dict[Any, Tensor] = {}
        for optimizer in self._optimizer_parameters:
            optimizer.zero_grad(set_to_none=True)
        for module_id, loss in loss_per_module.items():
            optimizer = self.get_optimizer(module_id, self.phase)
            params = [p for group in optimizer.param_groups for p in group["params"]]
            gradients |= dict(zip(params, torch.autograd.grad(loss, params), strict=True))
        return gradients

    def after_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        super(DQNLearner, self).after_gradient_based_update(timesteps=timesteps)
        if self.updates % self.config.target_network_update_freq == 0:
            for module in self.module._rl_modules.values():
                for net, target in module.unwrapped().get_target_network_pairs():
                    update_target_network(main_net=net, target_net=target, tau=self.config.tau)

    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return {**super().get_state(*args, **kwargs), "updates": self.updates}

    def set_state(self, state: dict[str, Any]) -> None:
        self._weights_seq_no = 0  # or newer live weights would be kept in place of the given ones
        super().set_state(state)
        self.updates = int(state.get("updates", self.updates))
