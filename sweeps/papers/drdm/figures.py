"""DRDM's Figures 1 to 6."""

from __future__ import annotations

import itertools

from sweeps.entry import Budget, Claim, Column, Entry, Published, Settings
from sweeps.papers.drawings import energy_map
from sweeps.papers.drdm.settings import (
    BASELINES,
    CNN,
    FEW_SEEDS,
    LINEAR,
    MANY_SEEDS,
    MEASURES,
    PAPER_SEEDS,
    SMOKE,
    Task,
    measured,
    partition,
)
from sweeps.papers.drdm.tables import Claims, claimed, tuned


def curves(
    number: int, title: str, task: Task, setting: str, reduced: Settings, how: str, claims: Claims
) -> Entry:
    """Averages, deviations and worst clients over the rounds in one partition."""
    columns = measured("", setting)
    budgets = {
        "smoke": Budget(task.smoke, reduced="Two rounds of six clients."),
        "reduced": Budget(reduced, task.reduced_seeds, reduced=how),
        "full": Budget(seeds=PAPER_SEEDS),
    }
    return Entry(
        f"drdm/figure{number}", title,
        task.rows, columns, task.base, budgets, claims=claims, figure="curves",
        tuning=tuned(task, columns["worst"]), unavailable=task.unavailable,
    )  # fmt: skip


def _training_curves() -> tuple[Entry, ...]:
    """Figures 1, 2, 5 and 6: the rounds behind Tables 1 to 4 at α = 0.1."""
    fashion: Settings = ("data.dataset=fashion_mnist",)
    how = "Fashion-MNIST stands in for Kuzushiji-MNIST; three seeds."
    best = claimed(("",), *MEASURES)
    others = (name for name in BASELINES if name != "FedAvg")
    last = tuple(Claim(f"{name} ahead of FedAvg", name, ("FedAvg",)) for name in others)
    level = claimed(("",), "average", "worst")
    equal, unequal = partition(0.1, 0.0), partition(0.1, 0.3)
    few = LINEAR.reduced_how
    return (
        curves(1, "KMNIST, CNN, α = 0.1, equal sizes: the course of training",
               CNN, equal, fashion, how, best + last),
        curves(2, "KMNIST, CNN, α = 0.1, σ = 0.3: the course of training",
               CNN, unequal, fashion, how, best),
        curves(5, "MNIST, linear, α = 0.1, equal sizes: the course of training",
               LINEAR, equal, (), few, level),
        curves(6, "MNIST, linear, α = 0.1, σ = 0.3: the course of training",
               LINEAR, unequal, (), few, level),
    )  # fmt: skip


LOCAL_STEPS: Settings = (
    *LINEAR.base, partition(0.1, 0.0), "algorithm={name: drdm, mu: 0.1, gamma: 0.001}",
    "local.lr=0.1", "rounds=120", "evaluation.every=1",
)  # fmt: skip
"""DRDM's runs over τ; the paper names no dataset for them (here: MNIST, linear)."""


def steps_rows(*steps: int) -> dict[str, Settings]:
    """One curve or point for each number of local steps."""
    return {f"τ={n}": (f"local.steps={n}",) for n in steps}


def steps_budgets() -> dict[str, Budget]:
    """Budgets of the figures over τ (a row's local steps stay as they are)."""
    return {
        "smoke": Budget(SMOKE, reduced="Two rounds of six clients, which reach no target."),
        "reduced": Budget(
            seeds=FEW_SEEDS, reduced="Three seeds; the paper does not say how many it drew."
        ),
        "full": Budget(seeds=MANY_SEEDS),
    }


def _local_steps() -> tuple[Entry, ...]:
    """Figures 3 and 4: what more local steps a round buy, in rounds, computation and bytes.

    Figure 4 asks which τ reaches 80 % with the least energy; its two parts, local steps and bytes
    until then, are the table, and the map weighs them by channel.
    """
    worst = "client_accuracy_worst"
    rounds = {
        "rounds to 85 %": Column(worst, statistic="rounds_to", target=0.85, better="low", digits=0)
    }
    spent = {
        "local steps to 80 %": Column(
            worst, statistic="steps_to", target=0.8, better="low", digits=0
        ),
        "gigabytes to 80 %": Column(
            worst, statistic="gigabytes_to", target=0.8, better="low", digits=4
        ),
    }
    printed = {"τ=5": 48, "τ=10": 41, "τ=20": 32, "τ=30": 25}
    names = tuple(printed)
    sooner = tuple(Claim(f"{a} sooner than {b}", a, (b,)) for b, a in itertools.pairwise(names))
    steps, gigabytes = spent
    return (
        Entry(
            "drdm/figure3", "Worst client over the rounds, by local steps",
            steps_rows(5, 10, 20, 30), rounds, LOCAL_STEPS, steps_budgets(), claims=sooner,
            figure="curves",
            published={(tau, "rounds to 85 %"): Published(n) for tau, n in printed.items()},
        ),
        Entry(
            "drdm/figure4",
            "Local steps of least energy until the worst client has 80 %, by channel",
            steps_rows(5, 10, 15, 20, 25, 30), spent, LOCAL_STEPS, steps_budgets(),
            drawn=energy_map(0.8),
            claims=(
                Claim("many local steps send less", "τ=30", ("τ=5",), (gigabytes,)),
                Claim("few local steps compute less", "τ=5", ("τ=30",), (steps,)),
            ),
        ),
    )  # fmt: skip


_one, _two, *_later = _training_curves()
FIGURES = (_one, _two, *_local_steps(), *_later)
