"""Two methods on the same seeds."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from orchestrator.analysis.comparison import Line
from orchestrator.analysis.paired import compare, holm, is_tied
from orchestrator.analysis.tested import Measured, PairedTests

A = {0: 10.0, 1: 11.0, 2: 12.5, 7: 3.0}
B = {0: 9.0, 1: 9.5, 2: 12.0, 8: 50.0}


@pytest.mark.parametrize("high", [True, False])
def test_numbers_are_compared_by_students_t(high):
    """On the seeds that both have; scipy's own interval."""
    found = compare(A, B, high)
    one, other = np.array([10.0, 11.0, 12.5]), np.array([9.0, 9.5, 12.0])
    gap = one - other if high else other - one
    expected = stats.ttest_rel(one, other)
    interval = stats.ttest_1samp(gap, 0.0).confidence_interval(0.95)
    assert found.p == pytest.approx(expected.pvalue)
    assert (found.n, found.difference) == (3, pytest.approx(gap.mean()))
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    assert found.effect == pytest.approx(gap.mean() / gap.std(ddof=1))
    assert found.ahead is high


def test_a_miss_loses_against_a_hit():
    """It was left out, so that {100, 101, miss} was ahead of {200, 210, 220} rounds, p = 0.014."""
    rounds = {0: 200.0, 1: 210.0, 2: 220.0}
    found = compare({0: 100.0, 1: 101.0, 2: math.nan}, rounds, high=False)
    # of the 8 ways to sign the ranks 1, 2, 3, all have a sum of at least |1 + 2 - 3|
    assert (found.ahead, found.p, found.missed) == (False, 1, (1, 0))
    assert compare({0: 100.0, 1: 101.0, 2: 102.0}, {**rounds, 2: math.nan}, False).p == 2 / 8
    # of those that did not miss nothing is told but their mean: they are no fair sample
    survivors = compare({0: 1.0, 1: 1.1, 2: math.nan}, {0: 0.5, 1: 0.7, 2: 0.9}, high=True)
    assert survivors.difference == pytest.approx(0.45)
    assert all(map(math.isnan, (survivors.low, survivors.high, survivors.effect)))
    both = compare({0: 1.0, 1: math.nan}, {0: 2.0, 1: math.nan}, high=True)
    assert (both.n, both.missed, both.ahead) == (2, (1, 1), False)


def test_equal_differences_have_one_rank_whatever_their_last_digits():
    """Counted by hand: the same numbers as thousandths, which are whole."""
    one = [797, 602, 577, 940, 811, 733, 668, 805]
    gaps = [10, 10, -10, 20, 10, 10, -10, 20]
    other = [value - gap for value, gap in zip(one, gaps, strict=True)]
    found = compare(
        {seed: value / 1000 for seed, value in enumerate([*one, 800])},
        {seed: value / 1000 for seed, value in enumerate([*other, math.nan])},
        high=True,
    )
    assert len({abs(a / 1000 - b / 1000) for a, b in zip(one, other, strict=True)}) > 2
    ranks = stats.rankdata(np.abs([*gaps, math.inf])) * np.sign([*gaps, math.inf])
    ways = [abs(np.dot(signs, ranks)) for signs in itertools.product([1, -1], repeat=9)]
    assert found.p == np.mean(np.array(ways) >= abs(ranks.sum()))


def test_too_few_for_a_test():
    assert math.isnan(compare({0: 1.0}, {0: 0.0}, True).p)
    assert compare({0: 1.0}, {0: 0.0}, True).ahead
    assert compare({}, {}, True).n == 0
    same = compare({0: 1.0, 1: 2.0}, {0: 0.0, 1: 1.0}, True)
    assert same.difference == 1.0
    assert all(map(math.isnan, (same.low, same.high, same.effect)))
    # of four ways to flip the signs of two, two are as far from 0
    assert same.p == 0.5
    ten = dict(enumerate(range(10)))
    assert compare(ten, {seed: value + 0.5 for seed, value in ten.items()}, True).p == 2 / 1024
    assert math.isnan(compare({0: 1.0, 1: 2.0}, {0: 1.0, 1: 2.0}, True).p)


def test_gaps_that_are_equal_but_for_rounding_prove_nothing():
    """They had p = 7e-29, which every correction lets hold."""
    a, b = {0: 86.8, 1: 92.6, 2: 83.6}, {0: 86.4, 1: 92.2, 2: 83.2}
    found = compare(a, b, high=True)
    assert found.difference == pytest.approx(0.4)
    assert found.ahead
    assert found.p == 2 / 8
    assert math.isnan(found.effect)


def test_rounding_of_both_signs_is_no_difference():
    """Of the same method in two ways p was 0.0078, and one of them better."""
    one = {seed: 2.38 + 0.05 * seed for seed in range(8)}
    noise = [2.0e-9, -2.5e-9, 0.7e-9, 1.2e-9, -0.3e-9, 2.3e-9, -0.3e-9, -4.3e-9]
    other = {seed: value + noise[seed] for seed, value in one.items()}
    found = compare(other, one, True)
    assert np.isnan(found.p)
    assert (found.difference, found.ahead, found.behind) == (0, False, False)


def test_equal_numbers_in_another_order_are_tied():
    values = [0.55, 0.70, 10 / 19, 0.60]
    means = {float(np.mean(other)) for other in itertools.permutations(values)}
    assert len(means) > 1
    assert all(is_tied(one, other) for one in means for other in means)
    assert not is_tied(0.5, 0.5001)
    assert Line("x", [0.1 + 0.2, 0.3], better=True).best({"a": [0], "b": [1]}) is None
    assert Line("x", [0.4, 0.3], better=True).best({"a": [0], "b": [1]}) == "a"


def test_no_number_is_written_as_0():
    assert Line("x", [1.486e-7, 0.0]).cell([0]) == "0.00000015"
    assert Line("x", [0.3, -0.1, -0.2]).cell([0, 1, 2]) == "-0.0000 ± 0.1528"
    assert [Line("x", [value]).cell([0]) for value in (0.0, 0.5, 0.00012)] == [
        "0.0000", "0.5000", "0.0001",
    ]  # fmt: skip


def test_counts_may_be_the_same_on_all_seeds():
    """Ten of ten that were five rounds earlier were "not told apart", and nine of ten were."""
    fast, slow, never = (dict.fromkeys(range(10), count) for count in (45.0, 50.0, math.nan))
    for other in (slow, never):
        assert compare(fast, other, high=False).ahead
        assert math.isnan(compare(fast, other, high=False).p)
        assert compare(fast, other, high=False, counted=True).p == 2 / 1024


def test_holm_by_hand():
    """The smallest of m times m, the next times m − 1, and never less than the one before."""
    assert holm([0.01, 0.04, math.nan, 0.03])[:2] == pytest.approx([0.03, 0.06])
    assert holm([0.01, 0.04, math.nan, 0.03])[3] == pytest.approx(0.06)
    assert math.isnan(holm([0.5, math.nan])[1])
    assert holm([0.6, 0.9]) == [1.0, 1.0]


def test_holm_counts_what_is_still_to_come():
    """Whatever the unknown p-values turn out to be, none that is known grows."""
    known = [0.01, 0.04]
    early = holm(known, coming=2)
    assert early == pytest.approx([0.04, 0.12])
    for others in ([0.001, 0.002], [0.02, 0.5], [0.9, 0.9]):
        assert all(a <= b + 1e-12 for a, b in zip(holm([*known, *others]), early, strict=False))


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ([2.0, 3.0, 3.5], "two-sided paired t-tests; d_z"),
        ([2.0, 3.0, math.nan], "two-sided tests on signed ranks where a run has no number"),
        ([2.0, 3.0, 4.0], "two-sided tests on signs where all pairs differ by the same"),
    ],
)
def test_what_kind_the_tests_are_is_said(others, said):
    values = {"one": {0: 1.0, 1: 2.0, 2: 3.0}, "two": dict(enumerate(others))}
    tests = PairedTests.of([Measured("round", values, False, ["one", "two"])], "one")
    assert said in tests.about
    assert ("d_z" in tests.about) == ("t-tests" in said)


@pytest.mark.parametrize("kind", ["any", "skewed", "coins", "missing"])
def test_where_nothing_differs_hardly_ever_anything_is_told_apart(kind):
    """Of four methods at most one comparison in twenty says so, whatever their numbers are like."""
    rng, told = np.random.default_rng(0), 0

    def numbers(of_seeds):
        n = len(of_seeds)
        drawn = {"skewed": rng.exponential(size=n) ** 2, "coins": (rng.random(n) > 0.5) * 1.0}
        own = drawn.get(kind, rng.normal(size=n))
        lost = rng.random(n) < 0.3 * (kind == "missing")
        return dict(enumerate(np.where(lost, math.nan, of_seeds + own).tolist()))

    for _ in range(300):
        of_seeds = 2 * rng.normal(size=6) * (kind != "coins")
        values = {name: numbers(of_seeds) for name in "abcd"}
        told += any(
            one.told_apart for one in PairedTests.of([Measured("m", values, True)], "a").each
        )
    assert told <= 300 * 0.05 + 2.5 * math.sqrt(300 * 0.05 * 0.95)
