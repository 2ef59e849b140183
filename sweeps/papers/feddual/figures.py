"""FedDUAL's Figures 1 to 14."""

from __future__ import annotations

from dataclasses import replace

from sweeps.entry import Budget, Claim, Column, Entry, Settings
from sweeps.papers.drawings import landscape
from sweeps.papers.feddual.settings import (
    ACCURACY,
    BASE,
    FMNIST,
    HALVES,
    HALVES_CLAIMED,
    METHODS,
    NO_VGG16,
    PANELS,
    REDUCED,
    REDUCED_HOW,
    SMOKE,
    TARGETS,
    budgets,
    fmnist_only,
    over,
    placed,
    proposed_ahead,
    to_target,
    tuned_on,
)

Figures = dict[int, Entry]
"""Number in the paper -> entry."""

EVEN_OR_SKEWED: dict[str, Settings] = {
    "IID": ("algorithm=fedavg", "data.partition=iid"),
    "non-IID": ("algorithm=fedavg", "data.partition={name: feddual, alpha: 0.01}"),
}
CENTRE = {
    "test loss": Column("test_loss", better="low", digits=3),
    "test accuracy": ACCURACY,
    "loss along local training": Column("train_loss", better="low", digits=3),
}
"""What is known of the centre of a landscape, and of the models whose mean it is."""
AROUND = landscape(points=15, rows=1000)
VGG16: Settings = (
    "data.dataset={name: features, base: fashion_mnist, backbone: vgg16, side: 32}",
    "model={name: mlp, hidden: [64]}",
)
LAYERS = {"conv 1": 0, "conv 2": 3, "dense over channels": 6, "dense 84": 9, "output": 11}
"""Name -> place in the model."""


def landscapes() -> Figures:
    """Figures 1 and 6: the loss on a plane around the final models."""
    ours = {name: METHODS[name] for name in ("FedAvg", "Proposed")}
    return {
        1: Entry(
            "feddual/figure1",
            "The landscape around FedAvg's minimum with even and with skewed clients",
            EVEN_OR_SKEWED, CENTRE, BASE, budgets(), drawn=AROUND,
        ),
        6: Entry(
            "feddual/figure6", "The landscapes around FedAvg's and FedDUAL's minima",
            ours, CENTRE, (*BASE, *VGG16), without_vgg16(), unavailable=NO_VGG16, drawn=AROUND,
        ),
    }  # fmt: skip


def without_vgg16() -> dict[str, Budget]:
    """Budgets whose base has VGG16, which is for the full one only."""
    plain, lenet = budgets(), "model=feddual_lenet"
    how = f"{REDUCED_HOW} LeNet, not VGG16."
    return {
        **plain,
        "smoke": replace(plain["smoke"], settings=(*SMOKE, lenet)),
        "reduced": replace(plain["reduced"], settings=(*REDUCED, lenet), reduced=how),
    }


def gradient_norms() -> Figures:
    """Figure 2: which layers the skew pulls at."""
    norms = {
        name: Column(f"gradient_norm/{place}", (), "tail", 180, better="low", digits=3)
        for name, place in LAYERS.items()
    }
    text = "skewed clients: larger gradients along local training in the last layers"
    last = ("dense 84", "output")
    return {
        2: Entry(
            "feddual/figure2",
            "Norms of mini-batches' gradients along local training, by layer, with even and with "
            "skewed clients",
            EVEN_OR_SKEWED, norms, (*BASE, "evaluation.gradient_norms=true"), budgets(),
            figure="axis", claims=(Claim(text, "IID", ("non-IID",), last),),
        ),
    }  # fmt: skip


def learning() -> Figures:
    """Figures 3, 4, 7 and 10: learning curves, and the rounds that they take to a target."""
    columns = over(PANELS, ACCURACY)
    rounds = {name: to_target(name) for name in TARGETS}
    halves = {name: settings for name, settings in HALVES.items() if name != "neither"}
    return {
        3: Entry(
            "feddual/figure3", "Learning curves of nine methods on three datasets",
            METHODS, columns, BASE, fmnist_only(columns), claims=proposed_ahead(), figure="curves",
            unavailable=NO_VGG16, tuning=tuned_on(ACCURACY, METHODS),
        ),
        4: Entry(
            "feddual/figure4", "Rounds to 40 % on CIFAR-10 and 70 % on Fashion-MNIST",
            METHODS, rounds, BASE, fmnist_only(rounds), claims=proposed_ahead(),
            unavailable=NO_VGG16, tuning=tuned_on(ACCURACY, METHODS),
        ),
        7: Entry(
            "feddual/figure7", "Learning curves of FedDUAL's halves",
            halves, {FMNIST: ACCURACY}, BASE, budgets(), claims=HALVES_CLAIMED[:1], figure="curves",
            tuning=tuned_on(ACCURACY, halves),
        ),
        10: Entry(
            "feddual/figure10", "Learning curves of Figure 3 with their spread over seeds",
            METHODS, columns, BASE, fmnist_only(columns), claims=proposed_ahead(), figure="curves",
            unavailable=NO_VGG16, tuning=tuned_on(ACCURACY, METHODS),
        ),
    }  # fmt: skip


def short(rounds: int, columns: tuple[str, ...] = ()) -> dict[str, Budget]:
    """Budgets of which the reduced one has fewer rounds than usual, and perhaps fewer columns (as
    has the smoke one).
    """
    how = REDUCED_HOW.replace("60 rounds", f"{rounds} rounds")
    return budgets((*REDUCED, f"rounds={rounds}"), how, columns)


def by_layers() -> Figures:
    """Figure 5: the layers with barycenters."""
    layers: dict[str, Settings] = {
        "last layer": ("algorithm=feddual", "aggregator.layers=1"),
        "last two layers": ("algorithm=feddual", "aggregator.layers=2"),
        "first two layers": ("algorithm=feddual", r"aggregator.layers=^[03]\."),
        "all layers": ("algorithm=feddual", "aggregator.layers=5"),
    }
    others = ("all layers", "first two layers")
    return {
        5: Entry(
            "feddual/figure5", "Learning curves by the layers that have barycenters",
            layers, {FMNIST: ACCURACY}, BASE, budgets(), figure="curves",
            claims=(Claim("the last two layers ahead of all", "last two layers", others),),
        ),
    }  # fmt: skip


def iterated(eps: str = "1.0e-4", iterations: int = 150) -> Settings:
    """FedDUAL as its equations have it, with the barycenter's ε and number of iterations."""
    method = f"{{name: iterated, eps: {eps}, iterations: {iterations}}}"
    return (
        "algorithm={name: feddual, reading: paper_eq}",
        f"aggregator={{name: barycenter, method: {method}, layers: 2}}",
    )


PROPOSED: dict[str, Settings] = {"Proposed": ()}
EPS = {f"ε={eps}": eps for eps in ("1.0e-5", "1.0e-4", "1.0e-3", "1.0e-2", "1.0e-1")}
SCALES = {name: iterated(eps=eps) for name, eps in EPS.items()}
COUNTS = {f"{n} iterations": iterated(iterations=n) for n in (50, 100, 150, 200, 300)}
"""Values around the paper's best ones (ε = 1e-4, 150 iterations); its own axes are not in the
text."""
BEST_EPS, BEST_COUNT = "ε=1.0e-4", "150 iterations"


def by_eps() -> Figures:
    """Figures 8 and 9: the barycenter's ε."""
    columns = placed(over(SCALES, ACCURACY), map(float, EPS.values()))
    others = tuple(name for name in SCALES if name != BEST_EPS)
    return {
        8: Entry(
            "feddual/figure8", "Test accuracy by the barycenter's ε",
            PROPOSED, columns, BASE, short(30), figure="axis", along="ε",
        ),
        9: Entry(
            "feddual/figure9", "Learning curves by the barycenter's ε",
            SCALES, {FMNIST: ACCURACY}, BASE, short(30), figure="curves",
            claims=(Claim("ε = 1e-4 ahead of the others", BEST_EPS, others),),
        ),
    }  # fmt: skip


def by_iterations() -> Figures:
    """Figures 11 and 12: the barycenter's iterations."""
    others = tuple(name for name in COUNTS if name != BEST_COUNT)
    return {
        11: Entry(
            "feddual/figure11", "Test accuracy by the barycenter's iterations",
            PROPOSED, over(COUNTS, ACCURACY), BASE, short(30), figure="axis",
        ),
        12: Entry(
            "feddual/figure12", "Learning curves by the barycenter's iterations",
            COUNTS, {FMNIST: ACCURACY}, BASE, short(30), figure="curves",
            claims=(Claim("150 iterations ahead of the others", BEST_COUNT, others),),
        ),
    }  # fmt: skip


def heterogeneity() -> Figures:
    """Figures 13 and 14: from severe to mild label skew. The values of α other than 0.01 are not in
    the text.
    """
    alphas = {f"α={a}": a for a in (0.01, 0.1, 0.5, 1.0)}
    skews = over({name: (f"data.partition.alpha={a}",) for name, a in alphas.items()}, ACCURACY)
    ends, tuned = ("α=0.01", "α=1.0"), tuned_on(skews["α=0.01"], METHODS)
    return {
        13: Entry(
            "feddual/figure13", "Test accuracy of nine methods by label skew",
            METHODS, placed(skews, alphas.values()), BASE, short(40, ends), claims=proposed_ahead(),
            figure="axis", along="α", tuning=tuned,
        ),
        14: Entry(
            "feddual/figure14", "Learning curves of nine methods by label skew",
            METHODS, skews, BASE, short(40, ends), claims=proposed_ahead(), figure="curves",
            tuning=tuned,
        ),
    }  # fmt: skip


BY_NUMBER: Figures = {
    **landscapes(), **gradient_norms(), **learning(), **by_layers(), **by_eps(), **by_iterations(),
    **heterogeneity(),
}  # fmt: skip
FIGURES: tuple[Entry, ...] = tuple(BY_NUMBER[number] for number in sorted(BY_NUMBER))
