"""Ray's dashboard in a real browser: the page of actors tells the experiment, the roles and the
clients.
"""

import shutil
import subprocess

import pytest

from tests.cluster.nodes import DASHBOARD, HEAD, Nodes, inside, namespaces, sets, until

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [
    namespaces,
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="needs chromium"),
]
RUN = ["data.limit=400", "data.clients=6", "model=linear", "cohort=6", "local.steps=3", "rounds=100000", "name=shown",
       "resources.actors=2", "resources.cpus_per_actor=0.5", "resources.gpus_per_actor=0.25", "checkpoint.every=20"]  # fmt: skip


def test_the_page_of_actors(tmp_path):
    nodes, out = Nodes(tmp_path, dashboard=True), tmp_path / "run"
    try:
        nodes.start()
        nodes.add(cpus=2, gpus=1)
        process = nodes.background("run", *sets(RUN), "--out", out, "--address", HEAD)
        until(lambda: list(out.glob("checkpoints/round-*")), process)
        page = drawn(nodes, f"{DASHBOARD}/#/actors", tmp_path / "profile")
    finally:
        nodes.close()
    for text in (
        "fedorch shown server",
        "fedorch shown clients #0",
        "fedorch shown clients #1",
        "ALIVE",
    ):
        assert text in page


def drawn(nodes, url, profile):
    """The page's elements once its scripts have run."""
    command = inside(
        nodes.space, BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}",
        "--virtual-time-budget=15000", "--dump-dom", url,
    )  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    return done.stdout
