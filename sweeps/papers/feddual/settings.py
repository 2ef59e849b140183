"""What FedDUAL's entries share: methods, data, columns, budgets, and claims."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from sweeps.entry import Budget, Claim, Column, Grid, Settings, Tuning

SGD: Settings = ("local.optimizer=sgd", "local.lr=0.1")
"""For the methods that are defined for SGD only; the paper has Adam everywhere."""
METHODS: dict[str, Settings] = {
    "FedAvg": ("algorithm=fedavg",),
    "FedProx": ("algorithm={name: fedprox, mu: 0.001}",),
    "FedNova": ("algorithm={name: fednova, mu: 0.001}", *SGD),
    "FedBN": ("algorithm=fedbn",),
    "FedDyn": ("algorithm={name: feddyn, mu: 0.1}",),
    "MOON": ("algorithm={name: moon, mu: 1.0}",),
    "SCAFFOLD": ("algorithm=scaffold", *SGD),
    "FedPVR": ("algorithm=fedpvr", *SGD),
    "Proposed": ("algorithm=feddual",),
}
READINGS: dict[str, Settings] = {
    "Proposed, paper_eq": ("algorithm={name: feddual, reading: paper_eq}",),
    "Proposed, authors": ("algorithm={name: feddual, reading: authors}",),
    "FedAvg, last layer unmoved": (
        "algorithm=fedavg", "aggregator={name: barycenter, method: unmoved, layers: 1}",
    ),
}  # fmt: skip
"""The other readings of FedDUAL (``Proposed`` is ``ot``), and what its code amounts to."""
BASELINES = tuple(name for name in METHODS if name != "Proposed")
RIVALS = tuple(name for name in BASELINES if name != "FedBN")
"""FedBN is FedAvg, bitwise, on all of the paper's networks: one method is not tested twice."""
SEEDS = (0, 1, 2)
BASE: Settings = (
    "rounds=180", "data.dataset=fashion_mnist", "data.clients=100", "data.scale=unit",
    "data.partition={name: feddual, alpha: 0.01}", "model=feddual_lenet", "cohort=0.1",
    "local.epochs=3", "local.batch_size=10", "local.optimizer=adam", "local.lr=0.001",
    "evaluation.clients=false",
)  # fmt: skip
SMOKE: Settings = (
    "data.dataset=fashion_mnist_10k", "data.limit=600", "data.clients=6", "cohort=3",
    "local.epochs=1", "rounds=2",
)  # fmt: skip
REDUCED: Settings = ("data.dataset=fashion_mnist_10k", "data.limit=8000", "rounds=60")
SMOKE_HOW = "Two rounds of six clients on Fashion-MNIST."
REDUCED_HOW = (
    "The 10,000 embedded images instead of all 70,000 of Fashion-MNIST; 60 rounds instead of 180."
)
STANDIN_HOW = (
    "CIFAR with 8,000 training rows and a frozen EfficientNet-Lite0 (two Python packages: `fedorch "
    "describe features`) for VGG16."
)
NO_VGG16 = (
    "VGG16's ImageNet weights are torchvision's download; where they cannot be had, "
    "EfficientNet-Lite0 stands in."
)
FMNIST, CIFAR10, CIFAR100 = "FMNIST", "CIFAR10", "CIFAR100"
PANELS: dict[str, Settings] = {
    CIFAR10: ("data.dataset=cifar10", "data.scale=standard", "model=feddual_vgg16", "rounds=80"),
    CIFAR100: ("data.dataset=cifar100", "data.scale=standard", "model=feddual_vgg16", "rounds=80"),
    FMNIST: (),
}
"""The paper's datasets: what differs from ``BASE``. It gives no number of rounds for CIFAR-100."""
STANDIN_OF = {name: f"{name} stand-in" for name in (CIFAR10, CIFAR100)}
"""Column of the paper -> the one that is shown beside it in the reduced budgets."""
STANDINS: dict[str, Settings] = {
    standin: (
        f"data.dataset={{name: features, base: {name.lower()}, backbone: efficientnet_lite0, "
        "side: 32}",
        "model={name: mlp, hidden: [64]}",
    )
    for name, standin in STANDIN_OF.items()
}
"""What the reduced budgets have in place of CIFAR under VGG16: no rounds of their own, so that the
budget's hold."""
ACCURACY = Column(statistic="tail", tail=10, scale=100)
"""Percent, the mean over the last ten rounds; the paper does not say of which round its numbers
are."""
TARGETS = {CIFAR10: 0.4, FMNIST: 0.7}
"""Accuracies that Table 5 (and, it seems, Figure 4) counts up to."""
HALVES: dict[str, Settings] = {
    "neither": ("algorithm=fedavg",),
    "adaptive loss": ("algorithm=feddual", "aggregator=mean"),
    "dynamic aggregation": ("algorithm={name: feddual, adaptive_loss: false}",),
    "both": ("algorithm=feddual",),
}
HALVES_CLAIMED = (
    Claim("both halves ahead of either", "both", ("adaptive loss", "dynamic aggregation")),
    Claim("the loss alone behind FedAvg", "neither", ("adaptive loss",)),
)
ADAM, SGD_RATES = (0.0003, 0.001, 0.003, 0.01), (0.01, 0.03, 0.1, 0.3)
"""Learning rates that every method of its optimiser tries."""
ADAM_ONLY: Grid = {
    "local.lr": tuple(sorted((*ADAM, 0.0004, 0.0006, 0.0008, 0.0015, 0.002, 0.004, 0.005, 0.007)))
}
SGD_ONLY: Grid = {
    "local.lr": tuple(sorted((*SGD_RATES, 0.013, 0.017, 0.023, 0.05, 0.07, 0.13, 0.17, 0.23)))
}
"""For methods that have nothing else to be tuned: the same rates, and eight between them."""


def with_mu(rates: tuple[float, ...], *values: float) -> Grid:
    """The common rates with three values of the method's own μ."""
    return {"local.lr": rates, "algorithm.mu": values}


GRIDS: dict[str, Grid] = {
    "FedAvg": ADAM_ONLY,
    "FedProx": with_mu(ADAM, 0.001, 0.1, 0.7),
    "FedNova": with_mu(SGD_RATES, 0.001, 0.01, 0.1),
    "FedBN": ADAM_ONLY,
    "FedDyn": with_mu(ADAM, 0.001, 0.01, 0.1),
    "MOON": with_mu(ADAM, 0.1, 1.0, 10.0),
    "SCAFFOLD": SGD_ONLY,
    "FedPVR": SGD_ONLY,
    "Proposed": ADAM_ONLY,
    **dict.fromkeys((*READINGS, *HALVES), ADAM_ONLY),
}
"""Twelve trials a method, between the same ends of rates. FedProx's and FedNova's μ are the ends of
the paper's grids (0.001 to 0.7, and to 0.1) and one value between them. It gives none for the other
two: FedDyn has Acar et al.'s values, MOON three around its own paper's 1. Its learning rates are
not legible."""


def tuned_on(column: Column, rows: Iterable[str]) -> Tuning:
    """Each of ``rows`` tuned by what a column is of, in each column for itself: another dataset, or
    another α, asks for another rate (FedNova's of α = 0.1 fails at 0.01).
    """
    return Tuning({row: GRIDS[row] for row in rows}, column, each_column=True)


def over(settings: Mapping[str, Settings], column: Column) -> dict[str, Column]:
    """The same column for each of ``settings`` (name -> settings)."""
    return {name: replace(column, settings=some) for name, some in settings.items()}


def placed(columns: Mapping[str, Column], at: Iterable[float]) -> dict[str, Column]:
    """The columns as points on an axis, each at its number."""
    return {
        name: replace(column, x=x) for (name, column), x in zip(columns.items(), at, strict=True)
    }


def to_target(name: str) -> Column:
    """Rounds until the test accuracy of a dataset's target."""
    return Column(
        settings=PANELS[name], statistic="rounds_to", target=TARGETS[name], better="low", digits=0
    )


def budgets(
    reduced: Settings = REDUCED,
    how: str = REDUCED_HOW,
    smoke_columns: tuple[str, ...] = (),
    reduced_columns: tuple[str, ...] = (),
    full_columns: tuple[str, ...] = (),
) -> dict[str, Budget]:
    """Smoke on two rounds, reduced on the embedded images, full with the paper's three seeds."""
    return {
        "smoke": Budget(SMOKE, columns=smoke_columns, reduced=SMOKE_HOW),
        "reduced": Budget(reduced, SEEDS, columns=reduced_columns, reduced=how),
        "full": Budget(seeds=SEEDS, columns=full_columns),
    }


def fmnist_only(columns: Mapping[str, Column]) -> dict[str, Budget]:
    """Budgets of entries whose CIFAR columns are left to the full one; ``columns`` are all, those
    of Fashion-MNIST with its settings.
    """
    mine = tuple(name for name, one in columns.items() if one.settings == PANELS[FMNIST])
    return budgets(
        how=f"{REDUCED_HOW} No CIFAR.",
        smoke_columns=mine,
        reduced_columns=mine,
        full_columns=tuple(columns),
    )


def with_standins() -> dict[str, Budget]:
    """Budgets of tables whose CIFAR columns have stand-ins."""
    return budgets(
        how=f"{REDUCED_HOW} {STANDIN_HOW}",
        smoke_columns=(FMNIST,),
        reduced_columns=(*STANDINS, FMNIST),
        full_columns=tuple(PANELS),
    )


def proposed_ahead() -> tuple[Claim, ...]:
    """FedDUAL ahead of its rivals."""
    text = "FedDUAL ahead of all baselines (of FedAvg and FedBN, which are one here, once)"
    return (Claim(text, "Proposed", RIVALS),)
