"""The rows of chapter 3: strategies, with their Θ and their number of workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sweeps.entry import Settings
from sweeps.papers.fda.tasks import Task, Theta

FDA = {"LinearFDA": "linear", "SketchFDA": "sketch"}
"""Strategy -> its monitor."""
SUGGESTED = "FL"
"""Row label of Θ = 4.91e-5 d, which suits a stand-in of any size."""


@dataclass(frozen=True)
class Row:
    """A strategy, where it has one with its Θ, and with the number of workers where that is not in
    the columns.
    """

    strategy: str
    theta: Theta | None = None
    workers: int | None = None

    def __str__(self) -> str:
        """The row's label."""
        theta = f"{self.theta:g}" if isinstance(self.theta, float | int) else self.theta
        parts = (("Θ", theta), ("K", self.workers))
        return " ".join([self.strategy, *(f"{n}={v}" for n, v in parts if v is not None)])


Rows = Mapping[Row, Settings]


def fda(thetas: Iterable[Theta]) -> dict[Row, Settings]:
    """Both FDA variants for each Θ; ``FL`` is the suggestion for slow networks."""
    return {Row(name, theta): (_round_end(name, theta),) for name in FDA for theta in thetas}


def _round_end(name: str, theta: Theta) -> str:
    value = "fl" if theta == SUGGESTED else theta
    return f"round_end={{name: fda, theta: {value}, monitor: {FDA[name]}}}"


def rivals(task: Task) -> dict[Row, Settings]:
    """Synchronous training, and the FedOpt strategy that belongs to the local optimiser."""
    synchronous: Settings = (
        "algorithm=synchronous",
        "round_end=fixed",
        "local.steps=1",
    )
    rows = {Row("Synchronous"): synchronous}
    if task.federated is not None:
        name, settings = task.federated
        # FedOpt's clients do an epoch a round, and start their optimiser anew in each
        rows[Row(name)] = (
            *settings, "round_end=fixed", "local.steps=null", "local.epochs=1",
            "local.optimizer_state=reset", "rounds=1001", "stop.epochs_total=1001",
            "stop.steps_total=400000",
        )  # fmt: skip
    return rows


def strategies(task: Task) -> dict[Row, Settings]:
    """FDA's rivals and FDA: the thesis' grid of Θ, and where a stand-in needs it the suggestion by
    size.
    """
    named: tuple[Theta, ...] = () if task.stand_in is None else (SUGGESTED,)
    return {**rivals(task), **fda((*task.thetas, *named))}


def with_workers(rows: Rows, workers: Sequence[int]) -> dict[Row, Settings]:
    """Each row for each of the numbers of workers."""
    return {
        replace(row, workers=k): (*own, f"data.clients={k}")
        for row, own in rows.items()
        for k in workers
    }


def with_theta(rows: Iterable[Row], *thetas: Theta) -> tuple[Row, ...]:
    """The rows with one of the ``thetas``."""
    return tuple(row for row in rows if row.theta in thetas)


def labelled(rows: Rows) -> dict[str, Settings]:
    """The rows as an entry has them."""
    return {str(row): settings for row, settings in rows.items()}


def labels(rows: Iterable[Row]) -> tuple[str, ...]:
    """What the rows are called in an entry."""
    return tuple(map(str, rows))


def in_thesis(rows: Iterable[Row]) -> tuple[str, ...]:
    """Labels of the rows that the thesis has, too."""
    return labels(row for row in rows if row.theta != SUGGESTED)
