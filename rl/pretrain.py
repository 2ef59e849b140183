"""Pre-training of FedAA's agents with RLlib's own training loop in the simulated environment."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.learner import Learner
from ray.rllib.core.rl_module.rl_module import RLModule

from rl.env import AggregationEnv, Simulation
from rl.learning import load_policy, local_learner, module_weights, save_policy
from rl.weighers import Ddpg

EPISODES = 10
"""Episodes, of fixed seeds, over which a policy is judged."""

Policy = Callable[[np.ndarray], np.ndarray]
"""From a state [K] to weights [K]."""


@dataclass(frozen=True)
class Scores:
    """Returns of the same episodes [EPISODES]."""

    rounds: int
    """That it was trained for now."""
    before: np.ndarray
    after: np.ndarray
    uniform: np.ndarray
    """Those of uniform weights."""

    @property
    def gains(self) -> np.ndarray:
        """What training has gained in each episode, over what was the better before: the policy, or
        uniform weights.
        """
        return self.after - max(self.before, self.uniform, key=np.mean)


def pretrain(
    weigher: Ddpg,
    simulation: Simulation,
    rounds: int,
    seed: int,
    out: Path,
    tell: Callable[[int, float], None],
) -> Scores:
    """Train for ``rounds`` simulated rounds, or until Ctrl-C (or SIGTERM), and write the policy to
    ``out``. It begins with ``weigher``'s own policy, if it names one.

    ``tell(round, return)`` is called about ten times. Needs a running Ray. Raises ValueError for a
    policy that does not fit.
    """
    algorithm = _algorithm(weigher, simulation, seed)
    learner = local_learner(algorithm)
    policy = _policy(learner.module[DEFAULT_MODULE_ID].unwrapped())
    try:
        began = _begin(algorithm, learner, weigher)
        before = returns(policy, simulation)
        # one step of the environment an iteration (see DDPGConfig): iterations are rounds
        done = 0
        with suppress(KeyboardInterrupt):
            while done < rounds:
                algorithm.train()
                done += 1
                if done % max(1, rounds // 10) == 0:
                    tell(done, float(returns(policy, simulation).mean()))
        after = returns(policy, simulation)
        facts = {
            "agent": weigher.model_dump(mode="json", exclude={"policy"}),
            "environment": _written(simulation),
            "rounds": began + done,
            "return": float(after.mean()),
        }
        save_policy(out, module_weights(learner), facts)
    finally:
        algorithm.stop()
    return Scores(done, before, after, returns(np.ones_like, simulation))


def returns(policy: Policy, simulation: Simulation) -> np.ndarray:
    """Returns [EPISODES] of ``policy`` in episodes of fixed seeds."""
    env, total = AggregationEnv(asdict(simulation)), np.zeros(EPISODES)
    for seed in range(EPISODES):
        state, _ = env.reset(seed=10_000 + seed)
        done = False
        while not done:
            state, reward, _, done, _ = env.step(policy(state))
            total[seed] += float(reward)
    return total


def _algorithm(weigher: Ddpg, simulation: Simulation, seed: int) -> Algorithm:
    config = weigher.config().debugging(seed=seed)
    config.environment(AggregationEnv, env_config=asdict(simulation))
    # RLlib would scale actions to the space's bounds, off the simplex
    config.environment(normalize_actions=False, clip_actions=False)
    return config.build_algo()


def _begin(algorithm: Algorithm, learner: Learner, weigher: Ddpg) -> int:
    """Give learner and environment the policy that ``weigher`` names; the rounds behind it."""
    if weigher.policy is None:
        return 0
    began = load_policy(learner, weigher.policy, weigher.model_dump())
    algorithm.env_runner.module.began = began
    algorithm.env_runner_group.sync_weights(
        from_worker_or_learner_group=algorithm.learner_group, inference_only=True
    )
    return began


def _policy(module: RLModule) -> Policy:
    # the module is the learner's own: what it learns is seen here at once
    def act(state: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            chosen = module.forward_inference({Columns.OBS: torch.from_numpy(state)[None]})
        action: np.ndarray = chosen[Columns.ACTIONS][0].numpy()
        return action

    return act


def _written(simulation: Simulation) -> dict[str, float]:
    """As policy.json has it: the size of the federation, and whatever else is not the default."""
    size, usual = ("participants", "slots", "attackers"), asdict(Simulation())
    every: dict[str, float] = asdict(simulation)
    return {k: value for k, value in every.items() if k in size or value != usual[k]}
