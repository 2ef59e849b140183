"""Schedulers after --resume: what they had heard, and whose turn it is."""

import os
import pickle
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from orchestrator.results.run_folder import RunFolder
from sweeps.plan import Scheduler
from sweeps.results import by_trial
from sweeps.schedulers import Memory, Population
from sweeps.status import Status

METRIC, ROUNDS = "accuracy", 9


class OneTrial:
    """What schedulers look at of Tune's trials."""

    def __init__(self, name):
        self.trial_id, self.experiment_tag, self.status = name, name, "PENDING"
        manager = SimpleNamespace(latest_checkpoint_result=None, checkpoint_config=None)
        self.run_metadata = SimpleNamespace(checkpoint_manager=manager)

    def is_finished(self):
        return self.status == "TERMINATED"


def started(name, trials):
    scheduler = Scheduler(name=name, grace=1, reduction=3).start(ROUNDS, {})
    scheduler.set_search_properties(METRIC, "max")
    controller = SimpleNamespace(search_alg=None, get_live_trials=list, get_trials=list)
    for trial in trials:
        scheduler.on_trial_add(controller, trial)
    return scheduler, Memory(scheduler, METRIC), controller


def goes_on(trial, quality, since, scheduler, memory, controller, until=ROUNDS):
    """A trial from the round after ``since`` on; the round of its end."""
    for at in range(since + 1, until + 1):
        report = {"round": at, METRIC: quality + at / 100}
        verdict = scheduler.on_trial_result(controller, trial, report)
        memory.on_trial_result(0, [], trial, report)
        if verdict == "STOP" or at == ROUNDS:
            trial.status = "TERMINATED"
            scheduler.on_trial_complete(controller, trial, report)
            return at
    return until


@pytest.mark.parametrize("name", ["asha", "median"])
def test_a_resumed_scheduler_decides_as_an_undisturbed_one(name):
    """Twelve trials one after the other; the sixth is killed in round 7, and begins again at 4."""
    qualities = [0.5, 0.9, 0.3, 0.8, 0.2, 0.92, 0.88, 0.1, 0.95, 0.4, 0.65, 0.85]

    def undisturbed():
        trials = [OneTrial(str(i)) for i in range(12)]
        whole = started(name, trials)
        return [goes_on(t, q, 0, *whole) for t, q in zip(trials, qualities, strict=True)]

    trials = [OneTrial(str(i)) for i in range(12)]
    first = started(name, trials)
    ends = [goes_on(t, q, 0, *first) for t, q in zip(trials[:5], qualities[:5], strict=True)]
    assert goes_on(trials[5], qualities[5], 0, *first, until=7) == 7
    trials[5].run_metadata.checkpoint_manager.latest_checkpoint_result = SimpleNamespace(
        metrics={"round": 4}, checkpoint="a checkpoint"
    )
    state = pickle.loads(pickle.dumps(first[1].get_state()))
    again = started(name, trials)
    again[1].set_state(state)
    again[1].on_step_begin(0, trials)
    ends.append(goes_on(trials[5], qualities[5], 4, *again))
    ends += [goes_on(t, q, 0, *again) for t, q in zip(trials[6:], qualities[6:], strict=True)]
    assert ends == undisturbed()
    assert ROUNDS in ends
    assert min(ends) < ROUNDS


def test_who_has_taken_over_a_state_waits_for_the_one_it_is_of():
    """Both stand at one round; Tune takes the first of its list."""
    follower, donor = OneTrial("follower"), OneTrial("donor")
    scheduler = Population(
        time_attr="round", metric=METRIC, mode="max", hyperparam_mutations={"lr": [1, 2]}
    )
    scheduler._trial_state = {
        trial: SimpleNamespace(last_train_time=8, last_perturbation_time=8)
        for trial in (follower, donor)
    }
    controller = SimpleNamespace(get_trials=lambda: [follower, donor])
    assert scheduler.choose_trial_to_run(controller) is follower
    for trial in (donor, follower):
        scheduler.on_trial_result(controller, trial, {"round": 9, METRIC: 0.5})
    assert scheduler.choose_trial_to_run(controller) is donor
    scheduler._trial_state[follower].last_train_time = 4
    assert scheduler.choose_trial_to_run(controller) is follower


@pytest.mark.long
def test_a_killed_sweep_under_asha_stops_whom_it_would_have_stopped(tmp_path):
    """kill -9 after the first trials, which are the best: those to come are stopped early, as they
    are by one that was not killed.
    """
    (tmp_path / "s.yaml").write_text(
        "set: [data.limit=400, data.clients=6, model=linear, rounds=27, cohort=4, local.steps=3]\n"
        "axes: {local.lr: [0.02, 0.01, 0.003, 0.001, 3.0e-4, 1.0e-4, 3.0e-5, 1.0e-5]}\n"
        "loggers: []\nmetric: test_loss\nchoose_on: test\nscheduler: {name: asha, grace: 1}\n"
    )
    words = [
        sys.executable, "-m", "sweeps.cli", "sweep", str(tmp_path / "s.yaml"), "--num-cpus", "1",
        "--at-once", "1",
    ]  # fmt: skip
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run([*words, "--out", str(tmp_path / "whole")], check=True, timeout=200, **quiet)
    out, deadline = tmp_path / "killed", time.time() + 200
    driver = subprocess.Popen([*words, "--out", str(out)], **quiet)
    try:
        while time.time() < deadline:
            if (out / "status.json").exists() and Status.read(out).ended >= 3:
                break
            time.sleep(0.05)
    finally:
        os.kill(driver.pid, signal.SIGKILL)
        driver.wait()
    assert Status.read(out).ended < 8
    subprocess.run([*words, "--out", str(out), "--resume"], check=True, timeout=200, **quiet)
    rounds = {
        place.name: {label: len(RunFolder(r.folder.path).rounds()) for label, r in found.items()}
        for place in (tmp_path / "whole", out)
        if (found := by_trial(place))
    }
    assert rounds["killed"] == rounds["whole"]
    assert sum(rounds["whole"].values()) < 0.8 * 27 * 8
