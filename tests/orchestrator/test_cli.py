"""The command as a user runs it."""

import errno
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from unittest import mock

import pandas as pd
import pytest
import yaml
from safetensors.torch import load_file

from algorithms.part import variants
from orchestrator import terminal
from orchestrator.cli import app as cli
from orchestrator.cli import doctor, running
from orchestrator.cli.app import _told
from orchestrator.cli.catalogue import KINDS
from orchestrator.cli.faults import report
from orchestrator.cluster import connection
from orchestrator.cluster.connection import _declared
from orchestrator.config import load
from orchestrator.errors import UserError
from orchestrator.files import cache
from orchestrator.rounds.remote import answer_of, launch
from tests.configs import small
from tests.sets import quick

QUICK = [
    "--set",
    "data.limit=400",
    "--set",
    "model=linear",
    "--set",
    "rounds=4",
    "--set",
    "local.steps=2",
]


def fedorch(*words, cwd=None, **env):
    command = [sys.executable, "-m", "orchestrator.cli.app", *map(str, words)]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=cwd, env={**os.environ, **env}, timeout=240
    )


def here(*words):
    """The command in this process: (exit code, all output) — for what needs no process of its
    own."""
    buffers = [io.StringIO(), io.StringIO()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(terminal.console, "_file", buffers[0])
        patch.setattr(terminal.errors, "_file", buffers[1])
        patch.setattr(sys, "argv", ["fedorch", *map(str, words)])
        for console in (terminal.console, terminal.errors):
            patch.setattr(console, "_width", 200)
        try:
            cli.main()
            code = 0
        except SystemExit as end:
            code = end.code or 0
    return code, "".join(b.getvalue() for b in buffers)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """One finished run on Ray."""
    out = tmp_path_factory.mktemp("runs") / "a"
    return out, fedorch("run", *QUICK, "--out", out, "--num-cpus", 2)


def test_a_run_leaves_its_folder(finished):
    out, process = finished
    assert process.returncode == 0, process.stderr
    assert "round 4/4" in process.stdout
    assert "test accuracy" in process.stdout
    result = json.loads((out / "result.json").read_text())
    assert result["status"] == "finished"
    assert result["rounds"] == 4
    assert result["bytes_up"] == 4 * 10 * 7850 * 4
    assert len(result["weights_sha256"]) == 64
    assert result["versions"]["ray"].startswith("2.")
    config = yaml.safe_load((out / "config.yaml").read_text())
    assert config["local"]["execution"] == "vectorized"
    assert config["data"]["partition"] == {"name": "dirichlet", "alpha": 0.3}
    assert pd.read_parquet(out / "rounds.parquet")["round"].tolist() == [1, 2, 3, 4]
    assert len(pd.read_parquet(out / "clients.parquet")) == 4 * 30
    assert load_file(out / "model.safetensors")["1.weight"].shape == (10, 784)
    assert list((out / "tensorboard").glob("events*"))
    assert not [p for p in out.rglob("*") if p.suffix in (".pkl", ".pickle", ".pt", ".partial")]


def test_in_process_gives_the_same_weights(finished, tmp_path):
    assert here("run", *QUICK, "--out", tmp_path / "b", "--in-process")[0] == 0
    shas = [
        json.loads((p / "result.json").read_text())["weights_sha256"]
        for p in (finished[0], tmp_path / "b")
    ]
    assert shas[0] == shas[1]


def test_an_occupied_folder_is_refused(finished):
    before = sorted(finished[0].rglob("*"))
    code, text = here("run", *QUICK, "--out", finished[0])
    assert code == 2
    assert "not empty" in text
    assert sorted(finished[0].rglob("*")) == before


MISTAKES = [
    (["--in-process", "--address", "auto"], "--in-process runs without Ray"),
    (["--in-process", "--num-gpus", "1"], "do not go with it"),
    (["--set", "algorithm=fedprx"], "did you mean 'fedprox'?"),
    (["--set", "data.clients=9000", "--set", "cohort=1"], "9000 clients cannot share 400"),
    (["--set", "data.dataset=kmnist"], "KMNIST/raw"),
    (
        [
            "--set",
            "data.dataset=synthetic",
            "--set",
            "data.partition=natural",
            "--set",
            "data.limit=null",
            "--set",
            "model=lenet5",
        ],
        "needs images",
    ),
    # which was dropped without a word
    (["--set", "data={dataset: synthetic}"], "takes away what --set data.limit=400 has set"),
    (["--set", "algorithm.mu=0.1", "--set", "algorithm=fedavg"], "algorithm.mu: there is no such"),
    (["--resume", "nowhere"], "give no config"),
]


@pytest.mark.parametrize(("words", "message"), MISTAKES)
def test_mistakes_write_nothing(tmp_path, monkeypatch, words, message):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "c"))
    monkeypatch.setenv("FEDORCH_DATA", "")
    monkeypatch.setattr("torchvision.datasets.KMNIST", offline)
    code, text = here("run", "--in-process", *QUICK, *words, "--out", tmp_path / "x")
    assert code == 2, text
    assert message in text.replace("\n", " ")
    assert "Traceback" not in text
    assert not (tmp_path / "x").exists()


def offline(*about, **options):
    raise OSError("there is no network")


@pytest.mark.parametrize(("words", "message"), quick(MISTAKES, MISTAKES[0]))
def test_mistakes_are_told_on_stderr(tmp_path, words, message):
    """In a process of its own, as a shell sees it."""
    process = fedorch(
        "run",
        "--in-process",
        *QUICK,
        *words,
        "--out",
        tmp_path / "x",
        HF_HUB_OFFLINE="1",
        XDG_CACHE_HOME=str(tmp_path / "c"),
        FEDORCH_DATA="",
    )
    assert process.returncode == 2, process.stdout + process.stderr
    assert message in process.stderr.replace("\n", " ")
    assert "Traceback" not in process.stderr
    assert not (tmp_path / "x").exists()


def test_a_help_page_that_cannot_be_written(capsys, monkeypatch):
    """Typer prints it, and knows of no full disk."""
    monkeypatch.setattr(cli.console, "on_broken_pipe", lambda: None)
    assert _told(OSError(errno.ENOSPC, "No space left on device")) == 2
    assert "standard output cannot be written" in capsys.readouterr().err
    assert _told(FileNotFoundError(errno.ENOENT, "no", "a file")) == 1


def test_a_user_without_a_home(tmp_path, monkeypatch, capsys):
    """A container's, of whom the system knows nothing: the report of a fault was one itself."""
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", nowhere)
    with pytest.raises(UserError, match="set HOME"):
        cache()
    assert "ValueError: x" in report(ValueError("x"))


def nowhere():
    raise RuntimeError("Could not determine home directory.")


@pytest.mark.parametrize(
    "said", ["CPU=inf", "CPU=1e400", "CPU=nan", "CPU=-3", "=3", "CPU", "CPU=x"]
)
def test_a_largest_cluster_that_is_none(said):
    assert _declared("CPU=64, GPU=8") == {"CPU": 64, "GPU": 8}
    with pytest.raises(UserError, match="write it like CPU=64,GPU=8"):
        _declared(said)


def test_ctrl_c_while_the_command_is_loaded_is_silent():
    code = "import sys, fedorch.__main__ as f; sys.argv = ['fedorch', 'list']; f.main()"
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", "-c", code], stderr=subprocess.PIPE, text=True
    )
    loading = iter(process.stderr.readline, "")
    next(line for line in loading if "pydantic" in line)  # before torch, which takes seconds
    process.send_signal(signal.SIGINT)
    said = process.stderr.read()
    assert process.wait() == 130
    assert "Interrupt" not in said


def test_a_fault_of_our_own_is_one_sentence_and_kept(monkeypatch, capsys, tmp_path):
    def fault(prog_name):
        raise KeyError("[/red] nobody has thought of this")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cli, "app", fault)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr().err
    (kept,) = (tmp_path / "fedorch" / "faults").iterdir()
    assert ended.value.code == 1
    assert "nobody has thought of this" in said
    assert str(kept) in said.replace("\n", "")
    assert "in fault" in kept.read_text()


@pytest.mark.usefixtures("ray_session")
def test_mistakes_inside_the_server_actor_are_sentences(tmp_path):
    config = small("data.clients=500", "resources.actors=1")
    server = launch(config, tmp_path / "x", resuming=False)
    with pytest.raises(UserError, match="cannot share 400"):
        answer_of(server.prepared.remote())
    assert not (tmp_path / "x").exists()


@pytest.mark.long
def test_mistakes_inside_the_server_actor_are_told_on_stderr(tmp_path):
    process = fedorch(
        "run",
        *QUICK,
        "--set",
        "data.clients=500",
        "--set",
        "resources.actors=77",
        "--out",
        tmp_path / "x",
    )
    assert process.returncode == 2
    assert "cannot share 400" in process.stderr.replace("\n", " ")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    "plane", [pytest.param("--in-process", marks=pytest.mark.slow), "--num-cpus=2"]
)
def test_killed_and_resumed_is_undisturbed(tmp_path, plane):
    """kill -9 of the whole process group in mid-run; the rest is done by --resume, to the same
    bits.
    """
    settings = ["data.limit=400", "model=linear", "rounds=20", "local.steps=20",
                "local.execution=sequential", "checkpoint.every=1", "algorithm=scaffold",
                "resources.actors=1"]  # fmt: skip
    words = [word for setting in settings for word in ("--set", setting)]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert here("run", *words, "--out", whole, "--in-process")[0] == 0
    command = [
        sys.executable,
        "-m",
        "orchestrator.cli.app",
        "run",
        *words,
        "--out",
        str(broken),
        plane,
    ]
    process = subprocess.Popen(
        command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    # as long as it takes on a busy machine: pytest has a limit of its own
    while len(list(broken.glob("checkpoints/round-*"))) < 2 and process.poll() is None:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not (broken / "result.json").exists()
    resumed = fedorch("run", "--resume", broken, plane)
    assert resumed.returncode == 0, resumed.stderr
    a, b = (json.loads((p / "result.json").read_text()) for p in (whole, broken))
    assert a["state_sha256"] == b["state_sha256"]
    assert a["bytes_up"] == b["bytes_up"]
    assert a["metrics"] == b["metrics"]


def test_resumed_before_the_first_checkpoint_and_with_another_config(tmp_path):
    out = tmp_path / "x"
    out.mkdir()
    settings = ["rounds=2", "model=linear", "name=fresh", "data.limit=400", "checkpoint.every=1"]
    (out / "config.yaml").write_text(load(None, settings).dump())
    code, text = here("run", "--resume", out, "--in-process")
    assert code == 0
    assert "no checkpoint had been written yet" in text
    (out / "config.yaml").write_text(load(None, [*settings, "seed=5"]).dump())
    code, text = here("run", "--resume", out, "--in-process")
    assert code == 2
    assert "was changed since the checkpoint" in text


def test_a_finished_run_without_a_checkpoint_is_left_alone(tmp_path):
    out = tmp_path / "x"
    assert here("run", *QUICK, "--set", "checkpoint.every=0", "--in-process", "--out", out)[0] == 0
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")}
    code, text = here("run", "--resume", out, "--in-process")
    assert code == 2
    assert "the run is finished, and has kept no checkpoint" in text.replace("\n", " ")
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")} == before


def test_detach_needs_a_cluster():
    assert here("run", "--detach")[0] == 2


@pytest.mark.parametrize("plane", quick(["--in-process", "--num-cpus=2"], "--in-process"))
def test_interrupted_is_stopped_with_a_checkpoint(tmp_path, plane):
    out = tmp_path / "x"
    command = [
        sys.executable,
        "-m",
        "orchestrator.cli.app",
        "run",
        *QUICK,
        "--set",
        "rounds=100000",
        "--out",
        str(out),
        plane,
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while "round 3/" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"stopped; to go on: fedorch run --resume {out}" in printed
    result = json.loads((out / "result.json").read_text())
    assert result["status"] == "stopped"
    assert list(out.glob(f"checkpoints/round-{result['rounds']:06d}"))


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_either_signal_stops_after_the_round_and_the_second_at_once(sign):
    """SIGTERM, which clusters send, is no other end than Ctrl-C's; handlers are put back."""
    told, interrupts, before = [], [], signal.getsignal(sign)
    with running._on_interrupt(interrupts, lambda: told.append("stop")):
        signal.raise_signal(sign)
        assert told == ["stop"]
        assert interrupts == [sign]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(sign)
        assert told == ["stop"]
    assert signal.getsignal(sign) is before


def test_beside_ray_sigterm_is_ctrl_c_unless_somebody_minds_it():
    own, before = (lambda *_: None), signal.getsignal(signal.SIGTERM)
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with connection._terminated_as_interrupted() as heeded:
            signal.signal(signal.SIGTERM, own)  # as Ray does
            heeded()
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        signal.signal(signal.SIGTERM, own)
        with connection._terminated_as_interrupted() as heeded:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)  # as Ray does
            heeded()
            assert signal.getsignal(signal.SIGTERM) is own
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        assert signal.getsignal(signal.SIGTERM) is own
    finally:
        signal.signal(signal.SIGTERM, before)


def test_list_and_describe_know_everything():
    assert here("list")[0] == 0
    for kind, (_, base) in KINDS.items():
        text = here("list", kind)[1]
        assert all(name in text for name in variants(base))
        for name in variants(base):
            assert here("describe", name)[0] == 0
    text = here("describe", "fedprox")[1]
    assert "μ" in text
    assert "0.01" in text
    assert "batch_size" in here("describe", "local")[1]
    assert "see data.heldout" in here("describe", "data")[1]
    assert "per_class" in here("describe", "data.heldout")[1]
    for words in (("describe", "fedprx"), ("list", "algoritms")):
        code, text = here(*words)
        assert code == 2
        assert "did you mean" in text


def test_describe_finds_options_of_parts_and_what_is_meant():
    """By the key that chooses the part, by its name, and a key by what it means."""
    for name in ("algorithm.mu", "fedprox.mu"):
        code, text = here("describe", name)
        assert code == 0
        assert "fedprox.mu" in text
        assert ("moon.mu" in text) == (name == "algorithm.mu")
    code, text = here("describe", "learning_rate")
    assert code == 2
    assert "local.lr" in text
    assert "did you mean local.lr" in here("run", "--set", "local.learning_rate=1")[1]


def test_lists_for_programs_are_data():
    kinds = {row["kind"]: row for row in json.loads(here("list", "--json")[1])}
    assert kinds["attacks"]["key"] == "attack"
    assert set(variants(KINDS["attacks"][1])) == set(kinds["attacks"]["names"])
    options = {row["option"]: row for row in json.loads(here("describe", "fedprox", "--json")[1])}
    assert options["mu"]["default"] == 0.01
    columns = json.loads(here("describe", "columns", "--json")[1])
    assert {"rounds", "clients"} == {row["table"] for row in columns}
    assert {"reward", "agent_critic_loss"} <= {row["column"] for row in columns}


def test_data_show(tmp_path):
    code, text = here("data", "show", "--set", "data.clients=5", "--plot", tmp_path / "map.png")
    assert code == 0
    assert "5 clients, 8000 training rows" in text
    assert (tmp_path / "map.png").read_bytes()[:4] == b"\x89PNG"


def test_compare(finished, tmp_path):
    out = tmp_path / "b"
    assert (
        here(
            "run",
            *QUICK,
            "--set",
            "algorithm=fedprox",
            "--set",
            "name=prox",
            "--out",
            out,
            "--in-process",
        )[0]
        == 0
    )
    code, text = here("compare", finished[0], out, "--plot", tmp_path / "c.png")
    assert code == 0
    assert re.search(r"\brun\b", text)
    assert "prox" in text
    assert (tmp_path / "c.png").exists()
    assert set(pd.read_csv(tmp_path / "c.csv")["run"]) == {"run", "prox"}
    (tmp_path / "empty").mkdir()
    assert here("compare", tmp_path / "empty")[0] == 2


def test_runs_in_folders_of_one_name_and_elsewhere_are_told_apart(finished, tmp_path):
    places = []
    for parent in ("a", "b"):
        shutil.copytree(
            finished[0], tmp_path / parent / "run", ignore=shutil.ignore_patterns(".lock")
        )
        places.append((tmp_path / parent / "run").as_uri())
    code, text = here(
        "compare",
        *places,
        "--plot",
        tmp_path / "c.png",
        "--target",
        "<= 2.0",
        "--metric",
        "test_loss",
    )
    assert code == 0, text
    assert set(pd.read_csv(tmp_path / "c.csv")["run"]) == set(places)
    assert "rounds to <= 2" in text
    assert here("compare", places[0], "--target", "soon") == (2, mock.ANY)
    assert here("wallclock", *places, "--step-ms", "1")[0] == 0
    assert here("compare", (tmp_path / "a").as_uri())[0] == 2


def test_doctor(ray_session, monkeypatch):
    """On the suite's own Ray session."""
    monkeypatch.setattr(doctor, "connected", nullcontext)
    code, text = here("doctor")
    assert code == 0, text
    assert "10,000 images" in text
    assert "8 CPUs, 2 GPUs, 1 node" in text


@pytest.mark.long
def test_doctor_starts_a_cluster_to_see_whether_it_can():
    process = fedorch("doctor", COLUMNS="200")
    assert process.returncode == 0, process.stderr
    assert "10,000 images" in process.stdout
    assert "CPUs" in process.stdout
