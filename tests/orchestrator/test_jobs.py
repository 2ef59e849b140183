"""The command line that a job is started with (jobs themselves are in ``cluster/test_jobs``)."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import typer
from ray.job_submission import JobStatus

from orchestrator.cluster import jobs, reach
from orchestrator.errors import UserError


def test_words_of_a_job(monkeypatch):
    """``--out=X`` is ``--out X``; a resumed sweep needs its folder, a resumed run has named it."""
    sent = []
    client = SimpleNamespace(
        submit_job=lambda **job: sent.append(job["entrypoint"]) or "x", list_jobs=list
    )
    monkeypatch.setattr(jobs, "_client", lambda address: nullcontext(client))
    for words, out in (
        (["run", "--out=there"], "--out there"),
        (["run", "--resume=there"], "--resume there"),
        (["sweep", "drdm/table1", "--resume"], "--out '~/fedorch/x'"),
        (["run"], "--out '~/fedorch/x'"),
    ):
        jobs.submit("http://nowhere", words, "x")
        assert out in sent[-1]
        assert sent[-1].count("--out") == ("--out" in out)
    with pytest.raises(UserError, match="--address makes no sense"):
        jobs.submit("http://nowhere", ["run", "--address=auto"], "x")


def test_an_id_in_use_and_a_job_that_is_not_there(monkeypatch):
    """Ray answers the first with a traceback of its own, the second with its server's 404."""

    def nowhere(name):
        raise RuntimeError("Request failed with status code 404: Job nope does not exist")

    there = SimpleNamespace(
        submission_id="x", status="RUNNING", start_time=1000, entrypoint=f"{jobs.STARTS}run"
    )
    client = SimpleNamespace(list_jobs=lambda: [there], get_job_status=nowhere)
    monkeypatch.setattr(jobs, "_client", lambda address: nullcontext(client))
    with pytest.raises(UserError, match="--id x: the cluster has a job of that id"):
        jobs.submit("http://nowhere", ["run"], "x")
    for ask in (lambda: list(jobs.logs(None, "nope", False)), lambda: jobs.stop(None, "nope")):
        with pytest.raises(UserError, match="no job 'nope'; `fedorch jobs` lists them"):
            ask()
    (listed,) = jobs.listed(None)
    assert (listed["id"], listed["status"], listed["command"]) == ("x", "running", "run")


@pytest.mark.parametrize(
    ("command", "how"),
    [
        ("run a.yaml --out '~/fedorch/x' --address auto", "run --resume '~/fedorch/x'"),
        ("run --resume /a --address auto", "run --resume /a"),
        (
            "sweep drdm/table3 --budget smoke --out '~/fedorch/x' --address auto",
            "sweep drdm/table3 --budget smoke --out '~/fedorch/x' --resume",
        ),
    ],
)
def test_a_job_that_is_stopped_says_how_to_go_on(monkeypatch, command, how):
    class Client:
        def get_job_info(self, name):
            return SimpleNamespace(entrypoint=f"{jobs.STARTS}{command}")

        def get_job_status(self, name):
            return JobStatus.STOPPED

        def stop_job(self, name):
            return True

    monkeypatch.setattr(jobs, "_client", lambda address: nullcontext(Client()))
    assert jobs.stop(None, "x") == ("STOPPED", f"fedorch submit {how}")


def test_the_line_of_a_traceback_that_says_what_is_wrong():
    said = "Request failed: Traceback (most recent call last):\n  File x\nValueError: no\n."
    assert jobs._first(RuntimeError(said)) == "ValueError: no"


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
    with pytest.raises(UserError, match="--dashboard-agent-listen-port"):
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
        (["run", "--set", "local.lr=-1"], "local.lr: must be"),
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
