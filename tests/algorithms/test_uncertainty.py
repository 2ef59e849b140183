"""Uncertainty sets, step sizes and averages of iterates, against independent formulations."""

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from scipy.optimize import linprog, minimize

from algorithms.part import variants
from algorithms.parts.iterates import Average, Last, MovingAverage, Tail
from algorithms.parts.step_sizes import Decay, at
from algorithms.parts.uncertainty import Uncertainty, largest
from tests.algorithms.quadratics import Quadratics, algorithm, run
from tests.algorithms.test_robust_quadratics import minimax, worst


def chosen(name, **options):
    return variants(Uncertainty)[name](**options)


def onto(n, name, **options):
    """The projection onto a set of mixtures of ``n`` clients."""
    setting = algorithm("drfa", Quadratics(clients=n)).setting
    return chosen(name, **options).projection(setting)


def points(n, count=40):
    """Vectors of many sizes, some with ties."""
    rng = np.random.default_rng(n)
    for i in range(count):
        v = rng.normal(size=n) * 10 ** rng.uniform(-2, 2)
        yield np.round(v) if i % 4 == 0 else v


def assert_stationary(x, v, slope, bound):
    """The Karush–Kuhn–Tucker conditions of the projection x of v, which are enough for it.

    v_i − x_i = ν + α slope(x_i) where x_i > 0, at most so where x_i = 0, with α ≥ 0, and α = 0
    unless the ``bound`` binds.
    """
    assert x.sum() == pytest.approx(1, abs=1e-12)
    assert x.min() >= 0
    assert bound <= 1e-12
    scale = max(1.0, np.abs(v).max())
    on, left = x > 0, v - x
    columns = np.stack([np.ones(on.sum()), slope(x[on])], 1)
    if bound < -1e-9 or np.ptp(columns[:, 1]) < 1e-12:
        columns[:, 1] = 0
    (nu, alpha), *_ = np.linalg.lstsq(columns, left[on], rcond=None)
    assert np.abs(columns @ [nu, alpha] - left[on]).max() < 1e-10 * scale
    assert alpha >= -1e-10 * scale
    if not on.all():
        # an x_i that is 0 may have been too small for a float
        pull = alpha * slope(np.array([5e-324]))[0] if columns[:, 1].any() else 0
        assert left[~on].max() <= nu + pull + 1e-10 * scale


@pytest.mark.parametrize("n", [2, 3, 7, 30])
@pytest.mark.parametrize("radius", [0.01, 0.7, 3.0, 50.0])
def test_the_chi2_ball(n, radius):
    project = onto(n, "chi2", radius=radius)
    for v in points(n):
        x = project(v)
        assert_stationary(x, v, lambda y: y, n * np.square(x - 1 / n).sum() - radius)


@pytest.mark.parametrize("n", [5, 6, 10, 21, 47])
@pytest.mark.parametrize("scale", [1e-2, 1.0, 1e9])
def test_the_chi2_ball_that_touches_a_corner(n, scale):
    """N/k − 1 is the divergence of k equal entries; by rounding it was beyond that, and an IndexError."""
    for k in range(1, n):
        project = onto(n, "chi2", radius=n / k - 1)
        v = scale * (np.arange(n) % n < k)
        x = project(v)
        assert x.sum() == pytest.approx(1, abs=1e-12)
        if scale >= 1:
            assert x == pytest.approx((v > 0) / k, abs=1e-12)
        for y in points(n, 5):
            assert np.isfinite(project(scale * y)).all()


@pytest.mark.parametrize("n", [2, 3, 7, 30])
@pytest.mark.parametrize("radius", [1e-4, 0.1, 1.0, 3.0])
def test_the_kl_ball(n, radius):
    project = onto(n, "kl", radius=radius)
    for v in points(n):
        x = project(v)
        divergence = sum(y * np.log(n * y) for y in x if y > 0)
        assert_stationary(x, v, np.log, divergence - radius)


@pytest.mark.parametrize("n", [2, 5, 30])
@pytest.mark.parametrize("alpha", [0.01, 0.15, 0.5, 0.9, 1.0])
def test_the_capped_simplex(n, alpha):
    """x_i = min(max(v_i − θ, 0), cap) with some θ and sum 1 is the nearest point."""
    project, cap = onto(n, "cvar", alpha=alpha), 1 / (alpha * n)
    for v in points(n):
        x = project(v)
        assert x.sum() == pytest.approx(1, abs=1e-12)
        assert x.min() >= 0
        assert x.max() <= cap + 1e-15
        inside = (x > 0) & (x < cap)
        # θ is at most v_i − cap of who is full, at least v_i of who has nothing
        lowest = np.append((v - x)[inside], v[x == 0]).max(initial=-np.inf)
        highest = np.append((v - x)[inside], (v - cap)[x >= cap]).min(initial=np.inf)
        assert lowest <= highest + 1e-11 * max(1, np.abs(v).max())


@pytest.mark.parametrize(
    ("name", "options", "constraint"),
    [
        ("cvar", {"alpha": 0.4}, lambda x: 0.5 - x),
        ("chi2", {"radius": 0.6}, lambda x: 0.6 - 5 * ((x - 0.2) ** 2).sum()),
        ("kl", {"radius": 0.2}, lambda x: 0.2 - (x * np.log(np.maximum(5 * x, 1e-12))).sum()),
        (
            "groups",
            {"lists": [[0, 3], [1, 2, 4]]},
            lambda x: np.array([x[0] - x[3], x[3] - x[0], x[1] - x[2], x[2] - x[4], x[4] - x[1]]),
        ),
    ],
)
def test_projections_by_a_convex_program(name, options, constraint):
    project = onto(5, name, **options)
    for v in points(5, 12):
        v = v / max(1, np.abs(v).max())
        solution = minimize(
            lambda x, v=v: ((x - v) ** 2).sum(),
            np.full(5, 0.2),
            bounds=[(0, 1)] * 5,
            constraints=[
                {"type": "eq", "fun": lambda x: x.sum() - 1},
                {"type": "ineq", "fun": constraint},
            ],
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 500},
        )
        np.testing.assert_allclose(project(v), solution.x, atol=2e-5)


SETS = {
    "simplex": {},
    "cvar": {"alpha": 0.4},
    "chi2": {"radius": 0.8},
    "kl": {"radius": 0.3},
    "groups": {"lists": [[0, 3], [1, 2], [4, 5]]},
}


def test_every_set_is_tried():
    assert set(SETS) == set(variants(Uncertainty))


@pytest.mark.parametrize("name", SETS)
def test_what_all_sets_have(name):
    """They hold the uniform mixture, leave their own points alone, and refuse what is no number."""
    project = onto(6, name, **SETS[name])
    uniform = np.full(6, 1 / 6)
    np.testing.assert_allclose(project(uniform), uniform, atol=1e-15)
    for v in points(6, 10):
        x = project(v)
        np.testing.assert_allclose(project(x), x, atol=1e-12)
        np.testing.assert_allclose(project(v + 7), x, atol=1e-9 * max(1, np.abs(v).max()))
    far = project(np.array([1e30, -1e30, 1e30, 0, 0, 0]))
    assert far.sum() == pytest.approx(1)
    assert far[0] == pytest.approx(far[2]) or name == "groups"
    with pytest.raises(ValueError, match="NaN"):
        project(np.array([np.nan, 0, 0, 0, 0, 0]))


def test_the_largest_loss_over_a_set():
    """The worst client; the mean of the worst ones (a linear program); the worst group; and for the
    balls what a search along their boundary finds.
    """
    losses = np.array([0.3, 2.0, 1.7, 0.9, 2.2, 0.1])
    assert largest(losses, onto(6, "simplex")) == pytest.approx(2.2)
    cvar = linprog(-losses, A_eq=np.ones((1, 6)), b_eq=1, bounds=(0, 1 / 2.4))
    assert largest(losses, onto(6, "cvar", alpha=0.4)) == pytest.approx(-cvar.fun)
    assert largest(losses, onto(6, "cvar", alpha=0.5)) == pytest.approx((2.2 + 2.0 + 1.7) / 3)
    assert largest(losses, onto(6, "groups", **SETS["groups"])) == pytest.approx(1.85)
    # mean + √(ρ · variance), as long as no mixture gets negative (Duchi and Namkoong 2019)
    small = largest(losses, onto(6, "chi2", radius=0.05))
    assert small == pytest.approx(losses.mean() + np.sqrt(0.05) * losses.std())
    # Donsker and Varadhan: min over τ of τ (ρ + log mean exp(f/τ))
    dual = minimize(
        lambda z: np.exp(z[0]) * (0.3 + np.log(np.mean(np.exp(losses / np.exp(z[0]))))), [0.0],
        method="Nelder-Mead", options={"xatol": 1e-10, "fatol": 1e-14},
    )  # fmt: skip
    assert largest(losses, onto(6, "kl", radius=0.3)) == pytest.approx(dual.fun)


def test_groups_by_size_and_label():
    setting = algorithm("drfa", Quadratics(clients=5)).setting
    object.__setattr__(setting, "samples", np.array([50, 10, 40, 20, 30]))
    object.__setattr__(setting, "labels", np.array([7, 3, 3, 7, 0]))
    assert chosen("groups", by="size").members(setting).tolist() == [1, 0, 1, 0, 0]
    assert chosen("groups").members(setting).tolist() == [2, 1, 1, 2, 0]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"lists": [[0, 1], [2]]}, "each of the clients 0 to 3 once"),
        ({"lists": [[0, 1], [2, 3, 1]]}, "each of the clients 0 to 3 once"),
        ({"lists": [[0, 1], [2, 3], []]}, "at least one"),
        ({"by": "size", "count": 5}, "4 clients cannot make"),
    ],
)
def test_groups_that_are_none(options, said):
    assert said in chosen("groups", **options).refuses(4)
    assert chosen("groups", lists=[[0, 1], [3, 2]]).refuses(4) is None


def robust_optimum(world, matrix, cap=1.0):
    """argmin_w of the largest λ · f(w) over mixtures λ = μ ``matrix`` with μ on a capped simplex.

    By linear-programming duality it is min s + cap Σ p_g with s + p_g ≥ (matrix f(w))_g, p ≥ 0.
    """
    d, groups = world.d, len(matrix)

    def gap(z):
        return z[d] + z[d + 1 :] - matrix @ world.losses(torch.from_numpy(z[:d])).numpy()

    start = np.concatenate([world.erm().numpy(), [worst(world, world.erm())], np.zeros(groups)])
    bounds = [(None, None)] * (d + 1) + [(0, None)] * groups
    solution = minimize(
        lambda z: z[d] + cap * z[d + 1 :].sum(), start, bounds=bounds, method="SLSQP",
        constraints={"type": "ineq", "fun": gap}, options={"ftol": 1e-14, "maxiter": 1000},
    )  # fmt: skip
    return torch.from_numpy(solution.x[:d])


GROUPED = np.array([[1, 0, 0, 1, 0, 0], [0, 1, 1, 0, 0, 0], [0, 0, 0, 0, 1, 1]]) / 2


def test_scaffpd_reaches_the_optimum_of_the_worst_clients_mean():
    world, cvar = Quadratics(steps=2, lr=0.02), {"name": "cvar", **SETS["cvar"]}
    best = robust_optimum(world, np.eye(6), cap=1 / 2.4)
    assert (best - minimax(world)).norm() > 0.1
    alg = run(
        "scaffpd", world, 800, rho=0.0, dual_lr=0.02, full_loss=True, uncertainty=cvar
    )  # fmt: skip
    assert (alg.model() - best).norm() < 1e-2


def test_afl_reaches_the_optimum_of_the_worst_group():
    world, groups = Quadratics(steps=1, lr=0.01), {"name": "groups", **SETS["groups"]}
    best = robust_optimum(world, GROUPED)
    assert (best - minimax(world)).norm() > 0.1
    alg = run(
        "afl", world, 2048, dual_lr=0.01, full_loss=True, output="tail", uncertainty=groups
    )  # fmt: skip
    assert (alg.model() - best).norm() < 0.02


@pytest.mark.parametrize("name", ["drfa", "drdm", "afl", "scaffpd"])
def test_lambda_stays_in_its_set(name):
    steps = 1 if name == "afl" else 5
    alg = run(
        name, Quadratics(steps=steps, lr=0.01), 30,
        uncertainty={"name": "cvar", "alpha": 0.5},
        **{"dual_lr" if name in ("afl", "scaffpd") else "gamma": 0.01},
    )  # fmt: skip
    assert alg.dual.max() <= 1 / 3 + 1e-12
    assert alg.dual.max() > 0.3
    assert alg.by_client()["dual"] is alg.dual


def test_what_a_round_tells_of_the_game():
    """F(w, λ) and max F(w, ·) − F(w, λ), at the model and the λ that the round began with."""
    world = Quadratics(steps=1, lr=0.01)
    afl = algorithm("afl", world, dual_lr=0.05, full_loss=True)
    for t in range(1, 6):
        losses, dual = world.losses(afl.w).numpy(), afl.dual
        told = afl.round(t, world)
        assert told["mixture_loss"] == pytest.approx(dual @ losses)
        assert told["upper_gap"] == pytest.approx(losses.max() - dual @ losses)
    part = algorithm("drfa", Quadratics(), 3).round(1, Quadratics())
    assert "mixture_loss" in part
    assert "upper_gap" not in part


def test_the_estimate_of_a_part_is_unbiased():
    """Over many cohorts, λ · v averages to F(w, λ)."""
    world = Quadratics()
    drfa = algorithm("drfa", world, 3)
    drfa.dual = np.array([0.3, 0.1, 0.2, 0.1, 0.1, 0.2])
    w = torch.ones(world.d, dtype=torch.float64)
    found = np.mean([drfa.dual @ drfa.estimate(t, world, w) for t in range(1, 3000)])
    assert found == pytest.approx(float(drfa.dual @ world.losses(w).numpy()), rel=0.03)


def test_step_sizes():
    assert at(0.3, 7) == 0.3
    assert at(Decay(start=0.3, power=0.5), 9) == pytest.approx(0.1)
    assert at(Decay(start=0.3), 1) == 0.3
    with pytest.raises(ValidationError):
        Decay(start=-1)


class Asked(Quadratics):
    """Clients that remember which model they were last asked the loss of."""

    def loss(self, ids, w, *rest):
        self.asked = w
        return super().loss(ids, w, *rest)


@pytest.mark.parametrize("name", ["drfa", "drdm"])
def test_gamma_falls_with_the_rounds(name):
    """While the projection does not bind, a step of λ is γ_t τ times the centred losses."""
    world = Asked()
    alg = algorithm(
        name, world, 6, gamma={"start": 1e-7, "power": 2.0}, replace=False, floor=1.0
    )  # fmt: skip
    for t in range(1, 5):
        before = alg.dual
        alg.round(t, world)
        f = world.losses(world.asked).numpy()
        expected = world.steps * 1e-7 / t**2 * (f - f.mean())
        np.testing.assert_allclose(alg.dual - before, expected, rtol=1e-6, atol=1e-15)


def test_averages_of_iterates_by_hand():
    rng = np.random.default_rng(0)
    iterates = [torch.from_numpy(rng.normal(size=3)) for _ in range(70)]
    outputs = {"last": Last(), "average": Average(), "tail": Tail(), "ema": MovingAverage()}
    pasts = {name: {} for name in outputs}
    for t in range(1, 71):
        w = iterates[t - 1]
        pasts = {name: one.joined(pasts[name], w) for name, one in outputs.items()}
        found = {name: one.model(pasts[name], w) for name, one in outputs.items()}
        first = max([2**k for k in range(7) if 2**k <= t / 2], default=0)
        assert torch.equal(found["last"], iterates[t - 1])
        torch.testing.assert_close(found["average"], torch.stack(iterates[:t]).mean(0))
        torch.testing.assert_close(found["tail"], torch.stack(iterates[first:t]).mean(0))
        assert t / 2 <= t - first < max(0.75 * t, 1.5)
        weights = 0.9 ** torch.arange(t - 1, -1, -1, dtype=torch.float64)
        weighted = (weights[:, None] * torch.stack(iterates[:t])).sum(0) / weights.sum()
        torch.testing.assert_close(found["ema"], weighted)
    assert pasts["last"] == {}
    assert all(torch.equal(one.model({}, w), w) for one in outputs.values())


@pytest.mark.parametrize("name", ["drfa", "drdm", "afl", "scaffpd"])
@pytest.mark.parametrize("output", ["last", "average", "tail"])
def test_the_model_that_is_judged(name, output):
    world = Quadratics(steps=1)
    alg = algorithm(name, world, output=output)
    iterates = []
    for t in range(1, 7):
        alg.round(t, world)
        alg.count()
        iterates.append(alg.w)
    first = {"last": 5, "average": 0, "tail": 2}[output]
    torch.testing.assert_close(alg.model(), torch.stack(iterates[first:]).mean(0))
    # what a checkpoint holds is enough
    again = algorithm(name, world, output=output)
    again.restore(alg.state())
    assert torch.equal(again.model(), alg.model())
