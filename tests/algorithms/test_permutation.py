"""Renumbering the clients does not change what an algorithm computes."""

import pytest
import torch

from algorithms.algorithm import AlgorithmOptions
from algorithms.part import variants
from tests.algorithms.quadratics import Quadratics, run

ORDER = [3, 1, 5, 0, 2, 4]
OPTIONS = {
    "drdsgd": {"graph": {"name": "complete"}},
    "drfa": {"replace": False, "floor": 1.0},
    "lp_proj": {"dimension": 2},
}


@pytest.mark.parametrize("name", sorted(set(variants(AlgorithmOptions)) - {"server_only"}))
def test_client_numbers_do_not_matter(name):
    steps = 1 if name in ("afl", "drdsgd", "synchronous") else 5
    a, b = (
        Quadratics(steps=steps, lr=0.01, spread=1.0),
        Quadratics(steps=steps, lr=0.01, spread=1.0),
    )
    b.curvature, b.centre = b.curvature[ORDER], b.centre[ORDER]
    options = OPTIONS.get(name, {})
    if name in ("drfa", "drdm"):
        options = {**options, "gamma": 0.0}
    first, second = (run(name, world, 8, **options) for world in (a, b))
    torch.testing.assert_close(first.model(), second.model())
    if name in ("local", "ditto", "lp_proj"):
        models = [torch.stack([w.states[k]["model"] for k in range(6)]) for w in (a, b)]
        torch.testing.assert_close(models[0][ORDER], models[1])
