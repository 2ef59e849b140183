"""DDPG and TD3 as RLlib algorithms: training loop, checkpoints, and (slow) Pendulum."""

import json

import gymnasium as gym
import numpy as np
import pytest
import torch
from ray import tune
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.tune.search.variant_generator import generate_variants
from safetensors.torch import load_file

from rl.algorithm import DDPGConfig, TD3Config
from rl.env import AggregationEnv, Simulation
from rl.learning import local_learner, module_weights
from rl.options import DdpgOptions, Td3Options
from rl.pretrain import _algorithm, _begin, pretrain
from rl.weighers import Td3

CONFIGS = {"ddpg": (DDPGConfig, DdpgOptions), "td3": (TD3Config, Td3Options)}


def build(name, env="Pendulum-v1", **given):
    config, options = CONFIGS[name]
    small = options(hidden=(16, 16), warmup=5, learning_starts=8, **given)
    return (
        config()
        .environment(env)
        .agent(small)
        .training(train_batch_size_per_learner=8)
        .debugging(seed=4)
    )


@pytest.mark.usefixtures("ray_session")
@pytest.mark.parametrize("name", CONFIGS)
def test_train_and_checkpoint(name, tmp_path):
    algo = build(name).build_algo()
    for _ in range(20):
        algo.train()
    learner = local_learner(algo)
    assert learner.updates == 13
    assert len(algo.local_replay_buffer) == 20
    actor = learner.module[DEFAULT_MODULE_ID].actor
    on_runner = algo.env_runner.module.actor
    assert all(
        torch.equal(a, b) for a, b in zip(actor.parameters(), on_runner.parameters(), strict=True)
    )
    path = algo.save_to_path(str(tmp_path / "c"))
    before = module_weights(learner)
    for _ in range(3):
        algo.train()
    algo.restore_from_path(path)
    after = module_weights(local_learner(algo))
    assert all(np.array_equal(before[k], after[k]) for k in before)
    assert len(algo.local_replay_buffer) == 20
    algo.train()
    algo.stop()


@pytest.mark.usefixtures("ray_session")
def test_a_pretraining_goes_on_with_a_policy_and_updates_as_often_as_told(tmp_path):
    """Both options were taken without a word, and nothing came of them."""
    agent = {"preset": "robust", "hidden": (8, 8), "warmup": 2, "learning_starts": 5, "updates": 3}
    simulation = Simulation(participants=8, slots=4, attackers=2)
    algo = _algorithm(Td3(**agent), simulation, 0)
    for _ in range(10):
        algo.train()
    assert local_learner(algo).updates == 3 * (10 - 5 + 1)
    algo.stop()
    first = pretrain(Td3(**agent), simulation, 20, 0, tmp_path / "a", lambda *_: None)
    more = Td3(**agent, policy=tmp_path / "a")
    second = pretrain(more, simulation, 10, 1, tmp_path / "b", lambda *_: None)
    assert np.array_equal(second.before, first.after)
    facts = json.loads((tmp_path / "b" / "policy.json").read_text())
    assert (facts["rounds"], "policy" in facts["agent"]) == (30, False)
    algo = _algorithm(more, simulation, 1)
    _begin(algo, local_learner(algo), more)
    on_runner = algo.env_runner.module
    written = load_file(tmp_path / "a" / "policy.safetensors")
    actor = on_runner.actor.state_dict()
    assert all(torch.equal(value, written[f"actor.{name}"]) for name, value in actor.items())
    assert on_runner.began == 20
    algo.stop()


@pytest.mark.usefixtures("ray_session")
def test_a_simplex_head_refuses_scaled_actions():
    config = build("ddpg", AggregationEnv, head="l1")
    with pytest.raises(ValueError, match="normalize_actions=False"):
        config.build_algo()
    algo = config.environment(normalize_actions=False, clip_actions=False).build_algo()
    for _ in range(12):
        algo.train()
    for episode in algo.local_replay_buffer.sample(8, n_step=1, gamma=0.9, sample_episodes=True):
        assert episode.get_actions()[0].sum() == pytest.approx(1, abs=1e-5)
    algo.stop()


def test_td3_does_not_take_ddpg_s_options():
    with pytest.raises(TypeError, match="TD3Config takes Td3Options, not DdpgOptions"):
        TD3Config().agent(DdpgOptions(hidden=(8,)))
    assert isinstance(DDPGConfig().agent(Td3Options()).options, DdpgOptions)


def test_tune_finds_the_spaces_in_an_agent_s_options():
    config = TD3Config().agent(Td3Options(hidden=(8,), tau=tune.grid_search([0.1, 0.2])))
    found = [
        TD3Config().update_from_dict(chosen).options
        for _, chosen in generate_variants(config.to_dict())
    ]
    assert found == [Td3Options(hidden=(8,), tau=tau) for tau in (0.1, 0.2)]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("ray_session")
@pytest.mark.parametrize("name", CONFIGS)
def test_pendulum(name):
    config, options = CONFIGS[name]
    algo = (
        config()
        .environment("Pendulum-v1")
        .agent(options(sigma=0.2, tau=0.02))
        .training(gamma=0.98)
        .debugging(seed=1)
        .build_algo()
    )
    best = -np.inf
    for step in range(1, 12_001):
        algo.train()
        if step % 1000 == 0:
            best = max(best, mean_return(algo))
            if best > -250:
                break
    algo.stop()
    assert best > -250


def mean_return(algo):
    module, total = local_learner(algo).module[DEFAULT_MODULE_ID], 0.0
    for seed in range(10):
        env = gym.make("Pendulum-v1")
        state, _ = env.reset(seed=1000 + seed)
        for _ in range(200):
            with torch.no_grad():
                action = module.forward_inference({"obs": torch.from_numpy(state)[None]})[
                    "actions"
                ][0].numpy()
            state, reward, *_ = env.step(2 * action)
            total += reward
    return total / 10
