"""Ray clusters of several nodes on this machine, each in a network namespace of its own.

The namespace has a loopback device only, so nothing of it can be reached from outside it or meet
another cluster's ports, and its processes are known: those that the kernel lists for it are ended
with it, and no others.
"""

import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

HEAD = "127.0.0.1:6379"
DASHBOARD = "http://127.0.0.1:8265"
_numbers = itertools.count()

namespaces = pytest.mark.skipif(
    os.geteuid() != 0
    or shutil.which("ip") is None
    or subprocess.run(
        ["ip", "netns", "add", f"fedorch-try-{os.getpid()}"], capture_output=True
    ).returncode
    != 0,
    reason="needs root and iproute2 to make network namespaces",
)
subprocess.run(["ip", "netns", "del", f"fedorch-try-{os.getpid()}"], capture_output=True)


class Nodes:
    """A head without CPUs for clients, and workers that can be added and killed."""

    address = "127.0.0.1"

    def __init__(
        self,
        folder: Path,
        dashboard: bool = False,
        token: bool = False,
        head: tuple = (),
        **environment: str,
    ):
        self.folder, self.dashboard = folder, dashboard
        self.space = f"fedorch-{os.getpid()}-{next(_numbers)}"
        ip("netns", "add", self.space)
        ip("-n", self.space, "link", "set", "lo", "up")
        self.temporary = Path("/tmp") / self.space  # short: Ray's sockets are below it
        self.temporary.mkdir()
        self.environment = {
            **clean(),
            "RAY_TMPDIR": str(self.temporary),
            "RAY_AUTH_MODE": "token" if token else "disabled",
            "RAY_health_check_period_ms": "1000",
            "RAY_health_check_timeout_ms": "5000",
            "RAY_health_check_failure_threshold": "3",
            "RAY_metrics_report_interval_ms": "1000",
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "160",
            **environment,
        }
        if token:
            self.environment["RAY_AUTH_TOKEN"] = "a-token-of-this-test-alone-0123456789abcdef"
        self.options = head

    @property
    def head(self) -> str:
        """What ``--address`` is to say."""
        return f"{self.address}:6379"

    def start(self) -> "Nodes":
        self._ray(
            "start", "--head", "--port=6379", f"--node-ip-address={self.address}", "--num-cpus=0", "--num-gpus=0",
            f"--include-dashboard={str(self.dashboard).lower()}", "--metrics-export-port=9100", *self.options,
        )  # fmt: skip
        return self

    def add(self, cpus: int = 2, gpus: float = 0) -> int:
        """Add a worker node; returns the pid of its raylet."""
        before = set(self.raylets())
        self._ray(
            "start",
            f"--address={self.head}",
            f"--node-ip-address={self.address}",
            f"--num-cpus={cpus}",
            f"--num-gpus={gpus}",
        )
        (new,) = set(self.raylets()) - before
        return new

    def kill(self, raylet: int) -> None:
        """End a node at once: its raylet and all of its workers."""
        for pid in (raylet, *self._children(raylet)):
            end(pid)

    def fedorch(self, *words, **options) -> subprocess.CompletedProcess:
        return subprocess.run(
            self._command(*words),
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=500,
            **options,
        )

    def background(self, *words) -> subprocess.Popen:
        return subprocess.Popen(
            self._command(*words),
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def python(self, code: str) -> str:
        """Run code inside, with Ray connected; what it prints."""
        head = f"import ray; ray.init('{self.head}', logging_level='ERROR', log_to_driver=False, namespace='fedorch')\n"
        command = inside(self.space, sys.executable, "-c", head + code)
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=400
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def fetch(self, url: str) -> str:
        code = f"import urllib.request; print(urllib.request.urlopen({url!r}, timeout=20).read().decode())"
        done = subprocess.run(
            inside(self.space, sys.executable, "-c", code),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def raylets(self) -> list[int]:
        return [p for p in self.pids() if _read(p, "comm") == "raylet"]

    def named(self, start: str | tuple[str, ...]) -> list[int]:
        """Processes whose command line begins so (or so); Ray titles its workers by what they
        run."""
        return [p for p in self.pids() if _read(p, "cmdline").startswith(start)]

    def pids(self) -> list[int]:
        return pids(self.space)

    def close(self) -> None:
        for _ in range(50):
            left = self.pids()
            for pid in left:
                end(pid)
            if not left:
                break
            time.sleep(0.1)
        ip("netns", "del", self.space)
        shutil.rmtree(self.temporary, ignore_errors=True)

    def _command(self, *words) -> list[str]:
        return inside(self.space, sys.executable, "-m", "sweeps.cli", *words)

    def _ray(self, *words) -> None:
        self._do(*inside(self.space, "ray", *words))

    def _do(self, *command) -> None:
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=400
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def _children(self, pid: int) -> list[int]:
        """Processes that descend from ``pid``."""
        parents = {other: _parent(other) for other in self.pids()}
        found = [pid]
        for one in found:
            found += [child for child, parent in parents.items() if parent == one]
        return found[1:]


class Cabled(Nodes):
    """A cluster with one worker in a second namespace, at the other end of a cable that can be
    cut."""

    address, far_address = "10.77.0.1", "10.77.0.2"

    def __init__(self, folder: Path):
        super().__init__(folder)
        self.far = f"{self.space}-far"
        ip("netns", "add", self.far)
        cable({self.space: self.address, self.far: self.far_address})
        ip("-n", self.far, "link", "set", "lo", "up")

    def add_far(self, cpus: int) -> None:
        """Add the worker at the other end."""
        self._far(
            "ray",
            "start",
            f"--address={self.head}",
            f"--node-ip-address={self.far_address}",
            f"--num-cpus={cpus}",
        )

    def fedorch_far(self, *words) -> None:
        """Run fedorch at the other end."""
        self._far(sys.executable, "-m", "sweeps.cli", *words)

    def _far(self, *words) -> None:
        """Run a command there, with a temporary folder of its own: it tells Ray which node it is
        on.
        """
        own = 'mkdir -p $0-far && mount --bind $0-far $0 && exec "$@"'
        self._do(*inside(self.far, "sh", "-c", own, self.temporary, *words))

    def cut(self) -> None:
        """Nothing passes any more, and no process is told."""
        ip("-n", self.far, "link", "set", "cable", "down")

    def pids(self) -> list[int]:
        return [*super().pids(), *pids(self.far)]

    def close(self) -> None:
        super().close()
        ip("netns", "del", self.far)
        shutil.rmtree(f"{self.temporary}-far", ignore_errors=True)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def inside(space: str, *words) -> list[str]:
    """The command that runs ``words`` in a namespace."""
    return ["ip", "netns", "exec", space, *map(str, words)]


def cable(ends: dict[str, str]) -> None:
    """Join two namespaces (name -> address); both call the device ``cable``."""
    one, other = ends
    ip("-n", one, "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", other)
    for space, address in ends.items():
        ip("-n", space, "addr", "add", f"{address}/24", "dev", "cable")
        ip("-n", space, "link", "set", "cable", "up")


def clean() -> dict[str, str]:
    """This process's environment with this interpreter's commands, and without what else was
    set for Ray.
    """
    return {
        **{k: v for k, v in os.environ.items() if not k.startswith("RAY_")},
        "RAY_USAGE_STATS_ENABLED": "0",
        # as in tests/conftest.py: workers are not to give way to the tests beside them
        "RAY_worker_niceness": "0",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }


def sets(settings) -> list[str]:
    """Config settings as words of a command."""
    return [word for setting in settings for word in ("--set", setting)]


def pids(space: str) -> list[int]:
    """Processes in a namespace."""
    found = subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True)
    return [int(p) for p in found.stdout.split()]


def end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except (OSError, IndexError):
        return 0


def _read(pid: int, what: str) -> str:
    try:
        return Path(f"/proc/{pid}/{what}").read_text().strip()
    except OSError:
        return ""


def until(condition, process: subprocess.Popen | None = None, seconds: float = 300):
    """Wait for a condition and return its value; fails when time is up (long enough for a machine
    that has much else to do), or when ``process`` ends before, with what that has printed.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        if process is not None and process.poll() is not None:
            pytest.fail(f"ended before: {process.stdout.read()}")
        time.sleep(0.1)
    said = ""
    if process is not None:
        process.kill()
        said = process.stdout.read()
    pytest.fail(f"{seconds} s were not enough, at a load of {os.getloadavg()}; {said}")


def result(folder: Path) -> dict:
    return json.loads((folder / "result.json").read_text())
