"""What the entries share: data, methods, attacks, columns, budgets, and how published numbers are
read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from sweeps.entry import Budget, Column, Published, Settings

Cells = dict[tuple[str, str], Published]

COMMON: Settings = (
    "rounds=200", "cohort=1.0", "local.epochs=20", "local.batch_size=64", "local.lr=0.1",
    "evaluation.local_models=true", "non_finite=keep", "data.clients=100", "data.pool=all",
)  # fmt: skip
PFNM = "data.partition={name: pfnm, alpha: 0.1, least: 2}"
IMAGES: Settings = ("data.scale=half", PFNM, "data.heldout.per_class=100")
GENERATED: Settings = (
    "data.partition=natural", "data.heldout={per_class: 0, per_client: 0.1}", "model=linear",
)  # fmt: skip
DATA: dict[str, Settings] = {
    "mnist": ("data.dataset=mnist", "model=mlp"),
    "cifar10": ("data.dataset=cifar10", "model=fedaa_cnn"),
    "fashionmnist": ("data.dataset=fashion_mnist", "model=fedaa_resnet"),
    "emnist": ("data.dataset=emnist", "model={name: mlp, hidden: [100, 100]}", "data.clients=300"),
    "synthetic00": ("data.dataset={name: synthetic, alpha: 0.0, beta: 0.0}", *GENERATED),
    "synthetic11": ("data.dataset={name: synthetic, alpha: 1.0, beta: 1.0}", *GENERATED),
}
NOT_IMAGES = ("synthetic00", "synthetic11")
TITLES: dict[str, str] = {
    "mnist": "MNIST", "cifar10": "CIFAR-10", "fashionmnist": "Fashion-MNIST", "emnist": "EMNIST",
    "synthetic00": "SYNTHETIC(0,0)", "synthetic11": "SYNTHETIC(1,1)",
}  # fmt: skip
UNAVAILABLE: dict[str, str] = {
    "emnist": "EMNIST has to be downloaded, and is not at hand where this was written."
}

FEDAA: Settings = ("algorithm={name: fedaa, preset: paper, select: 0.3}",)
METHODS: dict[str, Settings] = {
    "FedAvg": ("algorithm=fedavg", "aggregator=weighted_mean"),
    "FedAvg, unweighted": ("algorithm=fedavg",),
    "local": ("algorithm=local",),
    "Ditto": ("algorithm={name: ditto, strength: 0.1}",),
    "lp-proj-2": ("algorithm={name: lp_proj, p: 2, strength: 1.0}",),
    "lp-proj-1": ("algorithm={name: lp_proj, p: 1, strength: 0.1}",),
    "FedAA": FEDAA,
}
TWO_MODELS = "Ditto trains two models, with twice the local steps of the others"
CHOSEN = "λ of Ditto and lp-proj: the best of three by test accuracy, on MNIST without attack"
UNEQUAL = f"{TWO_MODELS}; {CHOSEN}"
"""What is said of every table with these baselines."""
WITHOUT_GLOBAL_MODEL = ("local", "lp-proj-2", "lp-proj-1")
BASELINES = ("FedAvg", "Ditto", "lp-proj-2", "lp-proj-1")
PARTS = {"10%": 0.1, "20%": 0.2, "30%": 0.3, "40%": 0.4}
"""Name of a column -> part of the clients that attack."""
ATTACKED = tuple(PARTS)
LEVELS = ("clear", *ATTACKED)
SELECTIONS: dict[str, Settings] = {
    str(m): (*FEDAA, f"algorithm.select={m / 100}") for m in range(10, 101, 10)
}
"""FedAA with M percent of the clients aggregated."""

SMALL: Settings = ("rounds=2", "local.epochs=1", "data.clients=8")
EMBEDDED: Settings = (
    "data.dataset=fashion_mnist_10k", "data.limit=600", "data.heldout.per_class=5",
)  # fmt: skip
TRIED = "2 rounds of 1 epoch with 8 clients: only shows that it runs."
SEEDS = (0, 1, 2)
"""The paper does not say how many it has."""
REDUCED: dict[str, Budget] = {
    "mnist": Budget(
        ("rounds=4", "local.epochs=10", "local.block=25"), SEEDS,
        reduced="4 rounds of 10 epochs instead of 200 of 20."
    ),
    "cifar10": Budget(
        ("rounds=4", "local.epochs=5", "data.limit=12000"),
        SEEDS,
        reduced="4 rounds of 5 epochs instead of 200 of 20, on 12,000 of the 59,000 images.",
    ),
    "fashionmnist": Budget(
        ("rounds=4", "local.epochs=10", "local.block=25", "model=mlp"),
        SEEDS,
        reduced="4 rounds of 10 epochs instead of 200 of 20; one hidden layer of 100 in place of "
        "the residual network.",
    ),
    "emnist": Budget(
        ("rounds=4", "local.epochs=10", "local.block=25", "data.dataset=femnist",
         "data.clients=100", "data.heldout.per_class=10"),
        SEEDS,
        reduced="4 rounds of 10 epochs instead of 200 of 20; 100 writers of FEMNIST, pooled and "
        "shared out over 100 clients, stand in for EMNIST over 300, and 10 rows of each class are "
        "held out.",
    ),
    "synthetic00": Budget(
        ("rounds=4", "local.epochs=10"), SEEDS,
        reduced="4 rounds of 10 epochs instead of 200 of 20."
    ),
    "synthetic11": Budget(
        ("rounds=4", "local.epochs=10"), SEEDS,
        reduced="4 rounds of 10 epochs instead of 200 of 20."
    ),
}  # fmt: skip
AGENT_REDUCED = Budget(
    ("rounds=40", "local.epochs=1", "data.limit=12000"),
    SEEDS,
    reduced="40 rounds of 1 epoch instead of 200 of 20 (agents learn once a round, PPO once in "
    "32), on 12,000 images.",
)


def base(data: str, *more: str) -> Settings:
    """The paper's own settings on a dataset."""
    return (*COMMON, *(() if data in NOT_IMAGES else IMAGES), *DATA[data], *more)


def budgets(data: str) -> dict[str, Budget]:
    """Smoke, reduced and full budget of an entry whose columns do not change the dataset."""
    smoke = SMALL if data in NOT_IMAGES else (*SMALL, *EMBEDDED)
    return {
        "smoke": Budget(smoke, reduced=TRIED),
        "reduced": REDUCED[data],
        "full": Budget(seeds=SEEDS),
    }


def side_by_side(reduced: Budget, smoke_columns: Iterable[str]) -> dict[str, Budget]:
    """Budgets of an entry with a dataset in each column: ``smoke_columns`` are those that leave the
    base's alone.
    """
    smoke = Budget((*SMALL, *EMBEDDED), columns=tuple(smoke_columns), reduced=TRIED)
    return {"smoke": smoke, "reduced": reduced, "full": Budget(seeds=SEEDS)}


def attack(name: str, level: str) -> Settings:
    """Settings for ``clear`` or a part of attackers such as ``20%``."""
    if level == "clear":
        return ("attack=none",)
    return (f"attack={{name: {name}, fraction: {PARTS[level]}}}",)


def accuracy(*settings: str) -> Column:
    """Accuracy of the clients' own models (after local training where they keep none), each test
    row counted once.
    """
    return Column("personal_accuracy_weighted", settings, digits=3)


def variance(*settings: str) -> Column:
    """Variance of that accuracy over clients."""
    return Column("personal_accuracy_var", settings, better="low", digits=3)


def both_models(settings: Mapping[str, Settings]) -> dict[str, Column]:
    """A column for the clients' own models and, as ``NAME global``, one for the server's, on the
    clients' test rows.
    """
    own = {name: accuracy(*given) for name, given in settings.items()}
    shared = {
        f"{name} global": Column("client_accuracy_weighted", given, digits=3)
        for name, given in settings.items()
    }
    return own | shared


def read(text: str, columns: Iterable[str]) -> Cells:
    """Cells of lines ``ROW accuracy(variance) …``; ``*`` is a collapse."""
    names = tuple(columns)
    cells: Cells = {}
    for line in text.strip().splitlines():
        row, *printed = line.rsplit(" ", len(names))
        cells |= {(row, name): _number(cell) for name, cell in zip(names, printed, strict=True)}
    return cells


def read_both(text: str, columns: Iterable[str]) -> Cells:
    """Cells for ``both_models``: the row Global goes to FedAA's global model, and FedAvg's numbers
    to both of its.
    """
    cells: Cells = {}
    for (row, column), number in read(text, columns).items():
        shared = f"{column} global"
        if row == "Global":
            cells["FedAA", shared] = replace(number, note="the paper's row Global")
            continue
        cells[row, column] = number
        if row == "FedAvg":
            cells[row, shared] = replace(
                number, note=number.note or "FedAvg's row, read as its global model"
            )
        elif row in WITHOUT_GLOBAL_MODEL:
            cells[row, shared] = Published(None, note="has no global model", exists=False)
    return cells


def with_variances(cells: Mapping[tuple[str, str], Published], suffix: str) -> Cells:
    """The same, and each variance once more as a number of its own in the column ``NAME
    suffix``."""
    spreads = {
        (row, f"{name} {suffix}"): Published(number.spread) for (row, name), number in cells.items()
    }
    return {**cells, **spreads}


def _number(cell: str) -> Published:
    if cell == "*":
        return Published(None, note="collapse (⋆)")
    found = re.fullmatch(r"([\d.]+)(?:\(([\d.]+)\))?", cell)
    if found is None:
        raise ValueError(f"not a published number: {cell!r}")
    value, spread = found.groups()
    return Published(float(value), None if spread is None else float(spread))
