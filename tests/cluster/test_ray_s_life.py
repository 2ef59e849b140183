"""A Ray that starts slowly, that keeps its token too openly, that dies while a run is stopped; with
no Ray at all.
"""

import os
import signal
import socket
import stat
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
import ray
from ray._raylet import AuthenticationMode

from orchestrator.cluster import connection, outliving
from orchestrator.cluster.connection import _keep_token, _started
from orchestrator.cluster.jobs import _going_on
from orchestrator.cluster.outliving import outlived


def test_a_ray_that_comes_up_too_slowly_is_started_again(monkeypatch, capsys):
    tries = []

    def init(**options):
        tries.append(options)
        if len(tries) == 1:
            raise RuntimeError("The current node timed out during startup.\nmore")
        return "here"

    monkeypatch.setattr(ray, "init", init)
    assert _started("local", {"num_cpus": 1}, connection.STARTS) == "here"
    assert [one["num_cpus"] for one in tries] == [1, 1]
    assert "started again: The current node timed out" in capsys.readouterr().err
    tries.clear()
    with pytest.raises(RuntimeError, match="timed out"):
        _started("127.0.0.1:6379", {}, 1)


def test_sigterm_while_ray_starts_is_ctrl_c(monkeypatch, capsys):
    """Ray's own handler, which holds meanwhile, ended the process without a word."""

    def init(**_):
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(number))  # as Ray does
        signal.raise_signal(signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    monkeypatch.setattr(ray, "init", init)
    try:
        with pytest.raises(KeyboardInterrupt), connection.connected("local", 1, 0):
            pass
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)
    assert "stopped while Ray was being reached; nothing has begun" in capsys.readouterr().err


def test_nobody_else_may_read_the_token(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    _keep_token()  # none is there
    (tmp_path / ".ray").mkdir()
    token = tmp_path / ".ray" / "auth_token"
    token.write_text("secret")
    token.chmod(0o644)
    _keep_token()
    assert stat.S_IMODE(token.stat().st_mode) == 0o600


def test_a_cluster_with_a_token_is_reached_by_who_has_imported_ray_already(tmp_path):
    """So have top, stop and sweeps, and Ray had read by then that no token is to be used."""
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("f" * 64)
    code = (
        "import ray; from ray._raylet import get_authentication_mode as mode; before = mode(); "
        "from orchestrator.cluster.connection import authenticate; authenticate('10.0.0.1:6379'); "
        "print(before, mode())"
    )
    plain = {name: text for name, text in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=plain | {"HOME": str(tmp_path)}, capture_output=True,
        text=True, timeout=120, check=True,
    )  # fmt: skip
    plain_mode, with_token = done.stdout.split()
    assert plain_mode == str(int(AuthenticationMode.DISABLED))
    assert with_token == str(int(AuthenticationMode.TOKEN))


@pytest.mark.parametrize(("alive", "codes"), [(False, [130]), (True, [])])
def test_a_run_whose_ray_is_gone_says_how_to_go_on(monkeypatch, capsys, alive, codes):
    """Only once it is told to stop; it would have waited a minute, and aborted."""
    ended = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        if not alive:
            server.close()
        context = SimpleNamespace(gcs_address=f"127.0.0.1:{port}")
        monkeypatch.setattr(ray, "get_runtime_context", lambda: context)
        monkeypatch.setattr(outliving, "GONE", 1)
        monkeypatch.setattr(os, "_exit", ended.append)
        with outlived("fedorch run --resume it", 130) as stopping:
            time.sleep(0.1)
            assert not ended
            stopping.set()
            time.sleep(3.0)
    assert ended == codes
    said = capsys.readouterr().err
    assert ("from the last checkpoint: fedorch run --resume it" in said) == bool(codes)


def test_what_goes_on_with_a_job_is_sent_to_the_same_cluster():
    job = "python -m sweeps.cli run a.yaml --out there --address auto"
    assert _going_on(job, None) == "fedorch submit run --resume there"
    there = _going_on(job, "127.0.0.1:6379")
    assert there == "fedorch submit --address 127.0.0.1:6379 run --resume there"
