"""The agents that a config can name for FedAA's ``algorithm.agent``; RLlib is loaded by a start."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, TypeVar

from pydantic import model_validator

from algorithms.account import Rounds, recorded
from algorithms.figure import Figure
from algorithms.part import Width, option
from algorithms.parts.weighers import Agent, Weigher
from rl.options import DdpgOptions, Td3Options

if TYPE_CHECKING:
    from ray.rllib.algorithms.ppo import PPOConfig

    from rl.algorithm import DDPGConfig

Options = TypeVar("Options", bound=DdpgOptions)
Preset = Mapping[str, object]
"""What the options of an agent are where a config does not give them."""

# the text adds noise to the action and gives no σ; the published code's 0.1 is for activations, and
# moves the weights about as far as 0.1/K does
_PAPER: Preset = {
    "head": "l1", "noise": "action", "sigma": 0.1,
    "lr_actor": 1e-2, "lr_critic": 1e-2, "weight_decay": 1e-5, "gamma": 0.99,
    "soft_rate": 1e-3, "soft_period": 2, "batch": 16,
}  # fmt: skip
# where the published code differs from the text (docs/fedaa.md)
_AUTHORS: Preset = {**_PAPER, "noise": "hidden", "train_noise": True, "soft_period": 1}
# a softmax actor without a bound on its logits runs to a vertex, and has no gradient there
_ROBUST: Preset = {
    "head": "softmax", "logit_bound": 4.0, "logit_penalty": 0.05,
    "noise": "logit", "sigma": 1.0, "sigma_end": 0.2, "sigma_rounds": 400, "warmup": 32,
    "batch": 32, "learning_starts": 32, "lr_actor": 1e-3, "lr_critic": 1e-3, "gamma": 0.9,
    "soft_rate": 0.01, "soft_period": 1,
}  # fmt: skip

COLLAPSED = 1.2
"""A policy that counts fewer clients than so many has collapsed on one."""


class Learned(Weigher):
    """An agent whose preset fills in the options that are not given."""

    records = {
        "agent_critic_loss": "loss of the agent's critic in its last update of the round; none "
        "before it learns",
        "agent_policy_loss": "loss of the agent's policy in its last update of the round",
    }
    figures = (
        Figure(
            "agent",
            "What the agent learns",
            "losses of its critic and of its policy in the last update of a round",
            "loss",
            {"agent_critic_loss": "critic", "agent_policy_loss": "policy"},
        ),
    )
    presets: ClassVar[Mapping[str, Preset]] = {}
    policy: Path | None = option(
        None, "folder of a policy to start from (fedorch agent pretrain)", file=True
    )

    def account(self, rounds: Rounds) -> Iterator[str]:
        updated, all_of_them = len(recorded(rounds, "agent_critic_loss")), len(rounds["round"])
        none = "" if updated else f": it learns from round {self.first_update:,} on"
        yield f"The agent ({self.name}) was updated in {updated:,} of {all_of_them:,} rounds{none}."
        meant = recorded(rounds, "policy_effective")
        if len(meant):
            yield (
                f"Its policy weighs as if {meant[-1]:.1f} clients counted alike at the end, and "
                f"{meant[0]:.1f} at the beginning (1/Σp²)."
            )
            if meant[-1] < COLLAPSED < meant[0]:
                yield "It has collapsed: one client a round has nearly all weight."
        alike = recorded(rounds, "policy_correlation")
        if len(alike):
            yield (
                f"What was executed has, in the mean, a correlation of {alike.mean():.2f} with "
                "what it means; the rest is exploration. Which clients are weighed at all, the "
                "selection says (algorithm.select), not the agent: what that gains, a run with "
                "uniform weights on the same clients shows (--set algorithm.agent=uniform)."
            )

    @property
    @abstractmethod
    def first_update(self) -> int:
        """The first round after which the agent learns."""

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, given: object) -> object:
        if not isinstance(given, dict):
            return given
        # before validation, where "not given" can still be told from "given the default"
        preset = given.get("preset", cls.model_fields["preset"].default)
        return {**cls.presets.get(str(preset), {}), **given}


class Ddpg(Learned):
    """Deep deterministic policy gradients, one update a round (FedAA's agent)."""

    name: str = "ddpg"
    preset: Literal["paper", "authors", "robust"] = option(
        "paper",
        "the text's settings, the published code's, or ours: bounded logits, warm-up, smaller "
        "steps",
    )
    head: Literal["l1", "softmax"] = option("l1", "from outputs u to weights: |u|/‖u‖₁, or softmax")
    noise: Literal["hidden", "logit", "action", "none"] = option(
        "action", "what exploration noise is added to", "𝒩"
    )
    sigma: float = option(
        0.1, "standard deviation of the noise; on the action in units of 1/K", "σ", ge=0
    )
    sigma_end: float | None = option(None, "its value after sigma_rounds; unset: constant", ge=0)
    sigma_rounds: int = option(
        0, "rounds over which it changes linearly; those of a policy to start from count", ge=0
    )
    train_noise: bool = option(False, "the noise is on while learning, too (published code)")
    warmup: int = option(
        0, "first rounds with random weights; those of a policy to start from count", ge=0
    )
    lr_actor: float = option(1e-2, "learning rate of the actor", gt=0, le=1e6)
    lr_critic: float = option(1e-2, "learning rate of the critics", gt=0, le=1e6)
    weight_decay: float = option(1e-5, "L2 penalty on all networks", ge=0)
    gamma: float = option(0.99, "discount factor", "γ", ge=0, le=1)
    soft_rate: float = option(1e-3, "target networks move by this part", "ε", gt=0, le=1)
    soft_period: int = option(
        1, "updates between two moves of the target networks (td3: only as the actor moves)", ge=1
    )
    hidden: tuple[Width, ...] = option(
        (256, 256),
        "widths of the hidden layers (the paper compares 64, 128, 256)",
        min_length=1,
        max_length=8,
    )
    batch: int = option(16, "transitions an update learns from", ge=1, le=100_000)
    buffer: int = option(100_000, "transitions kept", ge=1, le=10_000_000)
    learning_starts: int = option(1, "rounds before the first update", ge=1)
    updates: int = option(1, "updates a round", ge=1, le=10_000)
    logit_bound: float | None = option(None, "softmax sees b·tanh(u/b); unset: u", "b", gt=0)
    logit_penalty: float = option(0.0, "weight of mean u² in the actor's loss", ge=0)

    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": _PAPER,
        "authors": _AUTHORS,
        "robust": _ROBUST,
    }

    @property
    def first_update(self) -> int:
        return self.learning_starts

    def start(self, slots: int, observation: int, seed: int) -> Agent:
        """Raises ValueError if ``policy`` does not fit."""
        from rl.learning import load_policy
        from rl.off_policy import OffPolicyAgent

        agent = OffPolicyAgent(self.config(), slots, observation, seed, self.updates)
        if self.policy is not None:
            agent.module.began = load_policy(agent.learner, self.policy, self.model_dump())
        return agent

    def config(self) -> DDPGConfig:
        """The RLlib config of this agent."""
        from rl.algorithm import DDPGConfig

        return self._set(DDPGConfig())

    def options(self) -> DdpgOptions:
        """This agent's options by the algorithm's names."""
        return self._chosen(DdpgOptions())

    def _chosen(self, defaults: Options) -> Options:
        return replace(
            defaults,
            hidden=self.hidden,
            head=self.head,
            bound=self.logit_bound,
            noise=self.noise,
            sigma=self.sigma,
            sigma_end=self.sigma_end,
            sigma_steps=self.sigma_rounds,
            warmup=self.warmup,
            train_noise=self.train_noise,
            actor_lr=self.lr_actor,
            critic_lr=self.lr_critic,
            weight_decay=self.weight_decay,
            tau=self.soft_rate,
            target_network_update_freq=self.soft_period,
            logit_penalty=self.logit_penalty,
            capacity=self.buffer,
            learning_starts=self.learning_starts,
            training_intensity=float(self.updates * self.batch),
        )

    def _set(self, config: DDPGConfig) -> DDPGConfig:
        return config.agent(self.options()).training(
            gamma=self.gamma, train_batch_size_per_learner=self.batch
        )


class Td3(Ddpg):
    """DDPG with twin critics, delayed policy updates and smoothed targets (Fujimoto et al.
    2018)."""

    name: str = "td3"
    preset: Literal["paper", "robust"] = option(
        "paper", "the text's settings, or ours: bounded logits, warm-up, smaller steps"
    )
    policy_delay: int = option(
        2, "critic updates between two of the actor, and so of the target networks", ge=1
    )
    smoothing: float = option(
        0.2, "standard deviation of the noise on the targets' weights, in units of 1/K", ge=0
    )
    smoothing_clip: float = option(0.5, "and its bound, in the same unit", ge=0)

    # FedAA's code has no TD3
    presets: ClassVar[Mapping[str, Preset]] = {"paper": _PAPER, "robust": _ROBUST}

    @model_validator(mode="after")
    def _one_noise_while_learning(self) -> Td3:
        if self.train_noise and self.smoothing:
            raise ValueError(
                "train_noise would take the place of td3's smoothing; set smoothing to 0, or leave "
                "train_noise off"
            )
        return self

    def config(self) -> DDPGConfig:
        from rl.algorithm import TD3Config

        return self._set(TD3Config())

    def options(self) -> Td3Options:
        return replace(
            self._chosen(Td3Options()),
            policy_delay=self.policy_delay,
            smoothing=self.smoothing,
            smoothing_clip=self.smoothing_clip,
        )


class Ppo(Learned):
    """Proximal policy optimisation: logits from a Gaussian, an update after every ``collect``
    rounds.
    """

    name: str = "ppo"
    preset: Literal["robust", "paper"] = option(
        "robust", "ours, or the learning rate and discount of FedAA's text"
    )
    collect: int = option(32, "rounds of experience an update", "k", ge=2, le=100_000)
    epochs: int = option(10, "passes over them", ge=1, le=10_000)
    lr: float = option(1e-3, "learning rate", gt=0, le=1e6)
    gamma: float = option(0.9, "discount factor", "γ", ge=0, le=1)
    gae_lambda: float = option(0.9, "generalised advantage estimation", "λ", ge=0, le=1)
    clip: float = option(0.2, "clipping of the probability ratio", gt=0)
    entropy: float = option(0.0, "weight of the entropy bonus", ge=0)
    hidden: tuple[Width, ...] = option(
        (256, 256), "widths of the hidden layers", min_length=1, max_length=8
    )
    temperature: float = option(2.0, "weights are softmax(temperature · logits)", gt=0)
    one_step: bool = option(
        False, "every round an episode of its own (contextual bandit) instead of one long episode"
    )

    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": {"lr": 1e-2, "gamma": 0.99},
        "robust": {},
    }

    @property
    def first_update(self) -> int:
        return self.collect

    def start(self, slots: int, observation: int, seed: int) -> Agent:
        """Raises ValueError if ``policy`` does not fit."""
        from rl.learning import load_policy
        from rl.on_policy import OnPolicyAgent

        agent = OnPolicyAgent(
            self.config(), slots, observation, seed, self.temperature, self.one_step
        )
        if self.policy is not None:
            load_policy(agent.learner, self.policy, self.model_dump())
        return agent

    def config(self) -> PPOConfig:
        """The RLlib config of this agent."""
        from ray.rllib.algorithms.ppo import PPOConfig
        from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

        networks = DefaultModelConfig(fcnet_hiddens=list(self.hidden), vf_share_layers=False)
        # no KL loss, whose adaptive coefficient is in no checkpoint; at γ = 0.9 values reach 10 and
        # squared errors 100, where RLlib's default would cut at 10
        return (
            PPOConfig()
            .training(
                lr=self.lr,
                gamma=self.gamma,
                lambda_=self.gae_lambda,
                clip_param=self.clip,
                use_kl_loss=False,
                entropy_coeff=self.entropy,
                vf_clip_param=100.0,
                grad_clip=0.5,
                num_epochs=self.epochs,
                minibatch_size=self.collect,
                train_batch_size_per_learner=self.collect,
            )
            .rl_module(model_config=networks)
        )
