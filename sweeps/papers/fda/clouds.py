"""Figures 3.3 to 3.6 and 3.17 of the FDA thesis: bytes against steps, a point a run.

The clouds are known by their medians, which stand beside the run in the middle of the grid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sweeps.entry import Budget, Claim, Column, Entry, Published
from sweeps.papers.fda.budgets import budgets, reduced, smoke
from sweeps.papers.fda.claims import ahead
from sweeps.papers.fda.columns import (
    GB,
    STEPS,
    Point,
    bytes_of,
    cheap,
    costs,
    name_of,
    of_group,
    stand_in_costs,
)
from sweeps.papers.fda.rows import FDA, SUGGESTED, Row, labelled, labels, strategies, with_workers
from sweeps.papers.fda.tasks import CONVNEXT, DENSENET121, DENSENET201, EVEN, LENET, VGG, Task

Cells = dict[tuple[str, str], Published]
Medians = Mapping[tuple[str, float], Sequence[tuple[float, float]]]
"""(split, target) -> (GB, steps) of LinearFDA, SketchFDA, and the rivals in the order FedOpt,
Synchronous."""
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


def transfer() -> Entry:
    """Figure 3.17: fine-tuning, where the thesis finds the sketch ahead."""
    entry = cloud("figure3.17", CONVNEXT, (0.76,), CONVNEXT_MEDIANS, ())
    missed: Cells = {
        (str(Row("Synchronous", workers=5)), name_of(EVEN, what, "0.76")): Published(
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


CLOUDS: tuple[Entry, ...] = (
    cloud("figure3.3", LENET, (0.985,), LENET_MEDIANS, ((0.5, 5), (2, 5), (5, 5))),
    cloud("figure3.4", VGG, (0.994, 0.995), VGG_MEDIANS, ()),
    cloud("figure3.5", DENSENET121, (0.78, 0.79, 0.8, 0.81), DENSENET121_MEDIANS, ()),
    cloud("figure3.6", DENSENET201, (0.76, 0.78, 0.79, 0.8), DENSENET201_MEDIANS, ()),
)
