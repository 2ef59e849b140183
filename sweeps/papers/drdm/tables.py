"""DRDM's Tables 1 to 6."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sweeps.entry import Budget, Claim, Column, Entry, Published, Tuning
from sweeps.papers.drdm.published import TABLE1, TABLE2, TABLE3, TABLE4, TABLE5, TABLE6
from sweeps.papers.drdm.settings import (
    BASELINES,
    BY_ALPHA,
    BY_ALPHA_WIDE,
    BY_SIGMA,
    CNN,
    DISJOINT,
    LINEAR,
    MEASURES,
    PAPER_SEEDS,
    RESNET,
    SPENT,
    WITHOUT_LAMBDA,
    Task,
    measured_on,
    name_of,
    names_of,
)

Claims = tuple[Claim, ...]


def cells(
    axes: tuple[str, ...], printed: Mapping[str, tuple[str, str, str]]
) -> dict[tuple[str, str], Published]:
    """Published numbers: for each method a line of averages, of worst clients and of deviations, as
    printed.
    """
    return {
        (method, name_of(axis, name)): Published(float(number))
        for method, lines in printed.items()
        for name, line in zip(MEASURES, lines, strict=True)
        for axis, number in zip(axes, line.split(), strict=True)
    }


def claimed(axes: tuple[str, ...], *names: str) -> Claims:
    """The paper's: DRDM is ahead of all baselines, in the columns ``names`` of every partition. And
    what the paper does not ask: whether the dual step adds anything to drift correction, and
    whether DRFA's adds anything to FedAvg.
    """
    columns = names_of(axes, names)
    worst = names_of(axes, ["worst"])
    text = f"DRDM ahead of all baselines: {', '.join(names)}"
    asked = "not the paper's question: "
    without = f"{asked}DRDM ahead of itself without λ: {', '.join(MEASURES)}"
    return (
        Claim(text, "DRDM", BASELINES, columns),
        Claim(without, "DRDM", WITHOUT_LAMBDA, names_of(axes, MEASURES)),
        Claim(f"{asked}DRFA ahead of FedAvg: worst", "DRFA", ("FedAvg",), worst),
    )


def table(
    number: int,
    title: str,
    task: Task,
    partitions: Mapping[str, str],
    printed: Mapping[str, tuple[str, str, str]],
    about: tuple[str, ...],
    ends_only: bool = False,
    variant: str = "",
) -> Entry:
    """A table over ``partitions`` (name -> setting), tuned on the first of them by the worst
    client; ``about`` are the measures that the paper claims something of.

    A ``variant`` has other partitions than the paper, and none of its numbers.
    """
    axes = tuple(partitions)
    columns = measured_on(partitions)
    spent = {n: replace(c, settings=(partitions[axes[0]],)) for n, c in SPENT.items()}
    some = (*names_of((axes[0], axes[-1]), MEASURES), *spent) if ends_only else ()
    first = (*names_of(axes[:1], MEASURES), *spent)
    budgets = {
        "smoke": Budget(task.smoke, columns=first, reduced="Two rounds of six clients."),
        "reduced": Budget(task.reduced, task.reduced_seeds, columns=some, reduced=task.reduced_how),
        "full": Budget(seeds=PAPER_SEEDS),
    }
    return Entry(
        f"drdm/table{number}{variant}", title,
        task.rows, columns | spent, task.base, budgets,
        published={} if variant else cells(axes, printed), claims=claimed(axes, *about),
        tuning=tuned(task, columns[name_of(axes[0], "worst")], axes[0]),
        unavailable=task.unavailable,
    )  # fmt: skip


def tuned(task: Task, criterion: Column, axis: str = "") -> Tuning:
    """Every method's rate and own parameters, by the worst client, in the partition ``axis``."""
    where = f"at {axis}, for all columns" if axis else Tuning.where
    return Tuning(task.grids, criterion, seeds=task.tuning_seeds, where=where)


def _tables() -> tuple[Entry, ...]:
    """Three tasks, each over class mixes and over sizes; and two as they would be with disjoint
    clients.
    """
    everything, levels, worst = tuple(MEASURES), ("average", "worst"), ("worst",)
    return (
        table(1, "KMNIST, CNN: class mixes from skewed to mild, equal sizes",
              CNN, BY_ALPHA, TABLE1, everything, ends_only=True),
        table(2, "KMNIST, CNN: ever more unequal sizes, skewed mixes",
              CNN, BY_SIGMA, TABLE2, everything, ends_only=True),
        table(3, "MNIST, linear: class mixes from skewed to mild, equal sizes",
              LINEAR, BY_ALPHA, TABLE3, levels),
        table(4, "MNIST, linear: ever more unequal sizes, skewed mixes",
              LINEAR, BY_SIGMA, TABLE4, levels),
        table(5, "Fashion-MNIST, last layer on ResNet18: class mixes",
              RESNET, BY_ALPHA_WIDE, TABLE5, worst),
        table(6, "Fashion-MNIST, last layer on ResNet18: unequal sizes",
              RESNET, BY_SIGMA, TABLE6, worst),
        table(1, "As Table 1, with no image at two clients",
              CNN, DISJOINT, {}, everything, ends_only=True, variant="-disjoint"),
        table(3, "As Table 3, with no image at two clients",
              LINEAR, DISJOINT, {}, levels, variant="-disjoint"),
    )  # fmt: skip


TABLES = _tables()
