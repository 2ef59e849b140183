"""What both kinds of agent do with an RLlib learner: build it, read its state, load a policy."""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import gymnasium as gym
import numpy as np
import torch
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core import COMPONENT_METRICS_LOGGER, DEFAULT_MODULE_ID
from ray.rllib.core.learner.learner import Learner
from ray.rllib.utils.typing import ResultDict
from safetensors.torch import load, save

from rl.randomness import isolated

# RLlib builds its own modules in a way that it warns its users of, and tells all of its new API
for module in ("ray._common.deprecation", "ray.rllib.algorithms.algorithm_config"):
    logging.getLogger(module).setLevel(logging.ERROR)

POLICY_FILE, FACTS_FILE = "policy.safetensors", "policy.json"

LearnerState = dict[str, object]
"""Weights, optimisers and counters as nested dicts of arrays and JSON values."""


def build_learner(
    config: AlgorithmConfig, observation: gym.spaces.Box, action: gym.spaces.Box, seed: int
) -> Learner:
    """A learner that no Algorithm owns, with its weights drawn from ``seed``."""
    # RLlib's constructors draw weights from torch's global generator, and reseed it
    with isolated(seed):
        return config.build_learner(spaces={DEFAULT_MODULE_ID: (observation, action)})


def local_learner(algorithm: Algorithm) -> Learner:
    """The learner of an algorithm that has no remote ones."""
    (found,) = algorithm.learner_group.foreach_learner(lambda learner: learner)
    return found.get()


def learner_state(learner: Learner) -> LearnerState:
    """What a checkpoint holds of ``learner``."""
    # metrics are no part of what will be learned; which modules are trained is the config's to say
    state = learner.get_state(not_components=[COMPONENT_METRICS_LOGGER])
    return {
        name: _plain(value) for name, value in state.items() if name != "should_module_be_updated"
    }


def recorded(results: ResultDict) -> dict[str, float]:
    """The losses in what ``Learner.update`` returns, for a round's record."""
    own = results[DEFAULT_MODULE_ID]
    losses = {
        f"agent_{name}": float(own[name].peek())
        for name in ("critic_loss", "policy_loss")
        if name in own
    }
    # RLlib reports NaN for a loss that this update did not compute (a delayed actor's)
    return {name: value for name, value in losses.items() if math.isfinite(value)}


def module_weights(learner: Learner) -> dict[str, np.ndarray]:
    """All tensors of the policy's module, targets included."""
    weights: dict[str, np.ndarray] = learner.module[DEFAULT_MODULE_ID].get_state()
    return weights


def save_policy(
    folder: Path, weights: Mapping[str, np.ndarray], facts: Mapping[str, object]
) -> None:
    """Write a module's weights and ``facts`` about them (JSON values) into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {k: torch.as_tensor(np.ascontiguousarray(v)).clone() for k, v in weights.items()}
    content = save(tensors)
    _write(folder / POLICY_FILE, content)
    about = {**facts, "sha256": sha256(content).hexdigest()}
    _write(folder / FACTS_FILE, json.dumps(about, indent=2).encode())


def _write(path: Path, content: bytes) -> None:
    """Write a file, whole or not at all."""
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def load_policy(learner: Learner, folder: Path, agent: Mapping[str, object]) -> int:
    """Replace the module's weights by those in ``folder``; returns the rounds that they were
    trained for (0: it does not say).

    ``agent`` holds the options of the agent that is to act on them. Raises ValueError if there is
    no policy, or a damaged one, or another agent's.
    """
    try:
        weights, trained, rounds = _read(folder)
    except Exception as error:  # a file may be absent, cut off, or no JSON: all one to the user
        raise ValueError(
            f"algorithm.agent.policy: there is no policy in {folder}: {error}"
        ) from error
    # what changes the meaning of equally shaped weights
    for key in ("name", "head", "logit_bound"):
        if key in trained and trained[key] != agent.get(key):
            same = "name" if key == "name" else "preset"
            raise ValueError(
                f"algorithm.agent.policy: {folder} was trained with {key} {trained[key]!r}, not "
                f"{agent.get(key)!r}; give the agent the same {same}"
            )
    # RLlib's set_state would leave out what does not fit, without a word
    _same_shapes(module_weights(learner), weights, folder)
    learner.module[DEFAULT_MODULE_ID].set_state({k: v.numpy() for k, v in weights.items()})
    return rounds


def _read(folder: Path) -> tuple[dict[str, torch.Tensor], Mapping[str, object], int]:
    """Weights, the options of the agent that they are of, and the rounds that it was trained for;
    raises whatever is wrong.
    """
    for name in (POLICY_FILE, FACTS_FILE):
        # from a pipe or a device one might read for ever
        if not (folder / name).is_file():
            raise ValueError(f"{name} is no file there")
    content = (folder / POLICY_FILE).read_bytes()
    facts = json.loads((folder / FACTS_FILE).read_text())
    trained = facts.get("agent")
    if not isinstance(trained, Mapping):
        raise ValueError(f"{FACTS_FILE} says of no agent what it was")
    if facts.get("sha256") != sha256(content).hexdigest():
        raise ValueError(f"{POLICY_FILE} is damaged: it is not what was written there")
    weights = load(content)
    others = sorted({str(v.dtype) for v in weights.values()} - {"torch.float32"})
    if others:
        raise ValueError(f"its weights are {others[0]}, and not torch.float32")
    rounds = facts.get("rounds", 0)
    if type(rounds) is not int or rounds < 0:
        raise ValueError(f"{FACTS_FILE}: rounds is no number of rounds")
    return weights, trained, rounds


def _same_shapes(
    own: Mapping[str, np.ndarray], given: Mapping[str, torch.Tensor], folder: Path
) -> None:
    """Raise ValueError unless both have the same tensors by name and shape."""
    wanted = {k: tuple(v.shape) for k, v in own.items()}
    found = {k: tuple(v.shape) for k, v in given.items()}
    differing = sorted(k for k in {*wanted, *found} if wanted.get(k) != found.get(k))
    if differing:
        first = differing[0]
        raise ValueError(
            f"algorithm.agent.policy: {folder} holds the policy of another agent or number of "
            f"clients: {first} is {found.get(first, 'absent')}, wanted "
            f"{wanted.get(first, 'absent')} (the last number is that of the selected clients: "
            "pretrain --for the config, whose algorithm.select decides how many)"
        )


def _plain(value: object) -> object:
    """Tensors and NumPy scalars as arrays, tuples as lists, at any depth."""
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().numpy()
    return np.asarray(value) if isinstance(value, np.generic) else value
