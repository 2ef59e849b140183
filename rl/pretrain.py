"""Pre-training of FedAA's agents with RLlib's own training loop in the simulated environment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns

from rl.env import AggregationEnv
from rl.learning import module_weights, save_policy
from rl.weighers import Ddpg

EPISODES = 10
"""Episodes, of fixed seeds, over which a policy is judged."""


def pretrain(
    weigher: Ddpg,
    env: dict[str, Any],
    rounds: int,
    seed: int,
    out: Path,
    tell: Callable[[int, float], None],
) -> dict[str, float]:
    """Train for ``rounds`` simulated rounds and write the policy to ``out``.

    ``tell(round, return)`` is called about ten times. Returns the mean return of an episode before
    and after, and that of uniform weights on the same episodes. Needs a running Ray.
    """
    config = (
        weigher.config()
        .environment(AggregationEnv, env_config=env, normalize_actions=False, clip_actions=False)
        .debugging(seed=seed)
    )
    algorithm = config.build_algo()
    learner = algorithm.learner_group._learner
    module = learner.module[DEFAULT_MODULE_ID].unwrapped()

    def policy(state: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return module.forward_inference({Columns.OBS: torch.from_numpy(state)[None]})[
                Columns.ACTIONS
            ][0].numpy()

    try:
        before = score(policy, env)
        for t in range(1, rounds + 1):
            algorithm.train()
            if t % max(1, rounds // 10) == 0:
                tell(t, score(policy, env))
        after = score(policy, env)
        facts = {
            "agent": weigher.model_dump(mode="json"),
            "environment": env,
            "rounds": rounds,
            "return": after,
        }
        save_policy(out, module_weights(learner), facts)
    finally:
        algorithm.stop()
    uniform = score(lambda state: np.ones_like(state), env)
    return {"before": before, "after": after, "uniform": uniform}


def score(policy: Callable[[np.ndarray], np.ndarray], options: dict[str, Any]) -> float:
    """Mean return of ``policy`` over episodes of fixed seeds."""
    env, total = AggregationEnv(options), 0.0
    for seed in range(EPISODES):
        state, _ = env.reset(seed=10_000 + seed)
        done = False
        while not done:
            state, reward, _, done, _ = env.step(policy(state))
            total += reward
    return total / EPISODES
