"""How much of chapter 3 is run: two rounds, what a stand-in finishes here, or all of it."""

from __future__ import annotations

from collections.abc import Mapping

from sweeps.entry import Budget, Column
from sweeps.papers.fda.columns import of_thesis
from sweeps.papers.fda.rows import Rows, in_thesis
from sweeps.papers.fda.tasks import Task

SEEDS = (0, 1, 2)
"""Of the full budgets of chapter 3, and of chapter 4's but for its heat maps and variances. The
thesis has one run of each setting, which allows no test of what it claims."""


def smoke(rows: tuple[str, ...], columns: tuple[str, ...]) -> Budget:
    """Two rounds of LeNet-5 on a few of the embedded images."""
    settings = (
        "data.dataset=fashion_mnist_10k", "model=lenet5", "data.limit=600", "local.steps=3",
        "rounds=2", "stop.round=2",
    )  # fmt: skip
    text = "LeNet-5 on 600 Fashion-MNIST images for two rounds: only shows that every setting runs"
    return Budget(settings, rows=rows, columns=columns, reduced=text)


def reduced(
    task: Task, rows: tuple[str, ...], columns: tuple[str, ...], text: str, steps: int = 8000
) -> Budget:
    """The given part of the grid, by the stand-in where the task has one."""
    stop = f"stop.steps_total={steps}"
    if task.stand_in is None:
        return Budget((stop,), rows=rows, columns=columns, reduced=text)
    target = f"stop.test_accuracy={task.stand_in.target}"
    return Budget(
        (*task.stand_in.settings, target, stop),
        rows=rows,
        columns=columns,
        reduced=f"{task.stand_in.text}; {text}",
    )


def budgets(
    task: Task, rows: Rows, columns: Mapping[str, Column], small: Budget, tiny: Budget
) -> dict[str, Budget]:
    """``full`` leaves out what only the stand-in needs."""
    full = Budget(
        seeds=SEEDS,
        rows=() if task.stand_in is None else in_thesis(rows),
        columns=of_thesis(task, columns),
    )
    return {"smoke": tiny, "reduced": small, "full": full}
