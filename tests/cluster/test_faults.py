"""Faults on a cluster of several nodes: the run goes on, or is continued, with the bits of the
undisturbed one.
"""

import pytest

from orchestrator.config import load
from orchestrator.errors import UserError
from orchestrator.results.run_folder import RunFolder
from tests.cluster.nodes import HEAD, Cabled, Nodes, end, namespaces, pids, result, sets, until
from tests.running import finish

pytestmark = namespaces
RUN = [
    "data.limit=600", "data.clients=6", "model=linear", "cohort=6", "local.steps=30", "local.block=1", "rounds=80",
    "algorithm=scaffold", "local.execution=sequential", "checkpoint.every=2", "resources.actors=3", "evaluation.every=5",
]  # fmt: skip


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    made = Nodes(tmp_path_factory.mktemp("cluster"))
    try:
        made.start()
        made.add(cpus=2)
        made.worker = made.add(cpus=2)
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def undisturbed():
    return finish(load(None, RUN)).weights_sha256()


def words(out, head=HEAD, run=RUN):
    return ["run", *sets(run), "--out", out, "--address", head]


def rounds_done(out):
    """Rounds of the newest checkpoint."""
    return max((int(p.name[-6:]) for p in out.glob("checkpoints/round-*")), default=0)


@pytest.mark.long
def test_a_node_is_lost_in_mid_run(nodes, undisturbed, tmp_path):
    out = tmp_path / "run"
    process = nodes.background(*words(out))
    until(lambda: rounds_done(out) >= 4, process)
    nodes.kill(nodes.worker)
    nodes.worker = nodes.add(cpus=2)
    text, _ = process.communicate(timeout=600)
    assert process.returncode == 0, text
    assert result(out)["weights_sha256"] == undisturbed
    assert result(out)["actors_replaced"] >= 1
    assert "another takes its place" in text


@pytest.mark.long
def test_the_server_dies(nodes, undisturbed, tmp_path):
    out = tmp_path / "run"
    process = nodes.background(*words(out))
    until(lambda: rounds_done(out) >= 6, process)
    (pid,) = nodes.named("ray::Server")
    end(pid)
    text, _ = process.communicate(timeout=600)
    assert process.returncode == 0, text
    assert "started again from the newest checkpoint" in text
    assert result(out)["weights_sha256"] == undisturbed


@pytest.mark.slow
def test_the_server_dies_together_with_a_node(nodes, tmp_path):
    """The next one goes on with the client actors that have room; the others come back with another
    node.
    """
    many, out = [*RUN, "rounds=300"], tmp_path / "run"
    process = nodes.background(*words(out, run=many))
    until(lambda: rounds_done(out) >= 6, process)
    (pid,) = nodes.named("ray::Server")
    nodes.kill(nodes.worker)
    end(pid)
    before = rounds_done(out)
    until(lambda: rounds_done(out) > before, process)
    nodes.worker = nodes.add(cpus=2)
    clients = ("ray::ClientActor", "ray::fedorch quickstart clients")
    until(lambda: len(nodes.named(clients)) == 3, process)
    text, _ = process.communicate(timeout=600)
    assert process.returncode == 0, text
    assert "started again from the newest checkpoint" in text
    assert result(out)["weights_sha256"] == finish(load(None, many)).weights_sha256()


@pytest.mark.slow  # the fast suite does it on a local cluster (test_cli)
def test_the_driver_dies_and_only_one_may_go_on(nodes, undisturbed, tmp_path):
    out = tmp_path / "run"
    process = nodes.background(*words(out))
    until(lambda: rounds_done(out) >= 4, process)
    with pytest.raises(UserError, match="in use: process"):
        RunFolder(out).claim()
    process.kill()
    process.wait()
    again = nodes.fedorch("run", "--resume", out, "--address", HEAD)
    assert again.returncode == 0, again.stdout + again.stderr
    assert result(out)["weights_sha256"] == undisturbed


@pytest.fixture
def cabled(tmp_path):
    """Two nodes at the ends of a cable. After its cut rounds are slow here (docs/reliability.md
    says why).
    """
    made = Cabled(tmp_path)
    try:
        made.start()
        made.add(cpus=2)
        made.add_far(cpus=2)
        yield made
    finally:
        made.close()


@pytest.mark.slow
def test_a_node_is_cut_off(cabled, tmp_path):
    """No connection is closed, nothing answers: only the health checks can tell."""
    few, out = [*RUN, "rounds=25"], tmp_path / "run"
    process = cabled.background(*words(out, cabled.head, few))
    until(lambda: rounds_done(out) >= 4, process)
    cabled.cut()
    text, _ = process.communicate(timeout=600)
    assert process.returncode == 0, text
    assert result(out)["weights_sha256"] == finish(load(None, few)).weights_sha256()
    assert "another takes its place" in text


@pytest.mark.slow
def test_the_servers_node_is_cut_off(cabled, tmp_path):
    """Another server goes on with as many actors as have room, once the first one's end has freed
    the folder.
    """
    many, out = [*RUN, "rounds=150"], tmp_path / "run"
    cabled.fedorch_far(*words(out, cabled.head, many), "--detach")
    until(lambda: rounds_done(out) >= 4)
    (server,) = cabled.named("ray::Server")
    assert server in pids(cabled.far)
    cabled.cut()
    assert not (out / "result.json").exists()
    until((out / "result.json").exists, seconds=500)
    assert result(out)["weights_sha256"] == finish(load(None, many)).weights_sha256()
    assert result(out)["actors"] == 2


@pytest.mark.slow
def test_the_whole_cluster_is_lost(undisturbed, tmp_path):
    out = tmp_path / "run"
    first = Nodes(tmp_path)
    try:
        first.start()
        first.add(cpus=3)
        process = first.background(*words(out))
        until(lambda: rounds_done(out) >= 4, process)
    finally:
        first.close()
    process.wait()
    second = Nodes(tmp_path)
    try:
        second.start()
        second.add(cpus=3)
        again = second.fedorch("run", "--resume", out, "--address", HEAD)
        assert again.returncode == 0, again.stdout + again.stderr
    finally:
        second.close()
    assert result(out)["weights_sha256"] == undisturbed
