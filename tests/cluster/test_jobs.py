"""A cluster with a dashboard and a token: jobs, metrics, ``fedorch top``, and what listens
where."""

import json
import re
import time

import pytest

from orchestrator.config import load
from orchestrator.monitoring.signals import SIGNALS
from tests.cluster.nodes import DASHBOARD, HEAD, Nodes, namespaces, result, sets, until
from tests.running import finish
from tests.sets import quick

pytestmark = namespaces
LONG = [
    "data.limit=400",
    "data.clients=6",
    "model=linear",
    "cohort=4",
    "local.steps=3",
    "rounds=100000",
    "name=watched",
]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    made = Nodes(tmp_path_factory.mktemp("cluster"), dashboard=True, token=True)
    try:
        made.start()
        made.add(cpus=2, gpus=1)
        yield made
    finally:
        made.close()


@pytest.mark.long
def test_a_job_from_a_file(nodes, tmp_path):
    out = tmp_path / "run"
    (tmp_path / "small.yaml").write_text(
        "{data: {limit: 400, clients: 6}, model: linear, cohort: 4, rounds: 3}"
    )
    done = nodes.fedorch(
        "submit",
        "--id",
        "first",
        "run",
        tmp_path / "small.yaml",
        "--set",
        "local.steps=3",
        "--out",
        out,
    )
    assert done.returncode == 0, done.stderr
    assert "submitted first" in done.stdout
    # by the address that run and top take, as by the dashboard's
    told = nodes.fedorch("logs", "first", "--follow", "--address", HEAD)
    assert "round 3/3" in told.stdout, told.stdout + told.stderr
    here = finish(load(None, ["data.limit=400", "data.clients=6", "model=linear", "cohort=4",
                              "rounds=3", "local.steps=3"]))  # fmt: skip
    assert result(out)["weights_sha256"] == here.weights_sha256()
    assert "a-token-of-this-test" not in (out / "config.yaml").read_text() + told.stdout


MISTAKES = [
    (["submit", "list"], "say what to run"),
    (["submit", "run", "--in-process"], "makes no sense in a job"),
    (["submit", "run", "nowhere.yaml"], "cannot read nowhere.yaml"),
    (["logs", "nobody"], "nobody"),
    (["stop", "nobody"], "nobody"),
]


@pytest.mark.parametrize(("command", "message"), quick(MISTAKES, MISTAKES[3]))
def test_mistakes(nodes, command, message):
    done = nodes.fedorch(*command)
    assert done.returncode == 2, done.stdout + done.stderr
    assert message in done.stderr


@pytest.mark.long
@pytest.mark.parametrize("address", [HEAD, DASHBOARD])
def test_another_token(nodes, monkeypatch, address):
    monkeypatch.setitem(nodes.environment, "RAY_AUTH_TOKEN", "another-token-0123456789abcdef")
    done = nodes.fedorch("jobs", "--address", address)
    assert (done.returncode, done.stdout) == (2, "")
    assert "the cluster there asks for another token" in done.stderr


@pytest.mark.long
def test_a_run_that_is_watched_and_stopped(nodes, tmp_path):
    out = tmp_path / "run"
    gpus = [
        "resources.gpus_per_actor=0.25",
        "resources.cpus_per_actor=0.5",
        "resources.actors=3",
        "checkpoint.every=20",
    ]
    done = nodes.fedorch("submit", "--id", "watched", "run", *sets([*LONG, *gpus]), "--out", out)
    assert done.returncode == 0, done.stderr
    # it is in sight before it has anything to show
    seen = nodes.fedorch("top", "--once", "--address", HEAD).stdout
    assert re.search(r"watched .*job (waits|starts)", seen), seen
    until(lambda: list(out.glob("checkpoints/round-*")))

    text = nodes.fedorch("top", "--once", "--address", HEAD).stdout
    assert "job starts" not in text
    row = next(line for line in text.splitlines() if "watched" in line)
    assert re.search(r"\d+/100000", row)
    assert "3/3" in row
    assert "0.75" in row
    assert "running" in row
    assert "0.75/1 GPU in use" in text

    actors = nodes.python(
        "from ray.util.state import list_actors\nhere = ray.get_runtime_context().get_node_id()\n"
        "for a in list_actors(detail=True): print(a.repr_name, 'on the head' if a.node_id == here else 'elsewhere')"
    )
    assert "fedorch watched server on the head" in actors
    assert "fedorch watched clients #2" in actors
    # at work: the title names round and clients
    until(lambda: nodes.named("ray::fedorch watched clients #"))

    def scraped():
        lines = [
            line
            for port in metrics_ports(nodes)
            for line in nodes.fetch(f"http://127.0.0.1:{port}/metrics").splitlines()
        ]
        return {
            n: [x for x in lines if x.startswith(f"ray_{n}{{")] for n in (s.name for s in SIGNALS)
        }

    time.sleep(
        12
    )  # longer than the two report intervals after which Ray forgets a gauge that is not set again
    found = scraped()
    for name in (
        "fedorch_round",
        "fedorch_test_accuracy",
        "fedorch_accuracy_worst",
        "fedorch_actors",
        "fedorch_cohort",
    ):
        assert any('experiment="watched"' in line for line in found[name]), name
    (alive,) = {line.rsplit(" ", 1)[1] for line in found["fedorch_actors"]}
    assert float(alive) == 3

    guide = nodes.fedorch("dashboard", "--address", HEAD, "--grafana", tmp_path / "grafana").stdout
    assert "8265" in guide
    json.loads(next((tmp_path / "grafana").iterdir()).read_text())

    assert "stopped" in nodes.fedorch("stop", "watched").stdout
    until(lambda: "watched" not in nodes.fedorch("top", "--once", "--address", HEAD).stdout)
    assert list(out.glob("checkpoints/round-*"))


def metrics_ports(nodes):
    ports = nodes.python("print([n['MetricsExportPort'] for n in ray.nodes() if n['Alive']])")
    return json.loads(ports)


def test_nothing_but_loopback_is_listened_on(nodes):
    """The namespace has no other device; what matters is that Ray was given no address but
    loopback's to bind.
    """
    assert DASHBOARD.startswith("http://127.0.0.1")
    ports = nodes.python("import ray; print([n['NodeManagerAddress'] for n in ray.nodes()])")
    assert set(json.loads(ports.replace("'", '"'))) == {"127.0.0.1"}
