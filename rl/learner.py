"""The learner of DDPG and TD3 (FedAA's Equations 1–3): critics first, then the actor against them.

    Eq. 3   y = r + γ Q'(s', π'(s')), 0 after a terminal state
    Eq. 2   critics: mean (y − Q(s, a))²
    Eq. 1   actor: ascent on mean Q(s, π(s)) for the updated Q, every ``policy_delay`` updates
Targets follow by θ' ← ε θ + (1 − ε) θ' every ``target_network_update_freq`` updates, of those in
which the actor is updated, too (Fujimoto et al. 2018, Algorithm 1).
"""

from __future__ import annotations

import torch
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.dqn.dqn_learner import DQNLearner
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.torch.torch_learner import TorchLearner
from ray.rllib.core.learner.utils import update_target_network
from ray.rllib.utils.typing import ModuleID, StateDict
from torch import Tensor, nn

from rl.private import take_given_weights
from rl.rl_module import Batch, DDPGTorchRLModule

CRITIC, POLICY = "critic", "policy"
"""The phases of an update, and the names of their optimisers and losses."""

Batches = dict[ModuleID, Batch]
Losses = dict[ModuleID, Tensor]


class DDPGTorchLearner(DQNLearner, TorchLearner):
    """Two optimisers, stepped one after the other."""

    def build(self) -> None:
        super().build()
        self.options = self.config.options
        self.phase = CRITIC
        self.updates = 0

    def configure_optimizers_for_module(
        self, module_id: ModuleID, config: AlgorithmConfig = None
    ) -> None:
        module, options = self.module[module_id], config.options
        for name, net, lr in (
            (CRITIC, module.critics, options.critic_lr),
            (POLICY, module.actor, options.actor_lr),
        ):
            params = self.get_parameters(net)
            self.register_optimizer(
                module_id=module_id,
                optimizer_name=name,
                optimizer=torch.optim.Adam(params, weight_decay=options.weight_decay),
                params=params,
                lr_or_lr_schedule=lr,
            )

    def _uncompiled_update(self, batch: Batches, **unused: object) -> tuple[Batches, Losses, Batch]:
        """Both phases on one minibatch.

        Private in RLlib: its public ``update`` cuts batches first, its public hooks see one pass of
        forward, loss and gradients, and this is where that pass is. Were it no longer called, the
        actor would never learn, and the comparison with plain torch would fail.
        """
        self.phase = CRITIC
        result = super()._uncompiled_update(batch)
        self.updates += 1
        if self._with_actor():
            self.phase = POLICY
            super()._uncompiled_update(batch)
        return result

    def _with_actor(self) -> bool:
        """Whether the actor's turn is in the last update."""
        return self.updates % self.options.policy_delay == 0

    def compute_loss_for_module(
        self, *, module_id: ModuleID, config: AlgorithmConfig, batch: Batch, fwd_out: Batch
    ) -> Tensor:
        module = self.module[module_id].unwrapped()
        asked = self.critic_loss if self.phase == CRITIC else self.policy_loss
        loss = asked(module, batch)
        self.metrics.log_value((module_id, f"{self.phase}_loss"), loss.detach(), window=1)
        return loss

    def critic_loss(self, module: DDPGTorchRLModule, batch: Batch) -> Tensor:
        """Equations 2 and 3; the sum over two critics for TD3."""
        with torch.no_grad():
            after = batch[Columns.NEXT_OBS]
            value = module.target_value(after, self.target_action(module, after))
            going = 1.0 - batch[Columns.TERMINATEDS].float()
            y = (batch[Columns.REWARDS] + self.config.gamma * going * value).float()
        state, action = batch[Columns.OBS], batch[Columns.ACTIONS]
        return torch.stack([(y - q(state, action)).square().mean() for q in module.critics]).sum()

    def target_action(self, module: DDPGTorchRLModule, state: Tensor) -> Tensor:
        """π'(s'), with the noise that training has in FedAA's code, or with TD3's clipped noise, on
        the action (Fujimoto et al. 2018, Section 5.3).
        """
        actor, o = module.target_actor, self.options
        if o.train_noise:
            return module.noisy_action(actor, state, o.sigma)
        action = actor(state)
        if not o.smoothing:
            return action
        noise = module.noise(action, o.smoothing).clamp(-o.smoothing_clip, o.smoothing_clip)
        return actor.moved(action, noise)

    def policy_loss(self, module: DDPGTorchRLModule, batch: Batch) -> Tensor:
        """Equation 1, and a penalty on the actor's raw outputs against saturation."""
        state, penalty = batch[Columns.OBS], self.options.logit_penalty
        outputs = module.actor.outputs(state)
        if self.options.train_noise:
            action = module.noisy_action(module.actor, state, self.options.sigma)
        else:
            action = module.actor.action(outputs)
        # the first critic alone, with TD3's two as well
        loss = -module.critics[0](state, action).mean()
        return loss + penalty * outputs.square().mean() if penalty else loss

    def compute_gradients(
        self, loss_per_module: Losses, **unused: object
    ) -> dict[nn.Parameter, Tensor]:
        """Gradients of this phase's parameters only; the other optimiser must find None, or its
        moments would decay.
        """
        gradients: dict[nn.Parameter, Tensor] = {}
        for module_id in self.module.keys():  # noqa: SIM118  a MultiRLModule is no mapping
            for _, optimizer in self.get_optimizers_for_module(module_id):
                optimizer.zero_grad(set_to_none=True)
        for module_id, loss in loss_per_module.items():
            optimizer = self.get_optimizer(module_id, self.phase)
            params = [p for group in optimizer.param_groups for p in group["params"]]
            # not loss.backward(), which in the actor's phase would reach the critics, too
            gradients |= dict(zip(params, torch.autograd.grad(loss, params), strict=True))
        return gradients

    def after_gradient_based_update(self, *, timesteps: dict[str, int]) -> None:
        # past DQN's, which would move the targets a second time, by environment steps
        super(DQNLearner, self).after_gradient_based_update(timesteps=timesteps)
        if self._with_actor() and self.updates % self.options.target_network_update_freq == 0:
            for module in self.module.values():
                for net, target in module.unwrapped().get_target_network_pairs():
                    update_target_network(main_net=net, target_net=target, tau=self.options.tau)

    def get_state(self, *given: object, **named: object) -> StateDict:
        # or delays and target moves would start anew after a resumption
        return {**super().get_state(*given, **named), "updates": self.updates}

    def set_state(self, state: StateDict) -> None:
        take_given_weights(self)
        super().set_state(state)
        self.updates = int(state.get("updates", self.updates))
