"""Fixed points of the algorithms on quadratics with a known optimum."""

import pytest
import torch

from algorithms.parts.compressors import RandomK, TopK
from tests.algorithms.quadratics import Quadratics, run


def gap(world, w):
    return float((w - world.erm()).norm())


@pytest.mark.parametrize("name", ["fedavg", "fedprox", "fedavgm"])
def test_drifting_methods_miss_the_optimum(name):
    world = Quadratics(steps=10)
    assert gap(world, run(name, world, 600).w) > 1e-3


def test_scaffold_reaches_the_optimum_with_all_clients():
    world = Quadratics(steps=10)
    assert gap(world, run("scaffold", world, 600).w) < 1e-6


def test_scaffold_reaches_the_optimum_with_a_part_of_the_clients():
    world = Quadratics(steps=5)
    assert gap(world, run("scaffold", world, 500, cohort=3).w) < 1e-6


def test_scaffold_control_variates_are_the_gradients_at_the_optimum():
    world = Quadratics(steps=10)
    run("scaffold", world, 800)
    stored = torch.stack([world.states[k]["control"] for k in range(world.n)])
    w = world.erm().expand(world.n, -1)
    torch.testing.assert_close(stored, world.gradient(torch.arange(world.n), w), atol=1e-6, rtol=0)


@pytest.mark.parametrize("cohort", [3, 6])
def test_scallion_without_compression_is_scaffold(cohort):
    scaffold, scallion = (run(name, Quadratics(), 60, cohort) for name in ("scaffold", "scallion"))
    torch.testing.assert_close(scallion.w, scaffold.w)
    torch.testing.assert_close(scallion.control, scaffold.control)


ONE_RANDOM_ENTRY = RandomK(
    fraction=1 / 3, scale=True, error_feedback=False
)  # unbiased, of relative variance 2
THE_LARGEST_ENTRY = TopK(fraction=1 / 3, error_feedback=False)


@pytest.mark.parametrize("cohort", [3, 6])
@pytest.mark.parametrize(
    ("uplink", "options"),
    [
        (ONE_RANDOM_ENTRY, {"scale": 0.3}),
        (THE_LARGEST_ENTRY, {}),
        (THE_LARGEST_ENTRY, {"momentum": 0.3}),
    ],
)
def test_scallion_reaches_the_optimum_through_compressed_uploads(uplink, options, cohort):
    """One entry of three is sent; FedAvg and SCAFFOLD stop far away."""

    def distance(name, **options):
        world = Quadratics(steps=5, lr=0.02, uplink=uplink)
        return gap(world, run(name, world, 400, cohort, **options).w)

    assert distance("scallion", **options) < 1e-6
    assert min(distance("fedavg"), distance("scaffold")) > 0.1


def test_one_local_step_of_fedavg_is_gradient_descent():
    world = Quadratics(steps=1, lr=0.1)
    w = torch.zeros(world.d, dtype=torch.float64)
    for _ in range(7):
        w = w - 0.1 * world.gradient(torch.arange(world.n), w.expand(world.n, -1)).mean(0)
    torch.testing.assert_close(run("fedavg", world, 7).w, w)


def test_synchronous_reaches_the_optimum():
    world = Quadratics(steps=1, lr=0.1)
    assert gap(world, run("synchronous", world, 800).w) < 1e-6


def test_fedprox_with_a_heavy_term_moves_less():
    start = torch.zeros(3, dtype=torch.float64)
    moved = [
        float((run("fedprox", Quadratics(), 1, mu=mu).w - start).norm()) for mu in (0.0, 1.0, 10.0)
    ]
    assert moved[0] > moved[1] > moved[2] > 0


def test_fedprox_local_fixed_point():
    """With many local steps client k solves (A_k + μI) w = A_k a_k + μ w_t."""
    world, mu = Quadratics(steps=3000), 0.7
    got = run("fedprox", world, 1, mu=mu).w
    eye = torch.eye(world.d, dtype=torch.float64)
    want = torch.stack(
        [
            torch.linalg.solve(world.curvature[k] + mu * eye, world.curvature[k] @ world.centre[k])
            for k in range(world.n)
        ]
    )
    torch.testing.assert_close(got, want.mean(0))


def test_local_ends_at_each_clients_own_optimum():
    world = Quadratics(steps=50)
    alg = run("local", world, 60)
    models = torch.stack([world.states[k]["model"] for k in range(world.n)])
    torch.testing.assert_close(models, world.centre, atol=1e-6, rtol=0)
    assert alg.w.abs().sum() == 0


@pytest.mark.parametrize("name", ["fedadam", "fedadamw", "fedadagrad", "fedyogi"])
def test_adaptive_servers_reduce_the_loss(name):
    world = Quadratics(steps=2)
    before = world.losses(torch.zeros(world.d, dtype=torch.float64)).mean()
    assert world.losses(run(name, world, 400).w).mean() < before
