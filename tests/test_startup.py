"""A command that trains nothing must not wait for what training needs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fedorch.lazily import HEAVY

ROOT = Path(__file__).parents[1]
HELD_UP = """
import contextlib, io, json, sys
from fedorch import lazily
lazily.defer()
import sweeps.cli
never = ("ray", "pyarrow", "matplotlib", "transformers", "torchvision", "tensorboard", "vl_convert")
told = {}
for words in json.loads(sys.argv[1]):
    sys.argv = ["fedorch", *words]
    out, code = io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            sweeps.cli.main()
        except SystemExit as end:
            code = end.code or 0
    run = [name for name in lazily.HEAVY if type(sys.modules[name]) is not lazily._Deferred]
    loaded = [*run, *(name for name in never if name in sys.modules)]
    told[" ".join(words)] = [code, loaded]
print(json.dumps(told))
"""
QUICK = {
    "--help": 0, "run --help": 0, "list": 0, "list algorithms": 0, "describe fedavg": 0,
    "describe local.lr": 0, "describe columns": 0, "sweep --list": 0,
    "run --set algorithm=fedavgg": 2, "run --set local.lrr=1": 2, "run nothing.yaml": 2,
    "sweep nothing/here": 2, "compare nowhere": 2,
}  # fmt: skip


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    words = json.dumps([line.split() for line in QUICK])
    done = subprocess.run(
        [sys.executable, "-c", HELD_UP, words],
        capture_output=True, text=True, check=True, cwd=tmp_path_factory.mktemp("here"),
        env={"PYTHONPATH": str(ROOT), "HOME": "/nonexistent", "PATH": "/usr/bin"},
    )  # fmt: skip
    return json.loads(done.stdout)


@pytest.mark.parametrize(("words", "code"), QUICK.items())
def test_what_trains_nothing_imports_nothing_for_it(told, words, code):
    assert told[words] == [code, []]


def test_a_deferred_library_is_the_library():
    """Whatever is asked of it first: an attribute, a submodule, a name."""
    for line in (
        "torch.zeros(1)",
        "import torch.nn",
        "from pandas import DataFrame",
        "import scipy.stats",
    ):
        script = f"from fedorch import lazily; lazily.defer(); import torch, pandas, scipy; {line}"
        script += "; import sys; print([type(sys.modules[n]).__name__ for n in lazily.HEAVY])"
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT
        )
        name = next(name for name in HEAVY if name in line)
        assert eval(done.stdout)[HEAVY.index(name)] == "module"


def test_a_python_without_its_packages_is_a_sentence():
    done = subprocess.run(
        [sys.executable, "-S", "-m", "fedorch", "list"],
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 2
    assert "activate its environment first" in done.stderr
    assert "Traceback" not in done.stderr
