"""FedAA's Tables 1 to 4 and 6 to 12 (Table 5 describes the data)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from sweeps.entry import Budget, Claim, Column, Entry, Settings
from sweeps.papers.fedaa import published
from sweeps.papers.fedaa.settings import (
    AGENT_REDUCED,
    ATTACKED,
    BASELINES,
    DATA,
    FEDAA,
    LEVELS,
    METHODS,
    PARTS,
    SELECTIONS,
    TITLES,
    UNAVAILABLE,
    UNEQUAL,
    Cells,
    accuracy,
    attack,
    base,
    both_models,
    budgets,
    read,
    read_both,
    side_by_side,
    variance,
    with_variances,
)

USUAL = attack("same_value", "30%")
"""The attack of tables that name none; see the package's docstring."""


def agent(name: str, *options: str) -> str:
    """The setting of an agent with the paper's values and some others."""
    return f"algorithm.agent={{{', '.join([f'name: {name}', 'preset: paper', *options])}}}"


def hidden(width: int) -> str:
    """The setting of FedAA's agent with two hidden layers of ``width``."""
    return agent("ddpg", f"hidden: [{width}, {width}]")


def runtimes() -> tuple[Entry, ...]:
    """Table 1."""
    methods: dict[str, Settings] = {
        f"FedAA(AL {width})": (*FEDAA, "algorithm.layers=all", hidden(width))
        for width in (256, 128, 64)
    } | {
        "FedAA(LHL)": (*FEDAA, "algorithm.layers=last_hidden", hidden(256)),
        "Ditto": METHODS["Ditto"],
    }
    columns = {
        "runtime": Column("seconds", statistic="sum", better="low", digits=0),
        "accuracy": accuracy(),
    }
    claims = (
        Claim("FedAA above Ditto", "FedAA(AL 256)", ("Ditto",), ("accuracy",)),
        Claim("Ditto takes less time", "Ditto", ("FedAA(AL 256)",), ("runtime",)),
    )
    entries = []
    for data, text in published.RUNTIME.items():
        numbers = read(text, columns)
        rows = {row: methods[row] for row, _ in numbers}
        baselines = f"; {UNEQUAL}" if "Ditto" in rows else ""
        entries.append(
            Entry(
                f"fedaa/table1-{data}",
                "Seconds for 200 rounds, and accuracy, with a smaller agent or fewer layers "
                f"compared ({TITLES[data]}){baselines}",
                rows, columns, base(data, *USUAL), budgets(data), numbers,
                claims if "Ditto" in rows else (),
            )
        )  # fmt: skip
    return tuple(entries)


def inner_product() -> tuple[Entry, ...]:
    """Table 2."""
    everyone, half = "FedAA(C=100% M=30%)", "FedAA(C=50% M=30%)"
    baselines = ("FedAvg", "Ditto", "lp-proj-1")
    rows = {name: METHODS[name] for name in ("FedAvg, unweighted", *baselines)}
    rows |= {everyone: FEDAA, half: (*FEDAA, "algorithm.candidates=0.5")}
    levels = ("clear", "10%", "20%")
    claims = (
        Claim("FedAA above the baselines", everyone, baselines, levels),
        Claim("FedAA among half of the clients above the baselines", half, baselines, levels),
        Claim("Ditto is hurt less than FedAvg", "Ditto", ("FedAvg",), levels[1:]),
    )
    return tuple(
        Entry(
            f"fedaa/table2-{data}",
            f"Inner-product manipulation, and half of the clients as candidates ({TITLES[data]}); "
            f"{UNEQUAL}",
            rows, both_models({level: attack("ipm", level) for level in levels}), base(data),
            budgets(data), read_both(text, levels), claims,
        )
        for data, text in published.IPM.items()
    )  # fmt: skip


def challenging() -> Entry:
    """Table 3."""
    # q_k ~ Dir(0.1) on four classes; PFNM's draws cannot give each of 100 clients two rows of
    # so few
    news: Settings = (
        "data.dataset=ag_news", "data.scale=standard",
        "data.partition={name: dirichlet, alpha: 0.4}",
        "data.heldout.per_class=100", "model=fasttext",
    )  # fmt: skip
    columns: dict[str, Settings] = {
        "CIFAR-100": (), "Tiny-ImageNet": ("data.dataset=tiny_imagenet",), "AG News": news,
    }  # fmt: skip
    at_hand = ("CIFAR-100", "AG News")
    reduced = Budget(
        ("rounds=4", "local.epochs=5", "data.limit=12000"),
        columns=(*at_hand, *(f"{name} global" for name in at_hand)),
        reduced="4 rounds of 5 epochs instead of 200 of 20, one seed; 12,000 rows of a quarter of "
        "CIFAR-100 and of a small part of AG News; Tiny-ImageNet is left out.",
    )
    order = ("FedAA", "Ditto", "lp-proj-1", "lp-proj-2", "FedAvg", "FedAvg, unweighted")
    settings = ("data.dataset=cifar100", "model=fedaa_cnn", "data.heldout.per_class=10")
    return Entry(
        "fedaa/table3",
        f"Three harder datasets: more classes, larger images, text; {UNEQUAL}",
        {name: METHODS[name] for name in order},
        both_models(columns),
        (*base("cifar10"), *settings, *attack("same_value", "20%")),
        side_by_side(reduced, ("CIFAR-100", "CIFAR-100 global")),
        read_both(published.CHALLENGING, columns),
        (Claim("FedAA above Ditto", "FedAA", ("Ditto",), tuple(columns)),),
        unavailable="Of CIFAR-100 and AG News only a part is at hand, and of Tiny-ImageNet "
        "nothing.",
    )


def held_out() -> tuple[Entry, ...]:
    """Table 4."""
    few = ", ".join(f"{label}: {100 if label < 2 else 10}" for label in range(10))
    even = ("10", "50", "100")
    rows: dict[str, Settings] = {n: (*FEDAA, f"data.heldout.per_class={n}") for n in even}
    rows["unfair"] = (*FEDAA, f"data.heldout.per_class={{{few}}}")
    columns = {"accuracy": accuracy(), "accuracy variance": variance()}
    claims = (
        Claim("more held-out rows help a little", "100", ("10", "50"), ("accuracy",)),
        Claim("50 rows a class above 10", "50", ("10",), ("accuracy",)),
        *(fairer(n) for n in even),
    )
    return tuple(
        Entry(
            f"fedaa/table4-{data}",
            "How many rows of each class the server holds out; unfair: many of two classes "
            f"({TITLES[data]})",
            rows, columns, base(data, *USUAL), budgets(data),
            with_variances(read(text, ["accuracy"]), "variance"),
            claims if data == "cifar10" else (),
        )
        for data, text in published.HELD_OUT.items()
    )  # fmt: skip


def fairer(n: str) -> Claim:
    """Clients differ less with as many rows of each class as with many of two classes."""
    text = f"less spread with {n} rows a class than with an unfair set"
    return Claim(text, n, ("unfair",), ("accuracy variance",))


def selection() -> Entry:
    """Table 6."""
    columns = {level: accuracy(*attack("same_value", level)) for level in ATTACKED}
    columns |= {f"{level} variance": variance(*attack("same_value", level)) for level in ATTACKED}
    return Entry(
        "fedaa/table6",
        "How many of the clients are aggregated (M, %), by the part of same-value attackers "
        "(CIFAR-10)",
        SELECTIONS,
        columns,
        base("cifar10"),
        budgets("cifar10"),
        with_variances(read(published.SELECTED, ATTACKED), "variance"),
        tuple(honest_best(level) for level in ATTACKED),
    )


def honest_best(level: str) -> Claim:
    """As many clients as are no attackers are the best to aggregate."""
    best = str(round(100 * (1 - PARTS[level])))
    others = tuple(row for row in SELECTIONS if row != best)
    text = f"{best} % is best under {level} attackers"
    return Claim(text, best, others, (level, f"{level} variance"))


def by_dataset(names: Iterable[str], options: Mapping[str, str]) -> dict[str, dict[str, Column]]:
    """Dataset -> its columns, one for each of the ``options`` (name -> setting), beside a base with
    MNIST.
    """
    return {
        data: {
            f"{TITLES[data]} {name}": accuracy(*(DATA[data] if data != "mnist" else ()), setting)
            for name, setting in options.items()
        }
        for data in names
    }


def together(columns: Mapping[str, Mapping[str, Column]], *names: str) -> dict[str, Column]:
    """The columns of those datasets in one table; without names: of all."""
    return {k: c for data in names or columns for k, c in columns[data].items()}


def widths() -> Entry:
    """Table 7."""
    columns = by_dataset(published.WIDTHS, {str(width): hidden(width) for width in (256, 128, 64)})
    numbers: Cells = {}
    for data, text in published.WIDTHS.items():
        numbers |= read(text, columns[data])
    small = replace(
        AGENT_REDUCED,
        columns=tuple(together(columns, "mnist", "cifar10")),
        reduced=f"{AGENT_REDUCED.reduced} MNIST and CIFAR-10 only.",
    )
    return Entry(
        "fedaa/table7",
        "Width of the agent's hidden layers; all layers compared (AL) or the last hidden one (LHL)",
        {"AL": (*FEDAA, "algorithm.layers=all"), "LHL": (*FEDAA, "algorithm.layers=last_hidden")},
        together(columns),
        base("mnist", *USUAL),
        side_by_side(small, columns["mnist"]),
        numbers,
        unavailable=UNAVAILABLE["emnist"],
    )


def attacked(number: int, name: str, words: str, texts: dict[str, str]) -> tuple[Entry, ...]:
    """Tables 8, 10 and 12."""
    general: tuple[Claim, ...] = (Claim("FedAA above the baselines", "FedAA", BASELINES, ATTACKED),)
    if name == "sign_flip":
        general += (
            Claim("FedAA stands where two fall", "FedAA", ("Ditto", "lp-proj-2"), ATTACKED[2:]),
        )
    own = {
        "fashionmnist": (
            Claim("Ditto above FedAA without attack", "Ditto", ("FedAA",), ("clear",)),
        )
    }
    return tuple(
        Entry(
            f"fedaa/table{number}-{data}",
            f"Accuracy by the part of attackers that {words} ({TITLES[data]}); {UNEQUAL}",
            METHODS, both_models({level: attack(name, level) for level in LEVELS}), base(data),
            budgets(data), read_both(text, LEVELS), (*general, *own.get(data, ())),
            unavailable=UNAVAILABLE.get(data, ""),
        )
        for data, text in texts.items()
    )  # fmt: skip


RATE_KEYS = {
    "DDPG": ("lr_actor", "lr_critic"),
    "PPO": ("lr",),
    "TD3": ("lr_actor", "lr_critic"),
}
"""Agent -> its options that are learning rates."""


def rates() -> Entry:
    """Table 9. What an option is called depends on the agent, so the rates are in the rows."""
    values = ("0.1", "0.01", "0.001")
    rows: dict[str, Settings] = {
        f"{name} {value}": (*FEDAA, agent(name.lower(), *(f"{key}: {value}" for key in keys)))
        for name, keys in RATE_KEYS.items()
        for value in values
    }
    numbers = {
        (f"{row} {value}", TITLES[data]): number
        for data, text in published.RATES.items()
        for (row, value), number in read(text, values).items()
    }
    return Entry(
        "fedaa/table9",
        "Learning rate of three agents",
        rows,
        {"CIFAR-10": accuracy(*DATA["cifar10"]), "MNIST": accuracy()},
        base("mnist", *USUAL),
        side_by_side(AGENT_REDUCED, ["MNIST"]),
        numbers,
    )


def discounts() -> Entry:
    """Table 11."""
    values = {value: f"algorithm.agent.gamma={value}" for value in ("0.9", "0.99", "0.999")}
    columns = by_dataset(published.DISCOUNTS, values)
    numbers: Cells = {}
    for data, text in published.DISCOUNTS.items():
        numbers |= read(text, columns[data])
    return Entry(
        "fedaa/table11",
        "Discount factor of three agents",
        {name: (*FEDAA, agent(name.lower())) for name in ("DDPG", "PPO", "TD3")},
        together(columns),
        base("mnist", *USUAL),
        side_by_side(AGENT_REDUCED, columns["mnist"]),
        numbers,
    )


TABLES: tuple[Entry, ...] = (
    *runtimes(),
    *inner_product(),
    challenging(),
    *held_out(),
    selection(),
    widths(),
    *attacked(8, "same_value", "send one value for all parameters", published.SAME_VALUE),
    rates(),
    *attacked(
        10, "sign_flip", "send their model scaled and with its signs turned", published.SIGN_FLIP
    ),
    discounts(),
    *attacked(12, "gaussian", "send Gaussian noise", published.GAUSSIAN),
)
