"""Attacks against their definitions, and the optimising ones against brute force."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm

from algorithms.draws import torch_generator
from algorithms.part import variants
from algorithms.parts.attacks import Attack, alie_deviations, perturbation
from orchestrator.clients.adversary import Adversary

D = 40


def draws(n, seed=0):
    return [torch_generator(seed, "attack", 1, 0, k) for k in range(n)]


def forge(name, own, benign, **options):
    return variants(Attack)[name](**options).forge(own, benign, draws(len(own)))


@pytest.fixture
def updates():
    rows = torch.randn(10, D, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return rows[:3], rows[3:]


def test_same_value_is_one_number_everywhere_and_differs_between_clients(updates):
    out = forge("same_value", *updates, tau=100.0)
    assert (out == out[:, :1]).all()
    assert len(set(out[:, 0].tolist())) == 3
    many = [float(forge("same_value", torch.zeros(1, 2), torch.zeros(0, 2), tau=7.0)[0, 0])]
    many += [
        float(
            variants(Attack)["same_value"](tau=7.0).forge(
                torch.zeros(1, 2), torch.zeros(0, 2), [torch_generator(0, "x", k)]
            )[0, 0]
        )
        for k in range(2000)
    ]
    assert np.std(many) == pytest.approx(7.0, rel=0.06)
    assert abs(np.mean(many)) < 0.6


def test_sign_flip_turns_and_scale_does_not(updates):
    own, benign = updates
    flipped, scaled = forge("sign_flip", own, benign), forge("scale", own, benign)
    torch.testing.assert_close(flipped, -scaled)
    ratio = scaled / own
    assert (ratio > 0).all()
    torch.testing.assert_close(ratio, ratio[:, :1].expand_as(ratio))


def test_gaussian_ignores_what_was_learned(updates):
    own, benign = updates
    wide = torch.zeros(2, 20_000)
    out = forge("gaussian", wide, wide[:0], tau=3.0)
    assert float(out.std()) == pytest.approx(3.0, rel=0.02)
    assert abs(float(np.corrcoef(out.numpy())[0, 1])) < 0.03
    assert torch.equal(forge("gaussian", own, benign), forge("gaussian", own + 5, benign))


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 10.0])
def test_ipm_reverses_the_benign_mean(updates, epsilon):
    own, benign = updates
    out = forge("ipm", own, benign, epsilon=epsilon)
    for row in out:
        torch.testing.assert_close(row, -epsilon * benign.mean(0))
    total = torch.cat([out, benign]).mean(0)
    expected = (1 - 3 / 7 * epsilon) > 0
    assert bool(total @ benign.mean(0) > 0) == expected


def test_alie(updates):
    own, benign = updates
    out = forge("alie", own, benign, z=1.5)
    torch.testing.assert_close(out[0], benign.mean(0) - 1.5 * benign.var(0, correction=0).sqrt())
    # n = 50, 24 corrupted (the paper's example): s = 26 - 24 = 2 of the 26 workers
    assert alie_deviations(50, 24) == pytest.approx(norm.ppf(24 / 26))
    assert alie_deviations(2, 1) == 0.0
    assert math.isfinite(alie_deviations(10, 9))


def test_attackers_may_know_only_themselves(updates):
    own, benign = updates
    torch.testing.assert_close(forge("ipm", own, benign, knowledge="own")[0], -0.5 * own.mean(0))
    torch.testing.assert_close(forge("ipm", own, benign[:0])[0], -0.5 * own.mean(0))


@pytest.mark.parametrize("direction", ["std", "unit", "sign"])
@pytest.mark.parametrize("name", ["min_max", "min_sum"])
def test_min_max_and_min_sum_are_the_largest_allowed(updates, name, direction):
    """The condition is checked on a fine grid of γ by computing every distance."""
    own, benign = updates
    centre, p = benign.mean(0), perturbation(benign, direction)
    table = torch.stack([torch.linalg.vector_norm(benign - b, dim=1) for b in benign])

    def allowed(gamma):
        gap = torch.linalg.vector_norm(centre + gamma * p - benign, dim=1)
        if name == "min_max":
            return float(gap.max()) <= float(table.max()) + 1e-9
        return float(gap.square().sum()) <= float(table.square().sum(1).max()) + 1e-9

    out = forge(name, own, benign, direction=direction)[0]
    step = float((out - centre) @ p / (p @ p))
    torch.testing.assert_close(out, centre + step * p)
    best = max(g for g in np.arange(0, 200, 0.01) if allowed(g))
    assert step == pytest.approx(best, abs=0.011)


def test_identical_benign_updates_leave_no_room():
    same = torch.ones(5, 4)
    for name in ("min_max", "min_sum", "alie"):
        out = forge(name, same[:2], same)
        assert out.isfinite().all()
        torch.testing.assert_close(out[0], same[0])


def test_the_malicious_set_is_fixed_by_the_seed():
    attack = variants(Attack)["ipm"](fraction=0.3)
    a, b = attack.malicious(1, 50), attack.malicious(1, 50)
    assert a.tolist() == b.tolist() == sorted(set(a.tolist()))
    assert len(a) == 15
    assert a.tolist() != attack.malicious(2, 50).tolist()
    assert variants(Attack)["ipm"](ids=(4, 2)).malicious(0, 5).tolist() == [2, 4]
    with pytest.raises(ValueError, match="numbered 0 to 4"):
        variants(Attack)["ipm"](ids=(5,)).malicious(0, 5)


@pytest.mark.parametrize("on", ["model", "update"])
def test_models_and_updates(on):
    """On models, what a malicious client sends plus the start is forged; on updates, the update
    itself.
    """
    adversary = Adversary.of(variants(Attack)["same_value"](ids=(1,), target=on), 3, 4)
    cohort, start = np.array([0, 1, 3]), torch.full((D,), 5.0)
    delta = torch.ones(3, D)
    out = adversary.forge((2, 0), cohort, {"delta": delta, "buffers": delta.clone()}, start)
    assert torch.equal(out["delta"][[0, 2]], delta[[0, 2]])
    sent = out["delta"][1] + (start if on == "model" else 0)
    m = 100 * float(
        torch.randn((), generator=torch_generator(3, "attack", 2, 0, 1), dtype=torch.float64)
    )
    torch.testing.assert_close(sent, torch.full((D,), m))
    assert torch.equal(out["buffers"], delta)
    with_buffers = Adversary.of(variants(Attack)["same_value"](ids=(1,), buffers=True), 3, 4)
    forged = with_buffers.forge((2, 0), cohort, {"buffers": delta}, start)["buffers"]
    torch.testing.assert_close(forged[1], torch.full((D,), m))


def test_colluders_see_benign_clients_only():
    """Neither each other's rows nor the server's own one (id N) enter the mean."""
    adversary = Adversary.of(variants(Attack)["ipm"](ids=(0,), epsilon=1.0), 0, 3)
    rows = torch.tensor([[50.0], [1.0], [3.0], [1000.0]])
    out = adversary.forge((1, 0), np.array([0, 1, 2, 3]), {"delta": rows}, torch.zeros(1))["delta"]
    assert out[:, 0].tolist() == [-2.0, 1.0, 3.0, 1000.0]


@pytest.mark.parametrize("name", ["ipm", "alie", "min_max", "min_sum"])
@pytest.mark.parametrize("knowledge", ["benign", "own"])
def test_colluders_do_not_go_by_what_is_no_number(name, knowledge):
    """One honest client's NaN made all that they sent NaN, which the server left out."""
    liars = (0, 1, 2)
    attack = variants(Attack)[name](ids=liars, knowledge=knowledge)
    rows = torch.randn(8, D, generator=torch.Generator().manual_seed(0))
    lost = 2 if knowledge == "own" else 5
    whole = Adversary.of(attack, 0, 8)
    rest = np.array([k for k in range(8) if k != lost])
    expected = whole.forge((1, 0), rest, {"delta": rows[rest]}, torch.zeros(1))["delta"]
    rows[lost, 1], sound = math.nan, np.arange(8) != lost
    rows[lost, 0] = 1e6
    told = {"delta": rows}
    sent = whole.forge((1, 0), np.arange(8), told, torch.zeros(1), sound=sound)["delta"]
    assert sent[:2].isfinite().all()
    if name == "ipm" or knowledge == "benign":
        torch.testing.assert_close(sent[:2], expected[:2])


def test_colluders_lie_to_questions_whatever_one_of_the_others_has_answered():
    attack = variants(Attack)["ipm"](ids=(0,), epsilon=1.0, probes=True)
    told = torch.tensor([[9.0], [1.0], [math.nan], [3.0]])
    answers = Adversary.of(attack, 0, 4).answers((1, 0), np.arange(4), told)
    assert answers[0].item() == -2
