"""Barycenters against closed forms, POT's own solver and invariances; the aggregator around
them."""

import warnings

import numpy as np
import ot
import pytest
import torch

from algorithms.flat import ParamSpec
from algorithms.part import variants
from algorithms.parts.aggregators import Aggregator, Rows
from algorithms.parts.barycenters import Barycenter, ascending

LINE = ["exact", "sinkhorn"]
ALL = ["linear", "exact", "sinkhorn", "class_rows", "iterated"]
SPEC = ParamSpec.of({"body.weight": torch.zeros(5, 3), "a.weight": torch.zeros(4, 5), "a.bias": torch.zeros(4),
                     "b.weight": torch.zeros(3, 4), "b.bias": torch.zeros(3)})  # fmt: skip


def rows(m=4, d=40, seed=0):
    return torch.randn(m, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def even(m):
    return np.full(m, 1 / m)


COARSE = {"sinkhorn": {"bins": 32}}
"""A grid of the default's 128 bins takes seconds; what holds on one holds on another."""


def bary(name, x, weights=None, **options):
    return variants(Barycenter)[name](**{**COARSE.get(name, {}), **options}).tensor(
        x, even(len(x)) if weights is None else np.asarray(weights)
    )


def test_gaussians():
    """W₂ barycenter of N(μ_k, σ_k²) is N(Σλμ, (Σλσ)²): here with the quantiles of 20,000 evenly
    spaced levels.
    """
    levels = (torch.arange(20_000, dtype=torch.float64) + 0.5) / 20_000
    z = torch.distributions.Normal(torch.zeros((), dtype=torch.float64), 1.0).icdf(levels)
    x = torch.stack([1 + 0.5 * z, -2 + 2.0 * z])
    expected = (0.25 * 1 - 0.75 * 2) + (0.25 * 0.5 + 0.75 * 2.0) * z
    torch.testing.assert_close(bary("exact", x, [0.25, 0.75]), expected)
    blurred = bary("sinkhorn", x, [0.25, 0.75], reg=1e-4, bins=128)
    assert (blurred - expected).abs().quantile(0.99) < 0.15


@pytest.mark.parametrize("name", ALL)
def test_equal_inputs_are_returned(name):
    x = rows(1, 12).expand(5, -1)
    if name == "class_rows":
        x = x.view(5, 4, 3)
    found = bary(name, x)
    spread = float(x[0].max() - x[0].min())
    torch.testing.assert_close(
        found, x[0], rtol=1e-6, atol=0.05 * spread if name == "sinkhorn" else 1e-9
    )


@pytest.mark.parametrize("name", ["linear", "exact", "class_rows"])
def test_two_point_masses_meet_in_the_middle(name):
    x = torch.tensor([[1.0] * 6, [5.0] * 6], dtype=torch.float64)
    x = x.view(2, 3, 2) if name == "class_rows" else x
    torch.testing.assert_close(bary(name, x), torch.full_like(x[0], 3.0))
    torch.testing.assert_close(bary(name, x, [0.25, 0.75]), torch.full_like(x[0], 4.0))


def test_the_exact_one_is_the_free_support_one():
    x, weights = rows(3, 15), np.array([0.2, 0.3, 0.5])
    uniform = np.full(15, 1 / 15)
    start = np.sort(weights @ x.numpy())[:, None]
    support = ot.lp.free_support_barycenter(
        [r[:, None] for r in x.numpy()], [uniform] * 3, start, uniform, weights, numItermax=500
    )
    found = bary("exact", x, weights)
    np.testing.assert_allclose(np.sort(found.numpy()), np.sort(support[:, 0]), atol=1e-12)


def test_it_minimises_the_transport_cost():
    """No random perturbation of the values does better in Σ λ_k W₂²."""
    x, weights = rows(3, 8, seed=3), np.array([0.5, 0.3, 0.2])

    def cost(b):
        return sum(
            p * ot.wasserstein_1d(b.numpy(), r.numpy(), p=2)
            for p, r in zip(weights, x, strict=True)
        )

    best = bary("exact", x, weights)
    for seed in range(50):
        assert cost(best) <= cost(best + 0.1 * rows(1, 8, seed)[0]) + 1e-12


@pytest.mark.parametrize("name", LINE)
@pytest.mark.parametrize(("shift", "scale"), [(3.0, 1.0), (0.0, 7.0), (-2.0, 0.1)])
def test_shift_and_scale(name, shift, scale):
    x = rows()
    torch.testing.assert_close(
        bary(name, scale * x + shift), scale * bary(name, x) + shift, rtol=1e-7, atol=1e-7
    )


@pytest.mark.parametrize("name", ALL)
def test_clients_and_entries_may_be_permuted(name):
    x, weights = rows(4, 12), np.array([0.1, 0.2, 0.3, 0.4])
    x = x.view(4, 6, 2) if name == "class_rows" else x
    order = torch.randperm(4, generator=torch.Generator().manual_seed(1))
    entries = torch.randperm(x.shape[1], generator=torch.Generator().manual_seed(2))
    found = bary(name, x, weights)
    torch.testing.assert_close(bary(name, x[order], weights[order.numpy()]), found)
    torch.testing.assert_close(bary(name, x[:, entries], weights), found[entries])


def test_the_mean_is_kept_and_the_spread_is_not_shrunk():
    x = rows(10, 500)
    found = bary("exact", x)
    assert float(found.mean()) == pytest.approx(float(x.mean()))
    assert float(found.std()) == pytest.approx(float(x.std(1).mean()), rel=0.05)
    assert float(x.mean(0).std()) < 0.5 * float(found.std())


def test_sinkhorn_tends_to_the_exact_one():
    x = rows(3, 300)
    exact = bary("exact", x)
    errors = [
        float((bary("sinkhorn", x, reg=reg, bins=64) - exact).abs().mean())
        for reg in (3e-2, 3e-3, 3e-4)
    ]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.05


def brute_w1(a, b):
    return ot.wasserstein_1d(a.numpy(), b.numpy(), p=1)


def test_the_papers_iteration_by_hand():
    """Two iterations of b ← Σ λ u Δ / Σ λ u with u = exp(−W₁/ε), without logarithms, W₁ from
    POT."""
    x, weights, eps = rows(3, 9), np.array([0.2, 0.5, 0.3]), 0.7
    b = torch.from_numpy(weights) @ x
    for _ in range(2):
        u = weights * np.exp([-brute_w1(b, r) / eps for r in x])
        b = torch.from_numpy(u / u.sum()) @ x
    torch.testing.assert_close(bary("iterated", x, weights, eps=eps, iterations=2), b)


def test_the_ends_of_the_papers_iteration():
    x = rows(5, 30)
    torch.testing.assert_close(bary("iterated", x, eps=1e9), x.mean(0))
    nearest = min(range(5), key=lambda k: brute_w1(x.mean(0), x[k]))
    torch.testing.assert_close(bary("iterated", x, eps=1e-9), x[nearest])


def test_the_published_iteration_collapses_where_the_dossier_says():
    """Zero above about 23 ε; the mean far below."""
    x = rows(10, 200)
    assert not bary("authors", 1e-1 * x).any()
    small = 1e-8 * x
    torch.testing.assert_close(bary("authors", small), small.mean(0), rtol=1e-3, atol=1e-12)
    torch.testing.assert_close(bary("authors", -small), -bary("authors", small))


def aggregate(x, samples=None, **options):
    part = variants(Aggregator)["barycenter"](**options)
    part.check(SPEC)
    return part.combine(Rows(x, np.ones(len(x)) if samples is None else samples, spec=SPEC))


def test_other_layers_are_averaged():
    x = rows(6, SPEC.size)
    combined = aggregate(x, layers=1)
    first = next(e for e in SPEC.segments if e.layer == "b").start
    torch.testing.assert_close(combined.vector[:first], x[:, :first].mean(0))
    for e in SPEC.segments[3:]:
        torch.testing.assert_close(
            combined.vector[e.start : e.stop], bary("exact", x[:, e.start : e.stop])
        )
    assert combined.report["barycenter_collapsed"] == 0
    assert combined.report["barycenter_to_mean"] > 1


def test_layers_by_name_and_weights_by_samples():
    x, samples = rows(3, SPEC.size), np.array([1, 2, 7])
    combined = aggregate(x, samples, layers=r"^a\.weight", by_samples=True)
    e = SPEC.segments[1]
    mean = torch.from_numpy(samples / 10) @ x
    expected = mean.clone()
    expected[e.start : e.stop] = bary("exact", x[:, e.start : e.stop], samples / 10)
    torch.testing.assert_close(combined.vector, expected)
    assert combined.shares.tolist() == [0.1, 0.2, 0.7]


@pytest.mark.parametrize("name", ["linear", "exact", "class_rows"])
def test_identical_updates_are_averaged_bitwise(name):
    x = rows(1, SPEC.size).float().expand(7, -1)
    plain = aggregate(x, layers=2, method={"name": "linear"}).vector
    same = aggregate(x, layers=2, method={"name": name}).vector
    if name == "class_rows":
        torch.testing.assert_close(same, plain)
    else:
        assert torch.equal(same, plain)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sorting_by_bits(dtype):
    draws = (
        torch.randn(50_000, generator=torch.Generator().manual_seed(4), dtype=dtype)
        .mul(1e3)
        .round()
        .div(1e3)
    )
    x = torch.cat([draws, torch.tensor([0.0, 1e38, -1e38, 1e-45, -1e-45, 3.0], dtype=dtype)])
    values, order = ascending(x)
    expected, places = x.sort(stable=True)
    assert torch.equal(values, expected)
    assert torch.equal(x[order], expected)
    assert torch.equal(order[x[order] != 0], places[expected != 0])


def test_a_collapse_is_reported():
    with pytest.warns(RuntimeWarning, match="barycenter_collapsed: exactly zero for 2 tensors"):
        combined = aggregate(rows(5, SPEC.size), layers=1, method={"name": "authors"})
    assert combined.report == {"barycenter_collapsed": 2.0, "barycenter_to_mean": 0.0}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (
            not aggregate(rows(5, SPEC.size), layers=1, method="unmoved")
            .vector[SPEC.segments[3].start :]
            .any()
        )


def test_layers_that_are_not_there():
    with pytest.raises(ValueError, match="has 3 layers, so the last 4"):
        aggregate(rows(2, SPEC.size), layers=4)
    part = variants(Aggregator)["barycenter"](layers=1, method="class_rows")
    scale, number = torch.zeros(2), torch.tensor(1.0)
    for layer in ({"n.weight": torch.zeros(3, 2), "n.scale": scale}, {"n.scale": number}):
        with pytest.raises(ValueError, match="share their first axis"):
            part.check(ParamSpec.of(layer))
