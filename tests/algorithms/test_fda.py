"""FDA's monitors and round ends: identities, inequalities, sketch statistics, and round ends on
quadratic clients.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from algorithms.contract import Cohort
from algorithms.fda import AsyncFda, Fda, FdaOpt
from algorithms.flat import ParamSpec
from algorithms.local import Work
from algorithms.parts import sketch
from algorithms.parts.aggregators import Mean, WeightedMean
from algorithms.parts.monitors import XI, AmsSketch, Exact, Linear, Naive
from algorithms.parts.robust import Median
from algorithms.parts.round_ends import RoundState
from algorithms.parts.sketch import PRIME, Sketch, buckets_and_signs, squared_norm
from algorithms.setting import Composition, Setting
from tests.algorithms.quadratics import Quadratics, algorithm


def drifts(k=5, d=300, seed=0, common=1.0):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(k, d, generator=g, dtype=torch.float64) + common * torch.randn(
        d, generator=g, dtype=torch.float64
    )


def variance(drift):
    """Eq. 3.4 from its definition, (1/K) Σ ‖w_k − w̄‖²."""
    return float((drift - drift.mean(0)).square().sum(1).mean())


def estimate(monitor, drift, xi=None, private=()):
    work = Work(
        ParamSpec(()),
        torch.arange(len(drift)),
        torch.ones(len(drift)),
        {} if xi is None else {XI: xi},
        {},
        drift,
        torch.zeros_like(drift),
        torch.zeros(len(drift)),
        0.1,
        private=private,
    )
    return monitor.estimate(monitor.probe(drift.shape[1], 0).answer(work).mean(0))


@given(st.integers(0, 10_000), st.integers(1, 12), st.floats(0, 30))
@settings(max_examples=60, deadline=None)
def test_exact_is_the_definition_and_linear_and_naive_never_fall_below(seed, k, common):
    drift = drifts(k, 50, seed, common)
    true = variance(drift)
    assert estimate(Exact(), drift) == pytest.approx(true, rel=1e-9, abs=1e-9)
    assert estimate(Naive(), drift) >= true - 1e-9
    xi = torch.randn(50, generator=torch.Generator().manual_seed(seed + 1), dtype=torch.float64)
    assert estimate(Linear(), drift, xi / xi.norm()) >= true - 1e-9 * (1 + true)


@pytest.mark.parametrize("monitor", [Exact(), Naive(), AmsSketch(), Linear()])
def test_what_stays_with_the_clients_is_no_part_of_it(monitor):
    drift, xi = drifts(5, 50), torch.ones(50, dtype=torch.float64) / 50**0.5
    bare = drift.clone()
    bare[:, 10:20] = 0.0
    given = xi if isinstance(monitor, Linear) else None
    found = estimate(monitor, drift, given, private=(slice(10, 20),))
    assert found == estimate(monitor, bare, given) != estimate(monitor, drift, given)


def test_linear_with_xi_along_the_mean_drift_is_exact():
    drift = drifts()
    mean = drift.mean(0)
    assert estimate(Linear(), drift, mean / mean.norm()) == pytest.approx(variance(drift))


def test_long_sums_in_single_precision_lose_nothing():
    """As many entries as DenseNet201: ‖Δ‖² and ⟨ξ, Δ⟩ to six digits, so that one client's variance
    is 0.
    """
    w = 1e-3 * torch.randn(18_112_138, generator=torch.Generator().manual_seed(0))
    true = float(w.double().square().sum())
    memory = {}
    Linear().known(torch.zeros_like(w), memory)
    xi = Linear().known(w, memory)[XI]
    assert float(xi.double().square().sum()) == pytest.approx(1, rel=2e-6)
    assert estimate(Naive(), w[None]) == pytest.approx(true, rel=2e-6)
    assert abs(estimate(Linear(), w[None], xi)) < 5e-6 * true
    assert abs(estimate(Exact(), w[None])) < 5e-6 * true


def test_a_variance_is_never_negative():
    memory, end = {}, FdaOpt(monitor=Naive())
    about = RoundState(0, 1, torch.zeros(3), memory, pass_steps=10, work_steps=10, weights=HALVES)
    assert end.run(Scripted([0.1], 1.0, (1.0 + 1e-7, 0.0, 0.0)), about)["variance"] == 0
    assert float(memory["theta"]) == 0


def test_linear_s_direction_is_the_last_step_of_the_model():
    memory, w = {}, torch.zeros(4)
    first = Linear().known(w, memory)[XI]
    assert torch.equal(first, Linear().known(torch.zeros(4), {})[XI])  # fixed for a given d
    assert float(first.norm()) == pytest.approx(1)
    second = Linear().known(w + torch.tensor([0.0, 3.0, 0.0, 4.0]), memory)[XI]
    torch.testing.assert_close(second, torch.tensor([0.0, 0.6, 0.0, 0.8]))
    unmoved = Linear().known(w + torch.tensor([0.0, 3.0, 0.0, 4.0]), memory)[XI]
    assert torch.equal(unmoved, first)


def test_sketches_are_linear_and_match_a_dense_matrix():
    one = Sketch(40, 3, 7, seed=5)
    v = drifts(2, 40)
    dense = torch.zeros(3, 7, 40, dtype=torch.float64)
    for r in range(3):
        bucket, sign = buckets_and_signs(40, 7, 5, r)
        for j in range(40):
            dense[r, int(bucket[j]), j] = float(sign[j])
    torch.testing.assert_close(one.apply(v), torch.einsum("rmd,cd->crm", dense, v))
    torch.testing.assert_close(one.apply(v.sum(0, keepdim=True))[0], one.apply(v).sum(0))
    torch.testing.assert_close(one.gathered(v), one.scattered(v))
    m2 = squared_norm(one.apply(v)[0])
    assert m2 == pytest.approx(np.median([float(row.square().sum()) for row in one.apply(v)[0]]))


@pytest.mark.parametrize("columns", [7, 20_000])
def test_a_large_model_s_sketch_is_kept_small(columns, monkeypatch):
    """In pieces and in fewer bytes, with the same sums."""
    usual = Sketch(1000, 3, columns, seed=5)
    monkeypatch.setattr(sketch, "SMALL", 0)
    monkeypatch.setattr(sketch, "CHUNK", 64)
    small = Sketch(1000, 3, columns, seed=5)
    assert small.bins.element_size() == (2 if columns == 7 else 4)
    v = drifts(2, 1000)
    torch.testing.assert_close(small.apply(v), usual.apply(v))


def test_hash_functions_are_polynomials_over_the_prime():
    """Against Python's unbounded integers, where nothing can wrap around."""
    from algorithms.draws import generator

    d, columns, seed, row = 1000, 250, 3, 2
    rng = generator(seed, "sketch", row)
    a, b, c, e = (int(x) for x in rng.integers(0, PRIME, 4))
    p, q = int(rng.integers(1, PRIME)), int(rng.integers(0, PRIME))
    bucket, sign = buckets_and_signs(d, columns, seed, row)
    for x in (0, 1, 2, 17, 999):
        assert int(sign[x]) == (1 if (((a * x + b) * x + c) * x + e) % PRIME & 1 else -1)
        assert int(bucket[x]) == (p * x + q) % PRIME % columns


@pytest.mark.parametrize("shape", ["normal", "spiky", "constant"])
def test_sketch_statistics(shape):
    """Unbiased, and a row's relative deviation is √(2/m), over 300 independent hash functions."""
    d, m = 2000, 100
    v = {"normal": drifts(1, d, common=0)[0], "constant": torch.ones(d, dtype=torch.float64)}.get(
        shape, torch.zeros(d, dtype=torch.float64)
    )
    if shape == "spiky":
        v[::40] = drifts(1, 50, common=0)[0] * 10
    true = float(v.square().sum())
    ratios = np.array(
        [float(Sketch(d, 1, m, s).apply(v[None])[0, 0].square().sum()) / true for s in range(300)]
    )
    assert ratios.mean() == pytest.approx(1, abs=4 * np.sqrt(2 / m / 300))
    assert ratios.std() == pytest.approx(np.sqrt(2 / m), rel=0.25)


def test_sketch_fda_bounds_the_variance_as_often_as_it_promises():
    """Theorem 1's H ≥ Var, which needs M2 ≤ (1 + ε) ‖mean Δ‖²: 8 to 12 % of 5 x 250 sketches break
    it.
    """
    monitor, broken, errors = AmsSketch(), 0, []
    for s in range(200):
        drift = drifts(4, 400, seed=s)
        work = Work(
            ParamSpec(()),
            torch.arange(4),
            torch.ones(4),
            {},
            {},
            drift,
            torch.zeros_like(drift),
            torch.zeros(4),
            0.1,
        )
        h = monitor.estimate(monitor.probe(400, s).answer(work).mean(0))
        broken += h < variance(drift)
        errors.append((h - variance(drift)) / float(drift.mean(0).square().sum()))
    assert broken / 200 < 0.18
    assert np.mean(errors) == pytest.approx(1 - 1 / (1 + 250**-0.5), abs=0.02)


def with_end(name, world, end, cohort=None, **options):
    """An algorithm on quadratic clients with another round end."""
    plain = algorithm(name, world, cohort, **options)
    parts = plain.setting.parts
    changed = Composition(**{**vars(parts), "round_end": end})
    setting = Setting(0, plain.setting.samples, plain.setting.spec, changed)
    return type(plain)(
        plain.options,
        setting,
        torch.zeros(world.d, dtype=torch.float64),
        torch.zeros(0, dtype=torch.float64),
    )


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "fedprox", "feddyn", "fedadam"])
def test_an_infinite_threshold_is_the_fixed_amount_of_work(name):
    a, b = Quadratics(), Quadratics()
    fda, plain = with_end(name, a, Fda(theta=1e300, monitor=Exact())), algorithm(name, b)
    for t in range(1, 5):
        fda.round(t, a)
        plain.round(t, b)
        assert torch.equal(fda.w, plain.w)


@pytest.mark.parametrize("monitor", [Exact(), Naive(), Linear(), AmsSketch(rows=3, columns=50)])
def test_a_zero_threshold_synchronises_every_step(monitor):
    a, b = Quadratics(), Quadratics(steps=1)
    fda, plain = with_end("fedavg", a, Fda(theta=0.0, monitor=monitor)), algorithm("fedavg", b)
    for t in range(1, 6):
        assert fda.round(t, a)["round_steps"] == 1
        plain.round(t, b)
        assert torch.equal(fda.w, plain.w)


def test_a_round_ends_at_the_first_step_above_the_threshold():
    world = Quadratics(steps=50, lr=0.02)
    fda = with_end("fedavg", world, Fda(theta=0.2, monitor=Exact()))
    w = torch.zeros(world.n, world.d, dtype=torch.float64)
    report = fda.round(1, world)
    steps = 0
    for _ in range(50):
        steps += 1
        w = w - 0.02 * world.gradient(torch.arange(world.n), w)
        if variance(w) > 0.2:
            break
    assert report["round_steps"] == steps > 3
    assert report["variance_estimate"] == pytest.approx(variance(w))
    torch.testing.assert_close(fda.w, w.mean(0))


def test_questions_at_given_steps():
    world = Quadratics(steps=30, lr=0.02)
    early = with_end("fedavg", world, Fda(theta=0.0, monitor=Exact(), at=(4, 9)))
    assert early.round(1, world)["round_steps"] == 4
    never = with_end(
        "fedavg", Quadratics(steps=30, lr=0.02), Fda(theta=1e9, monitor=Exact(), at=(4, 9))
    )
    assert never.round(1, never_world := Quadratics(steps=30, lr=0.02))["round_steps"] == 30
    assert never_world.n
    # its end is no step at which H was asked: an earlier H, or 0, was recorded as that of the end
    for at in ((4, 9), (50,)):
        end = Fda(theta=1e9, monitor=Exact(), at=at)
        report = with_end("fedavg", world, end).round(1, Quadratics(steps=30, lr=0.02))
        assert "variance_estimate" not in report
        assert (report["theta"], report["exceeded"]) == (1e9, 0)
    asked = with_end("fedavg", world, Fda(theta=1e9, monitor=Exact(), at=(4, 30)))
    report = asked.round(1, Quadratics(steps=30, lr=0.02))
    assert report["variance_estimate"] > 0
    third = with_end("fedavg", Quadratics(steps=30), Fda(theta=0.0, monitor=Exact(), every=7))
    assert third.round(1, Quadratics(steps=30))["round_steps"] == 7


HALVES = np.full(2, 0.5)


class Scripted:
    """A Training whose monitor estimates and final drifts (‖Δ‖² and mean Δ) are given."""

    def __init__(self, estimates, length, mean=(0.0, 0.0, 0.0)):
        self.estimates, self.final, self.steps = list(estimates), torch.tensor([length, *mean]), 0
        self.cohort = Cohort.of([0, 1])

    def advance(self, steps):
        self.steps += steps

    def query(self, probe, weights=None):
        if not probe.transmitted:
            return self.final
        return torch.tensor([self.estimates.pop(0)])


def test_fda_opt_s_threshold_by_hand():
    """E = 1, e = 10 steps: cap 100 steps. Round 1: one epoch; then Θ = 5/epochs · ν each time."""
    memory, end = {}, FdaOpt(monitor=Naive())
    about = RoundState(0, 1, torch.zeros(3), memory, pass_steps=10, work_steps=10, weights=HALVES)
    first = end.run(Scripted([0.1], 3.0, (1.0, 0.0, 0.0)), about)
    assert (first["round_steps"], first["variance"], first["theta"]) == (10, 2.0, 0.0)
    assert float(memory["theta"]) == pytest.approx(5 / 1 * 2.0)
    second = end.run(Scripted([3.0, 9.99, 10.01], 14.0, (0.0, 2.0, 0.0)), about)
    assert (second["round_steps"], second["theta"]) == (30, 10.0)
    assert float(memory["theta"]) == pytest.approx(5 / 3 * 10.0)
    assert end.run(Scripted([1.0] * 20, 1.0), about)["round_steps"] == 100
    assert float(memory["theta"]) == pytest.approx(5 / 10 * 1.0)


def test_a_diverged_client_ends_the_round():
    memory = {"theta": torch.tensor(4.0)}
    about = RoundState(0, 1, torch.zeros(3), memory, pass_steps=10, work_steps=10, weights=HALVES)
    assert (
        FdaOpt(monitor=Naive()).run(Scripted([1.0, float("nan")], float("nan")), about)[
            "round_steps"
        ]
        == 20
    )
    assert float(memory["theta"]) == 4.0
    assert (
        Fda(theta=9.0, monitor=Naive()).run(Scripted([1.0, float("nan")], 0.0), about)[
            "round_steps"
        ]
        == 2
    )


def test_the_cap_is_2_tau_plus_8_epochs():
    about = RoundState(
        0,
        1,
        torch.zeros(3),
        {"theta": torch.tensor(1e9)},
        pass_steps=7,
        work_steps=21,
        weights=HALVES,
    )
    training = Scripted([0.0] * 99, 0.0)
    assert FdaOpt(monitor=Naive()).run(training, about)["round_steps"] == 2 * 21 + 8 * 7


def test_asynchronous_fda_waits_for_nobody():
    """A straggler four times slower does a quarter of the steps; H uses everybody's latest
    state."""
    world = Quadratics(steps=40, lr=0.02)
    end = AsyncFda(theta=0.05, monitor=Exact(), jitter=0.0, stragglers=0.4, slowdown=4.0)
    alg = with_end("fedavg", world, end)
    speed = end.step_times(0, np.arange(6))
    assert set(speed.tolist()) == {1.0, 4.0}
    report = alg.round(1, world)
    w, done, now = torch.zeros(6, world.d, dtype=torch.float64), np.zeros(6, int), 0
    while True:
        now += 1
        due = np.flatnonzero(now % speed == 0)
        w[due] = w[due] - 0.02 * world.gradient(torch.arange(6), w)[due]
        done[due] += 1
        if variance(w) > 0.05 or done.max() >= 40:
            break
    assert report["virtual_time"] == report["round_time"] == now
    assert report["round_steps"] == pytest.approx(done.mean())
    torch.testing.assert_close(alg.w, w.mean(0), rtol=1e-5, atol=1e-6)
    assert report["lock_step_time"] > report["round_time"]
    # the clock goes on, and what a round took is its own
    more = alg.round(2, world)
    assert more["virtual_time"] == now + more["round_time"]
    assert more["lock_step_time"] > more["round_time"]


def test_equal_speeds_make_asynchronous_fda_synchronous():
    a, b = Quadratics(steps=30, lr=0.02), Quadratics(steps=30, lr=0.02)
    one = with_end("fedavg", a, AsyncFda(theta=0.1, monitor=Exact(), jitter=0.0))
    two = with_end("fedavg", b, Fda(theta=0.1, monitor=Exact()))
    for t in range(1, 6):
        assert one.round(t, a)["round_steps"] == two.round(t, b)["round_steps"]
        torch.testing.assert_close(one.w, two.w, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("aggregator", [WeightedMean(), Mean(), Median()])
@pytest.mark.parametrize("end", [Fda(theta=0, monitor=Exact()), AsyncFda(theta=0, jitter=0.0)])
def test_the_variance_is_about_the_mean_that_is_made(aggregator, end):
    """Eq. 3.4 after one step, with the aggregator's weights; a client without data counts there as
    it does in the sum, and is no server.
    """
    world, samples = Quadratics(lr=0.02), np.array([0, 1, 2, 3, 4, 5])
    end = end.model_copy(update={"monitor": Exact()})
    plain = with_end("fedavg", world, end)
    parts = replace(plain.setting.parts, aggregator=aggregator)
    alg = type(plain)(
        plain.options, replace(plain.setting, samples=samples, parts=parts), plain.w, plain.buffers
    )
    report = alg.round(1, world)
    start = torch.zeros(6, world.d, dtype=torch.float64)
    drift = -0.02 * world.gradient(torch.arange(6), start)
    counted = isinstance(aggregator, WeightedMean)
    p = torch.from_numpy(samples / samples.sum() if counted else np.full(6, 1 / 6))
    expected = p @ drift.square().sum(1) - (p @ drift).square().sum()
    assert report["variance_estimate"] == pytest.approx(float(expected), rel=1e-5)


def test_fda_reaches_the_optimum():
    world = Quadratics(steps=100, lr=0.05)
    alg = with_end("scaffold", world, Fda(theta=0.05, monitor=Linear()))
    for t in range(1, 100):
        alg.round(t, world)
    torch.testing.assert_close(alg.w, world.erm(), atol=1e-3, rtol=1e-3)
