"""Nobody there: addresses at which nobody, somebody else, or somebody silent listens; and who can
listen to a plain run.
"""

import atexit
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent import futures

import grpc
import psutil
import pytest

from orchestrator.cli import app as command
from orchestrator.cluster import jobs, reach, waiting
from orchestrator.cluster.connection import connected
from orchestrator.cluster.reach import exposure
from orchestrator.cluster.waiting import patience, within
from orchestrator.errors import UserError
from orchestrator.results.storage import Mirror


@pytest.fixture(autouse=True)
def hurried(monkeypatch):
    monkeypatch.setenv("FEDORCH_TIMEOUT", "0.2")


@pytest.fixture(scope="module")
def silent():
    """An address at which somebody listens and says nothing."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(50)
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture(scope="module")
def other():
    """An address at which somebody speaks gRPC who is no cluster."""
    server = grpc.server(futures.ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(0)


def nobody():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


def refused(address):
    begun = time.monotonic()
    with pytest.raises(UserError) as told, connected(address):
        pass
    assert time.monotonic() - begun < 9
    assert f"--address {address}" in str(told.value)
    return str(told.value)


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_nobody_is_there(scheme, silent, other, monkeypatch):
    """Ray alone tries for 30 s to minutes in each of these."""
    assert "no answer within 0.2 s" in refused(f"{scheme}{silent}")
    monkeypatch.delenv("FEDORCH_TIMEOUT")  # who answers need not be quick on a busy machine
    assert "nobody listens" in refused(f"{scheme}{nobody()}")
    assert "is no Ray cluster" in refused(f"{scheme}{other}")


@pytest.mark.parametrize(
    "address",
    ["nonsense", "ray://", "127.0.0.1:99999", "http://127.0.0.1:1", "gcs://127.0.0.1:6379"],
)
def test_what_is_no_address(address):
    assert "HOST:PORT" in refused(address)


@pytest.mark.parametrize(
    "address", ["me:hunter22@127.0.0.1:6379", "127.0.0.1:6379/x?token=hunter22", "::hunter22 "]
)
def test_what_is_no_address_is_not_repeated(address, monkeypatch):
    """It may hold a password, without anything that looks like a URL's."""
    with pytest.raises(UserError, match="HOST:PORT") as told, connected(address):
        pass
    assert "hunter22" not in str(told.value)
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(UserError, match="which RAY_ADDRESS names") as told, connected("auto"):
        pass
    assert "hunter22" not in str(told.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "head.example-1.org"])
def test_a_client_s_address_has_a_port(host, monkeypatch):
    """Without it Ray waits for others first."""
    asked = []
    monkeypatch.setattr(reach, "_listener", lambda *where: asked.append(where) or (where[0], True))
    monkeypatch.setattr(reach, "_require_ray", lambda *about: None)
    for address, place in ((f"ray://{host}", f"ray://{host}:10001"), (f"{host}:7", f"{host}:7")):
        assert reach.reachable(address) == (place, True)
    assert asked == [(host.strip("[]"), 10001), (host.strip("[]"), 7)]


def test_no_dashboard(silent):
    for address in (nobody(), silent):
        with pytest.raises(UserError, match=f"--address http://{address}: "):
            list(jobs.logs(f"http://{address}", "x", follow=False))


def test_no_storage(silent):
    """Google's storage is tried for a quarter of an hour, and one that is silent for ever."""
    host, _, port = silent.partition(":")
    for uri in (
        f"s3://bucket/x?endpoint_override={host}%3A{port}&scheme=http&region=us-east-1",
        f"gs://anonymous@bucket/x?endpoint_override={host}%3A{port}&scheme=http",
    ):
        with pytest.raises(UserError, match="cannot be reached: no answer within"):
            Mirror(uri)


def test_patience(monkeypatch):
    for wrong in ("0", "-1", "nan", "inf", "soon", "1e9"):
        monkeypatch.setenv("FEDORCH_TIMEOUT", wrong)
        with pytest.raises(UserError, match="FEDORCH_TIMEOUT"):
            patience()
    monkeypatch.delenv("FEDORCH_TIMEOUT")
    assert patience() == 10


def test_what_was_raised_is_raised_here():
    assert within(5, lambda: 3) == 3
    with pytest.raises(KeyError, match="there"):
        within(5, lambda: {}["there"])


def test_a_signal_is_heard_while_waiting(request):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # Tune leaves one of its own
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    main = threading.main_thread().ident
    threading.Timer(0.1, signal.pthread_kill, (main, signal.SIGINT)).start()
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        within(20, lambda: time.sleep(3))
    assert time.monotonic() - begun < 2


def test_what_was_left_behind_holds_up_no_exit(monkeypatch):
    left, at_exit = [], []
    monkeypatch.setattr(waiting, "_late", [])
    monkeypatch.setattr(os, "_exit", left.append)
    monkeypatch.setattr(atexit, "register", lambda call, *words: at_exit.append((call, words)))
    with pytest.raises(SystemExit), waiting.leaving():
        sys.exit(2)
    ((call, words),) = at_exit
    call(*words)
    assert not left
    gate = threading.Event()
    with contextlib.suppress(TimeoutError):
        within(0.1, gate.wait)
    call(*words)
    assert left == [2]
    gate.set()


def test_the_command_is_one_that_leaves(monkeypatch):
    def refused(prog_name):
        raise UserError("no")

    left = []
    monkeypatch.setattr(command, "app", refused)
    monkeypatch.setattr(atexit, "register", lambda call, *words: left.append(words))
    with pytest.raises(SystemExit):
        command.main()
    assert left == [(2,)]


@pytest.mark.long
def test_a_command_ends_in_time(silent, tmp_path):
    """As a process: no raw logs, no wait at its exit."""
    words = {
        "run": ["--address", silent],
        "top": ["--address", f"ray://{silent}"],
        "stop": ["x", "--address", f"http://{silent}"],
        "compare": [f"s3://bucket/x?endpoint_override={silent}&scheme=http&region=us-east-1"],
    }
    for word, more in words.items():
        done = subprocess.run(
            [sys.executable, "-m", "sweeps.cli", word, *more],
            cwd=tmp_path, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == 2, done.stdout + done.stderr
        assert done.stderr.startswith("fedorch: "), done.stderr
        assert done.stderr.count("\n") == 1, done.stderr
        assert not list(tmp_path.iterdir())


@pytest.mark.long
def test_a_command_that_waits_hears_sigterm(silent, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDORCH_TIMEOUT", "60")
    waits = subprocess.Popen([sys.executable, "-m", "sweeps.cli", "top", "--address", silent])
    time.sleep(5)
    assert waits.poll() is None
    waits.terminate()
    assert waits.wait(5) != 0


def test_only_this_machine_can_listen_to_a_plain_run(ray_session):
    """Every socket of every process of it, the ports of its metrics among them: without our care
    Ray binds them to all interfaces.
    """

    @ray_session.remote(num_cpus=0)
    def work():
        return os.getpid()

    ray_session.get(work.remote())  # workers listen, too
    me = psutil.Process()
    found = {
        c.laddr.ip
        for process in (me, *me.children(recursive=True))
        for c in process.net_connections("inet")
        if c.status == psutil.CONN_LISTEN
    }
    assert found
    assert {ip.removeprefix("::ffff:") for ip in found} <= {"127.0.0.1", "::1"}


def test_what_is_said_of_a_cluster_that_others_reach(ray_session):
    assert exposure({"127.0.0.1", "::1"}, token=False) is None
    assert "10.0.0.1 without a token" in exposure({"10.0.0.1", "127.0.0.1"}, token=False)
    many = exposure({f"10.0.0.{i}" for i in range(9)}, token=True)
    assert "and 6 more; it asks for a token" in many
