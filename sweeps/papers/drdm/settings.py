"""The methods, tasks, partitions and columns that the tables and figures of DRDM share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from sweeps.entry import Column, Grid, Settings

BASELINES = ("DRFA", "SCAFFOLD", "SCAFF-PD", "FedAvg")
WITHOUT_LAMBDA = ("DRDM γ = 0", "FedDyn")
"""What is left of DRDM without its dual step: the same drift correction, with cohorts drawn by a λ
that stays uniform, or by the uniform sampler."""
TAIL = 5
"""Evaluations at the end of a run that a cell is the mean of: rounds 80 to 100, of 100."""
MEASURES = {
    "average": Column("client_accuracy_mean", (), "tail", TAIL, scale=100),
    "worst": Column("client_accuracy_worst", (), "tail", TAIL, scale=100),
    "deviation": Column("client_accuracy_std", (), "tail", TAIL, scale=100, better="low"),
}
"""The three lines that the tables have for each method."""
SPENT = {
    "clients a round": Column("cohort", digits=1),
    "steps a round": Column("steps", digits=1),
    "MB up a round": Column("bytes_up", scale=1e-6, better="low"),
    "MB down a round": Column("bytes_down", scale=1e-6, better="low"),
}
"""What a method's last round takes: its distinct clients, the mean of their local steps (gradients
at the anchor are steps, too), bytes of all clients. The methods of a table are not equal in it."""
PAPER_SEEDS = tuple(range(10))
FEW_SEEDS = (0, 1, 2)
MANY_SEEDS = tuple(range(30))
"""Rounds to a target scatter by as much as they differ; on some seeds it is not reached."""
SMOKE: Settings = (
    "data.dataset=fashion_mnist_10k", "data.limit=600", "data.clients=6", "cohort=3",
    "local.steps=2", "rounds=2", "evaluation.every=1",
)  # fmt: skip
CLIENTS: Settings = (
    "rounds=100", "cohort=20", "data.clients=30", "local.steps=10", "local.batch_size=32",
    "local.lr=0.1", "evaluation.every=5",
)  # fmt: skip


@dataclass(frozen=True)
class Task:
    """A dataset and a network of the paper, each method's usual setting on it, and what it is tuned
    over.
    """

    base: Settings
    rows: Mapping[str, Settings]
    grids: Mapping[str, Grid]
    smoke: Settings
    reduced: Settings
    """What a table's reduced budget changes, beside its seeds."""
    reduced_how: str
    reduced_seeds: tuple[int, ...] = FEW_SEEDS
    tuning_seeds: tuple[int, ...] = (1000,)
    unavailable: str = ""


def methods(
    drdm: tuple[float, float],
    drfa: tuple[float, float],
    scaffold: float,
    scaffpd: tuple[float, float],
    fedavg: float,
) -> dict[str, Settings]:
    """Rows of a table from learning rates, with μ (DRDM), γ (DRFA) and the dual step (SCAFF-PD).

    DRFA draws distinct clients, like all others: with replacement, as its analysis has it, it would
    train 14.5 of 20 in the mean. FedDyn and DRDM without its dual step have DRDM's rate and μ.
    """
    rate, mu = f"local.lr={drdm[0]}", drdm[1]
    return {
        "DRDM": (f"algorithm={{name: drdm, mu: {mu}, gamma: 0.001}}", rate),
        "DRDM γ = 0": (f"algorithm={{name: drdm, mu: {mu}, gamma: 0}}", rate),
        "FedDyn": (f"algorithm={{name: feddyn, mu: {mu}}}", rate),
        "DRFA": (
            f"algorithm={{name: drfa, gamma: {drfa[1]}, replace: false, floor: 0.001}}",
            f"local.lr={drfa[0]}",
        ),
        "SCAFFOLD": ("algorithm=scaffold", f"local.lr={scaffold}"),
        "SCAFF-PD": (
            f"algorithm={{name: scaffpd, dual_lr: {scaffpd[1]}}}",
            f"local.lr={scaffpd[0]}",
        ),
        "FedAvg": ("algorithm=fedavg", f"local.lr={fedavg}"),
    }


def rates(low: float, high: float, count: int) -> tuple[float, ...]:
    """So many numbers from ``low`` to ``high``, evenly in logarithms, to three digits."""
    steps = range(count)
    return tuple(float(f"{low * (high / low) ** (i / (count - 1)):.3g}") for i in steps)


def equal_grids(low: float, high: float) -> dict[str, Grid]:
    """81 combinations for every method, of the same nine learning rates: times three times three of
    two own parameters, or times nine of one; methods with a rate alone have 72 more rates between
    the same ends.
    """
    nine, all_of_them = rates(low, high, 9), rates(low, high, 81)
    mu, gamma, dual_lr = rates(0.01, 1.0, 9), rates(0.0001, 0.01, 9), rates(0.001, 0.1, 9)
    return {
        "DRDM": {"local.lr": nine, "algorithm.mu": mu[::4], "algorithm.gamma": gamma[::4]},
        "DRDM γ = 0": {"local.lr": nine, "algorithm.mu": mu},
        "FedDyn": {"local.lr": nine, "algorithm.mu": mu},
        "DRFA": {"local.lr": nine, "algorithm.gamma": gamma},
        "SCAFFOLD": {"local.lr": all_of_them},
        "SCAFF-PD": {"local.lr": nine, "algorithm.dual_lr": dual_lr},
        "FedAvg": {"local.lr": all_of_them},
    }


CNN = Task(
    base=("data.dataset=kmnist", "data.scale=unit", "model=drdm_cnn", *CLIENTS),
    rows=methods(
        drdm=(0.1, 0.1), drfa=(0.2, 0.001), scaffold=0.02, scaffpd=(0.01, 0.01), fedavg=0.2
    ),
    grids=equal_grids(0.002, 0.5),
    smoke=SMOKE,
    reduced=("data.dataset=fashion_mnist", "rounds=30", "evaluation.every=2"),
    reduced_how="Fashion-MNIST stands in for Kuzushiji-MNIST; 30 rounds; three seeds; the two ends "
    "of the axis only.",
    unavailable="Kuzushiji-MNIST's own host may be out of reach; at full, files in a data folder "
    "are used where they are.",
)
LINEAR = Task(
    base=("data.dataset=mnist", "data.scale=unit", "model=linear", *CLIENTS),
    rows=methods(
        drdm=(0.5, 0.01), drfa=(0.5, 0.001), scaffold=1.0, scaffpd=(0.1, 0.01), fedavg=1.0
    ),
    grids=equal_grids(0.02, 4.0),
    tuning_seeds=(1000, 1001, 1002),
    smoke=SMOKE,
    reduced=(),
    reduced_how="",
    reduced_seeds=PAPER_SEEDS,
)
RESNET = Task(
    base=(
        "data.dataset={name: features, base: fashion_mnist, backbone: resnet18}",
        "model=linear",
        *CLIENTS,
    ),
    rows=methods(drdm=(0.1, 0.1), drfa=(0.1, 0.001), scaffold=0.1, scaffpd=(0.1, 0.1), fedavg=0.1),
    grids=equal_grids(0.001, 0.5),
    smoke=SMOKE,
    reduced=(
        "data.dataset={name: features, base: fashion_mnist_10k, backbone: efficientnet_lite0, "
        "side: 96}",
    ),
    reduced_how=(
        "EfficientNet-Lite0 (two Python packages: `fedorch describe features`) stands in for "
        "ResNet18, and the 10,000 embedded images for all 70,000; three seeds."
    ),
    unavailable="ResNet18's ImageNet weights are torchvision's download; data.dataset.weights "
    "names a file of them.",
)


def partition(alpha: float, sigma: float, disjoint: bool = False) -> str:
    """Clients whose class mixes are Dir(α) and whose sizes follow Zipf's law with exponent σ."""
    others = ", disjoint: true" if disjoint else ""
    return f"data.partition={{name: zipf, alpha: {alpha}, sigma: {sigma}{others}}}"


def name_of(axis: str, measure: str) -> str:
    """What a column is called: its partition, where there are several, and the measure."""
    return f"{axis} {measure}".strip()


def names_of(axes: Iterable[str], measures: Iterable[str]) -> tuple[str, ...]:
    """Columns of several partitions."""
    return tuple(name_of(axis, measure) for axis in axes for measure in measures)


def measured(axis: str, setting: str) -> dict[str, Column]:
    """The three columns of one partition; ``axis`` is what tells it apart."""
    return {
        name_of(axis, name): replace(column, settings=(setting,))
        for name, column in MEASURES.items()
    }


def measured_on(partitions: Mapping[str, str]) -> dict[str, Column]:
    """The columns of several (name -> setting), one partition after the other."""
    return {
        name: column
        for axis, setting in partitions.items()
        for name, column in measured(axis, setting).items()
    }


BY_ALPHA = {f"α={a}": partition(a, 0.0) for a in (0.1, 0.3, 0.5, 0.7)}
BY_ALPHA_WIDE = {**BY_ALPHA, "α=0.9": partition(0.9, 0.0)}
BY_SIGMA = {f"σ={s}": partition(0.1, s) for s in (0.3, 0.5, 0.7)}
DISJOINT = {f"α={a}": partition(a, 0.0, disjoint=True) for a in (0.1, 0.3, 0.5, 0.7)}
