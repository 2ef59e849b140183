"""`ray up deploy/onpremise.yaml`, really: two machines that are reached by ssh, as Linux namespaces
of this one.

Each has a network, processes, a home folder and Ray's temporary folders of its own; what it
installs is this test's own environment instead of packages from an index.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.cluster.nodes import cable, clean, end, inside, ip, namespaces, until

ROOT = Path(__file__).parents[2]
HOME = Path("/root")
pytestmark = [
    namespaces,
    pytest.mark.slow,
    pytest.mark.skipif(
        not Path("/usr/sbin/sshd").exists() or not shutil.which("rsync") or not shutil.which("ssh"),
        reason="needs an ssh server and rsync",
    ),
    pytest.mark.skipif(
        Path(sys.prefix).is_relative_to(HOME),
        reason="the machines' home folders hide this environment",
    ),
]
HEAD, WORKER = "10.78.0.10", "10.78.0.11"
SWEEP = """
base: {data: {limit: 400, clients: 4}, model: linear, cohort: 4, rounds: 3, local: {steps: 3},
       resources: {actors: 1}}
axes: {local.lr: [0.05, 0.1]}
loggers: []
"""


class Machine:
    """A namespace of every kind, with an ssh server as its first process."""

    def __init__(self, name: str, keys: Path):
        self.space = f"fedorch-{os.getpid()}-{name}"
        ip("netns", "add", self.space)
        ip("-n", self.space, "link", "set", "lo", "up")
        self.keys, self.name = keys, name

    def start(self) -> None:
        Path("/run/sshd").mkdir(exist_ok=True)
        Path("/tmp/ray").mkdir(exist_ok=True)
        server = f"/usr/sbin/sshd -D -e -f /dev/null -h {self.keys}/host -o AuthorizedKeysFile={self.keys}/key.pub"
        own = self.keys / f"home-{self.name}"
        own.mkdir()
        begin = " && ".join(
            [
                "mount -t proc proc /proc",
                *(f"mount -t tmpfs tmpfs {place}" for place in (own, "/tmp/ray", "/dev/shm")),
                f"mkdir {own}/upper {own}/work",
                f"mount -t overlay overlay -o lowerdir={HOME},upperdir={own}/upper,workdir={own}/work {HOME}",
                f"hostname {self.name}",
                f"exec {server} -o StrictModes=no -o UsePAM=no -o PermitRootLogin=yes",
            ]
        )
        self.log = (self.keys / f"{self.name}.log").open("w")
        self.process = subprocess.Popen(
            inside(
                self.space,
                "unshare",
                "--pid",
                "--fork",
                "--kill-child",
                "--mount",
                "--uts",
                "sh",
                "-c",
                begin,
            ),
            stdout=self.log,
            stderr=self.log,
        )

    def close(self) -> None:
        """End the first process of the namespace, and by that all others."""
        end(self.process.pid)
        self.process.wait()
        self.log.close()
        ip("netns", "del", self.space)


@pytest.fixture
def machines(tmp_path):
    for name in ("host", "key"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name], check=True
        )
    head, worker = Machine("head", tmp_path), Machine("worker", tmp_path)
    cable({head.space: HEAD, worker.space: WORKER})
    for machine, other in ((head, WORKER), (worker, HEAD)):
        ip(
            "-n", machine.space, "route", "add", "default", "via", other
        )  # Ray asks for the way out to know its address
        machine.start()
    yield head, worker
    worker.close()
    head.close()


@pytest.fixture
def config(tmp_path):
    """The shipped file with these machines, and an environment that is there already."""
    raw = yaml.safe_load((ROOT / "deploy" / "onpremise.yaml").read_text())
    raw["provider"] |= {"head_ip": HEAD, "worker_ips": [WORKER]}
    raw |= {"min_workers": 1, "max_workers": 1, "setup_commands": [f"ln -sfn {sys.prefix} ~/venv"]}
    raw["auth"] = {"ssh_user": "root", "ssh_private_key": str(tmp_path / "key")}
    file = tmp_path / "cluster.yaml"
    file.write_text(yaml.safe_dump(raw))
    return file


def test_a_sweep_on_machines_that_were_reached_by_ssh(machines, config, tmp_path):
    head, _ = machines
    (tmp_path / "laptop" / ".ray").mkdir(parents=True)
    (tmp_path / "laptop" / ".ray" / "auth_token").write_text(
        "a-token-of-this-test-alone-0123456789abcdef"
    )
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    environment = {
        **clean(),
        "HOME": str(tmp_path / "laptop"),
        "RAY_UP_enable_autoscaler_v2": "0",
        "RAY_AUTH_MODE": "token",
    }

    def ray(*words):
        command = inside(head.space, "ray", *words)
        done = subprocess.run(
            command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=400
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def there(command):
        return ray(
            "exec",
            config,
            f"export RAY_AUTH_MODE=token; cd ~/fedorch && ~/venv/bin/python -m sweeps.cli {command}",
        )

    ray("up", "--yes", "--no-config-cache", config)
    until(lambda: "2 nodes" in there("top --once --address auto"))
    text = there(f"sweep {tmp_path}/sweep.yaml --address auto --out {tmp_path}/out")
    trials = [json.loads(path.read_text()) for path in tmp_path.glob("out/trials/*/result.json")]
    assert [t["status"] for t in trials] == ["finished"] * 2, text
