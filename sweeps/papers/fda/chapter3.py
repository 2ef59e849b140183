"""Chapter 3 of the FDA thesis: what each strategy sends and computes until a model reaches an
accuracy.

Where the thesis has plots only, the numbers are those of its authors' published runs. The clouds of
Figures 3.3 to 3.6 are known by their medians, which stand beside the run in the middle of the grid.
A run counts as a miss later than in the thesis: the cap on steps is that of the fewest workers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sweeps.entry import Budget, Claim, Column, Entry, Published, Settings
from sweeps.papers.fda.estimation import estimation
from sweeps.papers.fda.tasks import (
    CONVNEXT,
    DENSENET121,
    DENSENET201,
    GB,
    LENET,
    STEPS,
    SUGGESTED,
    VGG,
    Task,
    cost,
    fda,
    reduced,
    rivals,
    smoke,
    thesis_rows,
    thetas,
)

Cells = dict[tuple[str, str], Published]
Costs = tuple[float | None, float | None]
"""GB, steps; None: the target was not reached."""
Medians = Mapping[tuple[str, float], Sequence[tuple[float, float]]]
"""(split, target) -> (GB, steps) of LinearFDA, SketchFDA, and the rivals in the order FedOpt,
Synchronous."""

TABLE_WORKERS = (5, 10, 20, 30, 40, 60)
LENET_98: Mapping[str, Sequence[Costs | None]] = {
    "Synchronous": (
        (5.55, 2250),
        (9.26, 1875),
        (17.59, 1782),
        (30.55, 2063),
        (37.02, 1875),
        (54.62, 1844),
    ),
    "FedAdam": (
        (0.52, 78375),
        (1.25, 47250),
        (2.92, 27657),
        (4.56, 19188),
        (6.12, 14485),
        (9.66, 10157),
    ),
    "LinearFDA Θ=0.5": (
        (0.390, 3375),
        (0.523, 2250),
        (1.047, 2250),
        (1.704, 2250),
        (2.113, 2016),
        (3.674, 2157),
    ),
    "LinearFDA Θ=2": (
        (0.096, 3000),
        (0.178, 2438),
        (0.356, 2438),
        (0.682, 2750),
        (1.028, 3141),
        (1.364, 2625),
    ),
    "LinearFDA Θ=5": (
        (0.040, 3000),
        (0.094, 3188),
        (0.188, 2907),
        (0.341, 3188),
        (0.495, 3610),
        (None, None),
    ),
    "SketchFDA Θ=0.5": (
        (0.347, 3000),
        (0.645, 2438),
        (1.232, 2250),
        (1.683, 1938),
        (2.663, 2157),
        (4.983, 2688),
    ),
    "SketchFDA Θ=2": (
        (0.163, 3375),
        (0.314, 2813),
        (0.609, 2532),
        (0.929, 2438),
        (1.636, 3141),
        (2.324, 2907),
    ),
    "SketchFDA Θ=5": (
        (0.100, 3000),
        (0.224, 3000),
        (0.564, 3563),
        (0.799, 3250),
        None,
        (None, None),
    ),
}
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
    task: Task, fda_rows: Sequence[str], columns: Sequence[str], suffix: str = ""
) -> tuple[Claim, ...]:
    """FDA sends less than its rivals, and computes less than the federated one."""
    sent = tuple(c for c in columns if GB in c.split(", "))
    steps = tuple(c for c in columns if STEPS in c.split(", "))
    worse = tuple(f"{r}{suffix}" for r in task.rivals)
    claims = [
        Claim(f"{row} sends fewer bytes than {' and '.join(worse)}", row, worse, sent)
        for row in fda_rows
    ]
    if task.federated is not None:
        claims += [
            Claim(f"{row} takes fewer steps than {worse[1]}", row, worse[1:], steps)
            for row in fda_rows
        ]
    return tuple(claims)


def stand_in_columns(task: Task, settings: Mapping[str, Settings]) -> dict[str, Column]:
    """What the stand-in is asked: its own target, for each of the ``settings`` (label ->
    settings)."""
    if task.stand_in is None:
        return {}
    target = task.stand_in.target
    return {
        ", ".join(["stand-in", what, *([label] if label else [])]): cost(what, target, own)
        for what in (GB, STEPS)
        for label, own in settings.items()
    }


def budgets(
    task: Task,
    rows: Mapping[str, Settings],
    columns: Mapping[str, Column],
    small: Budget,
    tiny: Budget,
) -> dict[str, Budget]:
    """``full`` leaves out what only the stand-in needs."""
    kept = tuple(c for c in columns if not c.startswith("stand-in")) if task.stand_in else ()
    full = Budget(rows=thesis_rows(rows) if task.stand_in else (), columns=kept)
    return {"smoke": tiny, "reduced": small, "full": full}


def lenet_cells(name: str) -> Cells:
    """The LeNet-5 numbers as cells; ``name`` says which of K and Θ is in the columns."""
    cells: Cells = {}
    for row, numbers in LENET_98.items():
        method, _, theta = row.partition(" Θ=")
        if name == "Θ" and not theta:
            continue
        for k, pair in zip(TABLE_WORKERS, numbers, strict=True):
            for what, value in zip((GB, STEPS), pair or (None, None), strict=True):
                note = "" if value is not None else "target not reached" if pair else "not run"
                where = (
                    (row, f"IID, {what}, K={k}")
                    if name == "K"
                    else (f"{method} K={k}", f"IID, {what}, Θ={theta}")
                )
                cells[where] = Published(value, note=note)
    return cells


def plan() -> Entry:
    """Table 3.2, of which the LeNet-5 line has numbers."""
    rows = {**rivals(LENET), **fda(LENET, (0.5, 2, 5))}
    columns = {
        f"IID, {what}, K={k}": cost(what, 0.98, (f"data.clients={k}",))
        for what in (GB, STEPS)
        for k in TABLE_WORKERS
    }
    few = tuple(c for c in columns if c.endswith(("K=5", "K=10")))
    return Entry(
        id="fda/table3.2",
        title="The plan of experiments, first line: LeNet-5 on MNIST to 98 %, cost of every "
        "strategy by workers",
        rows=rows,
        columns=columns,
        base=LENET.base,
        budgets={
            "smoke": smoke((), tuple(c for c in columns if c.endswith("K=5"))),
            "reduced": reduced(
                LENET, (), few, "5 and 10 workers; runs end after 8,000 steps (FedAdam's do not)"
            ),
            "full": Budget(),
        },
        published=lenet_cells("K"),
        claims=ahead(LENET, [r for r in rows if "FDA" in r], tuple(columns)),
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
    strategies = {**rivals(task), **fda(task, thetas(task))}
    rows = {
        f"{row} K={k}": (*own, f"data.clients={k}")
        for row, own in strategies.items()
        for k in task.workers
    }
    columns = {
        f"{split}, {what}, {target:g}": cost(what, target, own)
        for target in targets
        for split, own in task.splits.items()
        for what in (GB, STEPS)
    } | stand_in_columns(task, {"": ()})
    theta, k = task.middle
    middle = [f"{m} Θ={theta:g} K={k}" for m in ("LinearFDA", "SketchFDA")]
    others = [f"{m} K={k}" for m in reversed(task.rivals)]
    published: Cells = {}
    for (split, target), numbers in medians.items():
        for row, pair in zip([*middle, *others], numbers, strict=False):
            for what, value in zip((GB, STEPS), pair, strict=True):
                published[row, f"{split}, {what}, {target:g}"] = Published(value, note=MEDIAN)
    least = task.workers[0]
    if task.stand_in is None:
        chosen = [*middle, *others, f"Synchronous K={least}"]
        chosen += [f"{m} Θ={t:g} K={j}" for t, j in few for m in ("LinearFDA", "SketchFDA")]
        kept, text = (
            tuple(c for c in columns if c.startswith("IID")),
            "IID only, the middle of the grid and a few more",
        )
    else:
        chosen = [r for r in rows if r.endswith(f" K={least}") and r not in thesis_rows(rows)]
        chosen += [f"{r} K={least}" for r in task.rivals]
        kept, text = tuple(c for c in columns if c.startswith("stand-in")), f"{least} workers, IID"
    tiny = smoke(tuple(f"{r} K={least}" for r in strategies), tuple(list(columns)[:2]))
    suggested = (
        [f"{m} Θ={SUGGESTED} K={least}" for m in ("LinearFDA", "SketchFDA")]
        if task.stand_in
        else []
    )
    claims = ahead(task, middle, tuple(columns), f" K={k}") + ahead(
        task, suggested, tuple(columns), f" K={least}"
    )
    return Entry(
        id=f"fda/{figure}",
        title=f"{task.label}: bytes sent against steps computed, a point for each strategy, Θ and "
        "number of workers",
        rows=rows,
        columns=columns,
        base=(*task.base, f"stop.test_accuracy={max(targets)}"),
        budgets=budgets(
            task, rows, columns, reduced(task, tuple(chosen), kept, text, steps=10_000), tiny
        ),
        published=published,
        claims=claims,
        figure="clouds",
    )


def by_workers(figure: str, task: Task, target: float, published: Cells | None = None) -> Entry:
    """Cost against K."""
    rows = {**rivals(task), **fda(task, thetas(task))}
    columns = {
        f"{split}, {what}, K={k}": cost(what, target, (*own, f"data.clients={k}"))
        for split, own in task.splits.items()
        for what in (GB, STEPS)
        for k in task.workers
    }
    few = task.workers[:2]
    columns |= stand_in_columns(task, {f"K={k}": (f"data.clients={k}",) for k in few})
    ends = tuple(f"K={k}" for k in few)
    start = "stand-in" if task.stand_in else "IID"
    kept = tuple(c for c in columns if c.startswith(start) and c.endswith(ends))
    suggested = tuple(r for r in rows if r not in thesis_rows(rows))
    chosen = (*task.rivals, *suggested) if suggested else (*task.rivals, *fda(task, (0.5, 2, 5)))
    text = f"IID, {few[0]} and {few[1]} workers, some Θ"
    least, most = task.thetas[0], task.thetas[-1]
    middle = [r for r in rows if r.endswith(f"Θ={task.middle[0]:g}")]
    sent = tuple(c for c in columns if GB in c.split(", "))
    trade = tuple(
        Claim("a larger Θ saves bytes", f"{m} Θ={most:g}", (f"{m} Θ={least:g}",), sent)
        for m in ("LinearFDA", "SketchFDA")
    )
    tiny = smoke((), tuple(c for c in columns if c.startswith("IID") and c.endswith(ends[0])))
    return Entry(
        id=f"fda/{figure}",
        title=f"{task.label}: bytes and steps to {100 * target:g} % test accuracy by the number of "
        "workers",
        rows=rows,
        columns=columns,
        base=(*task.base, f"stop.test_accuracy={target}"),
        budgets=budgets(task, rows, columns, reduced(task, chosen, kept, text), tiny),
        published=published or {},
        claims=ahead(task, [*middle, *suggested], tuple(columns)) + trade,
        figure="axis",
        logarithmic=True,
    )


def by_theta(figure: str, task: Task, target: float, published: Cells | None = None) -> Entry:
    """Cost against Θ, a curve for each FDA variant and number of workers."""
    rows: dict[str, Settings] = {
        f"{name} K={k}": (f"round_end.monitor={monitor}", f"data.clients={k}")
        for name, monitor in (("LinearFDA", "linear"), ("SketchFDA", "sketch"))
        for k in task.workers
    }
    columns = {
        f"{split}, {what}, Θ={theta:g}": cost(what, target, (*own, f"round_end.theta={theta}"))
        for split, own in task.splits.items()
        for what in (GB, STEPS)
        for theta in task.thetas
    }
    named = {f"Θ={name}": (f"round_end.theta={name}",) for name in ("hpc", "balanced", "fl")}
    columns |= stand_in_columns(task, named)
    least = task.workers[0]
    start = "stand-in" if task.stand_in else "IID"
    kept = tuple(c for c in columns if c.startswith(start))
    chosen = tuple(r for r in rows if r.endswith(f" K={least}"))
    text = f"IID, {least} workers" + (
        ", Θ by the suggestions for three networks" if task.stand_in else ""
    )
    tiny = smoke(chosen, tuple(c for c in columns if c.startswith("IID")))
    full = Budget(
        columns=tuple(c for c in columns if not c.startswith("stand-in")) if task.stand_in else ()
    )
    return Entry(
        id=f"fda/{figure}",
        title=f"{task.label}: bytes and steps to {100 * target:g} % test accuracy by the threshold "
        "Θ",
        rows=rows,
        columns=columns,
        base=(*task.base, f"stop.test_accuracy={target}"),
        budgets={"smoke": tiny, "reduced": reduced(task, chosen, kept, text), "full": full},
        published=published or {},
        figure="axis",
        logarithmic=True,
    )


def transfer() -> Entry:
    """Figure 3.17: fine-tuning, where the thesis finds the sketch ahead."""
    entry = cloud("figure3.17", CONVNEXT, (0.76,), CONVNEXT_MEDIANS, ())
    theta, k = CONVNEXT.middle
    sent = tuple(c for c in entry.columns if GB in c.split(", "))
    missed: Cells = {
        ("Synchronous K=5", f"IID, {what}, 0.76"): Published(None, note="not reached in 25 epochs")
        for what in (GB, STEPS)
    }
    pairs = ((f"Θ={theta:g}", k), (f"Θ={SUGGESTED}", k))
    ahead_of = tuple(
        Claim(
            "SketchFDA sends fewer bytes than LinearFDA",
            f"SketchFDA {t} K={n}",
            (f"LinearFDA {t} K={n}",),
            sent,
        )
        for t, n in pairs
    )
    return Entry(
        id=entry.id,
        title="ConvNeXtLarge fine-tuned on CIFAR-100: bytes against steps to 76 %, a point a run",
        rows=entry.rows,
        columns=entry.columns,
        base=entry.base,
        budgets=entry.budgets,
        published={**entry.published, **missed},
        claims=(*entry.claims, *ahead_of),
        figure="clouds",
        unavailable="The thesis' own pre-trained weights and first stage (training the head alone, "
        "to 60 %) are not "
        "published: its repository holds pointers to large files. Torchvision's ImageNet weights "
        "start the full runs.",
    )


ENTRIES: tuple[Entry, ...] = (
    plan(),
    cloud("figure3.3", LENET, (0.985,), LENET_MEDIANS, ((0.5, 5), (2, 5), (5, 5))),
    cloud("figure3.4", VGG, (0.994, 0.995), VGG_MEDIANS, ()),
    cloud("figure3.5", DENSENET121, (0.78, 0.79, 0.8, 0.81), DENSENET121_MEDIANS, ()),
    cloud("figure3.6", DENSENET201, (0.76, 0.78, 0.79, 0.8), DENSENET201_MEDIANS, ()),
    by_workers("figure3.8", LENET, 0.98, lenet_cells("K")),
    by_workers("figure3.9", VGG, 0.994),
    by_workers("figure3.10", DENSENET121, 0.8),
    by_workers("figure3.11", DENSENET201, 0.78),
    by_theta("figure3.12", LENET, 0.98, lenet_cells("Θ")),
    by_theta("figure3.13", DENSENET121, 0.8),
    by_theta("figure3.14", DENSENET201, 0.78),
    estimation(),
    by_theta("figure3.16", VGG, 0.994),
    transfer(),
)
