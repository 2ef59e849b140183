"""Sweeps that were killed, interrupted or moved: what --resume goes on with, and what it refuses."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pandas as pd
import pytest

from orchestrator.config import load
from orchestrator.errors import UserError
from orchestrator.results.checkpoint import save
from orchestrator.results.run_folder import RunFolder
from orchestrator.rounds.experiment import Experiment
from sweeps.results import by_trial
from sweeps.trainable import Trial
from tests.running import finish
from tests.sweeps.plans import SMALL, results, sweep
from tests.sweeps.trials import Here, run_here, run_sweep

pytestmark = pytest.mark.usefixtures("ray_session")


def test_a_restored_trial_knows_its_last_metrics(tmp_path):
    """Killed between its last checkpoint and its end, it must not seem to report nothing."""
    done = finish(load(None, SMALL))
    save(tmp_path, done.t, done.state(), 1)
    fresh = SimpleNamespace(experiment=Experiment(load(None, SMALL)), latest={})
    Trial.load_checkpoint(fresh, tmp_path)
    assert fresh.latest["test_accuracy"] == done.records[-1]["test_accuracy"]


def test_a_folder_of_another_sweep(finished, tmp_path):
    with pytest.raises(UserError, match="exists and is not empty"):
        run_sweep(sweep(), finished)
    with pytest.raises(UserError, match="holds another sweep"):
        run_sweep(sweep(), finished, resume=True)
    with pytest.raises(UserError, match="is not the folder of a sweep"):
        run_sweep(sweep(), tmp_path, resume=True)


def run_in_shell(*words, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "sweeps.cli", *map(str, words)], text=True, **options
    )


def overlapping(folder, since):
    """Whether two trials reported in turn after a moment."""
    spans = []
    for file in folder.glob("*/result.json"):
        times = [
            t
            for line in file.read_text().splitlines()
            if (t := json.loads(line)["timestamp"]) > since
        ]
        spans += [(min(times), max(times))] if times else []
    return any(a < d and c < b for (a, b), (c, d) in itertools.combinations(spans, 2))


@pytest.mark.long
def test_killed_and_resumed_is_undisturbed(tmp_path):
    """kill -9 of the driver in mid-sweep, then --resume, two trials at once now: the same table to
    the last bit.
    """
    text = "set: [data.limit=400, data.clients=6, model=linear, rounds=60, cohort=4, local.steps=3]\naxes: {local.lr: [0.02, 0.1]}\nseeds: [0, 1]\nloggers: []\nreport_every: 1\n"
    (tmp_path / "s.yaml").write_text(text)
    out = tmp_path / "out"
    # a cluster of its own, whose processes end with the driver
    driver = run_in_shell(
        "sweep",
        tmp_path / "s.yaml",
        "--out",
        out,
        "--num-cpus",
        2,
        "--at-once",
        1,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        status, deadline = out / "status.json", time.time() + 200
        while time.time() < deadline:
            if (
                status.exists()
                and max(json.loads(status.read_text())["running"].values(), default=0) >= 12
            ):
                break
            time.sleep(0.05)
        assert len(list(out.glob("trials/*/result.json"))) < 4
    finally:
        os.kill(driver.pid, signal.SIGKILL)
        driver.wait()
    begun = time.time()
    resumed = run_in_shell(
        "sweep",
        tmp_path / "s.yaml",
        "--out",
        out,
        "--num-cpus",
        2,
        "--at-once",
        2,
        "--resume",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    printed, _ = resumed.communicate(timeout=280)
    assert resumed.returncode == 0, printed
    assert overlapping(out / "tune" / "trials", begun)
    found = results(out)
    assert len(found) == 4
    for (label, seed), result in found.items():
        settings = [
            "data.limit=400",
            "data.clients=6",
            "model=linear",
            "rounds=60",
            "cohort=4",
            "local.steps=3",
        ]
        alone = finish(load(None, [*settings, label, f"seed={seed}"]))
        assert result["weights_sha256"] == alone.weights_sha256()
        assert len(RunFolder(by_trial(out)[label, seed].folder.path).rounds()) == 60
        pd.testing.assert_series_equal(
            by_trial(out)[label, seed].folder.rounds()["test_accuracy"],
            pd.DataFrame(alone.records)["test_accuracy"],
        )


def test_a_sweep_that_ended_early_says_so(tmp_path, monkeypatch):
    """As Tune ends from Ctrl-C: as if all trials had been run."""
    every = Here.configs
    monkeypatch.setattr(Here, "configs", lambda self: itertools.islice(every(self), 1))
    with pytest.raises(UserError, match="interrupted with 3 of 4 trials to go; add --resume"):
        run_here(sweep(axes={"local.lr": [0.02, 0.1]}, seeds=[0, 1]), tmp_path / "s")


@pytest.mark.long
def test_an_interrupted_sweep_says_so(tmp_path):
    """Ctrl-C in the first trial of four: no table of half the trials, and nothing is chosen from
    them.
    """
    text = "set: [data.limit=400, data.clients=6, model=linear, rounds=400, cohort=4, local.steps=3]\naxes: {local.lr: [0.02, 0.1]}\nseeds: [0, 1]\nloggers: []\nreport_every: 1\n"
    (tmp_path / "s.yaml").write_text(text)
    out = tmp_path / "out"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    driver = run_in_shell(
        "sweep", tmp_path / "s.yaml", "--out", out, "--num-cpus", 2, "--at-once", 1, **pipes
    )  # fmt: skip
    status, deadline = out / "status.json", time.time() + 200
    while time.time() < deadline:
        if (
            status.exists()
            and max(json.loads(status.read_text())["running"].values(), default=0) >= 2
        ):
            break
        time.sleep(0.05)
    driver.send_signal(signal.SIGINT)
    printed, _ = driver.communicate(timeout=200)
    assert driver.returncode == 2, printed
    assert "of 4 trials to go; add --resume" in str(printed)
