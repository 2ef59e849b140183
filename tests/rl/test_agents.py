"""FedAA's agents: Equations 1–3 against plain torch, exact checkpoints, and learning."""

import copy
import hashlib
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

from orchestrator.cli.pretraining import _beginning, _weigher, federation_of
from orchestrator.errors import UserError
from rl.env import AggregationEnv, Simulation
from rl.learning import load_policy, module_weights, save_policy
from rl.networks import Actor, Critic, on_simplex
from rl.pretrain import returns
from rl.weighers import Ddpg, Ppo, Td3
from tests.algorithms.quadratics import Quadratics
from tests.algorithms.test_fedaa import fedaa

AGENTS = {
    "ddpg paper": Ddpg(hidden=(16, 16)),
    "ddpg authors": Ddpg(preset="authors", hidden=(16, 16)),
    "td3 robust": Td3(preset="robust", hidden=(16, 16), warmup=3, learning_starts=5, batch=4),
    "ppo": Ppo(hidden=(16, 16), collect=4, epochs=2),
}


def walk(agent, rounds, seed=0, k=5):
    """Drive an agent with made-up states and rewards; returns its actions."""
    rng, actions = np.random.default_rng(seed), []
    for _ in range(rounds):
        state = np.sort(rng.random(k)).astype(np.float32)
        if not actions:
            previous = state
        actions.append(agent.choose(previous))
        agent.observe(float(actions[-1] @ np.linspace(1, 0, k)), state)
        previous = state
    return np.array(actions), previous


def test_heads():
    u = torch.tensor([[3.0, -1.0, 0.0], [0.0, 0.0, 0.0]])
    assert on_simplex(u).tolist() == [[0.75, 0.25, 0.0], pytest.approx([1 / 3] * 3)]
    bounded = Actor(3, 3, (4,), "softmax", 4.0).action(u * 100)
    assert float(bounded.max() / bounded.min()) == pytest.approx(np.exp(8), rel=1e-3)
    assert Actor(3, 2, (4,), "tanh", None)(u).abs().max() <= 1


@pytest.mark.parametrize("join", [0, 1, 2])
def test_the_action_joins_where_it_should(join):
    critic = Critic(3, 2, (8, 6), join)
    widths = [layer.in_features for layer in [*critic.before, *critic.after, critic.out]]
    assert widths == {0: [5, 8, 6], 1: [3, 10, 6], 2: [3, 8, 8]}[join]


@pytest.mark.parametrize("name", AGENTS)
def test_actions_are_on_the_simplex_and_resume_is_exact(name):
    first = AGENTS[name].start(5, 5, seed=3)
    actions, state = walk(first, 11)
    np.testing.assert_allclose(actions.sum(1), 1, atol=1e-6)
    assert (actions >= 0).all()
    kept = copy.deepcopy(first.state())
    pending = first.choose(state)  # also between acting and observing
    middle = copy.deepcopy(first.state())
    first.observe(0.5, state)
    rest = walk(first, 9, seed=1)[0]
    for checkpoint, replay in ((kept, True), (middle, False)):
        second = AGENTS[name].start(5, 5, seed=3)
        walk(second, 2, seed=7)  # newer or other weights must not survive
        second.restore(checkpoint)
        if replay:
            assert np.array_equal(second.choose(state), pending)
        second.observe(0.5, state)
        assert np.array_equal(walk(second, 9, seed=1)[0], rest)
        a, b = module_weights(first.learner), module_weights(second.learner)
        assert all(np.array_equal(a[k], b[k]) for k in a)


def test_the_global_generators_are_left_alone():
    torch.manual_seed(5)
    np.random.seed(5)
    expected = torch.rand(1), np.random.rand()
    torch.manual_seed(5)
    np.random.seed(5)
    for weigher in AGENTS.values():
        walk(weigher.start(5, 5, 0), 9)
    assert torch.rand(1) == expected[0]
    assert np.random.rand() == expected[1]


def plain_networks(module):
    """The module's weights as lists of (weight, bias), and Eq. 1–3 by hand below."""

    def layers(net):
        return [
            (
                m.weight.detach().clone().double().requires_grad_(),
                m.bias.detach().clone().double().requires_grad_(),
            )
            for m in net.modules()
            if isinstance(m, torch.nn.Linear)
        ]

    return {"actor": layers(module.actor), "critics": [layers(q) for q in module.critics],
            "target_actor": layers(module.target_actor), "target_critics": [layers(q) for q in module.target_critics]}  # fmt: skip


def policy(net, s, hidden=0.0, action=0.0):
    """|u| / ‖u‖₁ with noise ``hidden`` on the last activations, or ``action`` on the action."""
    for w, b in net[:-1]:
        s = F.relu(s @ w.T + b)
    u = (s + hidden) @ net[-1][0].T + net[-1][1]
    a = u.abs() / u.abs().sum(1, keepdim=True) + action
    return a.abs() / a.abs().sum(1, keepdim=True)


def update_noise(weigher, draws, batch, k):
    """The noise of an update's target action and of its actor, as keywords of ``policy``, from the
    module's generator ``draws`` as it is before the update.
    """

    def normal(*shape):
        return torch.randn(shape, generator=draws).double()

    if isinstance(weigher, Td3) and weigher.smoothing:
        # ε ~ clip(N(0, σ̃²), −c, c), in units of 1/K
        noise = (weigher.smoothing * normal(batch, k)).clamp(
            -weigher.smoothing_clip, weigher.smoothing_clip
        )
        return {"action": noise / k}, lambda: {}
    if not weigher.train_noise:
        return {}, lambda: {}
    if weigher.noise == "hidden":
        width = weigher.hidden[-1]
        return {"hidden": weigher.sigma * normal(batch, width)}, lambda: {
            "hidden": weigher.sigma * normal(batch, width)
        }
    return {"action": weigher.sigma * normal(batch, k) / k}, lambda: {
        "action": weigher.sigma * normal(batch, k) / k
    }


def value(net, s, a, join):
    for i, (w, b) in enumerate(net):
        if i == join:
            s = torch.cat([s, a], 1)
        s = s @ w.T + b
        if i < len(net) - 1:
            s = F.relu(s)
    return s[:, 0]


@pytest.mark.parametrize(
    "weigher",
    [
        Ddpg(noise="none", hidden=(12, 10), soft_rate=0.1),
        Td3(noise="none", hidden=(12, 10), soft_rate=0.1, smoothing=0.0),
        # another preset's soft_period must not have the targets move before the actor has
        Td3(noise="none", hidden=(12, 10), soft_rate=0.1, smoothing=0.0, soft_period=1),
        # the bound cuts off half of the draws
        Td3(hidden=(12, 10), soft_rate=0.1, smoothing=0.6, smoothing_clip=0.4),
        Ddpg(preset="authors", hidden=(12, 10), soft_rate=0.1),
        Ddpg(train_noise=True, sigma=0.3, hidden=(12, 10), soft_rate=0.1),
        Td3(hidden=(12, 10), soft_rate=0.1, smoothing=0.0, train_noise=True, noise="hidden"),
    ],
    ids=[
        "ddpg", "td3", "td3 with a soft_period of 1", "td3 smoothed",
        "noise on activations while learning", "noise on actions while learning",
        "td3 with noise while learning",
    ],
)  # fmt: skip
def test_updates_agree_with_equations_1_to_3(weigher):
    """Two updates (four for TD3's delayed actor) from fixed weights and batches, in float64 plain
    torch with Adam.
    """
    agent = weigher.start(4, 4, seed=1)
    module, options, gamma = agent.module, agent.options, agent.config.gamma
    nets = plain_networks(module)

    def flat(net):
        return [p for pair in net for p in pair]

    critic_params = [p for q in nets["critics"] for p in flat(q)]
    adam_q = torch.optim.Adam(
        critic_params, lr=options.critic_lr, weight_decay=options.weight_decay
    )
    adam_pi = torch.optim.Adam(
        flat(nets["actor"]), lr=options.actor_lr, weight_decay=options.weight_decay
    )
    rng = np.random.default_rng(0)
    join = options.join
    for update in range(1, 5 if options.policy_delay > 1 else 3):

        def draw(*shape):
            return rng.random(shape).astype(np.float32)

        batch = {
            "obs": draw(6, 4),
            "new_obs": draw(6, 4),
            "rewards": draw(6),
            "terminateds": rng.random(6) < 0.3,
        }
        batch["actions"] = draw(6, 4) / 4
        draws = torch.Generator()
        draws.set_state(module.draws.get_state())
        agent.learner.update(
            batch=MultiAgentBatch({DEFAULT_MODULE_ID: SampleBatch(batch)}, 6),
            timesteps={"num_env_steps_sampled_lifetime": update},
        )
        s, s2, r, a = (
            torch.from_numpy(batch[n]).double() for n in ("obs", "new_obs", "rewards", "actions")
        )
        on_target, on_actor = update_noise(weigher, draws, 6, 4)
        with torch.no_grad():
            a2 = policy(nets["target_actor"], s2, **on_target)
            q2 = torch.stack([value(q, s2, a2, join) for q in nets["target_critics"]]).min(0).values
            y = r + gamma * q2 * torch.from_numpy(1.0 - batch["terminateds"])
        loss = sum(((y - value(q, s, a, join)) ** 2).mean() for q in nets["critics"])
        for p, g in zip(critic_params, torch.autograd.grad(loss, critic_params), strict=True):
            p.grad = g
        adam_q.step()
        if update % options.policy_delay == 0:
            a = policy(nets["actor"], s, **on_actor())
            gain = value(nets["critics"][0], s, a, join).mean()
            for p, g in zip(
                flat(nets["actor"]), torch.autograd.grad(-gain, flat(nets["actor"])), strict=True
            ):
                p.grad = g
            adam_pi.step()
        # Fujimoto et al. 2018, Algorithm 1: in the update of the actor
        if update % np.lcm(options.policy_delay, options.target_network_update_freq) == 0:
            with torch.no_grad():
                pairs = [
                    (nets["actor"], nets["target_actor"]),
                    *zip(nets["critics"], nets["target_critics"], strict=True),
                ]
                for net, target in pairs:
                    for p, t in zip(flat(net), flat(target), strict=True):
                        t.copy_(options.tau * p + (1 - options.tau) * t)
    after = plain_networks(module)
    for name in ("actor", "target_actor"):
        for mine, theirs in zip(flat(nets[name]), flat(after[name]), strict=True):
            torch.testing.assert_close(mine, theirs, atol=1e-6, rtol=1e-5)
    for name in ("critics", "target_critics"):
        for net, other in zip(nets[name], after[name], strict=True):
            for mine, theirs in zip(flat(net), flat(other), strict=True):
                torch.testing.assert_close(mine, theirs, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("head", ["l1", "softmax", "tanh"])
def test_noise_on_actions_is_in_their_own_unit(head):
    """On the simplex of K weights of size 1/K, σ is a part of 1/K; under tanh it is σ itself."""
    actor, k = Actor(3, 50, (64,), head, None), 50
    state, noise = torch.rand(200, 3), 0.1 * torch.randn(200, 50)
    with torch.no_grad():
        plain = actor(state)
        moved = actor.moved(plain, noise)
    if head == "tanh":
        torch.testing.assert_close(moved, plain + noise)
        return
    before = plain + noise / k
    torch.testing.assert_close(moved, before.abs() / before.abs().sum(1, keepdim=True))
    assert float((moved - plain).std()) == pytest.approx(0.1 / k, rel=0.2)


@pytest.mark.parametrize(
    "weigher", [Ddpg(), Ddpg(preset="authors"), Td3()], ids=["paper", "authors", "td3"]
)
def test_the_policy_is_what_is_executed(weigher):
    """With 30 slots, as in the paper: noise of the size 0.1 itself left a correlation of 0.06."""
    agent, rng = weigher.start(30, 30, 0), np.random.default_rng(0)
    found = []
    for _ in range(50):
        state = np.sort(rng.random(30)).astype(np.float32)
        before = agent.module.draws.get_state()
        intended = agent.intended(state)
        assert torch.equal(before, agent.module.draws.get_state())
        found.append(np.corrcoef(intended, agent.choose(state))[0, 1])
    assert 0.9 < np.mean(found) < 1


def test_td3_s_smoothing_leaves_the_target_s_action_recognisable():
    agent = Td3().start(30, 30, 0)
    state = torch.rand(100, 30).sort(1).values
    with torch.no_grad():
        smoothed = agent.learner.target_action(agent.module, state).numpy()
        plain = agent.module.target_actor(state).numpy()
    found = [np.corrcoef(a, b)[0, 1] for a, b in zip(smoothed, plain, strict=True)]
    assert 0.9 < np.mean(found) < 1


def test_td3_does_not_smooth_and_keep_its_noise():
    with pytest.raises(ValueError, match="train_noise would take the place of td3's smoothing"):
        Td3(train_noise=True)
    with pytest.raises(ValueError, match="preset"):
        Td3(preset="authors")


def test_a_run_with_an_agent_records_its_policy():
    world = Quadratics(clients=7)
    alg = fedaa(world, select=0.6, agent={"name": "ddpg", "hidden": (8, 8), "noise": "none"})
    report = alg.round(1, world)
    assert report["policy_correlation"] == pytest.approx(1)
    used = alg.influence.weights[alg.influence.weights > 0]
    assert report["policy_effective"] == pytest.approx(1 / np.square(used).sum())
    assert "policy_effective" not in fedaa(world, agent={"name": "uniform"}).round(1, world)


def test_hidden_noise_is_fedaa_s():
    """With noise on the hidden activations the head still ends on the simplex, and training without
    noise is another thing.
    """
    agent = Ddpg(preset="authors", hidden=(8, 8)).start(3, 3, 0)
    state = np.ones(3, np.float32)
    actions = {
        tuple(
            agent.module.forward_exploration({"obs": torch.ones(1, 3)}, t=0)["actions"][0].tolist()
        )
        for _ in range(5)
    }
    assert len(actions) == 5
    assert np.array_equal(agent.choose(state, explore=False), agent.choose(state, explore=False))


def test_noise_schedule_and_warm_up():
    module = (
        Ddpg(sigma=1.0, sigma_end=0.2, sigma_rounds=10, warmup=2, noise="none", hidden=(4,))
        .start(3, 3, 0)
        .module
    )
    assert [round(module.sigma(t), 2) for t in (0, 5, 10, 99)] == [1.0, 0.6, 0.2, 0.2]

    def act(t):
        return module.forward_exploration({"obs": torch.ones(1, 3)}, t=t)["actions"]

    assert not torch.equal(act(0), act(1))
    assert torch.equal(act(2), act(3))


@pytest.mark.parametrize(
    ("weigher", "rounds"),
    [
        pytest.param(Td3(preset="robust"), 260, id="td3"),
        pytest.param(Ddpg(preset="robust"), 420, id="ddpg", marks=pytest.mark.long),
    ],
)
def test_learns_which_slots_to_trust(weigher, rounds):
    """Up to 3 of 10 simulated clients send noise; uniform weights earn 23.7 an episode, exp(−12 d)
    40.5.
    """
    agent, env = weigher.start(10, 10, 0), AggregationEnv()
    state, _ = env.reset(seed=0)
    for _ in range(rounds):
        after, reward, _, done, _ = env.step(agent.choose(state))
        agent.observe(reward, after)
        state = env.reset()[0] if done else after
    learned = returns(lambda s: agent.choose(s, explore=False), Simulation()).mean()
    assert learned > returns(np.ones_like, Simulation()).mean() + 5


@pytest.mark.parametrize(
    "weigher",
    [Ddpg(), Ddpg(preset="authors"), Ddpg(noise="none"), Td3()],
    ids=["ddpg paper", "ddpg authors", "ddpg without noise", "td3 paper"],
)
def test_the_paper_s_agents_learn_what_is_rewarded(weigher):
    """The reward is Σ p_k v_k with v falling from 1 to 0; uniform weights earn 0.5."""
    agent, rng, v = weigher.start(10, 10, 2), np.random.default_rng(2), np.linspace(1, 0, 10)

    def draw():
        state = np.sort(rng.uniform(0.8, 1, 10)).astype(np.float32)
        return state / state[-1]

    state = draw()
    first = float(agent.intended(state) @ v)
    for _ in range(100):
        reward = float(agent.choose(state) @ v)
        state = draw()
        agent.observe(reward, state)
    assert float(agent.intended(state) @ v) > max(0.5, first) + 0.25


def test_ppo_learns_too():
    agent, env = Ppo(collect=32).start(10, 10, 0), AggregationEnv()
    state, _ = env.reset(seed=0)
    for _ in range(640):
        after, reward, _, done, _ = env.step(agent.choose(state))
        agent.observe(reward, after)
        state = env.reset()[0] if done else after
    assert (
        returns(lambda s: agent.choose(s, explore=False), Simulation()).mean()
        > returns(np.ones_like, Simulation()).mean() + 5
    )


def test_exploration_goes_on_where_the_policy_was_trained_to(tmp_path):
    """It began anew: a trained policy was executed as noise, first at random and then at σ = 1."""
    options = {"preset": "robust", "hidden": (8, 8)}
    fresh = Td3(**options).start(5, 5, 0)
    state, weights = np.linspace(0, 1, 5, dtype=np.float32), module_weights(fresh.learner)
    agent = {"agent": Td3(**options).model_dump(mode="json")}
    gaps = {}
    for rounds in (0, 32, 400):
        save_policy(tmp_path / f"p{rounds}", weights, agent | {"rounds": rounds})
        policy = Td3(**options, policy=tmp_path / f"p{rounds}").start(5, 5, 0)
        meant = policy.choose(state, explore=False)
        gaps[rounds] = np.mean([np.abs(policy.choose(state) - meant).sum() for _ in range(50)])
    # at first Dirichlet(1) weights; then σ = 1 − 0.8 · 32/400 on the logits; at last σ = 0.2
    assert gaps[400] < gaps[32] / 3 < gaps[0]
    rng = np.random.default_rng(0)
    logits = 0.2 * rng.normal(size=(4000, 5))
    meant = policy.choose(state, explore=False)
    noisy = meant * np.exp(logits)
    expected = np.abs(noisy / noisy.sum(1, keepdims=True) - meant).sum(1).mean()
    assert gaps[400] == pytest.approx(expected, rel=0.35)
    (tmp_path / "p0" / "policy.json").write_text(
        (tmp_path / "p0" / "policy.json").read_text().replace('"rounds": 0', '"rounds": -1')
    )
    with pytest.raises(ValueError, match="rounds is no number of rounds"):
        Td3(**options, policy=tmp_path / "p0").start(5, 5, 0)


def test_a_saved_policy_moves(tmp_path):
    a_options = Td3(preset="robust", hidden=(8, 8))
    a = a_options.start(5, 5, 0)
    walk(a, 4)
    save_policy(
        tmp_path / "p", module_weights(a.learner), {"agent": a_options.model_dump(mode="json")}
    )
    b = Td3(preset="robust", hidden=(8, 8), policy=tmp_path / "p").start(5, 5, 9)
    state = np.linspace(0, 1, 5, dtype=np.float32)
    assert np.array_equal(a.choose(state, explore=False), b.choose(state, explore=False))
    with pytest.raises(ValueError, match="another agent or number of clients"):
        load_policy(a_options.start(6, 6, 0).learner, tmp_path / "p", a_options.model_dump())
    with pytest.raises(ValueError, match="no policy in"):
        load_policy(b.learner, tmp_path / "nowhere", a_options.model_dump())
    with pytest.raises(ValueError, match="trained with head 'softmax', not 'l1'"):
        Td3(hidden=(8, 8), policy=tmp_path / "p").start(5, 5, 0)


DAMAGES = {
    "no agent": lambda weights, facts: edit(facts, agent=None),
    "a list": lambda weights, facts: edit(facts, agent=["ddpg"]),
    "no object": lambda weights, facts: facts.write_text("[]"),
    "a flipped bit": lambda weights, facts: weights.write_bytes(weights.read_bytes()[:-1] + b"x"),
    "half precision": lambda weights, facts: halve(weights, facts),
    "a pipe": lambda weights, facts: (facts.unlink(), os.mkfifo(facts)),
    "a device": lambda weights, facts: (weights.unlink(), weights.symlink_to("/dev/zero")),
}


def edit(facts, **changes):
    facts.write_text(json.dumps({**json.loads(facts.read_text()), **changes}))


def halve(weights, facts):
    save_file({k: v.bfloat16() for k, v in load_file(weights).items()}, weights)
    edit(facts, sha256=hashlib.sha256(weights.read_bytes()).hexdigest())


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    options, folder = Td3(preset="robust", hidden=(8, 8)), tmp_path_factory.mktemp("policy")
    about = {"agent": options.model_dump(mode="json")}
    save_policy(folder, module_weights(options.start(5, 5, 0).learner), about)
    return folder


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_policy_is_told(damage, saved, tmp_path):
    """Faults, a flipped bit that nobody saw, and a pipe that was read for ever."""
    folder = shutil.copytree(saved, tmp_path / "p")
    assert {p.stat().st_mode & 0o077 for p in saved.iterdir()} == {0o044}
    DAMAGES[damage](folder / "policy.safetensors", folder / "policy.json")
    with pytest.raises(ValueError, match="there is no policy in"):
        Td3(preset="robust", hidden=(8, 8), policy=folder).start(5, 5, 0)


def test_the_environment_is_a_gymnasium_environment():
    from gymnasium.utils.env_checker import check_env

    check_env(AggregationEnv(), skip_render_check=True)
    with pytest.raises(ValueError, match="slots must be within"):
        AggregationEnv({"slots": 11})
    env = AggregationEnv({"participants": 8, "slots": 4, "attackers": 3})
    state, _ = env.reset(seed=1)
    assert state[-1] == 1
    assert (np.diff(state) >= 0).all()


def test_the_buffer_keeps_the_newest_transitions_and_resumes(tmp_path):
    weigher = Ddpg(hidden=(8, 8), buffer=6, batch=4)
    agent = weigher.start(5, 5, 0)
    walk(agent, 15)
    assert len(agent.buffer) == len(agent.transitions) == 6
    again = weigher.start(5, 5, 0)
    again.restore(copy.deepcopy(agent.state()))
    state = np.linspace(0, 1, 5, dtype=np.float32)
    for _ in range(9):
        assert np.array_equal(agent.choose(state), again.choose(state))
        assert agent.observe(0.3, state) == again.observe(0.3, state)


@pytest.mark.parametrize(
    ("settings", "federation"),
    [
        ([], (100, 30, 20)),
        (["algorithm.candidates=0.5"], (50, 15, 20)),
        (["attack=none", "algorithm.select=0.1"], (100, 10, 0)),
        (["attack.fraction=0.9", "cohort=40"], (40, 12, 39)),
    ],
)
def test_a_policy_for_a_config(settings, federation):
    found = federation_of(Path("examples/fedaa/mnist.yaml"), settings)
    assert tuple(found[name] for name in ("participants", "slots", "attackers")) == federation
    assert Simulation(**found).slots == federation[1]


def test_a_policy_s_options_are_said_to_whom_it_is_for():
    """They were left out of what was printed, with which the policy was refused."""
    weigher = _weigher("{name: ddpg, preset: robust, hidden: [32, 32]}")
    assert _beginning(weigher, Path("p")) == {
        "name": "ddpg", "preset": "robust", "hidden": [32, 32], "policy": "p",
    }  # fmt: skip
    with pytest.raises(UserError, match="accuracy_in_state: the simulation has no accuracies"):
        federation_of(Path("examples/fedaa/mnist.yaml"), ["algorithm.accuracy_in_state=true"])
    with pytest.raises(UserError, match="is that of --agent"):
        federation_of(Path("examples/fedaa/mnist.yaml"), ["algorithm.agent.policy=p"])


def test_a_policy_is_for_fedaa():
    with pytest.raises(UserError, match="its algorithm is fedavg; policies are fedaa's"):
        federation_of(Path("examples/fashion_mnist.yaml"), ["algorithm=fedavg"])
