"""Sweeps that were killed, interrupted or moved: what --resume goes on with, and what it refuses."""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pandas as pd
import pytest

from orchestrator.config import load
from orchestrator.errors import UserError
from orchestrator.files import write_sealed
from orchestrator.results.checkpoint import save
from orchestrator.results.run_folder import RunFolder
from orchestrator.rounds.experiment import Experiment
from sweeps import commands, tune_state
from sweeps.data import Shelf
from sweeps.home import Home
from sweeps.results import by_trial, stored, table
from sweeps.runner import _forget_unknown
from sweeps.status import Status
from sweeps.targets import Running, resolve
from sweeps.trainable import Trial, go_on
from sweeps.tuning import Chosen, Tuned
from tests.configs import small
from tests.running import finish
from tests.sweeps.plans import SMALL, results, sweep
from tests.sweeps.trials import Here, run_here, run_sweep, trials_here

pytestmark = pytest.mark.usefixtures("ray_session")


def test_a_restored_trial_knows_its_last_metrics(tmp_path):
    """Killed between its last checkpoint and its end, it must not seem to report nothing."""
    done = finish(load(None, SMALL))
    save(tmp_path, done.t, done.state(), 1)
    fresh = SimpleNamespace(
        experiment=Experiment(load(None, SMALL)), latest={}, folder=RunFolder(tmp_path)
    )
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
    text = "set: [data.limit=400, data.clients=6, model=linear, rounds=60, cohort=4, local.steps=3]\naxes: {local.lr: [0.02, 0.1]}\nseeds: [0, 1]\nloggers: []\nreport_every: 1\nmetric: test_accuracy\nchoose_on: test\n"
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
            if status.exists() and max(Status.read(out).running.values(), default=0) >= 12:
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
    with pytest.raises(UserError, match="interrupted with 3 of 4 trials to go; to go on: "):
        run_here(sweep(axes={"local.lr": [0.02, 0.1]}, seeds=[0, 1]), tmp_path / "s")


@pytest.mark.parametrize("cut", ["all of it", "a file"])
def test_without_tune_s_files_what_has_finished_is_kept(cut, tmp_path, monkeypatch, capsys):
    """Gone, or cut short by a kill in mid-write; drawn values would be drawn anew, beside the old."""
    every, step, stepped = Here.configs, Experiment.step, []
    monkeypatch.setattr(Here, "configs", lambda self: itertools.islice(every(self), 2))
    monkeypatch.setattr(Experiment, "step", lambda self: stepped.append(self.config) or step(self))
    grid = sweep(axes={"local.lr": [0.02, 0.1]}, seeds=[0, 1])
    drawn = sweep(axes={"local.lr": {"uniform": [0.01, 0.1]}}, samples=4)
    for one, place in ((grid, tmp_path / "grid"), (drawn, tmp_path / "drawn")):
        with pytest.raises(UserError, match="interrupted with 2 of 4"):
            run_here(one, place)
        if cut == "a file":
            (place / "tune" / "trials").mkdir(parents=True)
            (place / "tune" / "trials" / "tuner.pkl").write_bytes(b"\x80\x05")
    before = results(tmp_path / "grid")
    monkeypatch.setattr(Here, "configs", every)
    stepped.clear()
    run_here(grid, tmp_path / "grid", resume=True)
    assert "trials that have finished are kept" in capsys.readouterr().err.replace("\n", " ")
    assert len({(c.local.lr, c.seed) for c in stepped}) == 2
    after = results(tmp_path / "grid")
    assert len(after) == 4
    assert before.items() <= after.items()
    with pytest.raises(UserError, match=r"what it has drawn; .* with --reuse"):
        run_here(drawn, tmp_path / "drawn", resume=True)


def test_a_trial_that_was_interrupted_is_no_seed_of_a_table(tmp_path, monkeypatch):
    """It has left what it had, of fewer rounds; under a scheduler that is a trial's end."""
    monkeypatch.setattr(Here, "most", 1)
    for scheduler, left in (("fifo", 0), ("asha", 1)):
        plan = sweep(axes={"local.lr": [0.1]}, report_every=1, scheduler=scheduler)
        run_here(plan, tmp_path / scheduler)
        (place,) = (tmp_path / scheduler / "trials").iterdir()
        assert RunFolder(place).ending()["status"] == "stopped"
        assert len(table(tmp_path / scheduler)) == left


@pytest.mark.parametrize("kind", ["", *tune_state.KEPT, tune_state.COMING[0]])
def test_tune_goes_on_only_from_whole_files(kind, finished, tmp_path):
    known = tmp_path / "trials"
    shutil.copytree(finished / "tune" / "trials", known)
    if not kind:
        assert tune_state.goes_on(str(known))
        return
    (file,) = known.glob(kind)
    file.write_bytes(file.read_bytes()[:-1])
    assert not tune_state.goes_on(str(known))
    file.unlink()
    assert not tune_state.goes_on(str(known))


@pytest.mark.long
@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_sweep_says_so(tmp_path, sign):
    """SIGTERM, or Ctrl-C, in the first trial of four: no table of half the trials, and nothing is
    chosen from them.
    """
    text = "set: [data.limit=400, data.clients=6, model=linear, rounds=400, cohort=4, local.steps=3]\naxes: {local.lr: [0.02, 0.1]}\nseeds: [0, 1]\nloggers: []\nreport_every: 1\nmetric: test_accuracy\nchoose_on: test\n"
    (tmp_path / "s.yaml").write_text(text)
    out = tmp_path / "out"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    driver = run_in_shell(
        "sweep", tmp_path / "s.yaml", "--out", out, "--num-cpus", 2, "--at-once", 1, **pipes
    )  # fmt: skip
    status, deadline = out / "status.json", time.time() + 200
    while time.time() < deadline:
        if status.exists() and max(Status.read(out).running.values(), default=0) >= 2:
            break
        time.sleep(0.05)
    driver.send_signal(sign)
    printed, _ = driver.communicate(timeout=200)
    assert driver.returncode == 130, printed
    assert "SIGTERM received" not in str(printed)
    assert "of 4 trials to go; to go on: " in str(printed)


@pytest.mark.long
def test_a_pretraining_that_is_ended_leaves_its_policy(tmp_path):
    """Ray's own handler of SIGTERM aborted it, and an empty folder was in the way ever after."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    agent = "{name: ddpg, preset: paper}"
    driver = run_in_shell(
        "agent", "pretrain", tmp_path / "policy", "--agent", agent, "--rounds", 2000, **pipes
    )
    lines = []
    while not any("round 200/" in line for line in lines):
        lines.append(next(driver.stdout))
    driver.send_signal(signal.SIGTERM)
    printed, _ = driver.communicate(timeout=200)
    assert driver.returncode == 130, printed
    assert "SIGTERM received" not in str(printed)
    assert "stopped after round " in str(printed)
    assert (tmp_path / "policy" / "policy.safetensors").is_file()


LOSSES = {
    "a trial": lambda folder: shutil.rmtree(sorted((folder / "trials").iterdir())[0]),
    "its manifest": lambda folder: next(folder.glob("trials/*/manifest.sha256")).unlink(),
    "its name": lambda folder: next(folder.glob("trials/*")).rename(folder / "trials" / "mine"),
    "all trials": lambda folder: shutil.rmtree(folder / "trials"),
    "the status": lambda folder: (folder / "status.json").unlink(),
}


@pytest.mark.parametrize("lost", LOSSES)
def test_a_lost_trial_is_noticed(finished, tmp_path, lost):
    """By --resume, which must not seem to have all, by tables and by the status."""
    shutil.copytree(finished, tmp_path / "s")
    LOSSES[lost](tmp_path / "s")
    (tmp_path / "one.yaml").write_text("{name: sweep, axes: {local.lr: [0.1]}}")
    mine = sweep(axes={"local.lr": [0.02, 0.1], "algorithm": ["fedavg", "scaffold"]}, seeds=[0, 1])
    looks = [
        lambda: run_sweep(mine, tmp_path / "s", resume=True),
        lambda: resolve(str(tmp_path / "one.yaml"), "reduced").show(
            tmp_path / "s", "terminal", None
        ),
        lambda: commands.show_status(tmp_path / "s"),
    ]
    for look in looks[: 2 if lost == "the status" else 3]:
        with pytest.raises(UserError, match=r"it has lost .*trials"):
            look()


def test_no_trial_writes_through_a_link(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "s")
    one = next((tmp_path / "s" / "trials").iterdir())
    one.rename(tmp_path / "elsewhere")
    one.symlink_to(tmp_path / "elsewhere")
    mine = sweep(axes={"local.lr": [0.02, 0.1], "algorithm": ["fedavg", "scaffold"]}, seeds=[0, 1])
    with pytest.raises(UserError, match="is a link to a folder elsewhere"):
        run_sweep(mine, tmp_path / "s", resume=True)


def test_an_edited_plan_is_damaged(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "s")
    plan = tmp_path / "s" / "sweep.json"
    whole = plan.read_text()
    for text in (whole.replace('"tail": 1', '"tail": 2'), '{"name":"sweep"}', whole[:-9], "[]"):
        assert text != whole
        plan.write_text(text)
        with pytest.raises(UserError, match=r"cannot read .*sweep\.json"):
            stored(tmp_path / "s")


def test_a_tuning_that_says_nothing_is_damaged(tmp_path):
    """It would be a final stage that nobody has tuned."""
    Tuned((Chosen("FedAvg", "", ("local.lr=0.1",), 0.5, 2, (), ()),)).write(tmp_path)
    assert Tuned.read(tmp_path).of("FedAvg", "x") == ("local.lr=0.1",)
    for text in ("[]", '{"sha256": "", "content": []}'):
        (tmp_path / "tuned.json").write_text(text)
        with pytest.raises(UserError, match=r"cannot read .*tuned\.json"):
            Tuned.read(tmp_path)


def test_a_trial_goes_on_with_its_own_data_only(tmp_path):
    """Of a sweep that is resumed when its dataset is another."""
    begun = finish(load(None, [*SMALL, "rounds=2"]))
    state = begun.state() | {"origin": {**begun.origin, "data_sha256": "another"}}
    save(tmp_path, begun.t, state, 1)
    trial = Trial.__new__(Trial)
    trial.experiment, trial.latest, trial.folder = (
        Experiment(load(None, SMALL)),
        {},
        RunFolder(tmp_path),
    )
    trial.load_checkpoint(tmp_path)
    assert trial.experiment is None
    assert "are not those that the run was begun with" in trial.problem


def test_a_sweep_goes_on_with_its_own_data_only(finished, tmp_path):
    """Else its trials would be of different data, and its table say nothing of it."""
    shutil.copytree(finished, tmp_path / "s")
    known = json.loads((tmp_path / "s" / "data.json").read_text())["content"]
    assert len(known) == 1
    write_sealed(tmp_path / "s" / "data.json", dict.fromkeys(known, "another"))
    mine = sweep(axes={"local.lr": [0.02, 0.1], "algorithm": ["fedavg", "scaffold"]}, seeds=[0, 1])
    with pytest.raises(UserError, match="is not what the sweep was begun with"):
        run_sweep(mine, tmp_path / "s", resume=True)


@pytest.mark.parametrize("option", ["data.partition={name: file, file: FILE}", "algorithm={name: "
    "fedaa, agent: {name: ddpg, policy: FILE}}"])  # fmt: skip
def test_files_that_configs_name_are_those_of_the_beginning(option, tmp_path):
    """Trials to come were dealt another partition, beside those that had ended."""
    file, folder = tmp_path / "p", RunFolder(tmp_path / "s")
    file.mkdir()
    (file / "a").write_text("one")
    config = load(None, [*SMALL, option.replace("FILE", str(file))])
    folder.make()
    Shelf.of([config]).leave(folder)
    Shelf.of([config]).require_known(folder)
    (file / "a").write_text("two")
    with pytest.raises(UserError, match=rf"{file} is not what the sweep was begun with"):
        Shelf.of([config]).require_known(folder)


def test_what_tune_does_not_remember_is_made_again(finished, tmp_path):
    """Under optuna with another name: it stayed, and counted as a further draw."""
    shutil.copytree(finished / "tune", tmp_path / "tune")
    known = tune_state.known_trials(str(tmp_path / "tune" / "trials"))
    assert len(known) == 8
    one, choice = sorted(known)[0], "local.lr=0.1-seed-1-0123456789ab"
    mine, lost = tmp_path / "trials" / f"{choice}-{one}", tmp_path / "trials" / f"{choice}-other"
    others = [tmp_path / "trials" / name for name in (choice, "my-notes")]
    for path in (mine, lost, *others):
        path.mkdir(parents=True)
    _forget_unknown(Home(tmp_path), known)
    assert sorted((tmp_path / "trials").iterdir()) == sorted([mine, *others])


def test_a_sweep_in_which_nothing_succeeds_does_not(tmp_path):
    (tmp_path / "s.yaml").write_text(f"set: {[*SMALL, 'local.lr=1e30', 'model=mlp']}")
    target = resolve(str(tmp_path / "s.yaml"), "smoke")
    with trials_here(), pytest.raises(UserError, match=r"all 1 trials failed: .*round 1"):
        target.run(str(tmp_path / "out"), Running())


def test_a_state_of_other_data_or_of_another_shape_is_not_taken_over():
    """Under pbt the trial with the state of one that had trained on its test rows was the best."""
    donor = Experiment(small("local.lr=0.1"))
    donor.step()
    state = donor.state()
    other_rate = Experiment(small("local.lr=0.2"))
    go_on(other_rate, 1, state, "there")
    assert other_rate.t == 1
    with pytest.raises(UserError, match="is of other data"):
        go_on(Experiment(small("local.lr=0.2", "seed=7")), 1, state, "there")
    with pytest.raises(UserError, match="is none of its settings"):
        go_on(Experiment(small("model={name: mlp, hidden: [5]}")), 1, state, "there")
