"""Runs side by side: those that differ in the seed alone are one column, and are tested in pairs."""

import re

import numpy as np
import pytest
from scipy import stats

from orchestrator.results.run_folder import RunFolder
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
    said = re.search(r"two-sided p ([\d.]+)", text)
    assert float(said[1]) == pytest.approx(expected.pvalue, abs=1e-4)
    interval = expected.confidence_interval(0.95)
    assert f"[{interval.low:+.4f}, {interval.high:+.4f}] (95 %" in text


def test_single_runs_are_not_tested(runs):
    code, text = here("compare", *list(runs)[::3])
    assert code == 0
    assert "two-sided" not in text
    assert "±" not in text
