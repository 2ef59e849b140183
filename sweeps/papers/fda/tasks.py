"""What chapter 3 of the FDA thesis trains: five models, their data, and what is varied on each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sweeps.entry import Settings

Theta = float | str
MNIST_WORKERS = tuple(range(5, 61, 5))
CIFAR_WORKERS = tuple(range(5, 31, 5))
EVEN = "IID"
"""Group of the columns with even clients."""
IID: Mapping[str, Settings] = {EVEN: ("data.partition={name: iid, shuffle: false}",)}
LABEL_0: Mapping[str, Settings] = {"label 0": ("data.partition={name: label, label: 0}",)}
LABEL_8: Mapping[str, Settings] = {"label 8": ("data.partition={name: label, label: 8}",)}
SORTED_60: Mapping[str, Settings] = {
    "60 % sorted": ("data.partition={name: sorted, fraction: 0.6}",),
}
CLOCK = "evaluation={clients: false, every_steps: epoch}"
"""All strategies are evaluated after as many local steps as the thesis', once an epoch: what is
evaluated more often has more chances to pass a target by luck."""
FED_ADAM: Settings = (
    "algorithm=fedadam",
    "server_optimizer={lr: 0.001, beta2: 0.999, eps: 1.0e-7, bias_correction: true, eps_hat: true}",
    "local.optimizer=sgd",
    "local.lr=0.01",
)
FED_AVG_M: Settings = (
    "algorithm=fedavgm",
    "server_optimizer={lr: 0.316, momentum: 0.9}",
    "local.optimizer={name: sgd, weight_decay: 2.0e-4}",
    "local.lr=0.0316",
)


@dataclass(frozen=True)
class StandIn:
    """A task that two slow cores finish, in place of a large one."""

    settings: Settings
    target: float
    text: str


@dataclass(frozen=True)
class Task:
    """A model with its data, and what the thesis varies on it."""

    label: str
    size: int
    """Trainable parameters d."""
    step_ms: float
    """Milliseconds of a step on the thesis' GPU (an A10, mini-batches of 32), by its authors'
    code."""
    base: Settings
    thetas: tuple[float, ...]
    middle: tuple[float, int]
    """Θ and K in the middle of the grid; the thesis' medians are shown beside these runs."""
    workers: tuple[int, ...]
    splits: Mapping[str, Settings]
    federated: tuple[str, Settings] | None = None
    """The FedOpt strategy with the same kind of local optimiser."""
    stand_in: StandIn | None = None

    @property
    def rivals(self) -> tuple[str, ...]:
        """The strategies that FDA is compared with."""
        return ("Synchronous",) if self.federated is None else ("Synchronous", self.federated[0])


LENET = Task(
    label="LeNet-5",
    size=61_706,
    step_ms=6.613,
    base=(
        "name=fda_lenet_mnist",
        "rounds=40000",
        "stop={test_accuracy: 0.98, epochs_total: 100}",
        "data={dataset: mnist, clients: 5, partition: {name: iid, shuffle: false}, scale: unit}",
        "model=lenet5",
        "algorithm=fedavg",
        "cohort=1.0",
        "round_end={name: fda, theta: 2.0, monitor: linear}",
        "local={steps: 1000, batch_size: 32, lr: 0.001, "
        "optimizer: {name: adam, eps: 1.0e-7, eps_hat: true}, "
        "optimizer_state: keep, sampling: independent}",
        CLOCK,
    ),
    thetas=(0.5, 1, 1.5, 2, 3, 5, 7),
    middle=(2, 30),
    workers=MNIST_WORKERS,
    splits={**IID, **LABEL_0, **SORTED_60},
    federated=("FedAdam", FED_ADAM),
)
VGG = Task(
    label="VGG16*",
    size=2_592_202,
    step_ms=8.853,
    base=(
        *LENET.base,
        "name=fda_vgg_mnist",
        "stop={test_accuracy: 0.994, epochs_total: 100}",
        "model={name: vgg16_star, init: glorot}",
        "round_end={name: fda, theta: 50.0, monitor: linear}",
    ),
    thetas=(20, 25, 30, 50, 75, 90, 100),
    middle=(50, 30),
    workers=MNIST_WORKERS,
    splits={**IID, **LABEL_0, **LABEL_8},
    federated=("FedAdam", FED_ADAM),
    stand_in=StandIn(
        ("model=lenet5",), 0.975, "LeNet-5 in place of VGG16*, to 97.5 %, with Θ = 4.91e-5 d"
    ),
)
DENSENET121 = Task(
    label="DenseNet121",
    size=6_964_106,
    step_ms=87.328,
    base=(
        "name=fda_densenet_cifar10",
        "rounds=100000",
        "stop={test_accuracy: 0.8, epochs_total: 300}",
        "data={dataset: cifar10, clients: 5, partition: {name: iid, shuffle: false}}",
        "model=densenet121",
        "algorithm=fedavg",
        "cohort=1.0",
        "buffers=local",
        "round_end={name: fda, theta: 250.0, monitor: linear}",
        "local={steps: 5000, batch_size: 32, lr: 0.1, "
        "optimizer: {name: sgd, momentum: 0.9, nesterov: true, weight_decay: 2.0e-4}, "
        "optimizer_state: keep, sampling: independent}",
        CLOCK,
    ),
    thetas=(200, 250, 275, 300, 325, 350, 400),
    middle=(300, 15),
    workers=CIFAR_WORKERS,
    splits=IID,
    federated=("FedAvgM", FED_AVG_M),
    stand_in=StandIn(
        ("model=fedaa_cnn", "local.lr=0.01"),
        0.55,
        "a network of 62,006 parameters in place of the DenseNet, with a tenth of the learning "
        "rate where local work has momentum, to 55 %, with Θ = 4.91e-5 d",
    ),
)
DENSENET201 = Task(
    label="DenseNet201",
    size=18_112_138,
    step_ms=142.09,
    base=(
        *DENSENET121.base,
        "stop={test_accuracy: 0.78, epochs_total: 300}",
        "model=densenet201",
        "round_end={name: fda, theta: 700.0, monitor: linear}",
    ),
    thetas=(350, 500, 600, 700, 800, 850, 900),
    middle=(700, 15),
    workers=CIFAR_WORKERS,
    splits=IID,
    federated=("FedAvgM", FED_AVG_M),
    stand_in=DENSENET121.stand_in,
)
CONVNEXT = Task(
    label="ConvNeXtLarge",
    size=197_068_580,
    step_ms=368.328,
    base=(
        "name=fda_convnext_cifar100",
        "rounds=25000",
        "stop={test_accuracy: 0.76, epochs_total: 40}",
        "data={dataset: cifar100, clients: 3, partition: {name: iid, shuffle: false}}",
        "model=convnext_large",
        "algorithm=fedavg",
        "cohort=1.0",
        "round_end={name: fda, theta: 50.0, monitor: linear}",
        "local={steps: 2000, batch_size: 32, lr: 5.0e-5, "
        "optimizer: {name: adamw, weight_decay: 1.0e-8, eps: 1.0e-7, eps_hat: true}, "
        "optimizer_state: keep, sampling: independent}",
        CLOCK,
    ),
    thetas=(25, 50, 100, 150),
    middle=(50, 3),
    workers=(3, 5),
    splits=IID,
    stand_in=StandIn(
        ("model=fedaa_cnn", "local.lr=0.001"),
        0.2,
        "a network of 69,656 parameters from scratch in place of the pre-trained ConvNeXtLarge, "
        "with 20 times its learning rate, to 20 %, with Θ = 4.91e-5 d",
    ),
)
