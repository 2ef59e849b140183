"""FedAA's Figures 1 to 5. Where an appendix table has a figure's numbers, they are given."""

from __future__ import annotations

from typing import Literal

from sweeps.entry import Budget, Claim, Column, Entry, Published, Settings
from sweeps.papers.fedaa import published
from sweeps.papers.fedaa.settings import (
    ATTACKED,
    BASELINES,
    FEDAA,
    LEVELS,
    METHODS,
    PARTS,
    SEEDS,
    SELECTIONS,
    TITLES,
    UNAVAILABLE,
    UNEQUAL,
    Cells,
    accuracy,
    attack,
    base,
    budgets,
    read,
    variance,
)

SHOWN: dict[str, Settings] = {name: METHODS[name] for name in (*BASELINES, "FedAA")}
PANELS: tuple[tuple[str, str, str, dict[str, str]], ...] = (
    ("cifar10", "same_value", "same-value", published.SAME_VALUE),
    ("fashionmnist", "sign_flip", "sign-flipping", published.SIGN_FLIP),
    ("emnist", "gaussian", "Gaussian", published.GAUSSIAN),
)
"""Figure 1: dataset, attack, its name in words, the table with the numbers."""


def under_attack() -> tuple[Entry, ...]:
    """Figure 1, upper line."""
    entries = []
    for data, name, words, texts in PANELS:
        cells = read(texts[data], LEVELS)
        entries.append(
            Entry(
                f"fedaa/figure1-{data}",
                f"Accuracy over the part of {words} attackers ({TITLES[data]}); {UNEQUAL}",
                SHOWN,
                {level: accuracy(*attack(name, level)) for level in ATTACKED},
                base(data),
                budgets(data),
                {
                    place: cells[place]
                    for place in cells
                    if place[0] in SHOWN and place[1] in ATTACKED
                },
                (Claim("FedAA above the baselines", "FedAA", BASELINES),),
                figure="axis",
                unavailable=UNAVAILABLE.get(data, ""),
            )
        )
    return tuple(entries)


def without_attack() -> tuple[Entry, ...]:
    """Figure 1, lower line."""
    claims = {"fashionmnist": (Claim("Ditto above FedAA", "Ditto", ("FedAA",)),)}
    entries = []
    for data, _, _, texts in PANELS:
        cells = read(texts[data], LEVELS)
        entries.append(
            Entry(
                f"fedaa/figure1-clear-{data}",
                f"Accuracy over rounds without attackers ({TITLES[data]}); {UNEQUAL}",
                SHOWN,
                {"accuracy": accuracy()},
                base(data, *attack("none", "clear")),
                budgets(data),
                {(row, "accuracy"): cells[row, "clear"] for row in SHOWN},
                claims.get(data, ()),
                figure="curves",
                unavailable=UNAVAILABLE.get(data, ""),
            )
        )
    return tuple(entries)


def fairness() -> tuple[Entry, ...]:
    """Figure 2."""
    others = ("Ditto", "lp-proj-2", "lp-proj-1")
    claims = (
        Claim("FedAA above the baselines", "FedAA", BASELINES, ("accuracy",)),
        *(
            Claim(f"{name} spreads less than FedAA", name, ("FedAA",), ("variance",))
            for name in others
        ),
    )
    return tuple(
        Entry(
            f"fedaa/figure2-{name}",
            f"Accuracy against its variance over clients, {words} (CIFAR-10); {UNEQUAL}",
            SHOWN,
            {"accuracy": accuracy(), "variance": variance()},
            base("cifar10", *attack("same_value", level)),
            budgets("cifar10"),
            claims=claims,
            figure="scatter",
        )
        for name, level, words in (
            ("clear", "clear", "without attackers"),
            ("attacked", "20%", "with attackers"),
        )
    )


def by_selection() -> tuple[Entry, ...]:
    """Figure 3: Table 6 the other way round."""
    cells = read(published.SELECTED, ATTACKED)
    spreads: Cells = {place: Published(number.spread) for place, number in cells.items()}
    kinds: tuple[tuple[str, str, Literal["high", "low"], Cells], ...] = (
        ("accuracy", "personal_accuracy_weighted", "high", cells),
        ("variance", "personal_accuracy_var", "low", spreads),
    )
    return tuple(
        Entry(
            f"fedaa/figure3-{kind}",
            f"The {kind} over the part of clients that is aggregated, by the part of same-value "
            "attackers (CIFAR-10)",
            {level: attack("same_value", level) for level in ATTACKED},
            {m: Column(metric, own, better=better, digits=3) for m, own in SELECTIONS.items()},
            base("cifar10"),
            budgets("cifar10"),
            {(level, m): number for (m, level), number in numbers.items()},
            figure="axis",
        )
        for kind, metric, better, numbers in kinds
    )


def classes() -> Entry:
    """Figure 4."""
    about = Published(0.65, note="about 65 %, from the paper's words")
    reduced = Budget(
        ("rounds=40", "local.epochs=1", "local.block=25"),
        SEEDS,
        reduced="40 rounds of 1 epoch instead of 200 of 20.",
    )
    return Entry(
        "fedaa/figure4",
        "Accuracy of the global model on each digit that the server holds out, over rounds (MNIST)",
        {"FedAA": (*FEDAA, "algorithm.per_class=true")},
        {f"digit {digit}": Column(f"heldout_class_{digit}", digits=3) for digit in range(10)},
        base("mnist", *attack("none", "clear")),
        budgets("mnist") | {"reduced": reduced},
        {("FedAA", "digit 5"): about, ("FedAA", "digit 9"): about},
        figure="curves",
    )


def tradeoffs() -> tuple[Entry, ...]:
    """Figure 5: Table 6 as points, one panel a part of attackers."""
    cells = read(published.SELECTED, ATTACKED)
    entries = []
    for level in ATTACKED:
        numbers: Cells = {}
        for row in SELECTIONS:
            numbers[row, "accuracy"] = cells[row, level]
            numbers[row, "variance"] = Published(cells[row, level].spread)
        entries.append(
            Entry(
                f"fedaa/figure5-{round(100 * PARTS[level])}",
                f"Accuracy against variance for each M (%), {level} same-value attackers "
                "(CIFAR-10)",
                SELECTIONS,
                {"accuracy": accuracy(), "variance": variance()},
                base("cifar10", *attack("same_value", level)),
                budgets("cifar10"),
                numbers,
                figure="scatter",
            )
        )
    return tuple(entries)


FIGURES: tuple[Entry, ...] = (
    *under_attack(),
    *without_attack(),
    *fairness(),
    *by_selection(),
    classes(),
    *tradeoffs(),
)
