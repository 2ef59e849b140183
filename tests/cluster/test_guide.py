"""The commands of docs/cluster.md, as a new user would type them, on two nodes in a namespace."""

import re
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from tests.cluster.nodes import Nodes, inside, namespaces, result

pytestmark = [namespaces, pytest.mark.slow]
GUIDE = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text()


def test_from_nothing_to_a_sweep_on_two_nodes(tmp_path):
    commands = re.search(r"## Two nodes.*?```sh\n(.*?)```", GUIDE, re.DOTALL).group(1)
    place = Nodes(tmp_path, HOME=str(tmp_path))
    del place.environment["RAY_AUTH_MODE"]
    try:
        done = subprocess.run(
            inside(place.space, "sh", "-ec", commands), cwd=tmp_path, env=place.environment,
            capture_output=True, text=True, timeout=540,
        )  # fmt: skip
    finally:
        place.close()
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = tmp_path.glob("runs/quickstart-*")
    assert result(run)["actors"] == 4
    (sweep,) = tmp_path.glob("runs/sweeps/*")
    trials = [result(path.parent) for path in sweep.glob("trials/*/result.json")]
    assert trials
    assert {t["status"] for t in trials} == {"finished"}
    assert len(pd.read_parquet(next(sweep.glob("trials/*/rounds.parquet")))) > 0
    assert "3 nodes" in done.stdout
