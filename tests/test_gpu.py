"""The same checks on a GPU, where there is one: agreement with the CPU, and the same bits again."""

import json
import subprocess
import sys

import pytest
import torch

from algorithms.algorithm import AlgorithmOptions
from algorithms.part import variants
from algorithms.parts.monitors import along, square
from algorithms.parts.sketch import Sketch
from orchestrator.clients.plane import InProcess
from orchestrator.errors import UserError
from orchestrator.models.base import Model
from orchestrator.rounds.experiment import Experiment
from orchestrator.training.recording import Stands
from tests.configs import small
from tests.running import finish, resumed

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

SETTINGS = {
    **{name: [f"algorithm={name}", "local.lr=0.02"] for name in sorted(variants(AlgorithmOptions))},
    **{
        f"fda {monitor}": [
            "cohort=1.0",
            f"round_end={{name: fda, theta: 0.05, monitor: {monitor}}}",
            "local.steps=20",
        ]
        for monitor in ("linear", "sketch", "naive", "exact")
    },
    "fda_opt": [
        "algorithm=fedadam",
        "round_end=fda_opt",
        "cohort=1.0",
        "local.steps=null",
        "local.epochs=1",
    ],
    "fda_async": ["cohort=1.0", "round_end={name: fda_async, theta: 0.05}", "local.steps=20"],
    "adam kept": ["local.optimizer=adam", "local.lr=0.001", "local.optimizer_state=keep"],
    "top_k": ["compression.uplink={name: top_k, fraction: 0.1}", "rounds=1"],
    "random_k": ["compression.uplink={name: random_k, fraction: 0.1}"],
    "qsgd": ["compression.uplink=qsgd"],
    "krum": ["aggregator=krum", "cohort=6"],
    "attacked": ["attack={name: sign_flip, ids: [1]}", "aggregator=median", "cohort=1.0"],
    "lenet5": ["model=lenet5"],
    "cnn": ["model=drdm_cnn", "local.lr=0.02"],
    "one by one": ["local.execution=sequential"],
    "cnn, one by one": ["model=drdm_cnn", "local.lr=0.02", "local.execution=sequential"],
    "ragged": ["local.steps=null", "local.epochs=2", "local.batch_size=24"],
    "rates": ["local.within={name: cosine, over: 6}", "local.steps=6"],
    "rotated": ["data.augment=[crop]"],
    "batch norm": [
        "model=fedaa_resnet",
        "data.limit=120",
        "rounds=1",
        "local.steps=1",
        "local.batch_size=8",
    ],
}


def on_gpu(world):
    return InProcess(world, 0.5)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_gpu_agrees_with_the_cpu(name):
    if name == "fedaa":
        pytest.importorskip("gymnasium")
    config = small(*SETTINGS[name])
    here, there = finish(config), finish(config, plane=on_gpu)
    assert there.federation.plane.host.world.device == "cuda"
    torch.testing.assert_close(
        there.algorithm.model(), here.algorithm.model(), rtol=1e-2, atol=1e-4
    )
    assert there.federation.ledger.up.tolist() == here.federation.ledger.up.tolist()


RESNET = ["model=fedaa_resnet", "data.limit=120", "rounds=2", "local.batch_size=8"]
DROPOUT = [
    "model=vgg16_star",
    "data.limit=240",
    "rounds=2",
    "local.lr=0.01",
    "local.steps=null",
    "local.epochs=2",
]


def recordings(experiment):
    """Steps that a run has recorded, and does as they were."""
    its = experiment.federation.plane.host.stands.values()
    stands = [stand for one in its for stand in one.kept.values()]
    return [kind for stand in stands for kind in stand.kinds.values() if callable(kind)]


LONGER = ["local.steps=12", "local.batch_size=16"]
RECORDED = {
    "linear": LONGER,
    "lenet5": ["model=lenet5", *LONGER],
    "cnn": ["model=drdm_cnn", "local.lr=0.02", *LONGER],
    "cnn, one by one": ["model=drdm_cnn", "local.execution=sequential", "local.lr=0.02", *LONGER],
    "batch norm": [*RESNET, "local.steps=12"],
    "dropout": DROPOUT,
    "bf16": ["model=mlp", "local.precision=bf16", *LONGER],
    "moon": ["algorithm=moon", "local.lr=0.02", *LONGER],
    "scaffold": ["algorithm=scaffold", "local.lr=0.02", *LONGER],
    "feddual": [
        "algorithm=feddual",
        "local.lr=0.02",
        "local.steps=null",
        "local.epochs=4",
        "local.batch_size=16",
    ],
    "adam": ["local.optimizer=adam", "local.optimizer_state=keep", "local.lr=0.001", *LONGER],
}


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_steps_are_the_same_bits(name, monkeypatch):
    config = small(*RECORDED[name])
    recorded = finish(config, plane=on_gpu)
    assert recordings(recorded)
    monkeypatch.setattr(Stands, "_of", lambda stands, lane: None)
    started_one_by_one = finish(config, plane=on_gpu)
    assert not recordings(started_one_by_one)
    assert recorded.state_sha256() == started_one_by_one.state_sha256()


@pytest.mark.parametrize(
    ("precision", "on_cpus", "within"), [("bf16", "bf16", 0.02), ("tf32", "float32", 0.05)]
)
def test_other_precisions_are_what_they_are_on_a_cpu_up_to_their_own(precision, on_cpus, within):
    work = ["model=mlp", "resources.gpus_per_actor=0.5"]
    here = finish(small("model=mlp", f"local.precision={on_cpus}"))
    there = finish(small(*work, f"local.precision={precision}"), plane=on_gpu)
    moved = here.algorithm.model() - here.net.initial
    gap = there.algorithm.model() - here.algorithm.model()
    assert gap.norm() < within * moved.norm()


@pytest.mark.parametrize("name", ["fda sketch", "cnn", "adam kept", "scaffold"])
def test_the_same_bits_again(name, tmp_path):
    config = small(*SETTINGS[name])
    first = finish(config, plane=on_gpu)
    assert finish(config, plane=on_gpu).state_sha256() == first.state_sha256()
    if config.rounds > 1:
        assert resumed(config, tmp_path, 1, plane=on_gpu).state_sha256() == first.state_sha256()


class Branching(torch.nn.Module):
    """A network that looks at its numbers."""

    def __init__(self, classes):
        super().__init__()
        self.layer = torch.nn.Linear(784, classes)

    def forward(self, x):
        return self.layer(x.flatten(1) if float(x.sum()) > 0 else -x.flatten(1))


class BranchingModel(Model):
    name: str = "test_branching"

    def build(self, shape, classes):
        return Branching(classes)


def test_a_network_that_cannot_be_recorded_is_computed_step_by_step():
    config = small("model=test_branching", "local.execution=sequential", "local.steps=6")
    here, there = finish(config), finish(config, plane=on_gpu)
    assert not recordings(there)
    torch.testing.assert_close(
        there.algorithm.model(), here.algorithm.model(), rtol=1e-2, atol=1e-4
    )


def test_sketches_and_sums():
    v = torch.randn(3, 300_000)
    sketch = Sketch(300_000, 3, 50, seed=1)
    torch.testing.assert_close(sketch.apply(v.cuda()).cpu(), sketch.apply(v), rtol=1e-3, atol=1e-2)
    torch.testing.assert_close(
        square(v.cuda()).cpu(), v.double().square().sum(1, keepdim=True).float()
    )
    exact = (v.double() @ v[0].double())[:, None].float()
    torch.testing.assert_close(along(v.cuda(), v[0].cuda()).cpu(), exact, rtol=1e-4, atol=1e-1)


def test_too_little_memory_is_told_in_a_sentence():
    config = small(
        "model=drdm_cnn", "local.batch_size=1500", "data.limit=6000", "data.clients=2", "cohort=2"
    )
    try:
        with pytest.raises(UserError, match="the GPU's memory does not hold so many clients"):
            finish(config, plane=lambda world: InProcess(world, 0.002))
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def run(folder, *settings, in_process=False):
    """``fedorch run``'s result, on a local cluster with this machine's GPU."""
    sets = [f"--set={s}" for s in settings]
    where = ["--in-process"] if in_process else ["--num-cpus=8", "--num-gpus=1"]
    command = [
        sys.executable,
        "-c",
        "from sweeps.cli import main; main()",
        "run",
        *sets,
        *where,
        f"--out={folder}",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((folder / "result.json").read_text())


@pytest.mark.parametrize("model", ["linear", "lenet5"])
def test_any_number_of_actors_on_fractions_of_a_gpu(model, tmp_path):
    work = [f"model={model}", "data.clients=8", "cohort=8", "rounds=3", "local.block=1"]
    work += ["local.steps=20", "round_end={name: fda, theta: 0.05}"]
    results = {
        actors: run(
            tmp_path / str(actors),
            *work,
            f"resources={{actors: {actors}, gpus_per_actor: {share}}}",
        )
        for actors, share in ((1, 1.0), (3, 0.25), (8, 0.125))
    }
    results["here"] = run(tmp_path / "here", *work, "resources.gpus_per_actor=0.5", in_process=True)
    assert len({result["weights_sha256"] for result in results.values()}) == 1, results


def test_the_device_is_the_gpu_only_if_asked():
    assert Experiment(small()).federation.plane.host.world.device == "cpu"
