"""Sweeps on Ray Tune: results, bits, failures, early stopping, and what is refused before a trial runs."""

import importlib.util
import itertools
import json
import math
import re
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from ray.tune.tune import _setup_signal_catching

import fedorch
from orchestrator.analysis.names import by_config
from orchestrator.clients import plane
from orchestrator.config import load
from orchestrator.errors import UserError
from orchestrator.results.run_folder import RunFolder
from orchestrator.rounds.experiment import Experiment
from sweeps import cli, commands
from sweeps.choice import Choice, Planned
from sweeps.home import Home
from sweeps.results import Result, by_trial, numbered, stored, table, table_of
from sweeps.runner import _signals_given_back
from sweeps.status import Status
from sweeps.targets import Running, resolve
from sweeps.trainable import WRITTEN, Trial
from sweeps.watch import Watcher
from tests.orchestrator.test_cli import here
from tests.running import finish
from tests.sets import quick
from tests.sweeps.plans import SMALL, results, sweep
from tests.sweeps.trials import EITHER, Here, run_here, run_sweep

pytestmark = pytest.mark.usefixtures("ray_session")


def test_every_trial_is_the_run_of_its_config(finished):
    found = results(finished)
    assert len(found) == 8
    for (label, seed), result in found.items():
        alone = finish(load(None, [*SMALL, *label.split(", "), f"seed={seed}"]))
        assert result["weights_sha256"] == alone.weights_sha256()
        assert result["status"] == "finished"


@pytest.mark.parametrize("seeds", quick([[1], [0, 1]], [1]), ids=len)
def test_trials_whose_clients_are_actors_give_the_same_bits(seeds, finished, tmp_path):
    settings = [*SMALL, "local.lr=0.1", "resources.actors=2"]
    run_sweep(sweep(set=settings, seeds=seeds, at_once=2), tmp_path / "s")
    found = results(tmp_path / "s")
    assert len(found) == len(seeds)
    for (_, seed), there in found.items():
        assert (
            there["weights_sha256"]
            == results(finished)["local.lr=0.1, algorithm=fedavg", seed]["weights_sha256"]
        )
        assert there["actors"] == 2


@pytest.mark.parametrize("run_it", EITHER)
def test_a_trial_that_cannot_go_on_is_reported_while_the_others_do(run_it, tmp_path):
    run_it(sweep(set=[*SMALL, "model=mlp"], axes={"local.lr": [0.1, 1e30]}), tmp_path / "s")
    by_lr = {label: r for (label, _), r in by_trial(tmp_path / "s").items()}
    assert by_lr["local.lr=0.1"].status == "finished"
    assert by_lr["local.lr=1.0e+30"].status == "failed"
    assert (
        "not finite" in by_lr["local.lr=1.0e+30"].error or "NaN" in by_lr["local.lr=1.0e+30"].error
    )
    assert Status.read(tmp_path / "s").failed == 1
    assert table(tmp_path / "s")["failed"].sum() == 1


def test_a_trial_that_diverged_is_shown_as_such(tmp_path, capsys):
    """One that finished (keep) beside one that failed (fail) by it, in table, status and cells; the
    loss of the first is no number, and not that of the round before.
    """
    policies = {"axes": {"non_finite": ["keep", "fail"]}, "metric": "test_loss", "mode": "min"}
    run_here(sweep(set=[*SMALL, "local.lr=1e38"], **policies), tmp_path)
    data = table(tmp_path).set_index("trial")
    assert data["diverged"].tolist() == [1, 1]
    assert data.loc["non_finite=fail", "failed"] == 1
    assert data["mean"].isna().all()
    commands.show_status(tmp_path)
    assert "1 failed, 2 diverged" in capsys.readouterr().out


@pytest.mark.parametrize("run_it", EITHER)
def test_a_metric_that_nobody_reports(run_it, tmp_path):
    run_it(sweep(metric="test_acuracy", mode="max"), tmp_path / "s")
    (result,) = by_trial(tmp_path / "s").values()
    assert result.status == "failed"
    assert "does not report 'test_acuracy'; did you mean 'test_accuracy'?" in result.error


def test_asha_stops_bad_trials_early(tmp_path):
    plan = sweep(
        set=[*SMALL, "rounds=9"],
        axes={"local.lr": [0.01, 0.003, 0.001, 3e-4, 1e-4, 3e-5]},
        metric="test_loss",
        mode="min",
        scheduler={"name": "asha", "grace": 1, "reduction": 3},
        seeds=[1],
        at_once=1,
    )
    run_sweep(plan, tmp_path / "s")
    found = by_trial(tmp_path / "s")
    rounds = {label: len(r.folder.rounds()) for (label, _), r in found.items()}
    assert rounds["local.lr=0.01"] == 9
    assert sum(rounds.values()) < 0.7 * 9 * len(rounds)
    assert {r.status for r in found.values()} == {"finished", "stopped"}


@pytest.mark.long
@pytest.mark.parametrize(
    "scheduler", [{"name": "median", "grace": 1}, {"name": "pbt", "interval": 2}]
)
def test_other_schedulers(tmp_path, scheduler):
    drawn = {
        "local.lr": {"uniform": [0.05, 0.06]}, "local.batch_size": {"choice": [8, 16]}
    }  # fmt: skip
    plan = sweep(
        set=[*SMALL, "rounds=6"],
        axes=drawn,
        samples=3,
        scheduler=scheduler,
        checkpoint_every=1,
        at_once=3,
    )
    run_sweep(plan, tmp_path / "s")
    _, found = stored(tmp_path / "s")
    ended = [r.status for r in found]
    # what trials of pbt have left behind is no line of the table
    assert ended == 3 * ["finished"] or (scheduler["name"] != "pbt" and "finished" in ended)
    assert max(len(r.folder.rounds()) for r in found) == 6
    # nobody trains what was not asked for: pbt multiplies by 1.2 and 0.8
    assert all(0.05 <= r.folder.config().local.lr <= 0.06 for r in found)
    assert {r.folder.config().local.batch_size for r in found} <= {8, 16}


@pytest.mark.parametrize("run_it", EITHER)
def test_drawn_axes(run_it, tmp_path):
    plan = sweep(axes={"local.lr": {"loguniform": [0.01, 1.0]}}, samples=2, seeds=[5, 6])
    run_it(plan, tmp_path / "s")
    _, found = stored(tmp_path / "s")
    rates = [r.drawn["local.lr"] for r in found]
    assert len(set(rates)) == 2
    # each of them on every seed
    assert {(r.drawn["local.lr"], r.seed) for r in found} == {*itertools.product(rates, (5, 6))}
    assert table(tmp_path / "s")["count"].tolist() == [2, 2]
    assert all(0.01 <= r <= 1 for r in rates)
    for r in found:
        assert r.folder.config().local.lr == r.drawn["local.lr"]


@pytest.mark.long
def test_optuna(tmp_path):
    pytest.importorskip("optuna")
    plan = sweep(
        axes={"local.lr": {"loguniform": [0.01, 1.0]}, "cohort": [2, 4]},
        samples=3,
        searcher="optuna",
        at_once=1,
    )
    run_sweep(plan, tmp_path / "s")
    _, found = stored(tmp_path / "s")
    assert len(found) == 3
    assert all(r.folder.config().cohort == r.drawn["cohort"] for r in found)


@pytest.mark.long
def test_mlflow(tmp_path, monkeypatch):
    tracking = pytest.importorskip("mlflow.tracking")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    run_sweep(sweep(axes={"local.lr": [0.02, 0.1]}, loggers=["mlflow"]), tmp_path / "s")
    client = tracking.MlflowClient(f"sqlite:///{tmp_path}/s/mlflow.db")
    runs = client.search_runs([client.get_experiment_by_name("sweep").experiment_id])
    logged = {run.data.params["planned/label"]: run.data.metrics["test_accuracy"] for run in runs}
    assert logged == {
        label: r.folder.rounds()["test_accuracy"].iloc[-1]
        for (label, _), r in by_trial(tmp_path / "s").items()
    }


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # Ray's logger, half made
@pytest.mark.parametrize("name", ["mlflow", "wandb"])
def test_a_missing_package_is_told_before_anything_is_written(tmp_path, name):
    if importlib.util.find_spec(name) is not None:
        pytest.skip(f"{name} is installed")
    with pytest.raises(UserError, match=rf"(?i)loggers: .*{name}"):
        run_sweep(sweep(loggers=[name]), tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_too_large_a_trial_is_refused_at_once(tmp_path):
    with pytest.raises(UserError, match="a trial needs 3 GPU, and the whole cluster has 2"):
        run_sweep(
            sweep(set=[*SMALL, "resources.gpus_per_actor=1", "resources.actors=3"]),
            tmp_path / "s",
        )
    with pytest.raises(UserError, match=r"a trial needs 5 x 0\.4 GPU, of which 2 GPUs hold 4"):
        run_sweep(
            sweep(set=[*SMALL, "resources.gpus_per_actor=0.4", "resources.actors=5"]),
            tmp_path / "s",
        )
    assert not (tmp_path / "s").exists()


def test_trials_that_ask_for_different_things_are_refused(tmp_path):
    for values in ("resources.gpus_per_actor=[0, 0.5]", "resources.actors=[1, 2]"):
        path, _, grid = values.partition("=")
        with pytest.raises(UserError, match="ask the cluster for the same"):
            run_sweep(sweep(axes={path: json.loads(grid)}), tmp_path / "s")
    with pytest.raises(ValueError, match="no random axes"):
        sweep(samples=3)


def test_folders_are_named_by_what_is_in_them():
    one = Choice(Planned("local.lr=0.1, algorithm={name: fedprox, mu: 0.1}", (), 3))
    said = r"local\.lr=0\.1-algorithm=name-fedprox-mu-0\.1-seed-3-[0-9a-f]{12}"
    assert re.fullmatch(said, one.name(""))
    assert one.is_at(Path(one.name("")))
    assert not one.is_at(Path(f"copy-of-{one.name('')}"))
    # whatever a label is: a name of a folder, in which no other one is
    odd = Choice(Planned("../α/" + "x" * 300, (), 0), {"local.lr": 0.5}).name("ab_1")
    assert re.fullmatch(r"x+-[0-9a-f]{12}-ab_1", odd)
    assert len(odd) < 120


@pytest.mark.parametrize("run_it", EITHER)
def test_trials_that_draw_the_same_have_folders_of_their_own(run_it, tmp_path):
    run_it(sweep(axes={"local.lr": {"choice": [0.1]}}, samples=2), tmp_path / "s")
    _, found = stored(tmp_path / "s")
    assert [r.status for r in found] == ["finished", "finished"]


def test_a_trial_with_a_share_of_a_gpu_trains_there(monkeypatch):
    """There is none here, so the trainer is only asked where it would work."""
    devices = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", devices.append)
    monkeypatch.setattr(plane, "BlockHost", lambda world: devices.append(world.device))
    planned = Planned("", (*SMALL, "resources.gpus_per_actor=0.25"), 0)
    config = Choice(planned).config({})
    world = Experiment(load(None, SMALL)).world
    devices.clear()
    Trial._plane(SimpleNamespace(), world, config)
    assert devices == [0.25, "cuda"]


def test_a_trial_that_fails_by_a_fault_leaves_no_results_of_its_own():
    """It ended with the rounds that it had done, and would stand in the table as one that a
    scheduler stopped.
    """
    trial = SimpleNamespace(
        experiment=object(),
        twin=None,
        written=False,
        postponed="",
        _advance=lambda experiment: 1 / 0,
    )
    with pytest.raises(ZeroDivisionError):
        Trial.step(trial)
    assert trial.written


def test_what_is_left_goes_by_the_rounds_that_are_done(tmp_path):
    """Also while the first trials are under way."""
    plan = sweep(axes={"local.lr": [0.1, 0.2]})
    watcher = Watcher(Home(tmp_path / "s"), 4, "test_accuracy", "max")
    watcher.home.folder.make()
    assert watcher.status().seconds_left is None
    trials = [
        SimpleNamespace(
            trial_id=str(i), config=Choice(replace(plan.planned()[0], seed=i)).as_trial()
        )
        for i in range(2)
    ]
    watcher.begun -= 60
    for trial, done in zip(trials, (0.5, 0.25), strict=True):
        watcher.on_trial_start(1, [], trial)
        watcher.on_trial_result(1, [], trial, {"round": 1, "part_done": done})
    assert watcher.status().seconds_left == pytest.approx(60 / 0.75 * 3.25, rel=0.05)
    # as somebody else sees them, by what they are and where
    first, second = watcher.status().running
    assert first.startswith("local.lr=0.1, seed 0 (")
    assert second.startswith("local.lr=0.1, seed 1 (")


def test_a_folder_that_is_taken_is_refused_before_ray_starts(tmp_path, monkeypatch):
    assert cli.sweep  # which the command knows from then on
    monkeypatch.setattr("orchestrator.cluster.connection.connected", None)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "note").write_text("mine")
    code, text = here("sweep", "drdm/table3", "--budget", "smoke", "--out", tmp_path / "taken")
    assert code == 2
    assert "it exists and is not empty" in text
    code, text = here("sweep", "drdm/table3", "--out", tmp_path / "none", "--resume")
    assert code == 2
    assert "no sweep" in text


def test_one_entry_is_listed_with_all_that_it_runs():
    assert cli.sweep
    code, text = here("sweep", "drdm/table3", "--list")
    assert code == 0, text
    for word in ("SCAFF-PD", "algorithm.dual_lr", "81 values from 0.02 to 4", "α=0.7 worst"):
        assert word in text
    published = " ".join(text[text.index("published") :].replace("│", " ").split())
    assert "DRDM α=0.1 average: 90.31; α=0.1 worst: 84.81" in published
    assert "it is full" in text
    code, text = here("sweep", "drdm/table33", "--list")
    assert code == 2
    assert "did you mean 'drdm/table3'" in text
    code, text = here("describe", "drdm/table3")
    assert code == 2
    assert "fedorch sweep --list" in text


def test_an_own_sweep_is_listed_before_it_runs(tmp_path):
    file = tmp_path / "mine.yaml"
    text = """
        name: mine
        axes:
          algorithm: [fedavg, fedprox]
          algorithm.mu: {grid: [0.01, 0.1], when: {algorithm: fedprox}}
          local.lr: {loguniform: [0.01, 1.0]}
        cells: [{label: few, settings: [data.clients=10]}]
        seeds: [3, 4]
        samples: 5
        metric: validation_loss
        """
    file.write_text(text)
    code, text = here("sweep", file, "--list", "--set", "rounds=7")
    assert code == 0, text
    for word in (
        "trials 30, of seeds 3, 4", "0.01, 0.1 (where algorithm is fedprox)", "rounds=7",
        "loguniform: 0.01, 1", "data.clients=10", "validation_loss, last round: less is better",
    ):  # fmt: skip
        assert word in text
    told = json.loads(here("sweep", file, "--list", "--json")[1])
    assert (told["id"], told["trials"], told["axes"]["algorithm.mu"]["grid"]) == (
        "mine",
        30,
        [0.01, 0.1],
    )
    file.write_text(file.read_text().replace("fedprox]", "fedprx]"))
    code, text = here("sweep", file, "--list")
    assert code == 2
    assert "no grid above it has" in text


def test_a_trial_whose_process_died_is_in_the_table(tmp_path):
    plan = sweep(axes={"local.lr": [0.1]}, seeds=[0, 9])
    run_here(plan, tmp_path / "s")
    died = Choice(plan.planned()[1])
    shutil.rmtree(tmp_path / "s" / "trials" / died.name(""))
    watcher = Watcher(Home(tmp_path / "s"), 2, "test_accuracy", "max")
    watcher.on_trial_error(1, [], SimpleNamespace(trial_id="one", config=died.as_trial()))
    assert by_trial(tmp_path / "s")["local.lr=0.1", 9].status == "failed"
    assert table(tmp_path / "s")["failed"].tolist() == [1]


def test_a_trial_of_another_sweep_is_in_no_table(tmp_path, capsys):
    """Of more seeds, say, whose folder somebody has put there."""
    run_here(sweep(axes={"local.lr": [0.1]}, seeds=[0, 1]), tmp_path / "more")
    run_here(sweep(axes={"local.lr": [0.1]}), tmp_path / "s")
    before = table(tmp_path / "s")
    for path in (tmp_path / "more" / "trials").iterdir():
        if not (tmp_path / "s" / "trials" / path.name).exists():
            shutil.copytree(path, tmp_path / "s" / "trials" / path.name)
    pd.testing.assert_frame_equal(table(tmp_path / "s"), before)
    assert "is no trial of this sweep" in " ".join(capsys.readouterr().err.split())


def test_tune_s_handlers_do_not_outlive_it():
    """The next Ctrl-C was lost to them."""
    before = signal.getsignal(signal.SIGINT)
    with _signals_given_back():
        _setup_signal_catching()  # as Tune does
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_what_was_drawn_twice_counts_once(tmp_path):
    """A random search with replacement: the same setting on the same seed is the same run."""
    drawn = sweep(axes={"local.lr": {"choice": [0.1]}}, samples=3)
    run_here(drawn, tmp_path / "s")
    cells = table(tmp_path / "s")
    assert cells["count"].tolist() == [len({result.seed for result in stored(tmp_path / "s")[1]})]
    best = fedorch.open_sweep(tmp_path / "s").best()
    assert len(best) == 1
    folders = [RunFolder(result.folder.path) for result in stored(tmp_path / "s")[1]]
    assert [len(group) for group in by_config(folders)] == [1]


def test_a_driver_whose_folder_goes_away_ends_all_the_same(tmp_path, monkeypatch):
    """A job's, which another node on the same machine unpacks anew."""
    (tmp_path / "package").mkdir()
    monkeypatch.chdir(tmp_path / "package")
    fit = Here.fit
    monkeypatch.setattr(
        Here, "fit", lambda self: (fit(self), (tmp_path / "package").rmdir(), Path.cwd())
    )
    run_here(sweep(axes={"local.lr": [0.1]}), tmp_path / "s")
    assert len(results(tmp_path / "s")) == 1
    monkeypatch.chdir(tmp_path)


def test_lists_and_status_are_there_for_programs(tmp_path, monkeypatch):
    assert cli.sweep  # which the command knows from then on
    monkeypatch.chdir(tmp_path)
    run_here(sweep(axes={"local.lr": [0.1]}), tmp_path / "s")
    code, text = here("sweep", "status", tmp_path / "s", "--json")
    assert code == 0, text
    status = json.loads(text)
    assert (status["ended"], status["total"], status["stage"]) == (1, 1, "trials")
    code, text = here("sweep", "--list", "--json")
    assert code == 0, text
    listed = {one["id"]: one for one in json.loads(text)}
    budgets = listed["drdm/table3"]["budgets"]
    assert budgets["smoke"]["done"] is False
    assert budgets["full"]["trials"] >= budgets["reduced"]["trials"] > budgets["smoke"]["trials"]
    code, text = here("list", "samplers", "--json")
    assert code == 0, text
    assert "uniform" in {row["name"] for row in json.loads(text)}
    code, text = here("describe", "local.lr", "--json")
    (row,) = json.loads(text)
    assert row["option"] == "local.lr"
    assert row["type"] == "float"


@pytest.mark.parametrize("statistic", ["last", "best", "tail"])
def test_the_best_is_the_same_in_the_status_and_in_the_table(tmp_path, statistic):
    plan = sweep(
        axes={"local.lr": [0.01, 0.1, 1.0]}, statistic=statistic, tail=2, base={"rounds": 4}
    )
    run_here(plan, tmp_path / "s")
    status, cells = Status.read(tmp_path / "s"), table(tmp_path / "s")
    assert status.best == pytest.approx(cells["mean"].iloc[0], abs=0)
    assert status.best_trial == cells["trial"].iloc[0]
    best = RunFolder.viewed(str(tmp_path / "s" / "trials" / status.best_folder))
    assert f"local.lr={best.config().local.lr:g}" in status.best_trial
    assert f"({plan.how})" in str(status)


def test_of_equals_status_and_table_name_the_same(tmp_path):
    """It was the one that ended first in the one, and by letters in the other."""
    plan = sweep(axes={"rounds": [10, 9, 2]}, set=["local.lr=1e-30"])
    run_here(plan, tmp_path / "s")
    cells = table(tmp_path / "s")
    assert cells["mean"].nunique() == 1
    assert [*cells["trial"]] == ["rounds=2", "rounds=9", "rounds=10"]
    assert Status.read(tmp_path / "s").best_trial == "rounds=2"


def test_the_best_is_a_setting_and_not_a_lucky_seed(tmp_path):
    watcher = Watcher(Home(tmp_path / "s"), 5, "test_accuracy", "max")
    watcher.home.folder.make()
    plan = sweep(axes={"local.lr": [0.1, 0.2, 0.3]})
    cells = {choice.label: choice for choice in plan.planned()}
    numbers = {"0.1": (0.9, 0.1), "0.2": (0.6, 0.7), "0.3": (0.99,)}
    for rate, values in numbers.items():
        for seed, value in enumerate(values):
            config = Choice(replace(cells[f"local.lr={rate}"], seed=seed)).as_trial()
            last = {"done": True, WRITTEN: True, "compared": value}
            trial = SimpleNamespace(trial_id=f"{rate}{seed}", config=config, last_result=last)
            watcher.on_trial_complete(1, [], trial)
    status = watcher.status()
    assert status.best == pytest.approx(0.65)
    assert "(local.lr=0.2; mean of 2 seeds)" in str(status)
    again = Watcher(Home(tmp_path / "s"), 5, "test_accuracy", "max")
    again.set_state(watcher.get_state())
    assert again.status().best == status.best
    shown = Watcher(Home(tmp_path / "s"), 5, "test_accuracy", "max", chooses=False)
    shown.set_state(watcher.get_state())
    assert "best" not in str(shown.status())


def test_trials_of_pbt_that_come_to_the_same_settings_are_two(tmp_path, monkeypatch):
    """The better one vanished behind the other."""
    plan = sweep(axes={"local.lr": {"choice": [0.01]}}, samples=2, scheduler="pbt")
    trials = {f"ab_0000{n}": Choice(Planned("s", (), 0), {"local.lr": 0.01}) for n in (3, 12)}
    watcher = Watcher(Home(tmp_path / "s"), 2, "test_accuracy", "max", apart=True)
    watcher.home.folder.make()
    for (name, choice), value in zip(trials.items(), (0.9, 0.2), strict=True):
        last = {"done": True, WRITTEN: True, "compared": value}
        watcher.on_trial_complete(
            1, [], SimpleNamespace(trial_id=name, config=choice.as_trial(), last_result=last)
        )
    assert watcher.status().best == 0.9
    assert watcher.status().best_trial == "s, local.lr=0.01 (trial 3)"
    assert [numbered("s", choice.name(name)) for name, choice in trials.items()] == [
        "s (trial 3)", "s (trial 12)",
    ]  # fmt: skip
    rows = [
        Result(
            f"s (trial {n})", 0, "finished", "", {"local.lr": 0.01}, RunFolder(tmp_path / str(n))
        )
        for n in (3, 12)
    ]
    monkeypatch.setattr(Result, "value", lambda one, column: 0.9 if "3" in one.label else 0.2)
    monkeypatch.setattr(Result, "beside", lambda one, column, metric: math.nan)
    assert table_of(plan, rows)["mean"].tolist() == [0.9, 0.2]


def test_what_was_drawn_again_and_stopped_takes_nothing_away(tmp_path):
    """The status named another best than the table."""
    watcher = Watcher(Home(tmp_path / "s"), 3, "test_accuracy", "max")
    watcher.home.folder.make()
    for name, rate, value, ended in (
        ("a_1", 0.02, 0.69, True), ("a_2", 0.05, 0.63, True), ("a_3", 0.02, 0.3, False),
    ):  # fmt: skip
        choice = Choice(Planned("s", (), 0), {"local.lr": rate})
        last = {"done": True, WRITTEN: ended, "compared": value}
        about = {"config": choice.as_trial(), "last_result": last}
        watcher.on_trial_complete(1, [], SimpleNamespace(trial_id=name, **about))
    assert watcher.status().best == 0.69


def test_a_trial_that_a_scheduler_stops_has_left_nothing_yet(tmp_path):
    """Tune says that it is done, too; it writes its results when its process is told to end."""
    watcher = Watcher(Home(tmp_path / "s"), 2, "test_accuracy", "max")
    watcher.home.folder.make()
    for label, ended in zip(
        sweep(axes={"local.lr": [0.1, 0.2]}).planned(), (True, False), strict=True
    ):
        last = {"done": True, WRITTEN: ended, "compared": 0.5}
        about = {"config": Choice(label).as_trial(), "last_result": last}
        watcher.on_trial_complete(1, [], SimpleNamespace(trial_id=label.label, **about))
    status = watcher.status()
    assert (status.finished, status.stopped) == (1, 1)
    assert [*watcher.left] == ["local.lr=0.1"]


def test_what_can_be_refused_is_refused_before_the_first_trial(reproduced, tmp_path):
    with pytest.raises(UserError, match="exists and is not empty"):
        resolve("drdm/table1", "smoke").run(str(reproduced), Running())
    with pytest.raises(UserError, match="is not the folder of a sweep"):
        resolve("drdm/table1", "smoke").run(str(tmp_path / "mistyped"), Running(resume=True))
    with pytest.raises(UserError, match="needs them all"):
        resolve("fedaa/figure2-clear", "smoke", ["accuracy"])
