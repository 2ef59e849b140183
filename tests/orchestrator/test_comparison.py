"""Runs side by side: those that differ in the seed alone are one column, and are tested in pairs."""

import math
import re

import numpy as np
import pytest
from scipy import stats

from orchestrator.analysis.comparison import _tests
from orchestrator.results.run_folder import RunFolder
from orchestrator.rounds.metrics import more_is_better
from tests.configs import small
from tests.orchestrator.test_cli import here
from tests.running import run_into


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two rates on three seeds."""
    folder = tmp_path_factory.mktemp("runs")
    found = {}
    for rate in (0.1, 0.01):
        for seed in range(3):
            place = folder / f"{rate}-{seed}"
            run = RunFolder(place)
            run_into(run, small("rounds=2", f"local.lr={rate}", f"seed={seed}"))
            found[place] = run.result()
    return found


def test_seeds_are_one_column_with_their_spread(runs):
    code, text = here("compare", *runs)
    assert code == 0, text
    first = [r["metrics"]["test_accuracy"] for r in list(runs.values())[:3]]
    cell = f"{np.mean(first):.4f} ± {stats.sem(first):.4f}"
    assert cell in text
    assert "(seeds 0, 1, 2)" in re.sub(r"[\s│┃]+", " ", text)
    other = [r["metrics"]["test_accuracy"] for r in list(runs.values())[3:]]
    expected = stats.ttest_rel(other, first)
    said = re.search(r"two-sided p ([\d.]+) \(paired t-test\)", text)
    assert float(said[1]) == pytest.approx(expected.pvalue, abs=1e-4)
    interval = expected.confidence_interval(0.95)
    assert f"[{interval.low:+.4f}, {interval.high:+.4f}] (95 %" in text


def test_single_runs_are_not_tested(runs):
    code, text = here("compare", *list(runs)[::3])
    assert code == 0
    assert "two-sided" not in text
    assert "±" not in text


def test_what_cannot_be_compared_is_said():
    """p was 1 where there is none, and the survivors' interval stood beside a test of all."""
    results = [
        {"seed": seed, "metrics": {"test_accuracy": value}}
        for values in ([0.5, 0.5, 0.5, 0.5], [0.6, 0.7, None, 0.65])
        for seed, value in enumerate(values)
    ]
    groups = {"A": range(4), "B": range(4, 8)}
    results[6]["metrics"] = {"test_accuracy": math.nan}
    (said,) = _tests(groups, results, "test_accuracy")
    assert "B against A, ahead by +0.1500" in said
    assert "3 pairs of numbers" in said
    assert "runs without a number 1 : 0" in said
    assert "signed ranks of 4 pairs" in said
    same = {"A": range(2), "B": range(2)}
    (said,) = _tests(same, results, "test_accuracy")
    assert "two-sided p none" in said


@pytest.mark.parametrize(
    ("metric", "direction"),
    [
        ("test_accuracy", True), ("client_validation_accuracy_worst10", True),
        ("client_accuracy_jain", True), ("client_accuracy_angle", False), ("upper_gap", False),
        ("client_loss_worst", False), ("joules", False), ("seconds_client", False),
        ("malicious_weight", False), ("dual_effective", None), ("effective_clients", None),
        ("policy_correlation", None),
    ],
)  # fmt: skip
def test_which_way_a_metric_is_better(metric, direction):
    assert more_is_better(metric) is direction
