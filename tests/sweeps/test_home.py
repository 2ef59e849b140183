"""Sweeps and runs whose results are in storage: a folder at a URI, and a bucket of an S3 server on
this machine.
"""

import json

import pandas as pd
import pytest

from orchestrator.config import load
from orchestrator.errors import UserError
from orchestrator.results.run_folder import RunFolder
from sweeps import commands
from sweeps.home import Home, local_copy
from sweeps.plan import Sweep
from sweeps.results import by_trial, table
from sweeps.runner import run_sweep
from tests.orchestrator.test_storage import run
from tests.running import finish
from tests.sets import quick
from tests.sweeps.trials import run_here

pytestmark = pytest.mark.usefixtures("ray_session")
SMALL = [
    "data.limit=400",
    "data.clients=6",
    "model=linear",
    "rounds=3",
    "cohort=4",
    "local.steps=3",
]
PLAN = Sweep.model_validate(
    {"set": SMALL, "axes": {"local.lr": [0.02, 0.1]}, "at_once": 1, "loggers": []}
)


@pytest.fixture(scope="module")
def bucket():
    """URI options of a server with an empty bucket."""
    server = pytest.importorskip("moto.server").ThreadedMotoServer(
        ip_address="127.0.0.1", port=0, verbose=False
    )
    server.start()
    host, port = server.get_host_and_port()
    from pyarrow import fs

    files = fs.S3FileSystem(
        access_key="k",
        secret_key="s",
        endpoint_override=f"{host}:{port}",
        scheme="http",
        allow_bucket_creation=True,
    )
    files.create_dir("bucket")
    yield f"?endpoint_override={host}%3A{port}&scheme=http&region=us-east-1"
    server.stop()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize("kind", quick(["folder", "bucket"], "folder"))
def test_a_sweep_in_storage(kind, bucket, tmp_path, monkeypatch, capsys):
    place = f"s3://bucket/sweeps/one{bucket}" if kind == "bucket" else (tmp_path / "there").as_uri()
    run_here(PLAN, tmp_path / "here")
    run_sweep(PLAN, Home(place), False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another machine"))
    seen = local_copy(place)
    pd.testing.assert_frame_equal(table(seen), table(tmp_path / "here"))
    for trial, result in by_trial(seen).items():
        there, here = (json.loads((r / "result.json").read_text())["state_sha256"]
                       for r in (result.folder.path, by_trial(tmp_path / "here")[trial].folder.path))  # fmt: skip
        assert there == here
    commands.show_status(seen)
    assert "trials 2/2" in capsys.readouterr().out
    with pytest.raises(UserError, match="exists and is not empty"):
        run_sweep(PLAN, Home(place), False)
    with pytest.raises(UserError, match="holds another sweep"):
        run_sweep(PLAN.changed(["rounds=4"], None), Home(place), True)
    sent = changes(tmp_path / "there")
    run_sweep(PLAN, Home(place), True)
    assert changes(tmp_path / "there") == sent
    pd.testing.assert_frame_equal(table(local_copy(place)), table(tmp_path / "here"))


def changes(folder):
    """When the trials' tables there were written."""
    return {path: path.stat().st_mtime_ns for path in folder.glob("trials/*/*.parquet")}


def test_a_run_in_a_bucket(bucket, tmp_path, monkeypatch):
    place = f"s3://bucket/runs/one{bucket}"
    config = load(None, [*SMALL, "algorithm=scaffold", "checkpoint.every=1"])
    assert run(config, place, rounds=2)["status"] == "stopped"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another machine"))
    assert run(config, place, resuming=True)["state_sha256"] == finish(config).state_sha256()
    with pytest.raises(UserError, match="not empty"):
        RunFolder.new(place)


def test_a_sweep_has_one_driver_and_may_be_moved(tmp_path, monkeypatch):
    monkeypatch.setattr("sweeps.runner.PATIENCE", 0.0)
    home = Home(tmp_path / "s")
    run_sweep(PLAN, home, False)
    home.folder.claim()
    with pytest.raises(UserError, match="in use: process"):
        run_sweep(PLAN, Home(tmp_path / "s"), True)
    home.folder.release()
    (tmp_path / "s").rename(tmp_path / "moved")
    run_sweep(PLAN, Home(tmp_path / "moved"), True)
    assert not (tmp_path / "s").exists()


def test_storage_that_is_not_there():
    with pytest.raises(UserError, match="nowhere"):
        Home("nowhere://bucket/x")
