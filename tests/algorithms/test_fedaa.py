"""FedAA's round on quadratic clients, where every model and reward is known."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from algorithms.algorithm import AlgorithmOptions
from algorithms.fedaa import in_effect
from algorithms.flat import ParamSpec
from algorithms.local_config import LocalConfig
from algorithms.part import variants
from algorithms.parts.aggregators import Mean
from algorithms.parts.round_ends import Fixed
from algorithms.parts.samplers import Uniform
from algorithms.parts.server_optimizers import ServerSgd
from algorithms.parts.weighers import Rule, Situation, falling
from algorithms.setting import Composition, Setting
from orchestrator.rounds.experiment import Experiment
from tests.algorithms.quadratics import Quadratics
from tests.configs import small


def fedaa(world, cohort=None, **options):
    cohort = cohort or world.n
    parts = Composition(
        world.n,
        cohort,
        Uniform(),
        Fixed(),
        Mean(),
        ServerSgd(),
        LocalConfig(steps=world.steps, lr=world.lr),
    )
    setting = Setting(
        0, np.arange(1, world.n + 1), ParamSpec.of({"w": torch.zeros(world.d)}), parts, 1000
    )
    chosen = variants(AlgorithmOptions)["fedaa"](**options)
    return chosen.start(setting, torch.zeros(world.d, dtype=torch.float64), torch.zeros(0))


def local_models(world, w):
    """Every client's model after its local steps, in plain torch."""
    out = []
    for k in range(world.n):
        v = w.clone()
        for _ in range(world.steps):
            v = v - world.lr * world.curvature[k] @ (v - world.centre[k])
        out.append(v)
    return torch.stack(out)


class Recorder:
    """An agent that weighs by rank and writes down all that it is told."""

    def __init__(self):
        self.acted, self.observed = [], []

    def act(self, situation):
        self.acted.append(situation)
        self.tried = (
            [situation.accuracy(one) for one in np.eye(len(situation.samples))]
            if situation.round
            else []
        )
        self.losses = (
            [situation.loss(one) for one in np.eye(len(situation.samples))]
            if situation.round
            else []
        )
        p = np.arange(len(situation.samples), 0, -1.0)
        return p / p.sum()

    def intended(self, state):
        return None

    def observe(self, reward, state):
        self.observed.append((reward, state))
        return {"told": reward}

    def state(self):
        return {}

    def restore(self, state):
        pass


@pytest.mark.parametrize("reward", ["accuracy", "change"])
def test_two_rounds_by_hand(reward):
    world = Quadratics(clients=7)
    alg = fedaa(world, select=0.6, reward=reward, accuracy_in_state=True)
    alg.agent = Recorder()
    assert alg.slots == 4
    accuracy = [1 / (1 + float(world.losses(alg.w).mean()))]
    w, sent = alg.w, [(1.0, 1.0, 1.0, 1.0, accuracy[0])]
    for t in (1, 2):
        report = alg.round(t, world)
        models = local_models(world, w)
        sums = torch.stack([torch.linalg.vector_norm(models - m, dim=1).sum() for m in models])
        near = sums.argsort()[:4]
        state = (sums[near] / sums[near].max()).tolist()
        sent.append((*state, accuracy[-1]))
        given = (
            (accuracy[-1] - accuracy[-2] if t > 1 else 0.0) if reward == "change" else accuracy[-1]
        )
        assert alg.agent.observed[t - 1][0] == pytest.approx(given)
        np.testing.assert_allclose(alg.agent.observed[t - 1][1], sent[-1], rtol=1e-6)
        w = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64) @ models[near]
        torch.testing.assert_close(alg.w, w)
        accuracy.append(1 / (1 + float(world.losses(w).mean())))
        assert report["reward"] == pytest.approx(
            accuracy[-1] - accuracy[-2] if reward == "change" else accuracy[-1]
        )
        assert dict(zip(alg.influence.clients, alg.influence.weights, strict=True))[
            int(near[0])
        ] == pytest.approx(0.4)
    tried = alg.agent.tried
    for situation, state in zip(alg.agent.acted, sent, strict=True):
        np.testing.assert_allclose(situation.state, state, rtol=1e-6)
    before = models[near]
    for slot in range(4):
        alone = float(world.losses(before[slot]).mean())
        assert tried[slot] == pytest.approx(1 / (1 + alone))
        assert alg.agent.losses[slot] == pytest.approx(alone)


def test_full_selection_with_uniform_weights_is_fedavg():
    world = Quadratics()
    alg = fedaa(world, select=1.0, agent={"name": "uniform"})
    for t in (1, 2, 3):
        before = alg.w
        alg.round(t, world)
        torch.testing.assert_close(alg.w, local_models(world, before).mean(0))


def test_candidates_limit_the_selection():
    world = Quadratics(clients=10)
    alg = fedaa(world, candidates=0.5, select=0.4, agent={"name": "uniform"})
    assert alg.slots == 2
    seen = set()
    for t in range(1, 12):
        alg.round(t, world)
        used = alg.influence.clients[alg.influence.weights > 0]
        assert len(used) == 2
        seen |= set(used.tolist())
    assert len(seen) > 4


def situation(**given):
    base = {
        "seed": 0,
        "round": 1,
        "state": np.ones(4),
        "distances": np.array([0.25, 0.5, 0.75, 1.0]),
        "samples": np.array([1, 2, 3, 4]),
        "accuracy": lambda p: 0.0,
        "loss": lambda p: 0.0,
    }
    return Situation(**{**base, **given})


def weigh(name, s, **options):
    return variants(Rule)[name](**options).weigh(s)


def test_rules():
    s = situation()
    assert weigh("uniform", s).tolist() == [0.25] * 4
    assert weigh("samples", s).tolist() == [0.1, 0.2, 0.3, 0.4]
    e = np.exp([-1.0, -2.0, -3.0, -4.0])
    np.testing.assert_allclose(weigh("distance", s, kappa=4.0), e / e.sum())
    a, b = weigh("random", s), weigh("random", situation(round=2))
    assert a.sum() == pytest.approx(1)
    assert (a > 0).all()
    assert a.tolist() != b.tolist()
    assert a.tolist() == weigh("random", s).tolist()


def test_greedy_finds_the_best_on_its_line():
    for wanted in (0.0, 2.0, 16.0):
        target = falling(situation().distances, wanted)
        found = weigh(
            "greedy", situation(accuracy=lambda p, target=target: -float(np.abs(p - target).sum()))
        )
        np.testing.assert_allclose(found, target)


def quadratic_loss(seed, slots=5, d=8, outside=False):
    """½ ‖W p − target‖² with its least value on the simplex by SciPy's SLSQP, which shares nothing
    with exponentiated gradients.
    """
    rng = np.random.default_rng(seed)
    models = rng.normal(size=(d, slots))
    target = rng.normal(size=d) * 3 if outside else models @ rng.dirichlet(np.ones(slots))

    def loss(p):
        return 0.5 * float(np.square(models @ p - target).sum())

    found = minimize(
        loss, np.full(slots, 1 / slots), bounds=[(0, 1)] * slots, method="SLSQP",
        constraints={"type": "eq", "fun": lambda p: p.sum() - 1}, options={"ftol": 1e-14},
    )  # fmt: skip
    return loss, found.fun, found.x


@pytest.mark.parametrize("outside", [False, True], ids=["inside", "at the rim"])
@pytest.mark.parametrize("seed", range(3))
def test_exponentiated_gradient_reaches_the_best_weights(seed, outside):
    loss, least, weights = quadratic_loss(seed, outside=outside)
    p = weigh(
        "exponentiated_gradient", situation(samples=np.ones(5), loss=loss), steps=400, width=1e-6
    )
    assert p.sum() == pytest.approx(1)
    assert (p >= 0).all()
    assert loss(p) - least < 1e-3 * (loss(np.full(5, 0.2)) - least)
    np.testing.assert_allclose(p, weights, atol=0.05)


@pytest.mark.parametrize("name", ["exponentiated_gradient", "greedy_selection"])
def test_yardsticks_are_never_worse_than_uniform_weights(name):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        table = rng.normal(size=4)

        def loss(p, table=table):
            # rough, and at some points not even finite
            value = float(np.sin(9 * p @ table) + p @ table)
            return np.inf if p.max() > 0.9 and p.argmax() == 0 else value

        chosen = weigh(name, situation(loss=loss))
        assert chosen.sum() == pytest.approx(1)
        assert loss(chosen) <= loss(np.full(4, 0.25))


@pytest.mark.parametrize("seed", [7, 26])
def test_what_is_tried_is_the_model_that_the_server_would_make(seed):
    """With a server rate of 0.1 the best mixture was one of whole updates, and worse than none."""
    lost = []
    for agent in ("uniform", "exponentiated_gradient"):
        config = small(
            f"seed={seed}", "rounds=1", "model=linear", "cohort=1.0", "algorithm=fedaa",
            "algorithm.select=1.0", f"algorithm.agent={agent}", "data.clients=5", "data.limit=400",
            "data.heldout.per_class=5", "local.epochs=1", "local.steps=null", "local.lr=0.3",
            "server_optimizer={name: sgd, lr: 0.1}", "data.partition=iid",
            "data.dataset=fashion_mnist_10k",
        )  # fmt: skip
        lost.append(Experiment(config).step()["heldout_loss"])
    assert lost[1] < lost[0]


def test_a_flat_or_broken_loss_leaves_uniform_weights():
    for value in (1.0, np.inf):
        p = weigh("exponentiated_gradient", situation(loss=lambda p, value=value: value))
        assert p.tolist() == [0.25] * 4


@pytest.mark.parametrize("criterion", ["loss", "accuracy"])
def test_greedy_selection_by_hand(criterion):
    """Models −3, 1, 2, 9 on a line, the goal 0: 1 joins first, then −3 (mean −1), 2 (mean 0), 9."""
    models, seen = np.array([-3.0, 1.0, 2.0, 9.0]), []

    def cost(p):
        seen.append(p)
        return abs(float(p @ models))

    p = weigh(
        "greedy_selection", situation(loss=cost, accuracy=lambda p: -cost(p)), criterion=criterion
    )
    np.testing.assert_allclose(p, [1 / 3, 1 / 3, 1 / 3, 0])
    assert len(seen) == 10


def test_what_of_a_policy_is_in_effect():
    p = np.array([0.5, 0.3, 0.2])
    assert in_effect(p, 2 * p) == {
        "policy_effective": pytest.approx(1 / 0.38),
        "policy_correlation": pytest.approx(1),
    }
    assert in_effect(p, p[::-1])["policy_correlation"] == pytest.approx(
        np.cov(p, p[::-1])[0, 1] / p.var(ddof=1)
    )
    assert in_effect(np.full(3, 1 / 3), p) == {"policy_effective": pytest.approx(3)}


def test_needs_held_out_rows():
    world = Quadratics()
    parts = Composition(6, 6, Uniform(), Fixed(), Mean(), ServerSgd(), LocalConfig(steps=1))
    setting = Setting(0, np.ones(6), ParamSpec.of({"w": torch.zeros(world.d)}), parts)
    with pytest.raises(ValueError, match="held out at the server"):
        variants(AlgorithmOptions)["fedaa"]().start(setting, torch.zeros(3), torch.zeros(0))


def test_when_nobody_sends_anything_finite_the_model_stays():
    world = Quadratics()
    alg = fedaa(world, agent={"name": "samples"})
    alg.round(1, world)
    before = alg.w.clone()
    world.curvature = world.curvature * torch.nan
    world.centre = torch.zeros_like(world.centre)
    alg.agent = Recorder()
    world.heldout = lambda w, buffers: torch.tensor([[1.0, 2.0, 9.0]])
    report = alg.round(2, world)
    assert torch.equal(alg.w, before)
    assert report["reward"] == 0.5
    assert (len(alg.agent.acted), len(alg.agent.observed)) == (1, 1)
