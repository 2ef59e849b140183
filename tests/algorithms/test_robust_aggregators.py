"""Robust aggregators against brute-force definitions, and at the number of attackers that each
promises to bear.
"""

import itertools

import numpy as np
import numpy.testing as npt
import pytest
import torch
from scipy.optimize import minimize
from scipy.stats import trim_mean

from algorithms.part import variants
from algorithms.parts.aggregators import Aggregator, Rows
from algorithms.parts.distances import norms, pairwise
from algorithms.parts.ordered import (
    ELEMENTS,
    coordinate_median,
    mean_of_nearest,
    trimmed_mean,
)

NAMES = [
    "median",
    "trimmed_mean",
    "krum",
    "multi_krum",
    "bulyan",
    "geometric_median",
    "faba",
    "norm_clipping",
    "centered_clipping",
]
COUNTING = ["trimmed_mean", "krum", "multi_krum", "bulyan", "faba"]


def rows(m=11, d=6, seed=0):
    return torch.randn(m, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def combine(name, x, reference=None, memory=None, **options):
    part = variants(Aggregator)[name](**options)
    return part.combine(Rows(x, np.ones(len(x)), reference, {} if memory is None else memory))


def test_median():
    for m in (5, 6):
        x = rows(m)
        torch.testing.assert_close(
            combine("median", x).vector, torch.from_numpy(np.median(x.numpy(), 0))
        )


@pytest.mark.parametrize("f", [0, 1, 3])
def test_trimmed_mean(f):
    x = rows()
    expected = np.stack([np.mean(sorted(column)[f : len(column) - f]) for column in x.numpy().T])
    torch.testing.assert_close(
        combine("trimmed_mean", x, byzantine=f / 11).vector, torch.from_numpy(expected)
    )


def brute_krum(x, f):
    """Scores straight from the paper: squared distances to the m - f - 2 closest others."""
    m = len(x)
    scores = []
    for i in range(m):
        gaps = sorted(float((x[i] - x[j]).square().sum()) for j in range(m) if j != i)
        scores.append(sum(gaps[: m - f - 2]))
    return scores


@pytest.mark.parametrize("f", [1, 2, 4])
def test_krum_and_multi_krum(f):
    x = rows()
    scores = brute_krum(x, f)
    one = combine("krum", x, byzantine=f / 11)
    assert int(one.weights.argmax()) == int(np.argmin(scores))
    assert torch.equal(one.vector, x[int(np.argmin(scores))])
    many = combine("multi_krum", x, byzantine=f / 11)
    best = sorted(np.argsort(scores)[: 11 - f].tolist())
    assert many.weights.nonzero()[:, 0].tolist() == best
    torch.testing.assert_close(many.vector, x[best].mean(0))
    assert len(combine("multi_krum", x, byzantine=f / 11, keep=3).weights.nonzero()) == 3


def test_bulyan():
    f, x = 2, rows()
    left, picked = list(range(11)), []
    while len(picked) < 11 - 2 * f:
        scores = brute_krum(x[left], f) if len(left) - f - 2 > 0 else None
        if scores is None:  # as few as this: the nearest other decides
            scores = [
                min(float((x[i] - x[j]).square().sum()) for j in left if j != i) for i in left
            ]
        picked.append(left.pop(int(np.argmin(scores))))
    chosen = x[sorted(picked)].numpy()
    expected = []
    for column in chosen.T:
        middle = np.median(column)
        near = sorted(column, key=lambda v: abs(v - middle))[: len(chosen) - 2 * f]
        expected.append(np.mean(near))
    torch.testing.assert_close(
        combine("bulyan", x, byzantine=f / 11).vector, torch.tensor(expected)
    )


def test_geometric_median_is_the_minimum():
    x = rows(7, 3)
    found = combine("geometric_median", x, iterations=2000, tolerance=1e-14)
    best = minimize(
        lambda z: np.linalg.norm(x.numpy() - z, axis=1).sum(), x.mean(0).numpy(), tol=1e-12
    )
    np.testing.assert_allclose(found.vector.numpy(), best.x, atol=1e-5)
    torch.testing.assert_close(found.weights @ x, found.vector)
    weighted = variants(Aggregator)["geometric_median"](by_samples=True, iterations=500)
    heavy = weighted.combine(Rows(x, np.array([1000, 1, 1, 1, 1, 1, 1])))
    torch.testing.assert_close(heavy.vector, x[0], atol=1e-4, rtol=0)


def test_the_geometric_median_of_two_is_the_heavier():
    """Between them all points have the same sum of distances, but for the weights."""
    x = rows(2, 3)
    weighted = variants(Aggregator)["geometric_median"](by_samples=True, iterations=500)
    found = weighted.combine(Rows(x, np.array([1, 20])))
    torch.testing.assert_close(found.vector, x[1], atol=1e-4, rtol=0)


@pytest.mark.parametrize("f", [1, 3])
def test_faba(f):
    x = rows()
    left = list(range(11))
    for _ in range(f):
        mean = x[left].mean(0)
        left.remove(max(left, key=lambda i: float((x[i] - mean).norm())))
    found = combine("faba", x, byzantine=f / 11)
    assert found.weights.nonzero()[:, 0].tolist() == left
    torch.testing.assert_close(found.vector, x[left].mean(0))


def test_fltrust():
    x, root = rows(6, 5), rows(1, 5, seed=9)[0]
    total, trust = torch.zeros(5, dtype=torch.float64), []
    for row in x:
        t = max(0.0, float(row @ root / (row.norm() * root.norm())))
        trust.append(t)
        total += t * row * root.norm() / row.norm()
    torch.testing.assert_close(combine("fltrust", x, reference=root).vector, total / sum(trust))
    against = combine("fltrust", -root.expand(4, -1), reference=root)
    assert torch.equal(against.vector, torch.zeros(5, dtype=torch.float64))


def test_norm_clipping():
    x = rows() * torch.arange(1, 12)[:, None]
    expected = sum(row * min(1.0, 2.0 / float(row.norm())) for row in x) / 11
    torch.testing.assert_close(combine("norm_clipping", x, radius=2.0).vector, expected)
    middle = float(np.median([float(r.norm()) for r in x]))
    torch.testing.assert_close(
        combine("norm_clipping", x).vector, combine("norm_clipping", x, radius=middle).vector
    )


def test_centered_clipping_remembers_its_centre():
    x, memory = rows(), {}
    v = torch.zeros(6, dtype=torch.float64)
    for _ in range(3):
        v = v + sum((row - v) * min(1.0, 0.5 / float((row - v).norm())) for row in x) / 11
        found = combine("centered_clipping", x, memory=memory, radius=0.5)
        torch.testing.assert_close(found.vector, v)
    torch.testing.assert_close(
        combine("centered_clipping", x, radius=0.5, iterations=3, start="zero").vector, v
    )


@pytest.mark.parametrize("name", COUNTING)
def test_the_boundary(name):
    """With the smallest cohort for f attackers, the result is near the benign updates whatever the
    attackers send.
    """
    f = 2
    m = variants(Aggregator)[name](byzantine=0.2).least(f)
    part = variants(Aggregator)[name](byzantine=f / m)
    assert part.tolerated(m) == f
    assert part.refuses(m) is None
    assert "at least" in part.refuses(m - 1) or part.tolerated(m - 1) < f
    benign = rows(m - f) * 0.1 + 1
    for lie in (1e30, -1e30, torch.inf, torch.nan, 100.0, -3.0):
        x = torch.cat([torch.full((f, 6), lie, dtype=torch.float64), benign])
        found = part.combine(Rows(x, np.ones(m)))
        assert found.vector.isfinite().all()
        gap = float((found.vector - benign.mean(0)).norm())
        assert gap < 1.0, (name, lie, gap)
    assert "reckons with" in variants(Aggregator)[name](byzantine=0.49).refuses(4)


@pytest.mark.parametrize("name", COUNTING)
def test_who_is_missing_takes_the_defence_away_from_nobody(name):
    """One benign client fewer than the rule needs: the attacker counted as much as anybody."""
    kind = variants(Aggregator)[name]
    m = kind(byzantine=0.2).least(1)
    part = kind(byzantine=1 / m)
    benign = rows(m - 2) * 0.1 + 1
    x = torch.cat([torch.full((1, 6), 1e6, dtype=torch.float64), benign])
    if part.tolerated(m - 1) == 0:  # of so few none is reckoned with
        part = kind(byzantine=1 / (m - 1))
    found = part.combine(Rows(x, np.ones(m - 1)))
    assert found.report == {"by_median": 1.0}
    assert found.weights is None
    torch.testing.assert_close(found.vector, torch.from_numpy(np.median(x.numpy(), 0)))
    told = {"round": np.arange(1.0, 4.0), "by_median": np.array([np.nan, 1.0, np.nan])}
    assert [*part.account(told)] == [
        f"In 1 of 3 rounds too few clients were left for {name} (byzantine "
        f"{part.byzantine:g}): the coordinate-wise median took its place."
    ]
    assert not [*part.account({"round": np.arange(3.0)})]
    with_nan = torch.cat([x, torch.full((1, 6), torch.nan, dtype=torch.float64)])
    assert "by_median" in kind(byzantine=2 / m).combine(Rows(with_nan, np.ones(m))).report


@pytest.mark.parametrize("name", ["median", "geometric_median"])
def test_just_below_half(name):
    benign = rows(6) * 0.1 + 1
    for lie in (1e20, -1e20):
        lies = torch.full((5, 6), lie, dtype=torch.float64)
        found = combine(
            name,
            torch.cat([benign, lies]),
            **({"iterations": 500} if name == "geometric_median" else {}),
        )
        assert float((found.vector - benign.mean(0)).norm()) < 2.0


@pytest.mark.parametrize("name", [*NAMES, "fltrust"])
def test_permutation_identity_and_dropped_rows(name):
    x, root = rows(), rows(1, seed=4)[0]
    order = torch.randperm(11, generator=torch.Generator().manual_seed(3))
    a, b = combine(name, x, root), combine(name, x[order], root)
    torch.testing.assert_close(a.vector, b.vector, atol=1e-9, rtol=1e-7)
    same = root.expand(11, -1)
    expected = same[0] if name != "centered_clipping" or float(root.norm()) <= 10 else None
    torch.testing.assert_close(combine(name, same, root).vector, expected)
    bad = x.clone()
    bad[4, 2] = torch.nan
    found = combine(name, bad, root)
    assert found.vector.isfinite().all()
    if found.weights is not None:
        assert found.weights[4] == 0
        torch.testing.assert_close(
            found.weights[found.weights != 0] @ x[found.weights != 0], found.vector
        )
    assert not combine(name, torch.full((3, 6), torch.nan, dtype=torch.float64), root).vector.any()


def test_distances_are_exact_for_large_common_parts():
    """Rows of 100·1 plus tiny differences: the squared-norm formula in float32 would return
    noise."""
    base = torch.full((4, 5000), 100.0)
    base[1, 0] += 2**-10
    base[2, :3] += 2**-9
    table = pairwise(base)
    for i, j in itertools.combinations(range(4), 2):
        exact = float((base[i].double() - base[j].double()).square().sum().sqrt())
        assert float(table[i, j]) == pytest.approx(exact, rel=1e-6, abs=0)
    wide = rows(5, 1000).float() * 1e30
    torch.testing.assert_close(
        pairwise(wide),
        torch.cdist(wide.double(), wide.double(), compute_mode="donot_use_mm_for_euclid_dist"),
    )
    torch.testing.assert_close(norms(wide, wide[0]), pairwise(wide)[0])


def test_column_blocks_do_not_matter(monkeypatch):
    x = rows(6, 1003)
    whole = pairwise(x), norms(x, x[1])
    monkeypatch.setattr("algorithms.parts.distances.ELEMENTS", 60)
    torch.testing.assert_close(pairwise(x), whole[0])
    torch.testing.assert_close(norms(x, x[1]), whole[1])


@pytest.mark.parametrize("name", [*NAMES, "fltrust"])
def test_huge_finite_lies_wherever_they_stand(name):
    """3e38 in float32: sums overflow, and the liars are the last rows."""
    x = (rows(10) * 0.1 + 1).float()
    for places in ([0, 1], [8, 9], [3, 7]):
        lied = x.clone()
        lied[places] = 3e38
        found = combine(
            name,
            lied,
            reference=x.mean(0),
            **(
                {"byzantine": 0.2}
                if name in COUNTING and name != "bulyan"
                else {"byzantine": 0.15}
                if name == "bulyan"
                else {}
            ),
        )
        assert found.vector.isfinite().all()
        if name not in (
            "norm_clipping",
            "centered_clipping",
        ):  # these bound a liar's pull, they do not remove it
            assert float((found.vector - x.mean(0)).norm()) < 1.5


def test_a_scaled_update_counts_by_its_share_and_not_by_its_factor():
    """FLTrust and norm clipping multiply short and long rows differently; everybody still counts
    alike.
    """
    x = (
        torch.ones(5, 4, dtype=torch.float64)
        * torch.tensor([1e-6, 1.0, 1.0, 1.0, 1e3], dtype=torch.float64)[:, None]
    )
    for name in ("fltrust", "norm_clipping"):
        found = combine(name, x, reference=torch.ones(4, dtype=torch.float64))
        torch.testing.assert_close(found.shares, torch.full((5,), 0.2, dtype=torch.float64))
        torch.testing.assert_close(found.weights @ x, found.vector)


@pytest.mark.parametrize("name", COUNTING)
def test_a_cohort_of_one_or_two(name):
    """Nobody is left out where nobody lies: the mean, which of two is the median, too."""
    for m in (1, 2):
        x = rows(m)
        torch.testing.assert_close(combine(name, x, byzantine=0.0).vector, x.mean(0))


def test_coordinates_are_taken_block_by_block():
    """More columns than a block has: the same as NumPy's median, SciPy's trimmed mean, and a loop."""
    x = torch.randn(6, 2 * ELEMENTS // 6 + 5, generator=torch.Generator().manual_seed(3))
    x[1] = x[4]  # ties
    x[:, 7] = 0.0
    values = x.double().numpy()
    npt.assert_allclose(coordinate_median(x), np.median(values, 0), rtol=1e-6, atol=1e-7)
    npt.assert_allclose(trimmed_mean(x, 2), trim_mean(values, 0.34, 0), rtol=1e-5, atol=1e-6)
    found = mean_of_nearest(x, 3)
    for column in (0, 7, ELEMENTS // 6 - 1, ELEMENTS // 6, x.shape[1] - 1):
        of = values[:, column]
        nearest = sorted(of, key=lambda value, of=of: abs(value - np.median(of)))[:3]
        assert float(found[column]) == pytest.approx(np.mean(nearest), abs=1e-6)
