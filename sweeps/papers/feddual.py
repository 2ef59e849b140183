"""The tables and figures of FedDUAL (adaptive loss at the clients, Wasserstein barycenters at the
server).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from sweeps.entry import Budget, Claim, Column, Entry, Grid, Published, Settings, Tuning

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
BASELINES = tuple(name for name in METHODS if name != "Proposed")
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


def over(settings: Mapping[str, Settings], column: Column) -> dict[str, Column]:
    """The same column for each of ``settings`` (name -> settings)."""
    return {name: replace(column, settings=some) for name, some in settings.items()}


def placed(columns: Mapping[str, Column], at: Iterable[float]) -> dict[str, Column]:
    """The columns as points on an axis, each at its number."""
    return {
        name: replace(column, x=x) for (name, column), x in zip(columns.items(), at, strict=True)
    }


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


def line(row: str, columns: tuple[str, ...], printed: str) -> dict[tuple[str, str], Published]:
    """A row as printed: ``value`` or ``value±spread``, and ``*`` where the paper has an
    asterisk."""
    found = {}
    for column, cell in zip(columns, printed.split(), strict=True):
        value, _, spread = cell.partition("±")
        number = (
            Published(None, note="an asterisk in the paper")
            if value == "*"
            else Published(float(value))
        )
        found[row, column] = replace(number, spread=float(spread)) if spread else number
    return found


def lines(columns: tuple[str, ...], printed: Mapping[str, str]) -> dict[tuple[str, str], Published]:
    """All rows of a table as printed."""
    return {
        key: number
        for row, text in printed.items()
        for key, number in line(row, columns, text).items()
    }


def beside_standins(
    numbers: Mapping[tuple[str, str], Published],
) -> dict[tuple[str, str], Published]:
    """Published CIFAR numbers once more beside their stand-ins, with a note that another network
    made them.
    """
    again = {
        (row, STANDIN_OF[column]): replace(number, note=number.note or "of VGG16 on all of CIFAR")
        for (row, column), number in numbers.items()
        if column in STANDIN_OF
    }
    return {**numbers, **again}


def proposed_ahead(
    rivals: tuple[str, ...] = BASELINES, columns: tuple[str, ...] = ()
) -> tuple[Claim, ...]:
    """FedDUAL ahead of its rivals."""
    return (Claim("FedDUAL ahead of all baselines", "Proposed", rivals, columns),)


EIGHT_ADAM = (0.0001, 0.0003, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.01)
EIGHT_SGD = (0.003, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
TWO_ADAM = (0.001, 0.003)
GRIDS: dict[str, Grid] = {
    "FedAvg": {"local.lr": EIGHT_ADAM},
    "FedProx": {"local.lr": TWO_ADAM, "algorithm.mu": (0.001, 0.1, 0.4, 0.7)},
    "FedNova": {"local.lr": (0.03, 0.1), "algorithm.mu": (0.001, 0.003, 0.05, 0.1)},
    "FedBN": {"local.lr": EIGHT_ADAM},
    "FedDyn": {"local.lr": TWO_ADAM, "algorithm.mu": (0.001, 0.01, 0.1, 1.0)},
    "MOON": {"local.lr": TWO_ADAM, "algorithm.mu": (0.01, 0.1, 1.0, 5.0)},
    "SCAFFOLD": {"local.lr": EIGHT_SGD},
    "FedPVR": {"local.lr": EIGHT_SGD},
    "Proposed": {"local.lr": EIGHT_ADAM},
}
"""Eight trials a method. Values of μ for FedProx and FedNova are the paper's; its learning rates
are not legible."""


def accuracy_tables() -> tuple[Entry, ...]:
    """Tables 1 and 2: methods, and the two halves of FedDUAL, on three datasets."""
    columns = over({**PANELS, **STANDINS}, ACCURACY)
    printed = {
        "FedAvg": "46.68±0.25 26.88±0.18 81.70±0.20",
        "FedProx": "47.58±0.30 26.89±0.22 80.54±0.28",
        "FedNova": "48.44±0.35 * *",
        "FedBN": "* 26.88±0.19 81.36±0.23",
        "FedDyn": "43.97±0.40 18.27±0.32 71.86±0.45",
        "MOON": "46.57±0.28 28.50±0.25 80.09±0.27",
        "SCAFFOLD": "* * *",
        "FedPVR": "42.26±0.42 23.78±0.31 80.32±0.33",
        "Proposed": "48.70±0.20 29.15±0.24 81.99±0.21",
    }
    halves = {
        "adaptive loss": "41.05±0.12 25.05±0.11 80.70±0.22",
        "dynamic aggregation": "46.50±0.15 27.01±0.17 80.91±0.25",
        "both": "48.70±0.20 29.15±0.24 81.99±0.18",
    }
    numbers = lines(tuple(PANELS), printed)
    neither = {
        ("neither", column): replace(number, note="FedAvg's, from Table 1")
        for (row, column), number in numbers.items()
        if row == "FedAvg"
    }
    return (
        Entry(
            "feddual/table1", "Test accuracy of nine methods on three datasets, α = 0.01",
            METHODS, columns, BASE, with_standins(), beside_standins(numbers), proposed_ahead(),
            unavailable=NO_VGG16, tuning=Tuning(GRIDS, columns[FMNIST]),
        ),
        Entry(
            "feddual/table2", "FedDUAL's two halves, alone and together",
            HALVES, columns, BASE, with_standins(),
            beside_standins({**lines(tuple(PANELS), halves), **neither}), HALVES_CLAIMED,
            unavailable=NO_VGG16,
        ),
    )  # fmt: skip


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


def timed(metric: str, tail: int, scale: float, digits: int = 2) -> Column:
    """Mean seconds of the last ``tail`` rounds, scaled."""
    return Column(metric, (), "tail", tail, scale=scale, better="low", digits=digits)


def time_tables() -> tuple[Entry, ...]:
    """Tables 3 to 5: seconds of a client and of the server, hours of a whole run, hours until a
    target.
    """
    return (_client_and_server(), _hours(), _hours_to_target())


def _client_and_server() -> Entry:
    rows = {"FedAvg": METHODS["FedAvg"], "Proposed": METHODS["Proposed"]}
    client, server = timed("seconds_train", 180, 0.1), timed("seconds_aggregate", 180, 1.0)
    columns = {
        f"{name} {side}": replace(column, settings=PANELS[name])
        for name in (CIFAR10, FMNIST)
        for side, column in (("client", client), ("server", server))
    }
    servers = tuple(name for name, one in columns.items() if one.metric == server.metric)
    return Entry(
        "feddual/table3", "Seconds of a client's and of the server's work in a round",
        rows, columns, BASE, fmnist_only(columns),
        lines(tuple(columns),
              {"FedAvg": "17.71 0.44 2.14 0.05", "Proposed": "27.49 1.94 2.62 1.95"}),
        (Claim("averaging is the cheaper aggregation", "FedAvg", ("Proposed",), servers),),
        unavailable=NO_VGG16,
    )  # fmt: skip


def _hours() -> Entry:
    columns = {
        CIFAR10: Column("seconds", PANELS[CIFAR10], "sum", scale=1 / 3600, better="low"),
        FMNIST: Column("seconds", (), "sum", scale=1 / 3600, better="low"),
    }
    printed = {
        "FedAvg": "2.66 1.75",
        "FedProx": "2.90 1.90",
        "FedNova": "3.10 *",
        "FedBN": "* 1.80",
        "FedDyn": "4.89 2.91",
        "MOON": "3.80 2.40",
        "SCAFFOLD": "* *",
        "FedPVR": "4.50 2.90",
        "Proposed": "5.33 3.01",
    }
    others = tuple(name for name in METHODS if name != "FedAvg")
    quicker = tuple(name for name in BASELINES if name != "FedDyn")
    claims = (
        Claim("FedAvg is the quickest", "FedAvg", others),
        *(Claim(f"{name} quicker than FedDyn", name, ("FedDyn",)) for name in quicker),
        *(Claim(f"{name} quicker than FedDUAL", name, ("Proposed",)) for name in BASELINES),
    )
    return Entry(
        "feddual/table4", "Hours of training for 80 (CIFAR-10) and 180 (Fashion-MNIST) rounds",
        METHODS, columns, BASE, fmnist_only(columns), lines(tuple(columns), printed), claims,
        unavailable=NO_VGG16,
    )  # fmt: skip


TARGETS = {CIFAR10: 0.4, FMNIST: 0.7}
"""Accuracies that Table 5 (and, it seems, Figure 4) counts up to."""


def to_target(name: str) -> Column:
    """Rounds until the test accuracy of a dataset's target."""
    return Column(
        settings=PANELS[name], statistic="rounds_to", target=TARGETS[name], better="low", digits=0
    )


def _hours_to_target() -> Entry:
    hours = {
        "FedAvg": "0.76 1.46",
        "FedProx": "1.61 1.90",
        "FedNova": "1.24 *",
        "FedBN": "* 1.80",
        "FedDyn": "4.89 2.91",
        "MOON": "1.27 1.47",
        "SCAFFOLD": "* *",
        "FedPVR": "1.31 1.21",
        "Proposed": "0.67 1.02",
    }
    columns = {
        name: replace(
            to_target(name), statistic="seconds_to", scale=1 / 3600, digits=2, better="low"
        )
        for name in TARGETS
    }
    return Entry(
        "feddual/table5", "Hours to 40 % on CIFAR-10 and 70 % on Fashion-MNIST",
        METHODS, columns, BASE, fmnist_only(columns), lines(tuple(columns), hours),
        proposed_ahead(), unavailable=NO_VGG16,
    )  # fmt: skip


def motivation() -> tuple[Entry, ...]:
    """Figures 1, 2 and 6: landscapes and gradient norms. The surfaces are drawn by ``fedorch
    landscape``.
    """
    rows: dict[str, Settings] = {
        "IID": ("algorithm=fedavg", "data.partition=iid"),
        "non-IID": ("algorithm=fedavg", "data.partition={name: feddual, alpha: 0.01}"),
    }
    layers = {"conv 1": 0, "conv 2": 3, "dense over channels": 6, "dense 84": 9, "output": 11}
    norms = {
        name: Column(f"gradient_norm/{i}", (), "tail", 180, better="low", digits=3)
        for name, i in layers.items()
    }
    centre = {
        "test loss": Column("test_loss", better="low", digits=3),
        "test accuracy": ACCURACY,
        "training loss": Column("train_loss", better="low", digits=3),
    }
    vgg16: Settings = (
        "data.dataset={name: features, base: fashion_mnist, backbone: vgg16, side: 32}",
        "model={name: mlp, hidden: [64]}",
    )
    lenet = "model=feddual_lenet"
    plain = budgets()
    head = {
        **plain,
        "smoke": replace(plain["smoke"], settings=(*SMOKE, lenet)),
        "reduced": replace(
            plain["reduced"], settings=(*REDUCED, lenet), reduced=f"{REDUCED_HOW} LeNet, not VGG16."
        ),
    }
    ours = {name: METHODS[name] for name in ("FedAvg", "Proposed")}
    return (
        Entry(
            "feddual/figure1",
            "FedAvg's minimum with even and with skewed clients (the centre of the landscapes)",
            rows, centre, BASE, plain,
        ),
        Entry(
            "feddual/figure2", "Norms of the gradients by layer, with even and with skewed clients",
            rows, norms, (*BASE, "evaluation.gradient_norms=true"), plain, figure="axis",
            claims=(Claim("skewed clients: larger gradients in the last layers", "IID",
                          ("non-IID",), ("dense 84", "output")),),
        ),
        Entry(
            "feddual/figure6", "FedAvg's and FedDUAL's minima (the centre of the landscapes)",
            ours, centre, (*BASE, *vgg16), head, unavailable=NO_VGG16,
        ),
    )  # fmt: skip


def learning() -> tuple[Entry, ...]:
    """Figures 3, 4, 7 and 10: learning curves, and the rounds that they take to a target."""
    columns = over(PANELS, ACCURACY)
    rounds = {name: to_target(name) for name in TARGETS}
    halves = {name: settings for name, settings in HALVES.items() if name != "neither"}
    return (
        Entry(
            "feddual/figure3", "Learning curves of nine methods on three datasets",
            METHODS, columns, BASE, fmnist_only(columns), claims=proposed_ahead(), figure="curves",
            unavailable=NO_VGG16,
        ),
        Entry(
            "feddual/figure4", "Rounds to 40 % on CIFAR-10 and 70 % on Fashion-MNIST",
            METHODS, rounds, BASE, fmnist_only(rounds), claims=proposed_ahead(),
            unavailable=NO_VGG16,
        ),
        Entry(
            "feddual/figure7", "Learning curves of FedDUAL's halves",
            halves, {FMNIST: ACCURACY}, BASE, budgets(), claims=HALVES_CLAIMED[:1], figure="curves",
        ),
        Entry(
            "feddual/figure10", "Learning curves of Figure 3 with their spread over seeds",
            METHODS, columns, BASE, fmnist_only(columns), claims=proposed_ahead(), figure="curves",
            unavailable=NO_VGG16,
        ),
    )  # fmt: skip


def iterated(eps: str = "1.0e-4", iterations: int = 150) -> Settings:
    """FedDUAL as its equations have it, with the barycenter's ε and number of iterations."""
    method = f"{{name: iterated, eps: {eps}, iterations: {iterations}}}"
    return (
        "algorithm={name: feddual, reading: paper_eq}",
        f"aggregator={{name: barycenter, method: {method}, layers: 2}}",
    )


EPS = {f"ε={eps}": eps for eps in ("1.0e-5", "1.0e-4", "1.0e-3", "1.0e-2", "1.0e-1")}
SCALES = {name: iterated(eps=eps) for name, eps in EPS.items()}
COUNTS = {f"{n} iterations": iterated(iterations=n) for n in (50, 100, 150, 200, 300)}
"""Values around the paper's best ones (ε = 1e-4, 150 iterations); its own axes are not in the
text."""


def ablations() -> tuple[Entry, ...]:
    """Figures 5, 8, 9, 11 and 12: layers with barycenters, ε, iterations."""
    layers: dict[str, Settings] = {
        "last layer": ("algorithm=feddual", "aggregator.layers=1"),
        "last two layers": ("algorithm=feddual", "aggregator.layers=2"),
        "first two layers": ("algorithm=feddual", r"aggregator.layers=^[03]\."),
        "all layers": ("algorithm=feddual", "aggregator.layers=5"),
    }
    short = budgets((*REDUCED, "rounds=30"), REDUCED_HOW.replace("60 rounds", "30 rounds"))
    best = "ε=1.0e-4"
    rivals = tuple(name for name in SCALES if name != best)
    counts = tuple(name for name in COUNTS if name != "150 iterations")
    proposed: dict[str, Settings] = {"Proposed": ()}
    return (
        Entry(
            "feddual/figure5", "Learning curves by the layers that have barycenters",
            layers, {FMNIST: ACCURACY}, BASE, budgets(), figure="curves",
            claims=(Claim("the last two layers ahead of all", "last two layers",
                          ("all layers", "first two layers")),),
        ),
        Entry(
            "feddual/figure8", "Test accuracy by the barycenter's ε",
            proposed, placed(over(SCALES, ACCURACY), map(float, EPS.values())), BASE, short,
            figure="axis", along="ε",
        ),
        Entry(
            "feddual/figure9", "Learning curves by the barycenter's ε",
            SCALES, {FMNIST: ACCURACY}, BASE, short,
            claims=(Claim("ε = 1e-4 ahead of the others", best, rivals),), figure="curves",
        ),
        Entry(
            "feddual/figure11", "Test accuracy by the barycenter's iterations",
            proposed, over(COUNTS, ACCURACY), BASE, short, figure="axis",
        ),
        Entry(
            "feddual/figure12", "Learning curves by the barycenter's iterations",
            COUNTS, {FMNIST: ACCURACY}, BASE, short,
            claims=(Claim("150 iterations ahead of the others", "150 iterations", counts),),
            figure="curves",
        ),
    )  # fmt: skip


def heterogeneity() -> tuple[Entry, ...]:
    """Figures 13 and 14: from severe to mild label skew. The values of α other than 0.01 are not in
    the text.
    """
    alphas = {f"α={a}": a for a in (0.01, 0.1, 0.5, 1.0)}
    skews = over({name: (f"data.partition.alpha={a}",) for name, a in alphas.items()}, ACCURACY)
    short = budgets(
        (*REDUCED, "rounds=40"), REDUCED_HOW.replace("60 rounds", "40 rounds"), ("α=0.01", "α=1.0")
    )
    return (
        Entry(
            "feddual/figure13", "Test accuracy of nine methods by label skew",
            METHODS, placed(skews, alphas.values()), BASE, short, claims=proposed_ahead(),
            figure="axis", along="α",
        ),
        Entry(
            "feddual/figure14", "Learning curves of nine methods by label skew",
            METHODS, skews, BASE, short, claims=proposed_ahead(), figure="curves",
        ),
    )  # fmt: skip


def by_number(entry: Entry) -> tuple[bool, int]:
    """Tables before figures, each by its number."""
    return "figure" in entry.id, int("".join(c for c in entry.id if c.isdigit()))


ENTRIES: tuple[Entry, ...] = tuple(
    sorted(
        (
            *accuracy_tables(),
            *time_tables(),
            *motivation(),
            *learning(),
            *ablations(),
            *heterogeneity(),
        ),
        key=by_number,
    )
)
