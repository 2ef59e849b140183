"""What chapter 3 says of FDA and its rivals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sweeps.entry import Claim, Column
from sweeps.papers.fda.columns import bytes_of, steps_of
from sweeps.papers.fda.rows import FDA, SUGGESTED, Row, Rows, labels, with_theta
from sweeps.papers.fda.tasks import Task


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
