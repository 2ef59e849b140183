"""Figure 3.7 and the appendix of the FDA thesis: how training goes on the DenseNets until the
target is reached.

The thesis plots the accuracy of each step's mini-batch, which is not recorded here; the training
loss takes its place and the test accuracy is shown beside it. The appendix' 84 panels are every (Θ,
K) of both models in order, six on the first and on the last figure and eight on each of the others;
a figure here has all of its Θ for all of its K.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from sweeps.entry import Budget, Claim, Column, Entry, Settings
from sweeps.papers.fda.tasks import (
    CIFAR_WORKERS,
    DENSENET121,
    DENSENET201,
    SUGGESTED,
    Task,
    fda,
    reduced,
    rivals,
    smoke,
    thesis_rows,
)

Panel = tuple[Task, float, int]
PANELS: tuple[Panel, ...] = tuple(
    (task, theta, k)
    for task in (DENSENET121, DENSENET201)
    for theta in task.thetas
    for k in CIFAR_WORKERS
)
CUTS = (0, *range(6, 79, 8), 84)
TARGETS = {DENSENET121.label: 0.8, DENSENET201.label: 0.78}
LOSS, ACCURACY = "training loss", "test accuracy"


def strategies(task: Task, thetas: Sequence[float], other: Task | None) -> dict[str, Settings]:
    """Rows of one model; those of a model that is not the base's say so."""
    rows = {**rivals(task), **fda(task, tuple(thetas))}
    if other is None:
        return {**rows, **fda(task, (SUGGESTED,))}
    own = (f"model={task.label.lower()}", f"stop.test_accuracy={TARGETS[task.label]}")
    return {f"{task.label} {row}": (*settings, *own) for row, settings in rows.items()}


def columns_for(workers: Sequence[int]) -> dict[str, Column]:
    """Training loss and test accuracy for each K."""
    columns: dict[str, Column] = {}
    for k in workers:
        own = (f"data.clients={k}",)
        columns[f"{LOSS}, K={k}"] = Column("train_loss", own, better="low", digits=3)
        columns[f"{ACCURACY}, K={k}"] = Column("test_accuracy", own, "best", scale=100.0)
    return columns


def curves(figure: str, panels: Sequence[Panel], note: str) -> Entry:
    """The strategies' progress for the given panels."""
    tasks = list(dict.fromkeys(task.label for task, _, _ in panels))
    by_label = {task.label: task for task, _, _ in panels}
    first = by_label[tasks[0]]
    rows: dict[str, Settings] = {}
    for label in tasks:
        used = tuple(dict.fromkeys(theta for task, theta, _ in panels if task.label == label))
        rows |= strategies(by_label[label], used, None if label == first.label else first)
    columns = columns_for(sorted({k for _, _, k in panels}))
    least = min(k for _, _, k in panels)
    few = tuple(c for c in columns if c.endswith(f"K={least}"))
    suggested = tuple(f"{m} Θ={SUGGESTED}" for m in ("LinearFDA", "SketchFDA"))
    plain = tuple(r for r in rows if not r.startswith("DenseNet"))
    return Entry(
        id=f"fda/{figure}",
        title=f"Progress of training {' and '.join(tasks)} by strategy{note}",
        rows=rows,
        columns=columns,
        base=first.base,
        budgets={
            "smoke": smoke(plain, few),
            "reduced": reduced(
                first, (*first.rivals, *suggested), few, f"{least} workers", steps=4000
            ),
            "full": Budget(rows=thesis_rows(rows)),
        },
        figure="curves",
        over="steps_total",
        claims=_overfit(rows, columns),
    )


def _overfit(rows: dict[str, Settings], columns: dict[str, Column]) -> tuple[Claim, ...]:
    """Synchronous fits the training data further than FDA while both reach the same test
    accuracy."""
    losses = tuple(c for c in columns if c.startswith(LOSS))
    fitted = tuple(r for r in rows if r.startswith(("LinearFDA", "SketchFDA")))
    text = "Synchronous fits the training data more closely than FDA"
    return tuple(Claim(text, "Synchronous", (row,), losses) for row in fitted)


def _representative() -> Entry:
    panels = [(task, task.middle[0], task.middle[1]) for task in (DENSENET121, DENSENET201)]
    return curves("figure3.7", panels, ", one Θ and K of each, to 80 % and 78 %")


ENTRIES: tuple[Entry, ...] = (
    _representative(),
    *(
        curves(f"figureA.{n}", PANELS[start:end], f", part {n} of all Θ and K")
        for n, (start, end) in enumerate(itertools.pairwise(CUTS), start=1)
    ),
)
