"""Figure 3.7 and the appendix of the FDA thesis: how training goes on the DenseNets until the
target is reached.

The thesis plots the accuracy of each step's mini-batch, which is not recorded here; the training
loss takes its place and the test accuracy is shown beside it. The appendix' 84 panels are every (Θ,
K) of both models in order, six on the first and on the last figure and eight on each of the others;
a figure here has all of its Θ for all of its K.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

from sweeps.entry import Budget, Claim, Column, Entry, Settings
from sweeps.papers.fda.budgets import SEEDS, reduced, smoke
from sweeps.papers.fda.rows import FDA, SUGGESTED, Row, fda, labelled, labels, rivals
from sweeps.papers.fda.tasks import CIFAR_WORKERS, DENSENET121, DENSENET201, Task

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


def own_rows(task: Task, panels: Sequence[Panel]) -> dict[Row, Settings]:
    """The strategies on a model, with all Θ that the panels have for it."""
    thetas = dict.fromkeys(theta for other, theta, _ in panels if other is task)
    return {**rivals(task), **fda(thetas)}


def further_rows(task: Task, panels: Sequence[Panel]) -> dict[str, Settings]:
    """The same for a model that is not the base's, which the rows say."""
    model = (f"model={task.label.lower()}", f"stop.test_accuracy={TARGETS[task.label]}")
    rows = own_rows(task, panels)
    return {f"{task.label} {row}": (*settings, *model) for row, settings in rows.items()}


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
    first, *others = dict.fromkeys(task.label for task, _, _ in panels)
    by_label = {task.label: task for task, _, _ in panels}
    task = by_label[first]
    own = own_rows(task, panels)
    stand_in = fda((SUGGESTED,))
    further: dict[str, Settings] = {}
    for label in others:
        further |= further_rows(by_label[label], panels)
    workers = sorted({k for _, _, k in panels})
    columns, few = columns_for(workers), tuple(columns_for(workers[:1]))
    plain = labels((*own, *stand_in))
    text = f"{workers[0]} workers"
    return Entry(
        id=f"fda/{figure}",
        title=f"Progress of training {' and '.join((first, *others))} by strategy{note} (of the "
        "test accuracy, the best of all evaluations)",
        rows={**labelled(own), **labelled(stand_in), **further},
        columns=columns,
        base=task.base,
        budgets={
            "smoke": smoke(plain, few),
            "reduced": reduced(task, (*task.rivals, *labels(stand_in)), few, text, steps=4000),
            "full": Budget(seeds=SEEDS, rows=(*labels(own), *further)),
        },
        figure="curves",
        over="steps_total",
        claims=_overfit((*own, *stand_in), columns),
    )


def _overfit(rows: Iterable[Row], columns: Mapping[str, Column]) -> tuple[Claim, ...]:
    """Synchronous fits the training data further than FDA while both reach the same test
    accuracy."""
    losses = tuple(name for name, column in columns.items() if column.metric == "train_loss")
    fitted = labels(row for row in rows if row.strategy in FDA)
    text = "Synchronous fits the training data more closely than FDA"
    return (Claim(text, "Synchronous", fitted, losses),)


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
