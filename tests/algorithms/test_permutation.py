"""Renumbering the clients does not change what an algorithm computes."""

import numpy as np
import pytest
import torch

from algorithms import drfa
from algorithms.algorithm import AlgorithmOptions
from algorithms.contract import Cohort
from algorithms.part import variants
from tests.algorithms.quadratics import Quadratics, algorithm, run

ORDER = np.array([3, 1, 5, 0, 2, 4])
"""What the clients of one world are called in another."""
PLACE = np.argsort(ORDER)
OPTIONS = {
    "drdsgd": {"graph": {"name": "complete"}},
    "drfa": {"replace": False, "floor": 1.0},
    "lp_proj": {"dimension": 2},
}


def worlds(steps):
    """The same clients twice, under other numbers."""
    a, b = (Quadratics(steps=steps, lr=0.01, spread=1.0) for _ in range(2))
    b.curvature, b.centre = b.curvature[ORDER], b.centre[ORDER]
    return a, b


@pytest.mark.parametrize("name", sorted(set(variants(AlgorithmOptions)) - {"server_only"}))
def test_client_numbers_do_not_matter(name):
    a, b = worlds(1 if name in ("afl", "drdsgd", "synchronous") else 5)
    # everyone is drawn, λ or not
    options = {**OPTIONS.get(name, {}), **({"gamma": 0.02} if name == "drfa" else {})}
    first, second = (run(name, world, 8, **options) for world in (a, b))
    torch.testing.assert_close(first.model(), second.model())
    if "dual" in first.server_state:
        assert np.ptp(first.dual) > 0.01
        np.testing.assert_allclose(first.dual[ORDER], second.dual, atol=1e-9)
    if name in ("local", "ditto", "lp_proj"):
        models = [torch.stack([w.states[k]["model"] for k in range(6)]) for w in (a, b)]
        torch.testing.assert_close(models[0][ORDER], models[1])


def renumbered(alg, monkeypatch):
    """Let an algorithm draw the same clients as it would under their numbers in the first world."""
    by_probability, uniformly, draw = drfa.by_probability, None, alg.draw

    def by_lambda(rng, p, size, replace):
        return np.sort(PLACE[by_probability(rng, p[PLACE], size, replace)])

    monkeypatch.setattr(drfa, "by_probability", by_lambda)
    if isinstance(alg, drfa.DRFA):
        uniformly = alg.draw_uniformly
        alg.draw_uniformly = lambda t: np.sort(PLACE[uniformly(t)])
    alg.draw = lambda t: Cohort.of(PLACE[draw(t).ids])


LAMBDAS = [
    ("drfa", {"gamma": 0.02}),
    ("drfa", {"gamma": {"start": 0.05, "power": 0.5}, "replace": False, "floor": 0.1}),
    ("drfa", {"gamma": 0.02, "uncertainty": {"name": "cvar", "alpha": 0.5}, "output": "tail"}),
    ("drdm", {"gamma": 0.02, "mu": 0.5}),
    ("drdm", {"gamma": 0.02, "mu": 0.5, "control": "lambda_weighted", "output": "average"}),
    ("scaffpd", {"dual_lr": 0.05}),
    ("scaffpd", {"dual_lr": 0.05, "rho": 0.0, "uncertainty": {"name": "kl", "radius": 0.2}}),
]


@pytest.mark.parametrize(("name", "options"), LAMBDAS)
def test_nor_do_they_where_lambda_decides_who_is_drawn(name, options, monkeypatch):
    """Four draws of six clients, λ moving: cohorts, dual steps, weights and models."""
    a, b = worlds(5)
    first = algorithm(name, a, 4, **options)
    for t in range(1, 9):
        first.round(t, a)
        first.count()
    second = algorithm(name, b, 4, **options)
    renumbered(second, monkeypatch)
    for t in range(1, 9):
        second.round(t, b)
        second.count()
    assert np.ptp(first.dual) > 0.05
    np.testing.assert_allclose(first.dual[ORDER], second.dual, atol=1e-9)
    torch.testing.assert_close(first.model(), second.model())
    torch.testing.assert_close(first.w, second.w)
