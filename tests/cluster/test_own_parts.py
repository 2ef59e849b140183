"""A researcher's own network, data, loss, metric, algorithm and aggregator, on two nodes, from a
folder outside the repository: begun by name, killed, gone on with, swept, and used.
"""

import textwrap

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import fedorch
from orchestrator.config import load
from tests.cluster.nodes import HEAD, Nodes, namespaces, result, until
from tests.running import finish

pytestmark = [namespaces, pytest.mark.long]
PARTS = '''
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import fedorch


class Net(nn.Module):
    def __init__(self, features, classes, width=8):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(features, width), nn.ReLU(), nn.Linear(width, classes)
        )

    def forward(self, x):
        return self.layers(x)


def powered(outputs, targets, power=1.2):
    return F.cross_entropy(outputs, targets, reduction="none") ** power


def margin(outputs, targets):
    right = outputs.gather(1, targets[:, None])[:, 0]
    return (right - outputs.mean(1)).mean()


@dataclass(frozen=True)
class Rule(fedorch.LocalRule):
    """Steps with a pull to where the client ended last time."""

    pull: float

    def state(self, received, spec):
        return {"seen": received["w"].clone()}

    def direction(self, gradient, work):
        return gradient + self.pull * (work.w - work.state["seen"])

    def upload(self, work):
        work.state["seen"] = work.w.clone()
        return {"delta": work.w - work.start}


class Pulled(fedorch.FedAvg):
    class Options(fedorch.FedAvg.Options):
        """FedAvg whose clients are pulled to where they were."""

        name: str = "pulled"
        pull: float = fedorch.option(0.1, "how strongly", "c", ge=0, le=1e3)

    def rule(self):
        return Rule(self.options.pull)


class Cut(fedorch.Aggregator):
    """The mean of updates that are at most as long as the median one."""

    name: str = "cut"

    def weights(self, samples: np.ndarray, counts: np.ndarray):
        return None

    def combine(self, rows):
        norms = rows.updates.norm(dim=1)
        weight = (norms.median() / norms.clamp_min(1e-12)).clamp(max=1.0)
        weight = weight / weight.sum()
        return fedorch.Combined((rows.updates * weight[:, None]).sum(0), weight)
'''
COMMON = """
plugins: [./parts.py]
model: {name: ./parts.py:Net, width: 6}
loss: {name: ./parts.py:powered, power: 1.1}
algorithm: {name: pulled, pull: 0.05}
aggregator: cut
evaluation: {metrics: [./parts.py:margin, f1_macro]}
resources: {actors: 3}
checkpoint: {every: 2}
cohort: 4
"""
TABLE = """
data: {dataset: {name: csv, path: ./rows.csv, label: ill, client: clinic}, partition: natural,
       clients: 6}
rounds: 60
local: {lr: 0.1, steps: 20, batch_size: 8, block: 1}
"""
PICTURES = """
data: {dataset: {name: folder, path: ./pictures, side: 8}, clients: 4}
rounds: 6
local: {lr: 0.02, steps: 10, batch_size: 8}
"""
SWEEP = """
name: mine
base: ./table.yaml
set: ["rounds=4"]
axes: {local.lr: [0.05, 0.2], algorithm.pull: [0.0, 0.3]}
loggers: []
"""


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    made = Nodes(tmp_path_factory.mktemp("cluster"))
    try:
        made.start()
        made.add(cpus=2)
        made.add(cpus=2)
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with everything that is one's own."""
    folder, rng = tmp_path_factory.mktemp("mine"), np.random.default_rng(0)
    (folder / "parts.py").write_text(PARTS)
    (folder / "table.yaml").write_text(COMMON + TABLE)
    (folder / "pictures.yaml").write_text(COMMON + PICTURES)
    (folder / "mine.yaml").write_text(SWEEP)
    age, clinic = rng.normal(50, 12, 300).round(2), rng.choice(list("abcdef"), 300)
    ill = np.where(age + rng.normal(0, 6, 300) > 50, "yes", "no")
    rows = pd.DataFrame({"clinic": clinic, "age": age, "sex": rng.choice(["m", "f"], 300)})
    rows.assign(ill=ill).to_csv(folder / "rows.csv", index=False)
    for i in range(60):
        name, shade = ("dark", 60) if i % 2 else ("light", 190)
        (folder / "pictures" / name).mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(shade - 50, shade + 50, (8, 8, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / "pictures" / name / f"{i}.png")
    return folder


def test_its_names_are_known(nodes, place):
    for words, known in (
        (["list", "aggregators"], "cut"),
        (["describe", "pulled"], "how strongly"),
    ):
        done = nodes.fedorch(*words, "--plugin", "parts.py", cwd=place)
        assert done.returncode == 0, done.stderr
        assert known in done.stdout
    done = nodes.fedorch("check", "parts.py", cwd=place)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "fails" not in done.stdout


def test_killed_and_gone_on_with(nodes, place, tmp_path):
    out = tmp_path / "run"
    words = ("run", place / "table.yaml", "--out", out, "--address", HEAD)
    process = nodes.background(*words)
    until(lambda: len(list(out.glob("checkpoints/round-*"))) >= 2, process)
    process.kill()
    process.wait()
    assert not (out / "result.json").exists()
    again = nodes.fedorch("run", "--resume", out, "--address", HEAD)
    assert again.returncode == 0, again.stdout + again.stderr
    assert result(out)["weights_sha256"] == finish(load(place / "table.yaml")).weights_sha256()
    run = fedorch.open(out)
    assert {"test_margin", "test_f1_macro"} <= {*run.rounds}
    assert set(run.predict(pd.DataFrame({"age": [20.0, 80.0], "sex": ["m", "f"]}))) <= {0, 1}
    assert [run.classes[i] for i in run.predict({"age": [20.0, 80.0], "sex": ["m", "f"]})] == [
        "no",
        "yes",
    ]


def test_pictures(nodes, place, tmp_path):
    out = tmp_path / "run"
    done = nodes.fedorch("run", place / "pictures.yaml", "--out", out, "--address", HEAD)
    assert done.returncode == 0, done.stdout + done.stderr
    assert result(out)["weights_sha256"] == finish(load(place / "pictures.yaml")).weights_sha256()
    run = fedorch.open(out)
    for name in ("dark", "light"):
        path = next((place / "pictures" / name).iterdir())
        with Image.open(path) as picture:
            (told,) = run.predict(np.asarray(picture))
        assert run.classes[told] == name


def test_swept(nodes, place, tmp_path):
    done = nodes.fedorch(
        "sweep", place / "mine.yaml", "--out", tmp_path / "swept", "--address", HEAD
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len([*(tmp_path / "swept" / "trials").glob("*/result.json")]) == 4


MISUSES = {
    "signature": ("def __init__(self, features, classes, width=8)", "def __init__(self, breadth)", "breadth"),
    "import": ("import fedorch\n", "import fedorch\nimport nowhere_at_all\n", "nowhere_at_all"),
    "shape": ("return self.layers(x)", "return self.layers(x)[:, :1]", "shape"),
    "float64": ("return self.layers(x)", "return self.layers(x).double()", "float64"),
    "bits": ("return self.layers(x)", "return self.layers(x) + torch.randn(1)", "differ"),
}  # fmt: skip


@pytest.mark.parametrize("misuse", MISUSES)
def test_what_is_wrong_is_one_sentence(misuse, nodes, place, tmp_path):
    old, new, said = MISUSES[misuse]
    for file in ("table.yaml", "rows.csv"):
        (tmp_path / file).write_bytes((place / file).read_bytes())
    (tmp_path / "parts.py").write_text(textwrap.dedent(PARTS.replace(old, new, 1)))
    done = nodes.fedorch("run", tmp_path / "table.yaml", "--out", tmp_path / "o", "--address", HEAD)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert said in done.stderr
