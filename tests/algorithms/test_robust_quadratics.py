"""Distributionally robust and drift-corrected methods on quadratics, against independently computed
optima.
"""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from algorithms.contract import Cohort
from algorithms.fednova import Normalised
from algorithms.parts.graphs import Complete, ErdosRenyi, Grid, Ring, connected
from algorithms.parts.simplex import project
from tests.algorithms.quadratics import Quadratics, algorithm, run

ROOT = Path(__file__).parents[2]


def worst(world, w):
    return float(world.losses(w).max())


def minimax(world):
    """argmin_w max_k f_k(w) as a convex program: min t subject to f_k(w) <= t."""

    def gap(z):
        return z[-1] - world.losses(torch.from_numpy(z[:-1])).numpy()

    start = np.append(world.erm().numpy(), worst(world, world.erm()))
    solution = minimize(
        lambda z: z[-1],
        start,
        constraints={"type": "ineq", "fun": gap},
        method="SLSQP",
        options={"ftol": 1e-13, "maxiter": 500},
    )
    return torch.from_numpy(solution.x[:-1])


def test_the_reference_optimum_is_one():
    """At the minimax point some mixture of the active gradients vanishes, and ERM's worst loss is
    higher.
    """
    world = Quadratics()
    w = minimax(world)
    losses = world.losses(w)
    active = np.flatnonzero((losses > losses.max() - 1e-5).numpy())
    gradients = world.gradient(active, w.expand(len(active), -1)).numpy()
    best = minimize(
        lambda p: np.sum((p @ gradients) ** 2),
        np.full(len(active), 1 / len(active)),
        bounds=[(0, 1)] * len(active),
        constraints={"type": "eq", "fun": lambda p: p.sum() - 1},
    )
    assert best.fun < 1e-6
    assert worst(world, world.erm()) > 1.2 * worst(world, w)


def gap(world, w):
    return float((w - world.erm()).norm())


@pytest.mark.parametrize("cohort", [6, 4])
def test_feddyn_reaches_the_erm_optimum(cohort):
    world = Quadratics(steps=20)
    assert gap(world, run("feddyn", world, 500, cohort=cohort, mu=0.5).w) < 1e-6


def test_drdm_as_published_reaches_the_erm_optimum_whatever_lambda_is():
    world = Quadratics(steps=20)
    drdm = run("drdm", world, 1000, cohort=4, mu=0.5, gamma=1e-3, floor=0.2)
    assert gap(world, drdm.w) < 1e-6
    assert drdm.dual.max() > 0.5
    assert (minimax(world) - drdm.w).norm() > 0.3


def test_the_published_control_variate_is_the_mean_of_the_local_gradients():
    world = Quadratics(steps=5)
    drdm = algorithm("drdm", world, 4, mu=0.3)
    for t in range(1, 30):
        drdm.round(t, world)
        stored = [
            world.states.get(k, {"gradient": torch.zeros(world.d)})["gradient"]
            for k in range(world.n)
        ]
        torch.testing.assert_close(drdm.control, torch.stack([s.double() for s in stored]).mean(0))


def test_drdm_lambda_reaches_the_minimax_point():
    world = Quadratics(steps=20)
    options = {"mu": 0.5, "gamma": 2e-4, "floor": 0.05, "control": "lambda_weighted"}
    drdm = run("drdm", world, 1000, cohort=6, **options)
    assert (drdm.w - minimax(world)).norm() < 0.1
    assert worst(world, drdm.w) < 1.1 * worst(world, minimax(world))


PART = {"mu": 0.5, "gamma": 2e-5, "floor": 0.05, "control": "lambda_weighted", "output": "tail"}


def test_drdm_lambda_nears_the_minimax_point_with_a_part_of_the_clients():
    """Four of six: the mean of the last iterates gets there before they do."""
    best = minimax(Quadratics())
    drdm = run("drdm", Quadratics(steps=20), 1000, cohort=4, **PART)
    assert (drdm.model() - best).norm() < 0.15
    assert (drdm.w - best).norm() > 1.5 * (drdm.model() - best).norm()


def test_drdm_lambda_keeps_the_clients_gradients():
    world = Quadratics(steps=5)
    drdm = algorithm("drdm", world, 3, control="lambda_weighted")
    for t in range(1, 10):
        drdm.round(t, world)
    for k, state in world.states.items():
        torch.testing.assert_close(drdm.gradients[k], state["gradient"])


def test_lambda_weighted_with_fixed_uniform_lambda_is_the_published_form():
    a = run("drdm", Quadratics(), 20, cohort=6, gamma=0.0, mu=0.4)
    b = run("drdm", Quadratics(), 20, cohort=6, gamma=0.0, mu=0.4, control="lambda_weighted")
    torch.testing.assert_close(a.w, b.w)


def test_afl_reaches_the_minimax_point():
    world = Quadratics(steps=1, lr=0.01)
    afl = run("afl", world, 4000, dual_lr=0.01, full_loss=True)
    assert (afl.model() - minimax(world)).norm() < 0.05
    assert worst(world, afl.model()) < 1.03 * worst(world, minimax(world))


def test_drfa_does_better_than_fedavg_for_the_worst_client():
    world = Quadratics(steps=5, lr=0.01)
    drfa = run("drfa", world, 2000, cohort=6, gamma=1e-3, output="tail")
    best = worst(world, minimax(world))
    assert worst(world, drfa.model()) < 1.1 * best
    assert worst(world, run("fedavg", Quadratics(steps=5, lr=0.01), 500).w) > 1.2 * best


def regularised(world, rho):
    """argmin_x max_λ Σ λ f − ρ/(2N) Σ (Nλ − 1)², the inner maximum in closed form."""
    n = world.n

    def value(x):
        f = world.losses(torch.from_numpy(x)).numpy()
        lam = project((f + rho) / (rho * n))
        return lam @ f - rho / (2 * n) * np.sum((n * lam - 1) ** 2)

    return torch.from_numpy(
        minimize(
            value,
            np.zeros(world.d),
            method="Nelder-Mead",
            options={"xatol": 1e-9, "fatol": 1e-13, "maxiter": 20000},
        ).x
    )


@pytest.mark.parametrize("rho", [0.5, 2.0])
def test_scaffpd_reaches_the_regularised_saddle_point(rho):
    world = Quadratics(steps=5, lr=0.02)
    alg = run("scaffpd", world, 1000, rho=rho, dual_lr=0.05, full_loss=True)
    assert (alg.w - regularised(world, rho)).norm() < 1e-4


def test_scaffpd_without_penalty_reaches_the_minimax_point():
    world = Quadratics(steps=2, lr=0.02)
    alg = run("scaffpd", world, 1500, rho=0.0, dual_lr=0.02, full_loss=True)
    assert (alg.w - minimax(world)).norm() < 1e-2


def test_scaffpd_dual_step_is_the_argmin():
    """The closed form against brute force on a grid of the 2-simplex."""
    alg = algorithm("scaffpd", Quadratics(clients=3), rho=0.7, theta=0.5, dual_lr=0.4)
    before, losses = np.array([0.2, 0.5, 0.3]), np.array([1.0, 2.0, 0.4])
    alg.dual, alg.losses = before.copy(), np.array([0.9, 1.0, 1.1])
    alg.heard[:] = True
    s = 1.5 * losses - 0.5 * alg.losses
    alg._dual_step(1, np.arange(3), losses)

    def objective(lam):
        return 0.7 / 6 * np.sum((3 * lam - 1) ** 2) - s @ lam + np.sum((lam - before) ** 2) / 0.8

    grid = [
        np.array([a, b, 1 - a - b])
        for a in np.linspace(0, 1, 201)
        for b in np.linspace(0, 1 - a, 201)
    ]
    assert objective(alg.dual) <= min(map(objective, grid)) + 1e-9


def test_scaffpd_reaches_a_point_with_a_part_of_the_clients():
    world = Quadratics(steps=5, lr=0.02)
    alg = run("scaffpd", world, 500, cohort=3, rho=1.0, dual_lr=0.02, full_loss=True)
    assert alg.w.isfinite().all()
    assert alg.dual.sum() == pytest.approx(1)


def test_qfedavg_levels_the_losses():
    base = world = Quadratics(steps=3, lr=0.02)
    spreads = []
    for q in (0.0, 1.0, 5.0):
        world = Quadratics(steps=3, lr=0.02)
        spreads.append(float(world.losses(run("qfedavg", world, 500, q=q).w).std()))
    assert spreads[0] > spreads[1] > spreads[2]
    torch.testing.assert_close(run("qfedavg", base, 20, q=0.0).w, run("fedavg", base, 20).w)


def test_qfedavg_first_round_by_hand():
    world, q, lr = Quadratics(steps=1, lr=0.05), 2.0, 0.05
    w = torch.zeros(world.d, dtype=torch.float64)
    g = world.gradient(torch.arange(world.n), w.expand(world.n, -1))
    f, lipschitz = world.losses(w), 1 / lr
    delta = f.unsqueeze(1) ** q * lipschitz * lr * g
    h = q * f ** (q - 1) * (lipschitz * lr * g).square().sum(1) + lipschitz * f**q
    torch.testing.assert_close(run("qfedavg", world, 1, q=q).w, w - delta.sum(0) / h.sum())


def test_fednova_with_equal_steps_is_fedavg():
    torch.testing.assert_close(
        run("fednova", Quadratics(), 10).w, run("fedavg", Quadratics(), 10).w
    )


@pytest.mark.parametrize(
    ("mu", "momentum"), [(1e-5, 0.0), (0.5, 0.0), (30.0, 0.0), (0.0, 0.9), (0.0, 1 - 1e-7)]
)
def test_fednova_s_weights_keep_their_digits(mu, momentum):
    """Against the recursions in whole fractions: near ημ = 0 and ρ = 1 the closed forms lose all
    digits in single precision (ημ = 5·10⁻⁷: 38.1 for 40 steps).
    """
    lr, steps = 0.05, (1, 3, 40)
    expected = []
    for last in steps:
        a = velocity = Fraction(0)
        for _ in range(last):
            velocity = Fraction(momentum) * velocity + 1
            a = a * (1 - Fraction(lr) * Fraction(mu)) + 1 if mu else a + velocity
        expected.append(float(a))
    found = Normalised(momentum, mu).step_weights(torch.tensor(steps).float(), lr)
    assert found.dtype == torch.float32
    assert found.tolist() == pytest.approx(expected, rel=1e-6)


def test_drdsgd_on_a_complete_graph_minimises_the_log_sum_exp():
    world, mu = Quadratics(steps=1, lr=0.05, seed=1, spread=1.0), 3.0
    alg = run("drdsgd", world, 1500, mu=mu, graph={"name": "complete"})
    best = minimize(
        lambda x: mu * np.log(np.exp(world.losses(torch.from_numpy(x)).numpy() / mu).mean()),
        np.zeros(world.d),
        tol=1e-12,
    )
    assert (alg.w - torch.from_numpy(best.x)).norm() < 1e-3
    torch.testing.assert_close(alg.models, alg.w.expand(world.n, -1))


def test_plain_decentralised_sgd_nears_the_erm_optimum_on_a_ring():
    world = Quadratics(steps=1, lr=0.002)
    alg = run("drdsgd", world, 3000, robust=False)
    assert gap(world, alg.w) < 0.05


@pytest.mark.parametrize(
    "graph", [Ring(), Grid(), ErdosRenyi(p=0.4), Complete()], ids=lambda g: g.name
)
@pytest.mark.parametrize("n", [1, 2, 5, 12])
def test_mixing_matrices(graph, n):
    edges, w = graph.adjacency(n, 0), graph.mixing(n, 0)
    assert connected(edges)
    assert np.array_equal(edges, edges.T)
    assert not edges.diagonal().any()
    np.testing.assert_allclose(w, w.T)
    np.testing.assert_allclose(w.sum(1), 1)
    assert (w >= 0).all()
    assert ((w > 0) <= (edges | np.eye(n, dtype=bool))).all()


def test_graph_shapes():
    assert Ring().adjacency(6, 0).sum(1).tolist() == [2] * 6
    assert sorted(Grid().adjacency(9, 0).sum(1)) == [2, 2, 2, 2, 3, 3, 3, 3, 4]
    assert Complete().adjacency(5, 0).sum() == 20


def test_clusters_are_found_and_end_at_their_own_optima():
    world = Quadratics(clients=6, steps=10, lr=0.1)
    world.curvature = torch.eye(world.d, dtype=torch.float64).expand(6, -1, -1).clone()
    left, right = (
        torch.full((world.d,), -3.0, dtype=torch.float64),
        torch.full((world.d,), 3.0, dtype=torch.float64),
    )
    noise = 0.01 * torch.randn(
        6, world.d, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    world.centre = torch.stack([left, right, left, right, right, left]) + noise
    alg = run("clustered", world, 60, eps1=0.1, eps2=0.5)
    assert len({alg.cluster[k] for k in (0, 2, 5)}) == len({alg.cluster[k] for k in (1, 3, 4)}) == 1
    assert alg.cluster[0] != alg.cluster[1]
    for members in ([0, 2, 5], [1, 3, 4]):
        torch.testing.assert_close(
            alg.personal_models()[members[0]], world.centre[members].mean(0), atol=1e-3, rtol=0
        )


def test_bipartition_by_brute_force():
    """The cut minimises the largest cosine similarity across it."""
    rows = torch.randn(6, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    rows -= rows.mean(0)
    alg = algorithm("clustered", Quadratics(), eps1=1e9, eps2=1e-9)
    half = alg.split(rows)
    unit = rows / rows.norm(dim=1, keepdim=True)
    similarity = (unit @ unit.T).numpy()

    def crossing(mask):
        return similarity[np.ix_(mask, ~mask)].max()

    masks = [np.array([bool(b >> i & 1) for i in range(6)]) for b in range(1, 63)]
    assert crossing(half) == pytest.approx(min(map(crossing, masks)))


def test_the_separation_criterion_of_clusters():
    """Updates of two clusters, each within a relative error of its own: the halves are told apart
    as long as more error could not bring forth as low a similarity inside one.
    """
    rng = np.random.default_rng(0)
    for angle in (0.3, 1.0, 2.5):
        direction = np.array([[1.0, 0, 0], [np.cos(angle), np.sin(angle), 0]])[[0, 1, 0, 0, 1, 1]]
        rows = torch.from_numpy(direction + 0.01 * rng.normal(size=(6, 3)))
        unit = rows / rows.norm(dim=1, keepdim=True)
        cosine = (unit @ unit.T)[[0, 2, 3]][:, [1, 4, 5]].max()
        # two vectors that are both arcsin γ off the same direction have the similarity 1 − 2γ²
        limit = float(np.sin(np.arccos(cosine) / 2))
        for noise, splits in ((limit - 1e-6, True), (limit + 1e-6, False)):
            alg = algorithm("clustered", Quadratics(), eps1=1e9, eps2=1e-9, noise=noise)
            half = alg.split(rows)
            assert (half is not None) == splits
            if splits:
                assert half[[0, 2, 3]].all() != half[[1, 4, 5]].all()


def test_ties_split_into_two_halves():
    alg = algorithm("clustered", Quadratics(), eps1=1e9, eps2=1e-9)
    for rows in (
        torch.eye(3),
        torch.zeros(2, 3) + 1e-3,
        torch.cat([torch.eye(2), torch.zeros(1, 2)]),
    ):
        half = alg.split(rows)
        assert 0 < half.sum() < len(rows)


def test_projection_onto_the_simplex_is_the_nearest_point():
    rng = np.random.default_rng(0)
    for _ in range(50):
        v = rng.normal(size=4) * 3
        x = project(v)
        assert x.sum() == pytest.approx(1)
        assert (x >= 0).all()
        others = rng.dirichlet(np.ones(4), 500)
        assert ((v - x) ** 2).sum() <= ((v - others) ** 2).sum(1).min() + 1e-12
    np.testing.assert_allclose(project(np.array([0.2, 0.3, 0.5])), [0.2, 0.3, 0.5])
    assert project(np.array([5.0, 0.0])).tolist() == [1.0, 0.0]
    assert project(np.array([1e30, -1e30, 1e30])).tolist() == [0.5, 0.0, 0.5]
    with pytest.raises(ValueError, match="NaN"):
        project(np.array([np.nan, 0.0]))


def test_the_dual_estimate_is_unbiased():
    """E[v] over uniform cohorts is the vector of losses (DRDM Eq. 8)."""
    world = Quadratics()
    drfa = algorithm("drfa", world, 3)
    w = torch.ones(world.d, dtype=torch.float64)
    found = np.mean([drfa.estimate(t, world, w) for t in range(1, 4000)], 0)
    losses = world.losses(w).numpy()
    np.testing.assert_allclose(found, losses, atol=0.05 * losses.max())


@pytest.mark.parametrize("name", ["drfa", "drdm"])
def test_gamma_zero_leaves_lambda_alone(name):
    assert np.allclose(run(name, Quadratics(), 20, cohort=4, gamma=0.0).dual, 1 / 6)


def test_drdm_without_regulariser_has_drfas_clients():
    """μ → 0: g stays 0 and local training is plain SGD, so the mean local model is DRFA's; the
    published server step still adds −c/μ, which does not vanish with μ.
    """
    world = Quadratics()
    drdm, drfa = (
        algorithm(n, Quadratics(), 6, gamma=0.0, **o)
        for n, o in (("drdm", {"mu": 1e-9}), ("drfa", {"replace": False, "floor": 1.0}))
    )
    drdm.round(1, world)
    drfa.round(1, Quadratics())
    torch.testing.assert_close(drdm.w, 2 * drfa.w, rtol=1e-6, atol=1e-8)


def test_repeated_draws_count_repeatedly():
    drfa = algorithm("drfa", Quadratics(clients=4), 4, gamma=0.0)
    drfa.dual = np.array([1.0, 0, 0, 0])
    assert drfa.draw_by_dual(1).counts.tolist() == [4]
    assert Cohort.of([0, 0, 2]).counts.tolist() == [2, 1]


PUBLISHED = {"mu": 0.5, "gamma": 1e-3, "floor": 0.2}
ONE, TEN = range(1), range(10)
WEIGHTED = {"mu": 0.5, "gamma": 2e-4, "floor": 0.05, "control": "lambda_weighted"}
LAST, JUDGED = (lambda alg: alg.w), (lambda alg: alg.model())
FAMILY = [
    ({"FedAvg": LAST}, ONE, lambda seed: run("fedavg", Quadratics(steps=20), 500)),
    ({"FedDyn": LAST}, ONE, lambda seed: run("feddyn", Quadratics(steps=20), 500, mu=0.5)),
    (
        {"DRDM as published": LAST},
        TEN,
        lambda seed: run("drdm", Quadratics(steps=20), 1000, cohort=4, seed=seed, **PUBLISHED),
    ),
    (
        {"DRDM, `lambda_weighted` (all clients)": LAST},
        ONE,
        lambda seed: run("drdm", Quadratics(steps=20), 1000, cohort=6, **WEIGHTED),
    ),
    (
        {
            "DRDM, `lambda_weighted` (4 of 6, last iterate)": LAST,
            "DRDM, `lambda_weighted` (4 of 6, `output: tail`)": JUDGED,
        },
        TEN,
        lambda seed: run("drdm", Quadratics(steps=20), 4000, cohort=4, seed=seed, **PART),
    ),
    (
        {
            "the same in 1,000 rounds with ten times the γ, last iterate": LAST,
            "the same in 1,000 rounds with ten times the γ, `output: tail`": JUDGED,
        },
        TEN,
        lambda seed: run(
            "drdm", Quadratics(steps=20), 1000, cohort=4, output="tail", seed=seed, **WEIGHTED
        ),
    ),
    (
        {"AFL, running average": JUDGED},
        ONE,
        lambda seed: run(
            "afl", Quadratics(steps=1, lr=0.01), 4000, dual_lr=0.01, full_loss=True
        ),
    ),
    (
        {"SCAFF-PD, ρ = 0": LAST},
        ONE,
        lambda seed: run(
            "scaffpd", Quadratics(steps=2, lr=0.02), 1500, rho=0.0, dual_lr=0.02, full_loss=True
        ),
    ),
    (
        {"DRFA, last iterate": LAST, "DRFA, `output: tail`": JUDGED},
        TEN,
        lambda seed: run(
            "drfa", Quadratics(steps=5, lr=0.01), 2000, cohort=6, gamma=1e-3, output="tail",
            seed=seed,
        ),
    ),
]  # fmt: skip
"""Lines of the table in docs/drdm.md: the model that each judges, the seeds of what draws clients,
and what is run.
"""


def lines(judged, seeds, make):
    """Lines of the table in docs/drdm.md: with more seeds than one the mean and the standard
    deviation.
    """
    world, ended = Quadratics(), [make(seed) for seed in seeds]
    best, erm = minimax(world), world.erm()
    for name, model in judged.items():
        models = [model(one) for one in ended]
        found = [[(w - erm).norm(), (w - best).norm(), worst(world, w)] for w in models]
        columns = [[float(n) for n in column] for column in zip(*found, strict=True)]
        yield f"| {name} | {len(seeds)} | {' | '.join(map(shown, columns))} |"


def shown(values):
    spread = f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{spread}"


def test_no_line_of_the_table_is_without_a_test():
    page = (ROOT / "docs" / "drdm.md").read_text()
    table = page.split("| method | n | distance to ERM")[1].split("\n\n")[0]
    rows = [row.split(" | ")[0].removeprefix("| ") for row in table.splitlines()[2:]]
    assert rows == [name for judged, *_ in FAMILY for name in judged]


@pytest.mark.long
@pytest.mark.parametrize(
    ("judged", "seeds", "make"), FAMILY, ids=[next(iter(f[0])) for f in FAMILY]
)
def test_the_table_in_the_documentation_is_what_is_computed(judged, seeds, make):
    """Its numbers were those of longer runs than any test made, and then of one seed."""
    page = (ROOT / "docs" / "drdm.md").read_text().splitlines()
    assert set(lines(judged, seeds, make)) <= set(page)
