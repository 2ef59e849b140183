"""Sweeps on Ray Tune: results, bits, failures, early stopping, restart; and tables made of them."""

import importlib.util
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from orchestrator.clients import plane
from orchestrator.config import load
from orchestrator.errors import UserError
from orchestrator.results.checkpoint import save
from orchestrator.results.run_folder import RunFolder
from orchestrator.rounds.experiment import Experiment
from sweeps import commands, runner, tables
from sweeps.entry import Budget, Claim, Column, Entry, Published, Tuning
from sweeps.figures import draw
from sweeps.home import Home
from sweeps.papers import entry
from sweeps.plan import Sweep
from sweeps.reproduction import choose, final_sweep, labels, measured, tuning_sweep, verdicts
from sweeps.results import by_trial, stored, table
from sweeps.trainable import Trial, trial_config
from sweeps.watch import Watcher
from tests.running import finish

pytestmark = pytest.mark.usefixtures("ray_session")
SMALL = [
    "data.limit=400",
    "data.clients=6",
    "model=linear",
    "rounds=3",
    "cohort=4",
    "local.steps=3",
]


def sweep(**changes):
    return Sweep.model_validate({"set": SMALL, "at_once": 2, "loggers": [], **changes})


def run_sweep(plan, folder, resume):
    runner.run_sweep(plan, Home(folder), resume)


def results(folder):
    return {
        k: json.loads((r.folder.path / "result.json").read_text())
        for k, r in by_trial(folder).items()
    }


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweeps") / "one"
    run_sweep(
        sweep(axes={"local.lr": [0.02, 0.1], "algorithm": ["fedavg", "scaffold"]}, seeds=[0, 1]),
        folder,
        False,
    )
    return folder


def test_every_trial_is_the_run_of_its_config(finished):
    found = results(finished)
    assert len(found) == 8
    for (label, seed), result in found.items():
        alone = finish(load(None, [*SMALL, *label.split(", "), f"seed={seed}"]))
        assert result["weights_sha256"] == alone.weights_sha256()
        assert result["status"] == "finished"


def test_the_cells_are_means_over_seeds(finished):
    data = table(finished)
    for _, line in data.iterrows():
        values = [
            r["metrics"]["test_accuracy"]
            for (label, _), r in results(finished).items()
            if label == line["trial"]
        ]
        assert line["mean"] == pytest.approx(np.mean(values))
        assert line["sem"] == pytest.approx(np.std(values, ddof=1) / np.sqrt(2))
    assert data["mean"].is_monotonic_decreasing


def test_status_from_another_shell(finished, capsys):
    commands.show_status(finished)
    assert "trials 8/8: 0 running, best test_accuracy" in capsys.readouterr().out


def test_trials_whose_clients_are_actors_give_the_same_bits(finished, tmp_path):
    settings = [*SMALL, "local.lr=0.1", "resources.actors=2"]
    run_sweep(sweep(set=settings, seeds=[0, 1], at_once=2), tmp_path / "s", False)
    found = results(tmp_path / "s")
    assert len(found) == 2
    for (_, seed), there in found.items():
        assert (
            there["weights_sha256"]
            == results(finished)["local.lr=0.1, algorithm=fedavg", seed]["weights_sha256"]
        )
        assert there["actors"] == 2


def test_a_trial_that_cannot_go_on_is_reported_while_the_others_do(tmp_path):
    run_sweep(
        sweep(set=[*SMALL, "model=mlp"], axes={"local.lr": [0.1, 1e30]}), tmp_path / "s", False
    )
    by_lr = {label: r for (label, _), r in by_trial(tmp_path / "s").items()}
    assert by_lr["local.lr=0.1"].status == "finished"
    assert by_lr["local.lr=1.0e+30"].status == "failed"
    assert (
        "not finite" in by_lr["local.lr=1.0e+30"].error or "NaN" in by_lr["local.lr=1.0e+30"].error
    )
    assert json.loads((tmp_path / "s" / "status.json").read_text())["failed"] == 1
    assert table(tmp_path / "s")["failed"].sum() == 1


def test_a_metric_that_nobody_reports(tmp_path):
    run_sweep(sweep(metric="test_acuracy"), tmp_path / "s", False)
    (result,) = by_trial(tmp_path / "s").values()
    assert (result.status, result.error) == ("failed", "the trial does not report 'test_acuracy'")


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
    run_sweep(plan, tmp_path / "s", False)
    found = by_trial(tmp_path / "s")
    rounds = {label: len(r.folder.rounds()) for (label, _), r in found.items()}
    assert rounds["local.lr=0.01"] == 9
    assert sum(rounds.values()) < 0.7 * 9 * len(rounds)
    assert {r.status for r in found.values()} == {"finished", "stopped"}


@pytest.mark.parametrize(
    "scheduler", [{"name": "median", "grace": 1}, {"name": "pbt", "interval": 2}]
)
def test_other_schedulers(tmp_path, scheduler):
    drawn = {"local.lr": {"loguniform": [0.01, 0.1]}}
    plan = sweep(
        set=[*SMALL, "rounds=6"],
        axes=drawn,
        samples=3,
        scheduler=scheduler,
        checkpoint_every=1,
        at_once=3,
    )
    run_sweep(plan, tmp_path / "s", False)
    _, found = stored(tmp_path / "s")
    assert {r.status for r in found} <= {"finished", "stopped"}
    assert len([r for r in found if r.status == "finished"]) >= (
        3 if scheduler["name"] == "pbt" else 1
    )
    assert max(len(r.folder.rounds()) for r in found) == 6


def test_drawn_axes(tmp_path):
    plan = sweep(axes={"local.lr": {"loguniform": [0.01, 1.0]}}, samples=3, seeds=[5])
    run_sweep(plan, tmp_path / "s", False)
    _, found = stored(tmp_path / "s")
    rates = [r.chosen["local.lr"] for r in found]
    assert len(set(rates)) == 3
    assert all(0.01 <= r <= 1 for r in rates)
    for r in found:
        assert r.folder.config().local.lr == r.chosen["local.lr"]


def test_optuna(tmp_path):
    pytest.importorskip("optuna")
    plan = sweep(
        axes={"local.lr": {"loguniform": [0.01, 1.0]}, "cohort": [2, 4]},
        samples=3,
        searcher="optuna",
        at_once=1,
    )
    run_sweep(plan, tmp_path / "s", False)
    _, found = stored(tmp_path / "s")
    assert len(found) == 3
    assert all(r.folder.config().cohort == r.chosen["cohort"] for r in found)


def test_mlflow(tmp_path, monkeypatch):
    tracking = pytest.importorskip("mlflow.tracking")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    run_sweep(sweep(axes={"local.lr": [0.02, 0.1]}, loggers=["mlflow"]), tmp_path / "s", False)
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
        run_sweep(sweep(loggers=[name]), tmp_path / "s", False)
    assert not (tmp_path / "s").exists()


def test_too_large_a_trial_is_refused_at_once(tmp_path):
    with pytest.raises(UserError, match="a trial needs 3 GPU, and the whole cluster has 2"):
        run_sweep(
            sweep(set=[*SMALL, "resources.gpus_per_actor=1", "resources.actors=3"]),
            tmp_path / "s",
            False,
        )
    with pytest.raises(UserError, match=r"a trial needs 5 x 0\.4 GPU, of which 2 GPUs hold 4"):
        run_sweep(
            sweep(set=[*SMALL, "resources.gpus_per_actor=0.4", "resources.actors=5"]),
            tmp_path / "s",
            False,
        )
    assert not (tmp_path / "s").exists()


def test_trials_that_ask_for_different_things_are_refused(tmp_path):
    for values in ("resources.gpus_per_actor=[0, 0.5]", "resources.actors=[1, 2]"):
        path, _, grid = values.partition("=")
        with pytest.raises(UserError, match="ask the cluster for the same"):
            run_sweep(sweep(axes={path: json.loads(grid)}), tmp_path / "s", False)
    with pytest.raises(ValueError, match="no random axes"):
        sweep(samples=3)


def test_trials_that_draw_the_same_have_folders_of_their_own(tmp_path):
    run_sweep(sweep(axes={"local.lr": {"choice": [0.1]}}, samples=2), tmp_path / "s", False)
    _, found = stored(tmp_path / "s")
    assert [r.status for r in found] == ["finished", "finished"]


def test_a_trial_with_a_share_of_a_gpu_trains_there(monkeypatch):
    """There is none here, so the trainer is only asked where it would work."""
    devices = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", devices.append)
    monkeypatch.setattr(plane, "BlockHost", lambda world: devices.append(world.device))
    chosen = {
        "planned": {"label": "", "settings": [*SMALL, "resources.gpus_per_actor=0.25"], "seed": 0}
    }
    config = trial_config({}, chosen)
    world = Experiment(load(None, SMALL)).world
    devices.clear()
    Trial._plane(SimpleNamespace(), world, config)
    assert devices == [0.25, "cuda"]


def test_a_sweep_of_an_earlier_version_can_be_read(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "old")
    file = tmp_path / "old" / "sweep.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "actors": 0}))
    assert len(by_trial(tmp_path / "old")) == 8


def test_a_trial_that_fails_by_a_fault_leaves_no_results_of_its_own():
    """It ended with the rounds that it had done, and would stand in the table as one that a
    scheduler stopped.
    """
    trial = SimpleNamespace(experiment=object(), written=False, _advance=lambda experiment: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        Trial.step(trial)
    assert trial.written


def test_a_trial_whose_process_died_is_in_the_table(tmp_path):
    plan = sweep(axes={"local.lr": [0.1]})
    run_sweep(plan, tmp_path / "s", False)
    watcher = Watcher(Home(tmp_path / "s"), 2, "test_accuracy", "max")
    died = {"planned": {**plan.planned()[0], "seed": 9}}
    watcher.on_trial_error(1, [], SimpleNamespace(trial_id="one", config=died))
    assert by_trial(tmp_path / "s")["local.lr=0.1", 9].status == "failed"
    assert table(tmp_path / "s")["failed"].tolist() == [1]


def test_a_restored_trial_knows_its_last_metrics(tmp_path):
    """Killed between its last checkpoint and its end, it must not seem to report nothing."""
    done = finish(load(None, SMALL))
    save(tmp_path, done.t, done.state(), 1)
    fresh = SimpleNamespace(experiment=Experiment(load(None, SMALL)), latest={})
    Trial.load_checkpoint(fresh, tmp_path)
    assert fresh.latest["test_accuracy"] == done.records[-1]["test_accuracy"]


def test_what_can_be_refused_is_refused_before_the_first_trial(reproduced, tmp_path):
    with pytest.raises(UserError, match="exists and is not empty"):
        commands.sweep("drdm/table1", "smoke", str(reproduced), False)
    with pytest.raises(UserError, match="is not the folder of a sweep"):
        commands.sweep("drdm/table1", "smoke", str(tmp_path / "mistyped"), True)
    with pytest.raises(UserError, match="needs them all"):
        commands.check(
            "fedaa/figure2-clear", "smoke", [next(iter(entry("fedaa/figure2-clear").columns))]
        )


def test_a_row_whose_tuning_failed_keeps_its_first_settings(reproduced, tmp_path, capsys):
    shutil.copytree(reproduced / "tuning", tmp_path / "tuning")
    trials = sorted((tmp_path / "tuning" / "trials").iterdir())
    for path in trials:
        if "FedProx" in (path / "trial.json").read_text():
            shutil.rmtree(path)
    assert choose(ENTRY, "reduced", tmp_path / "tuning") == {
        "FedAvg": ["local.lr=0.1"],
        "FedProx": ["local.lr=0.1"],
    }
    assert "no trial that tunes 'FedProx' has succeeded" in capsys.readouterr().out.replace(
        "\n", " "
    )
    for path in trials:
        shutil.rmtree(path, ignore_errors=True)
    with pytest.raises(UserError, match="no trial of the tuning"):
        choose(ENTRY, "reduced", tmp_path / "tuning")


def test_a_folder_of_another_sweep(finished, tmp_path):
    with pytest.raises(UserError, match="exists and is not empty"):
        run_sweep(sweep(), finished, False)
    with pytest.raises(UserError, match="holds another sweep"):
        run_sweep(sweep(), finished, True)
    with pytest.raises(UserError, match="is not the folder of a sweep"):
        run_sweep(sweep(), tmp_path, True)


ENTRY = Entry(
    id="test/table1",
    title="two methods on a linear model",
    rows={"FedAvg": ("algorithm=fedavg",), "FedProx": ("algorithm={name: fedprox, mu: 0.1}",)},
    columns={
        "mean": Column("client_accuracy_mean", scale=100),
        "worst": Column("client_accuracy_worst", scale=100),
        "few rounds": Column("test_accuracy", ("rounds=2",)),
        "rounds to 99 %": Column(
            "test_accuracy", statistic="rounds_to", target=0.99, better="low", digits=0
        ),
    },
    base=tuple(SMALL),
    budgets={
        "smoke": Budget(seeds=(0,)),
        "reduced": Budget(("local.steps=2",), (0, 1, 2), reduced="fewer steps"),
    },
    published={
        ("FedAvg", "mean"): Published(50.0, 1.0),
        ("FedProx", "mean"): Published(None, note="failed"),
    },
    claims=(Claim("FedAvg above FedProx", "FedAvg", ("FedProx",), ("mean", "worst")),),
    tuning=Tuning(
        {"FedAvg": {"local.lr": (1e-9, 0.1)}, "FedProx": {"local.lr": (0.1, 1e-9)}},
        Column("test_accuracy"),
        seeds=(77,),
        settings=("rounds=2",),
    ),
)


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory):
    """Both stages of ENTRY at the reduced budget."""
    folder = tmp_path_factory.mktemp("sweeps") / "entry"
    run_sweep(tuning_sweep(ENTRY, "reduced").changed([], 2), folder / "tuning", False)
    tuned = choose(ENTRY, "reduced", folder / "tuning")
    run_sweep(final_sweep(ENTRY, "reduced", tuned).changed([], 2), folder, False)
    return folder


def test_the_first_stage_chooses_what_learns(reproduced):
    tuned = json.loads((reproduced / "tuning" / "tuned.json").read_text())
    assert tuned == {"FedAvg": ["local.lr=0.1"], "FedProx": ["local.lr=0.1"]}
    seeds = {seed for _, seed in by_trial(reproduced / "tuning")} | {
        seed for _, seed in by_trial(reproduced)
    }
    assert seeds == {0, 1, 2, 77}


def test_columns_of_equal_settings_share_their_trials(reproduced):
    assert len(by_trial(reproduced)) == 2 * 2 * 3


def test_cells_are_the_runs_own_numbers(reproduced):
    values = measured(ENTRY, "reduced", reproduced)
    alone = finish(
        load(None, [*SMALL, "local.steps=2", "algorithm=fedavg", "local.lr=0.1", "seed=2"])
    )
    assert values["FedAvg", "worst"][2] == pytest.approx(
        100 * alone.records[-1]["client_accuracy_worst"]
    )
    data = tables.numbers(ENTRY, "reduced", values).set_index(["row", "column"])
    three = list(values["FedAvg", "mean"].values())
    cell = data.loc["FedAvg", "mean"]
    assert cell["mean"] == pytest.approx(np.mean(three))
    assert cell["standard_error"] == pytest.approx(stats.sem(three))
    assert cell["difference"] == pytest.approx(np.mean(three) - 50.0)
    assert data.loc["FedAvg", "rounds to 99 %"]["missed"] == 3


def test_a_number_that_a_method_does_not_have_is_not_shown(reproduced):
    """Whatever its runs say."""
    from dataclasses import replace

    none = replace(
        ENTRY, published={("FedAvg", "mean"): Published(None, note="has no mean", exists=False)}
    )
    text = tables.render(none, "reduced", measured(ENTRY, "reduced", reproduced), "markdown")
    assert "| · (has no mean) |" in text


def test_claims_are_paired_tests():
    values = {
        ("FedAvg", "mean"): {0: 10.0, 1: 11.0, 2: 12.0}, ("FedProx", "mean"): {0: 9.0, 1: 9.5, 2: 11.0},
        ("FedAvg", "worst"): {0: 5.0, 1: 5.0}, ("FedProx", "worst"): {0: 6.0, 1: 6.0},
    }  # fmt: skip
    mean, worst = verdicts(ENTRY, values)["FedAvg above FedProx"]
    a, b = ([*values[row, "mean"].values()] for row in ("FedAvg", "FedProx"))
    assert mean.p == pytest.approx(stats.ttest_rel(a, b, alternative="greater").pvalue)
    assert (mean.word, worst.word) == ("holds", "fails")
    assert "holds (p < 0.05) in 1, fails in 1 of 2 cells" in tables.claims(ENTRY, values)[0]
    assert "not measured yet" in tables.claims(ENTRY, {})[0]


@pytest.mark.parametrize("form", ["markdown", "csv", "html", "latex", "terminal"])
def test_every_form_of_the_table(reproduced, form, capsys):
    text = tables.render(
        ENTRY, "reduced", measured(ENTRY, "reduced", reproduced), form, ["local.batch_size=7"]
    )
    text += capsys.readouterr().out
    assert "FedProx" in text
    assert "50.0" in text
    assert "missed" in text
    assert form == "csv" or "failed" in text
    assert "and with local.batch_size=7" in text.replace("\n", " ").replace(r"\_", "_")
    assert form != "latex" or not re.search(r"(?<!\\)[%_]", text)


def test_a_file_s_cells_can_be_printed_again(finished, tmp_path, capsys):
    (tmp_path / "mine.yaml").write_text("{name: mine, axes: {local.lr: [0.1]}}")
    commands.show_table(str(tmp_path / "mine.yaml"), "reduced", finished, "terminal", None)
    assert "8 trials ended" in capsys.readouterr().out
    with pytest.raises(UserError, match="no published table"):
        commands.show_table(str(tmp_path / "mine.yaml"), "reduced", finished, "latex", None)


def test_a_table_of_a_sweep_that_still_runs(reproduced, tmp_path):
    """Without most of its trials."""
    shutil.copytree(reproduced, tmp_path / "half")
    for path in sorted((tmp_path / "half" / "trials").iterdir())[:9]:
        shutil.rmtree(path)
    text = tables.render(
        ENTRY, "reduced", measured(ENTRY, "reduced", tmp_path / "half"), "markdown"
    )
    assert "·" in text


@pytest.mark.parametrize("figure", ["curves", "axis", "scatter", "clouds"])
def test_figures(reproduced, figure):
    from dataclasses import replace

    drawn, data = draw(
        replace(ENTRY, figure=figure), "reduced", measured(ENTRY, "reduced", reproduced), reproduced
    )
    assert drawn.axes
    if figure == "curves":
        one = data[(data["row"] == "FedAvg") & (data["column"] == "mean") & (data["round"] == 3)]
        last = [
            r.folder.rounds()["client_accuracy_mean"].iloc[-1]
            for (label, _), r in by_trial(reproduced).items()
            if label == "FedAvg / mean"
        ]
        assert float(one["mean"].iloc[0]) == pytest.approx(100 * np.mean(last))


def test_an_axis_has_a_panel_for_each_quantity(tmp_path):
    one = entry("fda/figure3.8")
    values = {(r, c): {0: float(len(r))} for r, c in labels(one, "full")}
    drawn, _ = draw(one, "full", values, tmp_path)
    names = [
        f"{split}, {what}"
        for split in ("IID", "label 0", "60 % sorted")
        for what in ("GB", "steps")
    ]
    assert [place.get_title() for place in drawn.axes] == names
    first = drawn.axes[0]
    assert (first.get_xlabel(), first.get_yscale()) == ("K", "log")
    assert first.lines[0].get_xdata().tolist() == list(range(5, 65, 5))
    assert len(drawn.legends[0].get_texts()) == len(one.rows)


def test_curves_may_be_drawn_over_the_steps_done(reproduced):
    from dataclasses import replace

    one = replace(ENTRY, figure="curves", over="steps_total", logarithmic=True)
    drawn, data = draw(one, "reduced", measured(ENTRY, "reduced", reproduced), reproduced)
    assert drawn.axes[0].get_xlabel() == "steps total"
    assert drawn.axes[0].get_yscale() == "log"
    assert (data["over"] == data["round"] * data["over"].min()).all()


def test_clouds_show_where_a_strategy_s_runs_are(tmp_path):
    """A density for strategies with enough runs, from the runs that reached the target."""
    one = entry("fda/figure3.3")
    rng = np.random.default_rng(0)
    values = {
        (row, column): {
            0: float(np.exp(rng.normal(3 if "Synchronous" in row else 0)))
            * (1 if "GB" in column else 1000)
        }
        for row, column in labels(one, "full")
    }
    values["Synchronous K=5", next(iter(one.columns))] = {0: float("nan")}
    drawn, _ = draw(one, "full", values, tmp_path)
    assert len(drawn.axes) == len(one.columns) // 2
    first = drawn.axes[0]
    names = [text.get_text() for text in drawn.legends[0].get_texts()]
    assert set(names) == {"Synchronous", "FedAdam", "LinearFDA", "SketchFDA"}
    points = [c for c in first.collections if len(c.get_offsets()) > 1]
    densities = len(first.collections) - len(points)
    assert sum(len(c.get_offsets()) for c in points) == len(one.rows) - 1
    assert densities == 4
    drawn.savefig(tmp_path / "x.png", dpi=60)


def test_unequal_tuning_is_refused():
    from dataclasses import replace

    unfair = replace(
        ENTRY,
        tuning=Tuning(
            {"FedAvg": {"local.lr": (0.1,)}, "FedProx": {"local.lr": (0.1, 0.2)}}, Column()
        ),
    )
    with pytest.raises(UserError, match="as many trials to be tuned with"):
        tuning_sweep(unfair, "reduced")


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
