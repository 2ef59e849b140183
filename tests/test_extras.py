"""What is not installed is named with its extra, and only where it is needed."""

import os
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from orchestrator.config import load
from orchestrator.data.sources import Form
from orchestrator.data.text_datasets import _hub, _tokenized
from orchestrator.errors import UserError
from orchestrator.extras import EXTRAS, named_if_missing
from orchestrator.rounds.experiment import Experiment

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
FEW = ["data.limit=200", "data.clients=3", "cohort=3", "rounds=1", "local.steps=1"]


def test_every_extra_is_declared_and_all_is_the_card_s():
    extras = PROJECT["optional-dependencies"]
    assert set(EXTRAS.values()) <= set(extras)
    every = {"metrics", "rl", "text", "transport", "tune", "vision"}
    assert extras["all"] == [f"fedorch[{','.join(sorted(every))}]"]
    # each module is of a distribution that its extra asks for
    by_module = packages_distributions()
    for module, extra in EXTRAS.items():
        if module in ("ray.rllib", "gymnasium", "tree", "lz4", "tensorboardX", "optuna", "timm"):
            continue  # of ray[rllib] and ray[tune], or not installed everywhere
        (distribution,) = set(by_module[module])
        assert any(one.lower().startswith(distribution.lower()) for one in extras[extra])


@pytest.mark.parametrize(
    ("module", "extra", "given"),
    [
        ("torchvision", "vision", ["model=torchvision"]),
        (
            "ot",
            "transport",
            [
                "algorithm=feddual",
                "model=feddual_lenet",
                "aggregator={name: barycenter, method: {name: class_rows}}",
            ],
        ),
        ("gymnasium", "rl", ["algorithm=fedaa", "model=linear"]),
        ("timm", "timm", ["model=timm"]),
        ("torchmetrics", "metrics", ["evaluation.metrics=f1_macro", "model=linear"]),
    ],
)
def test_what_is_missing_is_a_sentence(module, extra, given, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.startswith(("ray.rllib", "rl."))]:
        if module == "gymnasium":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match=rf"fedorch\[{extra}\]"):
        Experiment(load(None, [*FEW, *given])).step()


def test_a_tokenizer_and_a_download_are_the_libraries(monkeypatch):
    for module in ("transformers", "datasets"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match=r"transformers.*fedorch\[text\]"), named_if_missing():
        _tokenized("any", [("a text",)], 8)
    with pytest.raises(UserError, match=r"datasets.*fedorch\[text\]"):
        _hub("AG News", FORM, ("ag_news", None), "train", ("text",))


FORM: Form = Form(("train.csv",), lambda path: [])
HIDING = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name in NAMES or name.split(".")[0] in NAMES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hidden())
"""


def test_a_plain_run_needs_none_of_them(tmp_path):
    """In process; what an actor imports is the same."""
    names = {*EXTRAS, "mlflow", "wandb"}
    (tmp_path / "sitecustomize.py").write_text(HIDING.replace("NAMES", repr(names)))
    path = f"{tmp_path}{os.pathsep}{Path(__file__).parents[1]}"
    settings = [word for one in [*FEW, "model=linear"] for word in ("--set", one)]

    def fedorch(*words):
        command = [sys.executable, "-m", "fedorch", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path,
                              env={**os.environ, "PYTHONPATH": path})  # fmt: skip

    ran = fedorch("run", "--in-process", "--out", "r", *settings)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert (tmp_path / "r" / "report.html").is_file()
    refused = fedorch("run", "--in-process", "--set", "model=torchvision", *settings[:-2])
    assert refused.returncode == 2
    assert "pip install 'fedorch[vision]'" in " ".join(refused.stderr.split())
