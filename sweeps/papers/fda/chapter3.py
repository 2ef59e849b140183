"""Chapter 3 of the FDA thesis: what each strategy sends and computes until a model reaches an
accuracy, by the number of workers and by Θ.

Where the thesis has plots only, the numbers are those of its authors' published runs. As there, all
strategies are evaluated once an epoch (n/bK steps), be it on the mean of models that are not
synchronised then, and a run without the target is a miss after as many epochs as the thesis', for
each K.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from sweeps.entry import Budget, Column, Entry, Published
from sweeps.papers.fda.budgets import SEEDS, budgets, reduced, smoke
from sweeps.papers.fda.claims import ahead, worker_claims
from sweeps.papers.fda.clouds import CLOUDS, Cells, transfer
from sweeps.papers.fda.columns import (
    GB,
    STEPS,
    at_thetas,
    at_workers,
    cheap,
    costs,
    name_of,
    of_group,
    of_thesis,
    stand_in_costs,
)
from sweeps.papers.fda.estimation import estimation
from sweeps.papers.fda.rows import (
    FDA,
    SUGGESTED,
    Row,
    Rows,
    fda,
    labelled,
    labels,
    rivals,
    strategies,
    with_theta,
    with_workers,
)
from sweeps.papers.fda.tasks import DENSENET121, DENSENET201, EVEN, LENET, VGG, Task

Costs = tuple[float | None, float | None]
"""GB, steps; None: the target was not reached."""
TABLE_WORKERS = (5, 10, 20, 30, 40, 60)
LENET_98: Mapping[Row, Sequence[Costs | None]] = {
    Row("Synchronous"): (
        (5.55, 2250), (9.26, 1875), (17.59, 1782),
        (30.55, 2063), (37.02, 1875), (54.62, 1844),
    ),
    Row("FedAdam"): (
        (0.52, 78375), (1.25, 47250), (2.92, 27657),
        (4.56, 19188), (6.12, 14485), (9.66, 10157),
    ),
    Row("LinearFDA", 0.5): (
        (0.390, 3375), (0.523, 2250), (1.047, 2250),
        (1.704, 2250), (2.113, 2016), (3.674, 2157),
    ),
    Row("LinearFDA", 2): (
        (0.096, 3000), (0.178, 2438), (0.356, 2438),
        (0.682, 2750), (1.028, 3141), (1.364, 2625),
    ),
    Row("LinearFDA", 5): (
        (0.040, 3000), (0.094, 3188), (0.188, 2907),
        (0.341, 3188), (0.495, 3610), (None, None),
    ),
    Row("SketchFDA", 0.5): (
        (0.347, 3000), (0.645, 2438), (1.232, 2250),
        (1.683, 1938), (2.663, 2157), (4.983, 2688),
    ),
    Row("SketchFDA", 2): (
        (0.163, 3375), (0.314, 2813), (0.609, 2532),
        (0.929, 2438), (1.636, 3141), (2.324, 2907),
    ),
    Row("SketchFDA", 5): (
        (0.100, 3000), (0.224, 3000), (0.564, 3563),
        (0.799, 3250), None, (None, None),
    ),
}  # fmt: skip
"""LeNet-5 to 98 %, IID, by the numbers of workers above; None: not run."""


class LenetCost(NamedTuple):
    """A number of ``LENET_98``."""

    row: Row
    workers: int
    what: str
    number: Published


def lenet_costs() -> Iterator[LenetCost]:
    """All of them, also those that were not reached or not run."""
    for row, numbers in LENET_98.items():
        for k, pair in zip(TABLE_WORKERS, numbers, strict=True):
            for what, value in zip((GB, STEPS), pair or (None, None), strict=True):
                note = "" if value is not None else "target not reached" if pair else "not run"
                yield LenetCost(row, k, what, Published(value, note=note))


def lenet_by_workers() -> Cells:
    """The LeNet-5 numbers where the columns are numbers of workers."""
    return {
        (str(row), name_of(EVEN, what, f"K={k}")): number for row, k, what, number in lenet_costs()
    }


def lenet_by_theta() -> Cells:
    """The LeNet-5 numbers where the columns are Θ: those of FDA."""
    return {
        (str(Row(row.strategy, workers=k)), name_of(EVEN, what, f"Θ={row.theta:g}")): number
        for row, k, what, number in lenet_costs()
        if isinstance(row.theta, float | int)
    }


def plan() -> Entry:
    """Table 3.2, of which the LeNet-5 line has numbers."""
    ours = fda((0.5, 2, 5))
    rows = {**rivals(LENET), **ours}
    columns = costs(EVEN, 0.98, at_workers(TABLE_WORKERS))
    few = tuple(name for name, column in columns.items() if column.x in (5, 10))
    least = tuple(name for name in few if columns[name].x == 5)
    text = "5 and 10 workers; runs end after 8,000 steps (FedAdam's do not)"
    return Entry(
        id="fda/table3.2",
        title="The plan of experiments, first line: LeNet-5 on MNIST to 98 %, cost of every "
        "strategy by workers",
        rows=labelled(rows),
        columns=columns,
        base=LENET.base,
        budgets={
            "smoke": smoke((), least),
            "reduced": reduced(LENET, (), few, text),
            "full": Budget(seeds=SEEDS),
        },
        published=lenet_by_workers(),
        claims=ahead(LENET, ours, columns),
    )


def by_workers(figure: str, task: Task, target: float, published: Cells | None = None) -> Entry:
    """Cost against K."""
    rows, columns = strategies(task), worker_columns(task, target)
    least = tuple(n for n in of_group(columns, EVEN) if columns[n].x == task.workers[0])
    small = worker_reduced(task, rows, columns)
    return Entry(
        id=f"fda/{figure}",
        title=f"{task.label}: bytes and steps to {100 * target:g} % test accuracy by the number of "
        "workers",
        rows=labelled(rows),
        columns=columns,
        base=(*task.base, f"stop.test_accuracy={target}"),
        budgets=budgets(task, rows, columns, small, smoke((), least)),
        published=published or {},
        claims=worker_claims(task, rows, columns),
        figure="axis",
        along="K",
        logarithmic=True,
    )


def worker_columns(task: Task, target: float) -> dict[str, Column]:
    """Both costs for every K on each split of the data; the stand-in's for the two smallest."""
    columns: dict[str, Column] = {}
    for split, own in task.splits.items():
        columns |= costs(split, target, at_workers(task.workers), own)
    return columns | stand_in_costs(task, at_workers(task.workers[:2]))


def worker_reduced(task: Task, rows: Rows, columns: Mapping[str, Column]) -> Budget:
    """Some Θ for the two smallest K."""
    few = task.workers[:2]
    kept = tuple(name for name in of_group(columns, cheap(task)) if columns[name].x in few)
    ours = fda((0.5, 2, 5)) if task.stand_in is None else with_theta(rows, SUGGESTED)
    chosen = (*task.rivals, *labels(ours))
    return reduced(task, chosen, kept, f"IID, {few[0]} and {few[1]} workers, some Θ")


def by_theta(figure: str, task: Task, target: float, published: Cells | None = None) -> Entry:
    """Cost against Θ, a curve for each FDA variant and number of workers."""
    variants = {Row(name): (f"round_end.monitor={monitor}",) for name, monitor in FDA.items()}
    rows, columns = with_workers(variants, task.workers), theta_columns(task, target)
    least = task.workers[0]
    chosen = labels(with_workers(variants, (least,)))
    text = f"IID, {least} workers" + (
        ", Θ by the suggestions for three networks" if task.stand_in else ""
    )
    return Entry(
        id=f"fda/{figure}",
        title=f"{task.label}: bytes and steps to {100 * target:g} % test accuracy by the threshold "
        "Θ",
        rows=labelled(rows),
        columns=columns,
        base=(*task.base, f"stop.test_accuracy={target}"),
        budgets={
            "smoke": smoke(chosen, of_group(columns, EVEN)),
            "reduced": reduced(task, chosen, of_group(columns, cheap(task)), text),
            "full": Budget(seeds=SEEDS, columns=of_thesis(task, columns)),
        },
        published=published or {},
        figure="axis",
        along="Θ",
        logarithmic=True,
    )


def theta_columns(task: Task, target: float) -> dict[str, Column]:
    """Both costs for every Θ on each split of the data; the stand-in's for the suggestions."""
    columns: dict[str, Column] = {}
    for split, own in task.splits.items():
        columns |= costs(split, target, at_thetas(task.thetas), own)
    return columns | stand_in_costs(task, at_thetas(("hpc", "balanced", "fl")))


ENTRIES: tuple[Entry, ...] = (
    plan(),
    *CLOUDS,
    by_workers("figure3.8", LENET, 0.98, lenet_by_workers()),
    by_workers("figure3.9", VGG, 0.994),
    by_workers("figure3.10", DENSENET121, 0.8),
    by_workers("figure3.11", DENSENET201, 0.78),
    by_theta("figure3.12", LENET, 0.98, lenet_by_theta()),
    by_theta("figure3.13", DENSENET121, 0.8),
    by_theta("figure3.14", DENSENET201, 0.78),
    estimation(),
    by_theta("figure3.16", VGG, 0.994),
    transfer(),
)
