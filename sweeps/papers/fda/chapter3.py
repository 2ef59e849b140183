"""Chapter 3 of the FDA thesis: what each strategy sends and computes until a model reaches an
accuracy.

Where the thesis has plots only, the numbers are those of its authors' published runs. The clouds of
Figures 3.3 to 3.6 are known by their medians, which stand beside the run in the middle of the grid.
A run counts as a miss later than in the thesis: the cap on steps is that of the fewest workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from sweeps.entry import Budget, Claim, Column, Entry, Published
from sweeps.papers.fda.estimation import estimation
from sweeps.papers.fda.tasks import (
    CONVNEXT,
    DENSENET121,
    DENSENET201,
    FDA,
    GB,
    LENET,
    LEVEL,
    STAND_IN,
    STEPS,
    SUGGESTED,
    VGG,
    Point,
    Row,
    Rows,
    Task,
    Theta,
    at_thetas,
    at_workers,
    bytes_of,
    costs,
    fda,
    in_thesis,
    labelled,
    labels,
    name_of,
    of_group,
    reduced,
    rivals,
    smoke,
    steps_of,
    strategies,
    with_workers,
)

Cells = dict[tuple[str, str], Published]
Costs = tuple[float | None, float | None]
"""GB, steps; None: the target was not reached."""
Medians = Mapping[tuple[str, float], Sequence[tuple[float, float]]]
"""(split, target) -> (GB, steps) of LinearFDA, SketchFDA, and the rivals in the order FedOpt,
Synchronous."""

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

LENET_MEDIANS: Medians = {
    ("IID", 0.985): ((0.6805, 4875), (1.0028, 4575), (6.7037, 24326.5), (48.5984, 3047)),
    ("label 0", 0.985): ((1.1859, 6000), (1.5902, 5375), (10.9479, 34073.5), (40.726, 3563)),
    ("60 % sorted", 0.985): ((0.9353, 7425), (1.3481, 6375), (7.0555, 25586.5), (60.1708, 4625)),
}
VGG_MEDIANS: Medians = {
    ("IID", 0.994): ((19.4943, 2250), (18.825, 2250), (58.843, 6047), (700.154, 1062.5)),
    ("IID", 0.995): ((22.708, 3000), (20.8284, 3000), (312.62, 32932), (1516.54, 3375)),
    ("label 0", 0.994): ((22.0344, 2250), (24.7043, 2322), (71.7522, 5659), (855.5825, 1389)),
    ("label 0", 0.995): ((26.1305, 3250), (30.2565, 3398.5), (222.826, 18525), (1399.79, 3150)),
    ("label 8", 0.994): ((31.6252, 2679), (26.428, 2831.5), (130.0245, 11362), (972.283, 1756.5)),
    ("label 8", 0.995): ((33.6474, 4281.5), (30.6135, 4313), (395.57, 33488), (1788.93, 3125)),
}
DENSENET121_MEDIANS: Medians = {
    ("IID", 0.78): ((49.3067, 5782), (49.5512, 6135.5), (140.9535, 12709), (2829.66, 3503)),
    ("IID", 0.79): ((56.8283, 7149), (54.4769, 7500), (186.22, 16954), (3352.105, 3698.5)),
    ("IID", 0.8): ((71.3137, 8542), (63.3366, 9167), (263.8, 21406.5), (7225.54, 6445.5)),
    ("IID", 0.81): ((80.2279, 10860), (77.6656, 11355), (402.1075, 33789.5), (13144.9, 12584)),
}
DENSENET201_MEDIANS: Medians = {
    ("IID", 0.76): ((86.9397, 7969), (82.6136, 8323.5), (282.187, 9818), (7244.86, 3021)),
    ("IID", 0.78): ((95.6333, 11459), (88.9438, 11693), (387.6, 13503), (11321.5, 5209)),
    ("IID", 0.79): ((91.2869, 13125), (94.6784, 14375), (469.829, 16198.5), (16074.9, 7188)),
    ("IID", 0.8): ((106.502, 15938), (100.816, 17813), (632.838, 21550), (33054.7, 11667)),
}
CONVNEXT_MEDIANS: Medians = {("IID", 0.76): ((205.74, 7813), (126.245, 6146.5))}
MEDIAN = "median of the authors' runs over all K (and Θ) that reached the target"


def ahead(
    task: Task, rows: Iterable[Row], columns: Mapping[str, Column], workers: int | None = None
) -> tuple[Claim, ...]:
    """FDA (its ``rows``) sends less than its rivals, and computes less than the federated one."""
    rows = tuple(rows)
    worse = labels(Row(name, workers=workers) for name in task.rivals)
    claims = [
        Claim(f"{row} sends fewer bytes than {' and '.join(worse)}", row, worse, bytes_of(columns))
        for row in labels(rows)
    ]
    if task.federated is not None:
        claims += [
            Claim(f"{row} takes fewer steps than {worse[1]}", row, worse[1:], steps_of(columns))
            for row in labels(rows)
        ]
    return tuple(claims)


def stand_in_costs(task: Task, points: Iterable[Point]) -> dict[str, Column]:
    """What the stand-in is asked, if there is one: its own target, at each of the ``points``."""
    return {} if task.stand_in is None else costs(STAND_IN, task.stand_in.target, points)


def cheap(task: Task) -> str:
    """The group of columns that two slow cores can fill."""
    return LEVEL if task.stand_in is None else STAND_IN


def of_thesis(task: Task, columns: Mapping[str, Column]) -> tuple[str, ...]:
    """The full budget's columns: all but those that only the stand-in needs."""
    if task.stand_in is None:
        return ()
    return tuple(name for name, column in columns.items() if column.group != STAND_IN)


def budgets(
    task: Task, rows: Rows, columns: Mapping[str, Column], small: Budget, tiny: Budget
) -> dict[str, Budget]:
    """``full`` leaves out what only the stand-in needs."""
    full = Budget(
        rows=() if task.stand_in is None else in_thesis(rows), columns=of_thesis(task, columns)
    )
    return {"smoke": tiny, "reduced": small, "full": full}


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
        (str(row), name_of(LEVEL, what, f"K={k}")): number for row, k, what, number in lenet_costs()
    }


def lenet_by_theta() -> Cells:
    """The LeNet-5 numbers where the columns are Θ: those of FDA."""
    return {
        (str(Row(row.strategy, workers=k)), name_of(LEVEL, what, f"Θ={row.theta:g}")): number
        for row, k, what, number in lenet_costs()
        if isinstance(row.theta, float | int)
    }


def plan() -> Entry:
    """Table 3.2, of which the LeNet-5 line has numbers."""
    ours = fda((0.5, 2, 5))
    rows = {**rivals(LENET), **ours}
    columns = costs(LEVEL, 0.98, at_workers(TABLE_WORKERS))
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
            "full": Budget(),
        },
        published=lenet_by_workers(),
        claims=ahead(LENET, ours, columns),
    )


def cloud(
    figure: str,
    task: Task,
    targets: Sequence[float],
    medians: Medians,
    few: Sequence[tuple[float, int]],
) -> Entry:
    """Bytes against steps, a point a run, and their density; ``few`` are the (Θ, K) of the reduced
    budget.
    """
    each, least = strategies(task), task.workers[0]
    rows = with_workers(each, task.workers)
    columns = cloud_columns(task, targets)
    tiny = smoke(labels(with_workers(each, (least,))), tuple(columns)[:2])
    return Entry(
        id=f"fda/{figure}",
        title=f"{task.label}: bytes sent against steps computed, a point for each strategy, Θ and "
        "number of workers",
        rows=labelled(rows),
        columns=columns,
        base=(*task.base, f"stop.test_accuracy={max(targets)}"),
        budgets=budgets(task, rows, columns, cloud_reduced(task, columns, few), tiny),
        published=cloud_cells(task, medians),
        claims=cloud_claims(task, columns),
        figure="clouds",
        strategies={str(row): row.strategy for row in rows},
    )


def cloud_columns(task: Task, targets: Sequence[float]) -> dict[str, Column]:
    """Both costs of each target on each split of the data, and the stand-in's."""
    columns: dict[str, Column] = {}
    for target in targets:
        for split, own in task.splits.items():
            columns |= costs(split, target, (Point(f"{target:g}"),), own)
    return columns | stand_in_costs(task, (Point(""),))


def in_the_middle(task: Task) -> tuple[Row, ...]:
    """The FDA runs in the middle of the grid."""
    theta, k = task.middle
    return tuple(Row(name, theta, k) for name in FDA)


def beside_the_middle(task: Task) -> tuple[Row, ...]:
    """The rivals' runs with as many workers, in the order of ``Medians``."""
    return tuple(Row(name, workers=task.middle[1]) for name in reversed(task.rivals))


def suggested(task: Task) -> tuple[Row, ...]:
    """The FDA runs of the stand-in."""
    if task.stand_in is None:
        return ()
    return tuple(Row(name, SUGGESTED, task.workers[0]) for name in FDA)


def cloud_cells(task: Task, medians: Medians) -> Cells:
    """The clouds' medians beside the runs in the middle of the grid."""
    shown = (*in_the_middle(task), *beside_the_middle(task))
    return {
        (str(row), name_of(split, what, f"{target:g}")): Published(value, note=MEDIAN)
        for (split, target), numbers in medians.items()
        # the medians of ConvNeXtLarge are FDA's only
        for row, pair in zip(shown, numbers, strict=False)
        for what, value in zip((GB, STEPS), pair, strict=True)
    }


def cloud_reduced(
    task: Task, columns: Mapping[str, Column], few: Sequence[tuple[float, int]]
) -> Budget:
    """The runs around the middle of the grid; or with the fewest workers, where a stand-in runs."""
    least = task.workers[0]
    if task.stand_in is None:
        rows = [*in_the_middle(task), *beside_the_middle(task), Row("Synchronous", workers=least)]
        rows += [Row(name, theta, k) for theta, k in few for name in FDA]
        text = "IID only, the middle of the grid and a few more"
    else:
        rows = [*suggested(task), *(Row(name, workers=least) for name in task.rivals)]
        text = f"{least} workers, IID"
    kept = of_group(columns, cheap(task))
    return reduced(task, labels(rows), kept, text, steps=10_000)


def cloud_claims(task: Task, columns: Mapping[str, Column]) -> tuple[Claim, ...]:
    """FDA ahead in the middle of the grid, and in the stand-in's runs."""
    middle = ahead(task, in_the_middle(task), columns, task.middle[1])
    return middle + ahead(task, suggested(task), columns, task.workers[0])


def by_workers(figure: str, task: Task, target: float, published: Cells | None = None) -> Entry:
    """Cost against K."""
    rows, columns = strategies(task), worker_columns(task, target)
    least = tuple(n for n in of_group(columns, LEVEL) if columns[n].x == task.workers[0])
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


def with_theta(rows: Iterable[Row], *thetas: Theta) -> tuple[Row, ...]:
    """The rows with one of the ``thetas``."""
    return tuple(row for row in rows if row.theta in thetas)


def worker_claims(task: Task, rows: Rows, columns: Mapping[str, Column]) -> tuple[Claim, ...]:
    """FDA ahead with the Θ in the middle of the grid and with the suggested one; and what Θ
    trades.
    """
    ours = (*with_theta(rows, task.middle[0]), *with_theta(rows, SUGGESTED))
    least, most = task.thetas[0], task.thetas[-1]
    trade = tuple(
        Claim(
            "a larger Θ saves bytes", str(Row(name, most)), (str(Row(name, least)),),
            bytes_of(columns),
        )
        for name in FDA
    )  # fmt: skip
    return ahead(task, ours, columns) + trade


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
            "smoke": smoke(chosen, of_group(columns, LEVEL)),
            "reduced": reduced(task, chosen, of_group(columns, cheap(task)), text),
            "full": Budget(columns=of_thesis(task, columns)),
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


def transfer() -> Entry:
    """Figure 3.17: fine-tuning, where the thesis finds the sketch ahead."""
    entry = cloud("figure3.17", CONVNEXT, (0.76,), CONVNEXT_MEDIANS, ())
    missed: Cells = {
        (str(Row("Synchronous", workers=5)), name_of(LEVEL, what, "0.76")): Published(
            None, note="not reached in 25 epochs"
        )
        for what in (GB, STEPS)
    }
    sketch_ahead = tuple(
        Claim(
            "SketchFDA sends fewer bytes than LinearFDA", str(sketch), (str(linear),),
            bytes_of(entry.columns),
        )
        for linear, sketch in (in_the_middle(CONVNEXT), suggested(CONVNEXT))
    )  # fmt: skip
    return replace(
        entry,
        title="ConvNeXtLarge fine-tuned on CIFAR-100: bytes against steps to 76 %, a point a run",
        published={**entry.published, **missed},
        claims=(*entry.claims, *sketch_ahead),
        unavailable="The thesis' own pre-trained weights and first stage (training the head alone, "
        "to 60 %) are not published: its repository holds pointers to large files. Torchvision's "
        "ImageNet weights start the full runs.",
    )


ENTRIES: tuple[Entry, ...] = (
    plan(),
    cloud("figure3.3", LENET, (0.985,), LENET_MEDIANS, ((0.5, 5), (2, 5), (5, 5))),
    cloud("figure3.4", VGG, (0.994, 0.995), VGG_MEDIANS, ()),
    cloud("figure3.5", DENSENET121, (0.78, 0.79, 0.8, 0.81), DENSENET121_MEDIANS, ()),
    cloud("figure3.6", DENSENET201, (0.76, 0.78, 0.79, 0.8), DENSENET201_MEDIANS, ()),
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
