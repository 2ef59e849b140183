"""What chapter 3 of the FDA thesis trains: five models, their data, and the strategies' settings on
each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from sweeps.entry import Budget, Column, Settings

Theta = float | str
MNIST_WORKERS = tuple(range(5, 61, 5))
CIFAR_WORKERS = tuple(range(5, 31, 5))
GB, STEPS = "GB", "steps"
FDA = {"LinearFDA": "linear", "SketchFDA": "sketch"}
"""Strategy -> its monitor."""
SUGGESTED = "FL"
"""Row label of Θ = 4.91e-5 d, which suits a stand-in of any size."""
STAND_IN = "stand-in"
"""Group of the columns that ask a stand-in for its own target."""
LEVEL = "IID"
"""Group of the columns with even clients."""

IID: Mapping[str, Settings] = {LEVEL: ("data.partition={name: iid, shuffle: false}",)}
LABEL_0: Mapping[str, Settings] = {"label 0": ("data.partition={name: label, label: 0}",)}
LABEL_8: Mapping[str, Settings] = {"label 8": ("data.partition={name: label, label: 8}",)}
SORTED_60: Mapping[str, Settings] = {
    "60 % sorted": ("data.partition={name: sorted, fraction: 0.6}",),
}

FED_ADAM: Settings = (
    "algorithm=fedadam",
    "server_optimizer={lr: 0.001, beta2: 0.999, eps: 1.0e-7, bias_correction: true}",
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
class Row:
    """A strategy, where it has one with its Θ, and with the number of workers where that is not in
    the columns.
    """

    strategy: str
    theta: Theta | None = None
    workers: int | None = None

    def __str__(self) -> str:
        """The row's label."""
        theta = f"{self.theta:g}" if isinstance(self.theta, float | int) else self.theta
        parts = (("Θ", theta), ("K", self.workers))
        return " ".join([self.strategy, *(f"{n}={v}" for n, v in parts if v is not None)])


Rows = Mapping[Row, Settings]


class Point(NamedTuple):
    """Where on an axis (or, without ``x``, under which name) a cost is asked."""

    label: str
    settings: Settings = ()
    x: float | str | None = None


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
    cap: int
    """Steps after which a run without the target ends: the thesis' epochs at the smallest K."""
    evaluate: int
    """Steps between two evaluations of Synchronous."""
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
        "rounds=37500",
        "stop={test_accuracy: 0.98, steps_total: 37500}",
        "data={dataset: mnist, clients: 5, partition: {name: iid, shuffle: false}, scale: unit}",
        "model=lenet5",
        "algorithm=fedavg",
        "cohort=1.0",
        "round_end={name: fda, theta: 2.0, monitor: linear}",
        "local={steps: 1000, batch_size: 32, lr: 0.001, "
        "optimizer: {name: adam, eps: 1.0e-7}, "
        "optimizer_state: keep, sampling: independent}",
        "evaluation={clients: false}",
    ),
    thetas=(0.5, 1, 1.5, 2, 3, 5, 7),
    middle=(2, 30),
    workers=MNIST_WORKERS,
    splits={**IID, **LABEL_0, **SORTED_60},
    cap=37_500,
    evaluate=47,
    federated=("FedAdam", FED_ADAM),
)
VGG = Task(
    label="VGG16*",
    size=2_592_202,
    step_ms=8.853,
    base=(
        *LENET.base,
        "name=fda_vgg_mnist",
        "stop={test_accuracy: 0.994, steps_total: 37500}",
        "model={name: vgg16_star, init: glorot}",
        "round_end={name: fda, theta: 50.0, monitor: linear}",
    ),
    thetas=(20, 25, 30, 50, 75, 90, 100),
    middle=(50, 30),
    workers=MNIST_WORKERS,
    splits={**IID, **LABEL_0, **LABEL_8},
    cap=37_500,
    evaluate=47,
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
        "rounds=93750",
        "stop={test_accuracy: 0.8, steps_total: 93750}",
        "data={dataset: cifar10, clients: 5, partition: {name: iid, shuffle: false}}",
        "model=densenet121",
        "algorithm=fedavg",
        "cohort=1.0",
        "buffers=local",
        "round_end={name: fda, theta: 250.0, monitor: linear}",
        "local={steps: 5000, batch_size: 32, lr: 0.1, "
        "optimizer: {name: sgd, momentum: 0.9, nesterov: true, weight_decay: 2.0e-4}, "
        "optimizer_state: keep, sampling: independent}",
        "evaluation={clients: false}",
    ),
    thetas=(200, 250, 275, 300, 325, 350, 400),
    middle=(300, 15),
    workers=CIFAR_WORKERS,
    splits=IID,
    cap=93_750,
    evaluate=52,
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
        "stop={test_accuracy: 0.78, steps_total: 93750}",
        "model=densenet201",
        "round_end={name: fda, theta: 700.0, monitor: linear}",
    ),
    thetas=(350, 500, 600, 700, 800, 850, 900),
    middle=(700, 15),
    workers=CIFAR_WORKERS,
    splits=IID,
    cap=93_750,
    evaluate=52,
    federated=("FedAvgM", FED_AVG_M),
    stand_in=DENSENET121.stand_in,
)
CONVNEXT = Task(
    label="ConvNeXtLarge",
    size=197_068_580,
    step_ms=368.328,
    base=(
        "name=fda_convnext_cifar100",
        "rounds=20833",
        "stop={test_accuracy: 0.76, steps_total: 20833}",
        "data={dataset: cifar100, clients: 3, partition: {name: iid, shuffle: false}}",
        "model=convnext_large",
        "algorithm=fedavg",
        "cohort=1.0",
        "round_end={name: fda, theta: 50.0, monitor: linear}",
        "local={steps: 2000, batch_size: 32, lr: 5.0e-5, "
        "optimizer: {name: adamw, weight_decay: 1.0e-8}, "
        "optimizer_state: keep, sampling: independent}",
        "evaluation={clients: false}",
    ),
    thetas=(25, 50, 100, 150),
    middle=(50, 3),
    workers=(3, 5),
    splits=IID,
    cap=20_833,
    evaluate=156,
    stand_in=StandIn(
        ("model=fedaa_cnn", "local.lr=0.001"),
        0.2,
        "a network of 69,656 parameters from scratch in place of the pre-trained ConvNeXtLarge, "
        "with 20 times its learning rate, to 20 %, with Θ = 4.91e-5 d",
    ),
)


def fda(thetas: Iterable[Theta]) -> dict[Row, Settings]:
    """Both FDA variants for each Θ; ``FL`` is the suggestion for slow networks."""
    return {Row(name, theta): (_round_end(name, theta),) for name in FDA for theta in thetas}


def _round_end(name: str, theta: Theta) -> str:
    value = "fl" if theta == SUGGESTED else theta
    return f"round_end={{name: fda, theta: {value}, monitor: {FDA[name]}}}"


def rivals(task: Task) -> dict[Row, Settings]:
    """Synchronous training, and the FedOpt strategy that belongs to the local optimiser."""
    synchronous: Settings = (
        "algorithm=synchronous", "round_end=fixed", "local.steps=1", f"rounds={task.cap}",
        f"evaluation.every={task.evaluate}",
    )  # fmt: skip
    rows = {Row("Synchronous"): synchronous}
    if task.federated is not None:
        name, settings = task.federated
        # an epoch a round with an optimiser that starts anew: the thesis' FedOpt is the papers'
        rows[Row(name)] = (
            *settings, "round_end=fixed", "local.steps=null", "local.epochs=1",
            "local.optimizer_state=reset", "rounds=1001", "stop.steps_total=400000",
        )  # fmt: skip
    return rows


def strategies(task: Task) -> dict[Row, Settings]:
    """FDA's rivals and FDA: the thesis' grid of Θ, and where a stand-in needs it the suggestion by
    size.
    """
    named: tuple[Theta, ...] = () if task.stand_in is None else (SUGGESTED,)
    return {**rivals(task), **fda((*task.thetas, *named))}


def with_workers(rows: Rows, workers: Sequence[int]) -> dict[Row, Settings]:
    """Each row for each of the numbers of workers."""
    return {
        replace(row, workers=k): (*own, f"data.clients={k}")
        for row, own in rows.items()
        for k in workers
    }


def labelled(rows: Rows) -> dict[str, Settings]:
    """The rows as an entry has them."""
    return {str(row): settings for row, settings in rows.items()}


def labels(rows: Iterable[Row]) -> tuple[str, ...]:
    """What the rows are called in an entry."""
    return tuple(map(str, rows))


def in_thesis(rows: Iterable[Row]) -> tuple[str, ...]:
    """Labels of the rows that the thesis has, too."""
    return labels(row for row in rows if row.theta != SUGGESTED)


def cost(what: str, target: float, settings: Settings = ()) -> Column:
    """Gigabytes or steps of each client until the server's model has the target accuracy."""
    if what == GB:
        return Column(
            "test_accuracy", settings, "gigabytes_to", target=target, better="low", digits=3
        )
    return Column("test_accuracy", settings, "steps_to", target=target, better="low", digits=0)


def name_of(group: str, what: str, label: str) -> str:
    """What a column of costs is called."""
    return ", ".join(filter(None, (group, what, label)))


def costs(
    group: str, target: float, points: Iterable[Point], settings: Settings = ()
) -> dict[str, Column]:
    """Gigabytes at each of the points, then steps; ``settings`` are the group's."""
    return {
        name_of(group, what, label): replace(
            cost(what, target, (*settings, *own)), panel=f"{group}, {what}", x=x, group=group
        )
        for what in (GB, STEPS)
        for label, own, x in points
    }


def at_workers(workers: Iterable[int]) -> tuple[Point, ...]:
    """Points on an axis of the number of workers K."""
    return tuple(Point(f"K={k}", (f"data.clients={k}",), k) for k in workers)


def at_thetas(thetas: Iterable[Theta]) -> tuple[Point, ...]:
    """Points on an axis of Θ; the named ones, which are d's multiples, stand beside each other."""
    return tuple(_at_theta(theta) for theta in thetas)


def _at_theta(theta: Theta) -> Point:
    settings = (f"round_end.theta={theta}",)
    if isinstance(theta, str):
        return Point(f"Θ={theta}", settings, f"Θ={theta}")
    return Point(f"Θ={theta:g}", settings, theta)


def of_group(columns: Mapping[str, Column], group: str) -> tuple[str, ...]:
    """Names of the columns of one group."""
    return tuple(name for name, column in columns.items() if column.group == group)


def bytes_of(columns: Mapping[str, Column]) -> tuple[str, ...]:
    """Names of the columns that say what was sent."""
    return tuple(name for name, column in columns.items() if column.statistic == "gigabytes_to")


def steps_of(columns: Mapping[str, Column]) -> tuple[str, ...]:
    """Names of the columns that say what was computed."""
    return tuple(name for name, column in columns.items() if column.statistic == "steps_to")


def smoke(rows: tuple[str, ...], columns: tuple[str, ...]) -> Budget:
    """Two rounds of LeNet-5 on a few of the embedded images."""
    settings = (
        "data.dataset=fashion_mnist_10k", "model=lenet5", "data.limit=600", "local.steps=3",
        "rounds=2", "stop.round=2",
    )  # fmt: skip
    text = "LeNet-5 on 600 Fashion-MNIST images for two rounds: only shows that every setting runs"
    return Budget(settings, rows=rows, columns=columns, reduced=text)


def reduced(
    task: Task, rows: tuple[str, ...], columns: tuple[str, ...], text: str, steps: int = 8000
) -> Budget:
    """The given part of the grid, by the stand-in where the task has one."""
    stop = f"stop.steps_total={steps}"
    if task.stand_in is None:
        return Budget((stop,), rows=rows, columns=columns, reduced=text)
    target = f"stop.test_accuracy={task.stand_in.target}"
    return Budget(
        (*task.stand_in.settings, target, stop),
        rows=rows,
        columns=columns,
        reduced=f"{task.stand_in.text}; {text}",
    )
