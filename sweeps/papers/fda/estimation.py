"""Figure 3.15 of the FDA thesis: the Θ that trains fastest by the number of parameters, for three
kinds of network.

The thesis picks four points for each kind by hand and fits a line through the origin. Here the Θ of
a grid is picked that takes least estimated time on a slow and on a fast link, and the one that
keeps the slow link as busy as the GPU: the step times are those of the thesis' GPU, the links those
of its section on time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from algorithms.fda import SUGGESTED as PUBLISHED
from orchestrator.analysis.wallclock import communication_seconds
from sweeps.entry import Budget, Column, Entry, Rule, Settings
from sweeps.papers.fda.budgets import SEEDS, reduced, smoke
from sweeps.papers.fda.columns import GB, STEPS, cost, of_group
from sweeps.papers.fda.tasks import DENSENET121, DENSENET201, LENET, VGG, Task

WORKERS = 5
FACTORS = (0.25, 0.5, 1, 2, 3, 4, 5, 7, 10, 15)
"""Θ in units of 10⁻⁵ d; the thesis' grids lie between 0.8 and 11, and a best Θ at one of their ends
says nothing."""
GOALS = ((LENET, 0.98), (VGG, 0.994), (DENSENET121, 0.8), (DENSENET201, 0.78))
SLOW, BALANCED, FAST = (
    "seconds, 0.5 Gbps shared",
    "imbalance, 0.5 Gbps shared",
    "seconds, 56 Gbps hypercube",
)


def _both(
    step_ms: float, link: str, gbps: float, steps: float, nbytes: float
) -> tuple[float, float]:
    """Seconds of computing, and of communicating."""
    return steps * step_ms / 1e3, communication_seconds(nbytes, WORKERS, link, gbps)


def _seconds(step_ms: float, link: str, gbps: float, steps: float, nbytes: float) -> float:
    return sum(_both(step_ms, link, gbps, steps, nbytes))


def _imbalance(step_ms: float, link: str, gbps: float, steps: float, nbytes: float) -> float:
    """How many times longer the longer of computing and communicating takes."""
    computing, moving = _both(step_ms, link, gbps, steps, nbytes)
    return max(computing / moving, moving / computing)


def costs_of(task: Task, target: float) -> dict[str, Column]:
    """What training a network with the row's Θ costs in the three settings."""
    # the base is LeNet-5's; the rows' Θ is put into its round_end, which another would replace
    own = () if task is LENET else tuple(s for s in task.base if not s.startswith("round_end="))
    formulas: dict[str, Callable[[float, float], float]] = {
        SLOW: partial(_seconds, task.step_ms, "shared", 0.5),
        BALANCED: partial(_imbalance, task.step_ms, "shared", 0.5),
        FAST: partial(_seconds, task.step_ms, "hypercube", 56.0),
    }
    columns = {"Θ": Column("theta", own, digits=1)}
    columns |= {what: cost(what, target, own) for what in (GB, STEPS)}
    columns |= {
        setting: Column(
            "test_accuracy", own, "cost_to", cost=formula, target=target, better="low", digits=1
        )
        for setting, formula in formulas.items()
    }
    return {
        f"{name}, {task.label}": replace(column, panel=name, group=task.label)
        for name, column in columns.items()
    }


def estimation() -> Entry:
    """The grid of Θ/d on each network, and the line through the cheapest."""
    multiples = {n: f"{n}e-5 d" for n in FACTORS}
    rows: dict[str, Settings] = {
        f"Θ = {multiple}": ("round_end.monitor=linear", f"round_end.theta={multiple}")
        for multiple in multiples.values()
    }
    columns: dict[str, Column] = {}
    for task, target in GOALS:
        columns |= costs_of(task, target)
    lenet = of_group(columns, LENET.label)
    return Entry(
        id="fda/figure3.15",
        title="The Θ that takes least time by the number of parameters, for three kinds of network "
        "(5 workers)",
        rows=rows,
        columns=columns,
        base=LENET.base,
        budgets={
            "smoke": smoke((), lenet),
            "reduced": reduced(LENET, (), lenet, "LeNet-5 only"),
            "full": Budget(seeds=SEEDS),
        },
        rule=Rule(
            {f"Θ = {multiple}": n * 1e-5 for n, multiple in multiples.items()},
            {task.label: float(task.size) for task, _ in GOALS},
            {SLOW: PUBLISHED["fl"], BALANCED: PUBLISHED["balanced"], FAST: PUBLISHED["hpc"]},
        ),
    )
