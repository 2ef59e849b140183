"""The cluster files, against Ray's own schema and preparation; what they promise about access; the
monitoring files.
"""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import botocore.session
import botocore.validate
import jsonschema
import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

from orchestrator.config import UNNAMED
from orchestrator.monitoring import grafana
from orchestrator.monitoring.exporter import Note
from orchestrator.monitoring.signals import BYTES, PHASE_SECONDS, SIGNALS
from orchestrator.monitoring.top import line, sparkline, starting

ROOT = Path(__file__).parents[2]
FILES = ["cluster.yaml", "deploy/onpremise.yaml"]


def read(name):
    return yaml.safe_load((ROOT / name).read_text())


@pytest.mark.parametrize("name", FILES)
def test_ray_accepts_it(name, monkeypatch):
    monkeypatch.chdir(ROOT)
    written, prepared = read(name), prepare_config(read(name))
    validate_config(prepared)
    for key in ("cluster_name", "provider", "file_mounts"):
        assert prepared[key] == written[key]
    with pytest.raises(jsonschema.ValidationError):
        validate_config({**prepared, "max_worker": 3})


@pytest.mark.parametrize("name", FILES)
def test_it_is_closed_to_strangers(name):
    config = read(name)
    for command in (config["head_start_ray_commands"][-1], config["worker_start_ray_commands"][-1]):
        assert "RAY_AUTH_MODE=token" in command
    assert "--dashboard-host=127.0.0.1" in config["head_start_ray_commands"][-1]
    assert "~/.ray/auth_token" in config["file_mounts"]
    assert any("constraints.txt" in command for command in config["setup_commands"])


def test_the_cloud_cluster():
    config = read("cluster.yaml")
    types = config["available_node_types"]
    assert types["head"]["resources"] == {"CPU": 0, "GPU": 0}
    assert [types[n]["min_workers"] for n in ("gpu-spot", "gpu-ondemand")] == [0, 0]
    assert types["gpu-spot"]["priority"] > types["gpu-ondemand"]["priority"]
    assert "InstanceMarketOptions" not in types["gpu-ondemand"]["node_config"]


@pytest.mark.parametrize("name", ["head", "gpu-spot", "gpu-ondemand"])
def test_the_cloud_knows_every_field_of_a_node(name):
    """Ray passes node_config on unread; the cloud's own description of the call finds a misspelt
    field.
    """
    shape = (
        botocore.session.get_session()
        .get_service_model("ec2")
        .operation_model("RunInstances")
        .input_shape
    )
    node = read("cluster.yaml")["available_node_types"][name]["node_config"]
    asked = {**node, "MinCount": 1, "MaxCount": 1}
    assert not botocore.validate.ParamValidator().validate(asked, shape).has_errors()
    wrong = {**asked, "InstanceMarketOption": {}}
    assert botocore.validate.ParamValidator().validate(wrong, shape).has_errors()


def test_kuberay():
    spec = read("deploy/kuberay.yaml")["spec"]
    assert spec["enableInTreeAutoscaling"]
    assert spec["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    for group in spec["workerGroupSpecs"]:
        assert group["minReplicas"] == 0
        (container,) = group["template"]["spec"]["containers"]
        assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
        assert {"name": "RAY_AUTH_MODE", "value": "token"} in container["env"]


def test_prometheus_keeps_our_metrics():
    import re

    (job,) = read("deploy/prometheus.yml")["scrape_configs"]
    (rule,) = job["metric_relabel_configs"]
    for name in (*(s.name for s in SIGNALS), PHASE_SECONDS, BYTES):
        assert re.fullmatch(rule["regex"], f"ray_{name}")


def test_the_grafana_dashboard_shows_every_signal():
    board = grafana.dashboard()
    queries = " ".join(panel["targets"][0]["expr"] for panel in board["panels"])
    for name in (*(s.name for s in SIGNALS), PHASE_SECONDS, BYTES):
        assert f"ray_{name}{{" in queries
    places = [tuple(panel["gridPos"].values()) for panel in board["panels"]]
    assert len(set(places)) == len(places)
    assert json.loads((ROOT / "deploy" / grafana.FILE).read_text()) == board


def test_a_line_of_top():
    note = Note("mnist", "", "ab", "/x", rounds=100, round=40, seconds=2.0, accuracy=[0.1, 0.5, 0.9], bytes=3e6,
                client_actors=4, working=3, replaced=1, gpus=0.5, updated=1000.0)  # fmt: skip
    cells = line(note, "ALIVE", 1001.0)
    assert cells == [
        "mnist",
        "40/100",
        "2:00",
        "0.9000 ▁▅█",
        "3/4 (1 replaced)",
        "0.5",
        "3.0",
        "running",
    ]
    assert line(replace(note, round=0, seconds=0.0), "ALIVE", 1001.0)[-1] == "first round"
    assert line(note, "ALIVE", 1100.0)[-1] == "silent for 100 s"
    assert line(note, "RESTARTING", 1001.0)[-1] == "restarting"
    unnamed = replace(note, experiment=UNNAMED, folder="/x/first")
    assert line(unnamed, "ALIVE", 1001.0)[0] == "first"


def test_top_knows_jobs_without_a_run_yet():
    def job(name, status, ray_job, command="python -m sweeps.cli run a.yaml --address auto"):
        return SimpleNamespace(
            submission_id=name, status=status, job_id=ray_job, entrypoint=command
        )

    jobs = [
        job("waits", "PENDING", None),
        job("starts", "RUNNING", "01"),
        job("runs", "RUNNING", "02"),
        job("ended", "SUCCEEDED", "03"),
        job("another's", "RUNNING", "04", "python train.py"),
    ]
    assert [*starting(jobs, {"02"})] == [("waits", "job waits"), ("starts", "job starts")]


def test_a_curve_that_stays_lies_at_the_bottom():
    assert sparkline([]) == ""
    assert sparkline([0.3, 0.3]) == "▁▁"
