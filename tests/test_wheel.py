"""The wheel, installed into an environment of its own, without the repository."""

import json
import os
import subprocess
import sys
import sysconfig
from importlib.metadata import version
from pathlib import Path

import pytest

pytestmark = pytest.mark.long
ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """An environment with the wheel alone, which finds what it depends on in ours."""
    place = tmp_path_factory.mktemp("wheel")
    # a copy: setuptools builds inside the folder
    if int(version("setuptools").partition(".")[0]) < 77:
        pytest.skip("this environment's setuptools is older than pyproject.toml asks for")
    copy = place / "source"
    tracked = run("git", "-C", ROOT, "ls-files", "-z").split("\0")
    for name in filter(None, tracked):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes((ROOT / name).read_bytes())
    run(sys.executable, "-m", "pip", "wheel", copy, "--no-deps", "--no-build-isolation",
        "--no-index", "-w", place)  # fmt: skip
    run(sys.executable, "-m", "venv", "--without-pip", place / "venv")
    site = (
        place
        / "venv"
        / "lib"
        / f"python{sys.version_info[0]}.{sys.version_info[1]}"
        / "site-packages"
    )
    # only a path: what our environment has installed for editing stays out of sight
    (site / "ours.pth").write_text(sysconfig.get_path("purelib") + "\n")
    run(sys.executable, "-m", "pip", "--python", place / "venv" / "bin" / "python", "install",
        "--no-deps", "--no-index", *place.glob("*.whl"))  # fmt: skip
    return place / "venv" / "bin"


def run(*words, cwd=None):
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "FEDORCH_DATA")}
    found = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False,
                           cwd=cwd, env=clean)  # fmt: skip
    assert found.returncode == 0, f"{words}: {found.stdout}{found.stderr}"
    return found.stdout


def test_it_works_outside_the_repository(installed, tmp_path):
    fedorch = installed / "fedorch"
    code = "import fedorch, orchestrator; print(fedorch.__file__, orchestrator.__file__)"
    for place in run(installed / "python", "-c", code, cwd=tmp_path).split():
        assert place.startswith(str(installed.parent))
    small = (
        "--set",
        "model=linear",
        "--set",
        "rounds=2",
        "--set",
        "data.clients=6",
        "--set",
        "cohort=4",
    )
    run(fedorch, "run", *small, "--num-cpus", 2, "--out", tmp_path / "a", cwd=tmp_path)
    run(fedorch, "run", *small, "--in-process", "--out", tmp_path / "b", cwd=tmp_path)
    a, b = (json.loads((tmp_path / one / "result.json").read_text()) for one in "ab")
    assert a["weights_sha256"] == b["weights_sha256"]
    assert (tmp_path / "a" / "report.html").is_file()
    listed = run(fedorch, "sweep", "--list", cwd=tmp_path)
    assert "drdm/table3" in listed
    run(fedorch, "dashboard", "--help", cwd=tmp_path)
    (tmp_path / "nets.py").write_bytes((ROOT / "examples" / "plugins" / "clipped.py").read_bytes())
    assert "nets.py" in run(fedorch, "list", "--plugin", "nets.py", cwd=tmp_path)
    code = f"import fedorch; r = fedorch.open({str(tmp_path / 'a')!r}); print(len(r.rounds))"
    assert run(installed / "python", "-c", code, cwd=tmp_path).strip() == "2"
