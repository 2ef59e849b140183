"""The line through the cheapest settings, by hand."""

import math

import pytest

from orchestrator.analysis.wallclock import communication_seconds
from sweeps.entry import Column, Entry, Rule
from sweeps.figures import draw
from sweeps.papers import entry
from sweeps.reproduction import Reproduction
from sweeps.rules import lines
from sweeps.statistics import value
from tests.sweeps.test_statistics import ROUNDS

RULE = Rule({"low": 0.1, "high": 0.3}, {"small": 10.0, "large": 100.0}, {"slow": 0.2, "fast": 0.1})
COLUMNS = {
    f"{setting}, {network}": Column(panel=setting, group=network)
    for setting in RULE.published
    for network in RULE.sizes
}
ONE = Entry("x/figure", "", {"low": (), "high": ()}, COLUMNS, (), {}, rule=RULE)


def test_the_cheapest_rows_decide():
    values = {
        ("low", "slow, small"): {0: 5.0, 1: 7.0},
        ("high", "slow, small"): {0: 5.0, 1: 6.0},
        ("low", "slow, large"): {0: 2.0},
        ("high", "slow, large"): {0: 3.0},
        ("low", "fast, small"): {0: math.nan},
        ("high", "fast, small"): {0: 9.0, 1: math.nan},
    }
    slow, fast = lines(ONE, values)
    small, large = slow.points["small"], slow.points["large"]
    assert (small.x, small.y) == (10.0, pytest.approx(3.0))
    assert (large.x, large.y) == (100.0, pytest.approx(10.0))
    assert (small.margin, large.margin) == (pytest.approx(6.0 / 5.5 - 1), pytest.approx(0.5))
    assert slow.slope == pytest.approx((10 * 3 + 100 * 10) / (10**2 + 100**2))
    assert "published 0.2 d" in str(slow)
    assert fast.points == {}
    assert "not measured yet" in str(fast)


@pytest.mark.parametrize(
    ("costs", "best", "edge"),
    [
        ({1: 1.0, 2: 2.0, 3: 3.0}, 1, "smallest"),
        ({1: 2.0, 2: 1.0, 3: 3.0}, 2, ""),
        ({1: 3.0, 2: 2.0, 3: 1.0}, 3, "largest"),
        ({1: 3.0, 2: 2.0}, 2, "largest"),  # the third has not been run
        ({1: 3.0, 2: 2.0, 3: math.nan}, 2, ""),  # it has, and missed the target
        ({2: 1.0}, 2, "smallest"),
    ],
)
def test_a_best_at_the_edge_is_marked(costs, best, edge):
    rule = Rule({str(n): float(n) for n in (1, 2, 3)}, {"net": 1.0}, {"slow": 2.0})
    one = Entry(
        "x/figure", "", {str(n): () for n in (1, 2, 3)},
        {"c": Column(panel="slow", group="net")}, (), {}, rule=rule,
    )  # fmt: skip
    (line,) = lines(one, {(str(n), "c"): {0: cost} for n, cost in costs.items()})
    assert (line.points["net"].y, line.points["net"].edge) == (best, edge)
    assert ("not determined" in str(line)) == bool(edge)
    assert (f"the {edge} tried" in str(line)) == bool(edge)


def test_rows_are_compared_on_the_seeds_that_all_have():
    """One that a machine had not done was the cheapest by the others of its row."""
    rule = Rule({"1": 1.0, "2": 2.0, "3": 3.0}, {"net": 1.0}, {"slow": 2.0})
    one = Entry(
        "x/figure", "", {"1": (), "2": (), "3": ()},
        {"c": Column(panel="slow", group="net")}, (), {}, rule=rule,
    )  # fmt: skip
    values = {
        ("1", "c"): {0: 9.0}, ("2", "c"): {0: 8.0, 1: 90.0}, ("3", "c"): {0: 10.0, 1: 80.0},
    }  # fmt: skip
    (line,) = lines(one, values)
    assert (line.points["net"].y, line.points["net"].margin) == (2, pytest.approx(9 / 8 - 1))


def test_costs_of_figure_3_15_are_the_thesis_formulas():
    columns = entry("fda/figure3.15").columns
    steps, nbytes, target = 30, 9e9, {"target": 0.75}
    moving = communication_seconds(nbytes, 5, "shared", 0.5)
    assert moving == pytest.approx(4 / 5 * 8 * 9 / 0.5)
    for name, expected in {
        "seconds, 0.5 Gbps shared, LeNet-5": steps * 6.613e-3 + moving,
        "imbalance, 0.5 Gbps shared, LeNet-5": moving / (steps * 6.613e-3),
        "seconds, 56 Gbps hypercube, VGG16*": steps * 8.853e-3 + 2 / 5 * 72 / 56,
    }.items():
        own = columns[name].__class__(**{**vars(columns[name]), **target})
        assert value(ROUNDS, own) == pytest.approx(expected)


def test_its_figure_has_a_line_for_each_setting(tmp_path):
    one = entry("fda/figure3.15")
    full = Reproduction(one, "full")
    values = {cell: {0: float(number)} for number, cell in enumerate(full.labels, start=1)}
    figure, data = draw(full, values, tmp_path)
    place = figure.axes[0]
    assert len(place.collections) == 3
    assert len(place.lines) == 6
    assert set(data["row"]) == set(one.rows)
