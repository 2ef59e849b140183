"""FedDUAL's Tables 1 to 5, and its readings at equal rates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sweeps.entry import Budget, Claim, Column, Entry, Settings
from sweeps.papers.feddual import published
from sweeps.papers.feddual.published import beside_standins, line, lines
from sweeps.papers.feddual.settings import (
    ACCURACY,
    BASE,
    BASELINES,
    CIFAR10,
    FMNIST,
    HALVES,
    HALVES_CLAIMED,
    METHODS,
    NO_VGG16,
    PANELS,
    READINGS,
    SEEDS,
    SMOKE,
    SMOKE_HOW,
    STANDIN_OF,
    STANDINS,
    TARGETS,
    fmnist_only,
    over,
    proposed_ahead,
    to_target,
    tuned_on,
    with_standins,
)

COLUMNS = over({**PANELS, **STANDINS}, ACCURACY)
"""Of Tables 1 and 2."""
TAIL = replace(ACCURACY, tail=5)
"""Of entries that look every second round."""
FRESH_SEEDS = tuple(range(10, 20))


def accuracies() -> Entry:
    """Table 1: methods on three datasets, and FedDUAL in all readings."""
    numbers, rows = lines(tuple(PANELS), published.ACCURACIES), {**METHODS, **READINGS}
    return Entry(
        "feddual/table1",
        "Test accuracy of nine methods on three datasets, α = 0.01 (Proposed: the reading ot)",
        rows, COLUMNS, BASE, with_standins(), beside_standins(numbers, STANDIN_OF),
        proposed_ahead(), unavailable=NO_VGG16, tuning=tuned_on(COLUMNS[FMNIST], rows),
    )  # fmt: skip


def halves() -> Entry:
    """Table 2: the two halves of FedDUAL on three datasets."""
    numbers = lines(tuple(PANELS), published.HALVES)
    average = line("neither", tuple(PANELS), published.ACCURACIES["FedAvg"])
    numbers |= {at: replace(n, note="FedAvg's, from Table 1") for at, n in average.items()}
    return Entry(
        "feddual/table2", "FedDUAL's two halves, alone and together",
        HALVES, COLUMNS, BASE, with_standins(), beside_standins(numbers, STANDIN_OF),
        HALVES_CLAIMED, unavailable=NO_VGG16, tuning=tuned_on(COLUMNS[FMNIST], HALVES),
    )  # fmt: skip


def seconds() -> Entry:
    """Table 3: of a client, wherever it was computed, and of the server.

    Neither is the paper's measurement on its own: clients that are trained together share the time
    of their block, and a mean is summed where they are.
    """
    rows = {"FedAvg": METHODS["FedAvg"], "Proposed": METHODS["Proposed"]}
    client, server = timed("seconds_client", 180), timed("seconds_aggregate", 180)
    columns = {
        f"{name} {side}": replace(column, settings=PANELS[name])
        for name in (CIFAR10, FMNIST)
        for side, column in (("client", client), ("server", server))
    }
    servers = tuple(name for name, one in columns.items() if one.metric == server.metric)
    return Entry(
        "feddual/table3",
        "Seconds of a client's and of the server's work in a round: a client's are its share of a "
        "block that may be computed as one batch, so fewer than it would need alone; FedAvg's mean "
        "is summed in the clients' seconds, Proposed's barycenters are made in the server's",
        rows, columns, BASE, fmnist_only(columns), lines(tuple(columns), published.SECONDS),
        (Claim("averaging is the cheaper aggregation", "FedAvg", ("Proposed",), servers),),
        unavailable=NO_VGG16,
    )  # fmt: skip


def timed(metric: str, tail: int) -> Column:
    """Mean seconds of the last ``tail`` rounds."""
    return Column(metric, (), "tail", tail, better="low")


def hours() -> Entry:
    """Table 4: of a whole run, by the clock on the wall: with other actors, others."""
    columns = {
        name: Column("seconds", PANELS[name], "sum", scale=1 / 3600, better="low")
        for name in (CIFAR10, FMNIST)
    }
    return Entry(
        "feddual/table4", "Hours of training for 80 (CIFAR-10) and 180 (Fashion-MNIST) rounds",
        METHODS, columns, BASE, fmnist_only(columns), lines(tuple(columns), published.HOURS),
        hours_claimed(), unavailable=NO_VGG16,
    )  # fmt: skip


def hours_claimed() -> tuple[Claim, ...]:
    """FedAvg is the quickest; FedDyn, and then FedDUAL, take longest."""
    others = tuple(name for name in METHODS if name != "FedAvg")
    quicker = tuple(name for name in BASELINES if name != "FedDyn")
    return (
        Claim("FedAvg is the quickest", "FedAvg", others),
        *(Claim(f"{name} quicker than FedDyn", name, ("FedDyn",)) for name in quicker),
        *(Claim(f"{name} quicker than FedDUAL", name, ("Proposed",)) for name in BASELINES),
    )


def hours_to_target() -> Entry:
    """Table 5: until an accuracy."""
    columns = {
        name: replace(to_target(name), statistic="seconds_to", scale=1 / 3600, digits=2)
        for name in TARGETS
    }
    numbers = lines(tuple(columns), published.HOURS_TO_TARGET)
    return Entry(
        "feddual/table5", "Hours to 40 % on CIFAR-10 and 70 % on Fashion-MNIST",
        METHODS, columns, BASE, fmnist_only(columns), numbers, proposed_ahead(),
        unavailable=NO_VGG16, tuning=tuned_on(ACCURACY, METHODS),
    )  # fmt: skip


def readings() -> Entry:
    """No entry of the paper's: FedDUAL in all readings beside FedAvg and the two methods with which
    it shares a loss's form, all with Adam at the same rates, of which the published code has the
    lower one.
    """
    equal = ("FedAvg", "FedProx", "MOON", "Proposed")
    return at_equal_rates(
        "feddual/readings",
        "FedDUAL's readings (Proposed: ot) and methods with Adam at equal rates",
        {**{name: METHODS[name] for name in equal}, **READINGS},
        (0.001, 0.003), SEEDS,
    )  # fmt: skip


def readings_again() -> Entry:
    """What ``readings`` leaves open on three seeds, asked of ten others, at the rate that has the
    higher means there. Without the two methods that share the loss's form, and with the unmoved
    head alone for the published code, which it is to a hundredth.
    """
    asked = ("FedAvg", "Proposed", "Proposed, paper_eq", "FedAvg, last layer unmoved")
    rows = {name: {**METHODS, **READINGS}[name] for name in asked}
    return at_equal_rates(
        "feddual/readings-again",
        "FedDUAL's readings (Proposed: ot) with Adam at 0.003, on ten other seeds",
        rows, (0.003,), FRESH_SEEDS,
    )  # fmt: skip


def at_equal_rates(
    name: str,
    title: str,
    rows: Mapping[str, Settings],
    rates: tuple[float, ...],
    seeds: tuple[int, ...],
) -> Entry:
    """``rows`` at both of the paper's α and at each of ``rates``, nothing tuned; each row is asked
    whether it is ahead of FedAvg.
    """
    partitions = {a: f"data.partition={{name: feddual, alpha: {a}}}" for a in (0.01, 0.1)}
    columns = {
        f"α={a}, η {rate}": replace(TAIL, settings=(setting, f"local.lr={rate}"))
        for a, setting in partitions.items()
        for rate in rates
    }
    return Entry(
        name, title, rows, columns, (*BASE, "evaluation.every=2"),
        {
            "smoke": Budget(SMOKE, columns=tuple(columns)[:1], reduced=SMOKE_HOW),
            "reduced": Budget(
                ("data.limit=6000", "rounds=40"), seeds,
                reduced="6,000 training images instead of 60,000; 40 rounds instead of 180.",
            ),
            "full": Budget(seeds=seeds),
        },
        claims=tuple(Claim(f"{row} ahead of FedAvg", row, ("FedAvg",)) for row in rows
                     if row != "FedAvg"),
    )  # fmt: skip


TABLES: tuple[Entry, ...] = (
    accuracies(), readings(), readings_again(), halves(), seconds(), hours(), hours_to_target(),
)  # fmt: skip
