"""Ditto and lp-proj against loops written from the papers, on quadratic clients."""

import pytest
import torch

from algorithms.draws import torch_generator
from tests.algorithms.quadratics import Quadratics, algorithm, run


def personal(world):
    return torch.stack([world.states[k]["model"] for k in range(world.n)])


@pytest.mark.parametrize("strength", [0.0, 0.7])
def test_ditto(strength):
    world = Quadratics()
    alg = algorithm("ditto", world, strength=strength)
    w = torch.zeros(world.d, dtype=torch.float64)
    v = w.expand(world.n, -1).clone()
    for t in range(1, 6):
        alg.round(t, world)
        models = w.expand(world.n, -1).clone()
        for _ in range(world.steps):
            models = models - world.lr * world.gradient(torch.arange(world.n), models)
            v = v - world.lr * (world.gradient(torch.arange(world.n), v) + strength * (v - w))
        w = models.mean(0)
        torch.testing.assert_close(alg.w, w)
        torch.testing.assert_close(personal(world), v)


def test_ditto_without_a_penalty_is_training_alone():
    a, b = Quadratics(), Quadratics()
    run("ditto", a, 4, strength=0.0)
    run("local", b, 4)
    torch.testing.assert_close(personal(a), personal(b))


def test_ditto_s_fixed_point():
    """∇F_k(v) + λ (v − w*) = 0 with w* FedAvg's limit."""
    world = Quadratics()
    alg = run("ditto", world, 400, strength=2.0)
    pull = world.gradient(torch.arange(world.n), personal(world)) + 2.0 * (personal(world) - alg.w)
    assert pull.abs().max() < 1e-6


@pytest.mark.parametrize("turns", [(4, 4, 4), (4, 4, 3), (2,)])
@pytest.mark.parametrize("p", [1, 2])
def test_lp_proj(p, turns):
    """Also where the local work ends within a turn, or is shorter than one."""
    world = Quadratics(d=5, steps=sum(turns))
    alg = algorithm("lp_proj", world, p=p, dimension=2, strength=1.5, mixing=0.8, steps_between=4)
    rows = torch.randn(2, 5, generator=torch_generator(0, "projection"))
    projection = (rows / rows.norm(dim=1, keepdim=True)).double()
    torch.testing.assert_close(alg.projection, projection)
    shrink = (lambda z: z) if p == 2 else torch.sign
    theta = torch.zeros(world.n, 5, dtype=torch.float64)
    server = torch.zeros(2, dtype=torch.float64)
    for t in range(1, 4):
        alg.round(t, world)
        ends = []
        for k in range(world.n):
            omega = server.clone()
            for steps in turns:
                for _ in range(steps):
                    g = world.curvature[k] @ (theta[k] - world.centre[k])
                    theta[k] -= world.lr * (
                        g + 1.5 * projection.T @ shrink(projection @ theta[k] - omega)
                    )
                omega = omega - world.lr * 1.5 * shrink(omega - projection @ theta[k])
            ends.append(omega)
        server = 0.2 * server + 0.8 * torch.stack(ends).mean(0)
        torch.testing.assert_close(alg.reference, server)
        torch.testing.assert_close(personal(world), theta)


def test_lp_proj_sends_the_projection_only():
    alg = algorithm("lp_proj", Quadratics(d=5), dimension=3)
    assert alg.rule().transmitted
    assert alg.personal_rule().transmitted is False
    with pytest.raises(ValueError, match="larger than the model's 3 parameters"):
        algorithm("lp_proj", Quadratics(), dimension=4)
