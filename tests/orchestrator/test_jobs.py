"""The command line that a job is started with (jobs themselves are in ``cluster/test_jobs``)."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import typer

from orchestrator.cluster import jobs, reach
from orchestrator.errors import UserError


def test_words_of_a_job(monkeypatch):
    """``--out=X`` is ``--out X``; a resumed sweep needs its folder, a resumed run has named it."""
    sent = []
    client = SimpleNamespace(submit_job=lambda **job: sent.append(job["entrypoint"]) or "x")
    monkeypatch.setattr(jobs, "_client", lambda address: nullcontext(client))
    for words, out in (
        (["run", "--out=there"], "--out there"),
        (["run", "--resume=there"], "--resume there"),
        (["sweep", "drdm/table1", "--resume"], '--out "$HOME/fedorch/x"'),
        (["run"], '--out "$HOME/fedorch/x"'),
    ):
        jobs.submit("http://nowhere", words, "x")
        assert out in sent[-1]
        assert sent[-1].count("--out") == ("--out" in out)
    with pytest.raises(UserError, match="--address makes no sense"):
        jobs.submit("http://nowhere", ["run", "--address=auto"], "x")


def test_a_node_that_takes_no_jobs_yet_is_waited_for(monkeypatch):
    tries = []

    def submit_job(**job):
        tries.append(job)
        if len(tries) < 3:
            raise RuntimeError("Request failed: No available agent to submit job, please try later")
        return "x"

    monkeypatch.setattr(jobs.time, "sleep", lambda seconds: None)
    assert jobs._submitted(SimpleNamespace(submit_job=submit_job), entrypoint="e") == "x"
    assert tries == 3 * [{"entrypoint": "e"}]
    monkeypatch.setattr(jobs, "AGENT_WITHIN", -1.0)
    tries.clear()
    with pytest.raises(RuntimeError, match="No available agent"):
        jobs._submitted(SimpleNamespace(submit_job=submit_job))


def test_a_dashboard_is_taken_as_it_is_and_a_cluster_is_asked_for_its(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.delenv("RAY_API_SERVER_ADDRESS", raising=False)
    assert jobs._dashboard(None) == "http://127.0.0.1:8265"
    assert jobs._dashboard("https://far:8265") == "https://far:8265"
    monkeypatch.setenv("RAY_ADDRESS", "http://there:8265")
    assert jobs._dashboard(None) == "http://there:8265"
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    with pytest.raises(UserError, match="nobody listens at"):
        jobs._dashboard(None)
    with pytest.raises(UserError, match="is a dashboard's, which submit, logs and stop take"):
        reach.reachable("http://127.0.0.1:8265")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["list"], "say what to run"),
        (["run", "--in-process"], "makes no sense in a job"),
        (["run", "nowhere.yaml"], "cannot read nowhere.yaml"),
    ],
)
def test_what_cannot_be_a_job(monkeypatch, words, message):
    monkeypatch.setattr(jobs, "_client", lambda address: nullcontext(SimpleNamespace()))
    with pytest.raises(UserError, match=message):
        jobs.submit("http://nowhere", words, "x")


def test_only_files_are_carried(tmp_path):
    """Values of options were read as files if they ended in .yaml."""
    (tmp_path / "c.yaml").write_text("rounds: 2")
    place = tmp_path / "job"
    place.mkdir()
    words = [
        "sweep",
        "--resume",
        str(tmp_path / "c.yaml"),
        "--set",
        "name=a.yaml",
        "--out",
        "x.yaml",
    ]
    assert jobs._carry(words, place) == "sweep --resume c.yaml --set name=a.yaml --out x.yaml"
    assert [p.name for p in place.iterdir()] == ["c.yaml"]


def test_which_options_have_no_value():
    """What is known of them here is what the command knows."""
    from sweeps.cli import cli

    sweep = typer.main.get_command(cli.app).commands["sweep"]
    flags = {name for p in sweep.params if getattr(p, "is_flag", False) for name in p.opts}
    assert flags == set(jobs.FLAGS)
