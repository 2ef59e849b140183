"""Trackers: what a run passes on while it goes, and that none of them can end it."""

import json
import sys
import threading
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pandas as pd
import pytest

from orchestrator.config import load
from orchestrator.errors import UserError
from orchestrator.results.run_folder import RunFolder
from orchestrator.rounds import tracks
from orchestrator.rounds.drive import begin, drive, held
from orchestrator.rounds.experiment import Experiment
from orchestrator.tracking.tables import Table
from sweeps.plan import Sweep
from tests.configs import small


def ran(config, folder, resuming=False, stop_at=None):
    """A run into a folder, to its end or stopped after a round."""
    folder = RunFolder(folder)
    with held(folder, resuming):
        experiment = Experiment(config)
        begin(experiment, folder, resuming)
        return drive(experiment, folder, stopping=lambda: experiment.t == stop_at)


def read(folder):
    """What the files of the two trackers say, as tables."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return pd.read_csv(folder / "metrics.csv"), pd.DataFrame(lines)


def test_files_say_what_the_rounds_were(tmp_path):
    config = small("track=[csv, jsonl]", "rounds=4", "evaluation.every=2")
    ran(config, tmp_path / "r")
    rounds = pd.read_parquet(tmp_path / "r" / "rounds.parquet")
    table, lines = read(tmp_path / "r")
    # columns that come later are in the rows before, and empty
    assert set(table) == set(rounds) == set(lines)
    for found in (table, lines):
        pd.testing.assert_frame_equal(found[list(rounds)], rounds, check_dtype=False)
    assert not (tmp_path / "r" / "tensorboard").exists()


def test_names_of_numbers_may_have_commas(tmp_path):
    """Behind such a name of a plugin's all columns were those of their neighbours."""
    table = Table(SimpleNamespace(folder=tmp_path, done=0))
    first = {"round": 1.0, 'gap, "max"': 1.5, "b": 2.0, "u\u2028v": 4.0}
    for record in (first, first | {"round": 2.0, "c": 3.0}):
        table.add(record)
    again = Table(SimpleNamespace(folder=tmp_path, done=2))
    again.add(first | {"round": 3.0})
    found = pd.read_csv(tmp_path / "metrics.csv")
    assert found.columns.tolist() == ["round", 'gap, "max"', "b", "u\u2028v", "c"]
    assert found["b"].tolist() == [2.0] * 3


def test_rounds_that_are_done_again_are_there_once(tmp_path):
    """A killed run has told of rounds after its checkpoint, the last of them by half a line."""
    config = small("track=[csv, jsonl]", "rounds=4", "checkpoint.every=100")
    ran(config, tmp_path / "r", stop_at=2)
    for name in ("metrics.csv", "metrics.jsonl"):
        path = tmp_path / "r" / name
        lines = path.read_text().splitlines()
        again = lines[-1].replace('"round": 2', '"round": 3').replace("2,", "3,", 1)
        path.write_text("\n".join([*lines, again, lines[-1][:20]]))
    ran(config, tmp_path / "r", resuming=True)
    for found in read(tmp_path / "r"):
        assert found["round"].tolist() == [1, 2, 3, 4]
    ran(config, tmp_path / "whole")
    for one, other in zip(read(tmp_path / "r"), read(tmp_path / "whole"), strict=True):
        pd.testing.assert_series_equal(one["test_loss"], other["test_loss"])


def test_a_run_may_be_tracked_otherwise_when_it_goes_on(tmp_path):
    """Trackers are no part of what a round computes."""
    one, other = (small(f"track={names}") for names in ("csv", "[]"))
    assert Experiment(one).science() == Experiment(other).science()
    ran(one, tmp_path / "a")
    ran(other, tmp_path / "b")
    a, b = (json.loads((tmp_path / f / "result.json").read_text()) for f in "ab")
    assert a["weights_sha256"] == b["weights_sha256"]
    assert a["notes"] == b["notes"] == []


OWN = """
import fedorch

class Broken(fedorch.Tracker):
    name: str = "broken"
    at: str = fedorch.option("add", "which call raises")

    def begin(self, run):
        if self.at == "begin":
            raise ConnectionError("no such host s3://me:secret@host")
        return BrokenLog(self.at)

class BrokenLog(fedorch.Log):
    def __init__(self, at):
        self.at = at

    def add(self, record):
        assert self.at != "add", "of no use"

    def end(self, ending, files):
        raise ValueError("at the end")

class Slow(Broken):
    name: str = "slow"
    remote = True

    def begin(self, run):
        return SlowLog()

class SlowLog(fedorch.Log):
    def add(self, record):
        import time
        time.sleep(3600)
"""


@pytest.mark.parametrize(
    ("at", "said"),
    [
        ("begin", "ConnectionError: no such host s3://…@host"),
        ("add", "AssertionError: of no use"),
        ("end", "ValueError: at the end"),
    ],
)
def test_one_that_fails_ends_no_run(at, said, tmp_path):
    plugin = tmp_path / "mine.py"
    plugin.write_text(OWN)
    config = small(f"plugins=[{plugin}]", f"track=[csv, {{name: broken, at: {at}}}]", "rounds=3")
    folder = RunFolder(tmp_path / "r")
    with held(folder, False):
        experiment = Experiment(config)
        begin(experiment, folder, False)
        result = drive(experiment, folder)
    assert result["status"] == "finished"
    (note,) = experiment.alarm.news()
    assert note.startswith("track: broken: ")
    assert note.endswith("; the run goes on without it")
    assert said.partition("s3")[0] in note
    assert "secret" not in note
    assert len(pd.read_csv(tmp_path / "r" / "metrics.csv")) == 3


def test_one_that_does_not_answer_holds_no_run_up(tmp_path, monkeypatch):
    monkeypatch.setattr(tracks, "PATIENCE", 0.2)
    plugin = tmp_path / "mine.py"
    plugin.write_text(OWN)
    config = small(f"plugins=[{plugin}]", "track=slow", "rounds=3", "checkpoint.every=1")
    start = time.monotonic()
    result = ran(config, tmp_path / "r")
    assert time.monotonic() - start < 60
    assert result["status"] == "finished"
    assert [note for note in result["notes"] if "slow has not answered for 0.2 s" in note]


class Client:
    """MLflow's client, as far as it is called; it remembers what it is told."""

    told: list = []

    def __init__(self, tracking_uri):
        self.uri = tracking_uri

    def __getattr__(self, name):
        def call(*args, **kwargs):
            self.told.append((name, args, kwargs, threading.current_thread().name))
            if name == "get_experiment_by_name":
                return None
            if name == "create_run":
                return SimpleNamespace(info=SimpleNamespace(run_id="r1"))
            return "7"

        return call


def test_mlflow_goes_on_with_its_run(tmp_path, monkeypatch):
    mlflow, entities = ModuleType("mlflow"), ModuleType("mlflow.entities")
    mlflow.MlflowClient = Client
    entities.Param = lambda key, value: (key, value)
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    monkeypatch.setattr(Client, "told", [])
    config = small("track=mlflow", "rounds=3")
    ran(config, tmp_path / "r", stop_at=2)
    told, Client.told = Client.told, []
    params = {k: v for name, _, kw, _ in told if name == "log_batch" for k, v in kw["params"]}
    assert params["local.lr"] == str(config.local.lr)
    assert params["data.dataset.name"]
    assert {thread for *_, thread in told} == {"track-mlflow"}
    assert [args for name, args, *_ in told if name == "set_terminated"] == [("r1", "KILLED")]
    ran(config, tmp_path / "r", resuming=True)
    names = [name for name, *_ in Client.told]
    assert names[0] == "update_run"
    assert "create_run" not in names
    losses = [(a, kw) for n, a, kw, _ in Client.told if n == "log_metric" and a[1] == "test_loss"]
    assert [(a[0], kw["step"]) for a, kw in losses] == [("r1", 3)]
    sent = {Path(a[1]).name for n, a, *_ in Client.told if n == "log_artifact"}
    assert {"model.safetensors", "config.yaml", "report.html", "result.json"} <= sent


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("track=[csv, csv]", "names 'csv' twice"),
        ("track=tensorbord", "did you mean 'tensorboard'"),
        ("track={name: mlflow, uri: 'http://me:secret@host'}", "set MLFLOW_TRACKING_URI"),
    ],
)
def test_mistakes(given, said):
    with pytest.raises(UserError, match=said):
        load(None, [given])


def test_a_package_that_is_missing_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    result = ran(small("track=wandb", "rounds=1"), tmp_path / "r")
    # at the end, as it may take its time; the run's notes have it if it was told by then
    assert result["status"] == "finished"


def test_a_sweep_has_loggers_of_its_own():
    mine = Sweep.model_validate({"name": "s", "base": {"track": "csv"}, "metric": "test_loss",
                                 "choose_on": "test", "axes": {"local.lr": [0.1, 0.2]}})  # fmt: skip
    with pytest.raises(UserError, match="track: trials are passed on by the sweep's loggers"):
        list(mine.configs())


MEDDLING = """
import fedorch

class Meddling(fedorch.Tracker):
    name: str = "meddling"
    def begin(self, run):
        return Changes()

class Changes(fedorch.Log):
    def add(self, record):
        record["test_accuracy"] = 0.99
        record.pop("round")
    def end(self, ending, files):
        ending.clear()
        files.clear()

class Leaving(Meddling):
    name: str = "leaving"
    def begin(self, run):
        raise SystemExit("bye")
"""


def test_one_that_meddles_changes_nothing(tmp_path):
    """A record was popped, and the run ended in a KeyError; another set the accuracy."""
    (tmp_path / "mine.py").write_text(MEDDLING)
    config = small(f"plugins=[{tmp_path}/mine.py]", "track=[meddling, csv, leaving]", "rounds=2")
    result = ran(config, tmp_path / "r")
    assert result["metrics"]["test_accuracy"] != 0.99
    assert pd.read_csv(tmp_path / "r" / "metrics.csv")["round"].tolist() == [1, 2]
    assert [n for n in result["notes"] if "leaving: SystemExit: bye" in n]


def test_a_table_that_was_tidied_away_or_damaged(tmp_path):
    config = small("track=[csv, jsonl]", "rounds=3", "checkpoint.every=1")
    folder = RunFolder(tmp_path / "r")
    with held(folder, False):
        experiment = Experiment(config)
        begin(experiment, folder, False)
        gone = tmp_path / "r" / "metrics.csv"
        drive(experiment, folder, on_round=lambda record: gone.unlink(),
              stopping=lambda: experiment.t == 2)  # fmt: skip
    (tmp_path / "r" / "metrics.csv").write_text("round,loss\nx,1\n")
    (tmp_path / "r" / "metrics.jsonl").write_text("[]\n")
    notes = ran(config, tmp_path / "r", resuming=True)["notes"]
    assert len([n for n in notes if "is not as it was left; remove it" in n]) == 2
