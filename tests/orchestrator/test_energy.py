"""The energy and channel model."""

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

from orchestrator.config import load
from orchestrator.config.energy import Energy
from orchestrator.errors import UserError
from tests.configs import small
from tests.orchestrator.test_cli import here
from tests.running import finish


def test_shannon_rate():
    assert Energy(bandwidth_hz=1e6, snr_db=0.0).rate() == pytest.approx(1e6)
    assert Energy(bandwidth_hz=2e6, snr_db=10 * np.log10(3)).rate() == pytest.approx(4e6)


def test_joules_by_hand():
    """Client 0: 10 steps of 2 mJ and 1 MB at 1 Mb/s and 0.5 W = 0.02 + 4 J; client 1 spends half on
    both.
    """
    model = Energy(
        step_joules=(0.002, 0.001), transmit_watts=(0.5, 0.25), bandwidth_hz=1e6, snr_db=0.0
    )
    np.testing.assert_allclose(
        model.joules(np.array([10, 10]), np.array([1_000_000, 1_000_000])), [4.02, 2.01]
    )


@pytest.mark.parametrize(
    "bad",
    [
        {"bandwidth_hz": 0},
        {"step_joules": -1.0},
        {"transmit_watts": (0.1, -1)},
        {"snr_db": -400},
        {"snr_db": float("nan")},
        {"step_joules": float("inf")},
    ],
)
def test_impossible_values(bad):
    with pytest.raises(ValidationError, match=r"should be (greater than|a finite)"):
        Energy(**bad)


def test_joules_are_finite_within_the_bounds():
    """At the worst channel that is allowed, and free at the best: 1 + SNR is 1 in float64 there."""
    worst = Energy(step_joules=1e9, transmit_watts=1e9, bandwidth_hz=1e-3, snr_db=-100)
    assert np.isfinite(worst.joules(np.array([1e9]), np.array([1e18]))).all()
    assert Energy(bandwidth_hz=1.0, snr_db=-100).rate() == pytest.approx(1e-10 / np.log(2))


def test_lists_must_fit_the_clients():
    with pytest.raises(UserError, match=r"energy\.snr_db has 2 values for 30 clients"):
        load(None, ["energy.snr_db=[1, 2]"])


def test_an_experiment_spends_what_its_ledger_says():
    experiment = finish(
        small("energy={snr_db: 0, bandwidth_hz: 1000000, step_joules: 0.01, transmit_watts: 1.0}")
    )
    rows = experiment.client_rows[-1]
    assert rows["steps"].sum() == 3 * 4 * 3
    np.testing.assert_allclose(rows["joules"], 0.01 * rows["steps"] + 8e-6 * rows["bytes_up"])


def test_best_local_steps_by_channel(tmp_path):
    runs = []
    for steps in (2, 30):
        out = tmp_path / f"tau{steps}"
        words = [
            "--set",
            "data.limit=2000",
            "--set",
            "model=linear",
            "--set",
            f"local.steps={steps}",
            "--set",
            "rounds=40",
            "--set",
            "local.lr=0.02",
            "--set",
            "data.partition=iid",
        ]
        assert here("run", *words, "--in-process", "--out", out)[0] == 0
        runs.append(out)
    code, text = here(
        "energy",
        *runs,
        "--target",
        0.55,
        "--snr",
        "0,20",
        "--bandwidth",
        "1e3,1e9",
        "--plot",
        tmp_path / "map.png",
    )
    assert code == 0, text
    table = pd.read_csv(tmp_path / "map.csv")
    assert len(table) == 8
    best = table.loc[table.groupby(["snr_db", "bandwidth_hz"])["joules"].idxmin()].set_index(
        ["snr_db", "bandwidth_hz"]
    )["steps"]
    assert best[0, 1e3] == 30, "sending is dear: compute more, talk less"
    assert best[20, 1e9] == 2, "sending is cheap: stop computing"
    assert (tmp_path / "map.png").exists()
    assert here("energy", *runs, "--target", 0.999)[0] == 2
    assert here("energy", runs[0], runs[0])[0] == 2
    assert here("energy", *runs, "--snr", "a")[0] == 2
    code, text = here("energy", *runs, "--target", 0.55, "--snr", "nan")
    assert (code, "--snr: 'nan' has a number that is not finite" in text) == (2, True)
