"""Runs side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
from rich.table import Table

from algorithms.part import nearest
from orchestrator.analysis.names import told_apart
from orchestrator.config.goal import Goal, up_to
from orchestrator.errors import UserError
from orchestrator.results import plots
from orchestrator.results.pictures import write_picture
from orchestrator.results.result import Result
from orchestrator.results.run_folder import RunFolder
from orchestrator.terminal import HEADLINES, console

Line = tuple[str, list[str]]
"""A row of the table: its label, and a cell for each run."""


def show_comparison(
    folders: list[RunFolder], plot: Path | None, metric: str, target: Goal | None = None
) -> None:
    """A table of the runs' last metrics, and (if asked for) the curves of one metric: a picture and
    its data.

    With ``target`` also the rounds and seconds until the metric reached it. A metric that ends in
    "/" is all columns that begin so (``gradient_norm/``).
    """
    failed = [f.place for f in folders if f.ending()["status"] == "failed"]
    if failed:
        raise UserError(f"the run in {failed[0]} failed and has no metrics to compare")
    results = [f.result() for f in folders]
    names = told_apart(folders, [r["name"] for r in results])
    rounds = [f.rounds() for f in folders]
    table = Table("metric", *names)
    lines = [*_metrics(results), *_efforts(results), *_times(rounds)]
    lines += _to_target(rounds, metric, target) if target is not None else []
    for label, values in lines:
        table.add_row(label, *values)
    console.print(table)
    if plot is not None:
        _draw(dict(zip(names, rounds, strict=True)), metric, plot)


def _metrics(results: list[Result]) -> list[Line]:
    """The headlines that any of the runs reports, and which of the runs diverged."""
    marks = ["yes" if r.get("diverged") else "" for r in results]
    return [
        (label, [_four_digits(r["metrics"], key) for r in results])
        for key, label in HEADLINES.items()
        if any(key in r["metrics"] for r in results)
    ] + ([("diverged", marks)] if any(marks) else [])


def _four_digits(metrics: Mapping[str, float | None], key: str) -> str:
    """A metric; "" where it was not reported, "nan" where it is no number (null in JSON)."""
    if key not in metrics:
        return ""
    value = metrics[key]
    return f"{math.nan if value is None else value:.4f}"


def _efforts(results: list[Result]) -> list[Line]:
    """What the runs did and sent."""
    traffic = [f"{r['bytes_up'] / 1e6:.1f} / {r['bytes_down'] / 1e6:.1f}" for r in results]
    return [
        ("rounds", [str(r["rounds"]) for r in results]),
        ("seed", [str(r["seed"]) for r in results]),
        ("MB up / down", traffic),
        ("seconds", [f"{r['seconds']:.1f}" for r in results]),
    ]


def _times(rounds: list[pd.DataFrame]) -> list[Line]:
    """Seconds on both sides."""
    server = [r["seconds_aggregate"].mean() for r in rounds]
    return [
        ("seconds of a client a round", [_of_a_client(r) for r in rounds]),
        ("seconds at the server a round", [f"{s:.3f}" for s in server]),
    ]


def _of_a_client(rounds: pd.DataFrame) -> str:
    """Seconds that a client computed in a round; "" where none took part (server_only)."""
    return f"{rounds['seconds_client'].mean():.3f}" if "seconds_client" in rounds else ""


def _to_target(rounds: list[pd.DataFrame], metric: str, target: Goal) -> list[Line]:
    """What it took until the metric reached the target."""
    reached = [up_to(r, metric, target) for r in rounds]
    counts = ["never" if r is None else str(len(r)) for r in reached]
    seconds = ["" if r is None else f"{r['seconds'].sum():.1f}" for r in reached]
    return [(f"rounds to {target}", counts), (f"seconds to {target}", seconds)]


def _draw(runs: dict[str, pd.DataFrame], metric: str, plot: Path) -> None:
    """Write the curves of ``metric`` as a picture, and their data beside it as CSV."""
    columns = _columns(runs, metric)
    labels = {c: c.removeprefix(metric) for c in columns}
    draw = plots.curves if len(labels) == 1 else plots.panels
    figure = draw(runs, labels, metric.strip("/").replace("_", " "))
    tables = [t[["round", *columns]].dropna().assign(run=name) for name, t in runs.items()]
    write_picture(figure, plot, pd.concat(tables))


def _columns(runs: dict[str, pd.DataFrame], metric: str) -> list[str]:
    """The columns that ``metric`` names; raises UserError unless all runs have them."""
    first, *others = runs.values()
    common = [str(c) for c in first if all(c in t for t in others)]
    # gradient_norm/ is one column for each layer
    family = metric.endswith("/")
    chosen = [c for c in common if c.startswith(metric)] if family else [metric]
    if not chosen or chosen[0] not in common:
        raise UserError(f"the runs do not all report {metric!r}; {nearest(metric, common)}")
    return chosen
