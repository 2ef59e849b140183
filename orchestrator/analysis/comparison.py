"""Runs side by side."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from rich.table import Table

from algorithms.part import nearest
from orchestrator.analysis.names import told_apart
from orchestrator.config.goal import Goal, up_to
from orchestrator.errors import UserError
from orchestrator.results import plots
from orchestrator.results.run_folder import RunFolder
from orchestrator.terminal import HEADLINES, console


def show_comparison(
    folders: list[RunFolder], plot: Path | None, metric: str, target: Goal | None = None
) -> None:
    """A table of the runs' last metrics, and (if asked for) the curves of one metric: a picture and
    its data.

    With ``target`` also the rounds and seconds until the metric reached it. A metric that ends in
    "/" is all columns that begin so (``gradient_norm/``).
    """
    results = [f.result() for f in folders]
    failed = [f.place for f, r in zip(folders, results, strict=True) if r["status"] == "failed"]
    if failed:
        raise UserError(f"the run in {failed[0]} failed and has no metrics to compare")
    names = told_apart(folders, [r["name"] for r in results])
    table = Table("metric", *names)
    for key, label in HEADLINES.items():
        if any(key in r["metrics"] for r in results):
            table.add_row(
                label, *[f"{r['metrics'][key]:.4f}" if key in r["metrics"] else "" for r in results]
            )
    table.add_row("rounds", *[str(r["rounds"]) for r in results])
    table.add_row("seed", *[str(r["seed"]) for r in results])
    table.add_row(
        "MB up / down",
        *[f"{r['bytes_up'] / 1e6:.1f} / {r['bytes_down'] / 1e6:.1f}" for r in results],
    )
    table.add_row("seconds", *[f"{r['seconds']:.1f}" for r in results])
    rounds = [f.rounds() for f in folders]
    each = [r["seconds_train"].sum() / r["cohort"].sum() for r in rounds]
    table.add_row("seconds of training a client and round", *[f"{s:.3f}" for s in each])
    table.add_row(
        "seconds at the server a round", *[f"{r['seconds_aggregate'].mean():.3f}" for r in rounds]
    )
    if target is not None:
        reached = [up_to(r, metric, target) for r in rounds]
        table.add_row(
            f"rounds to {target}", *["never" if r is None else str(len(r)) for r in reached]
        )
        table.add_row(
            f"seconds to {target}",
            *["" if r is None else f"{r['seconds'].sum():.1f}" for r in reached],
        )
    console.print(table)
    if plot is not None:
        tables = dict(zip(names, rounds, strict=True))
        common = set.intersection(*({str(c) for c in t} for t in tables.values()))
        known = [str(c) for c in rounds[0] if c in common]
        chosen = [c for c in known if c.startswith(metric)] if metric.endswith("/") else [metric]
        if not chosen or chosen[0] not in known:
            raise UserError(f"the runs do not all report {metric!r}; {nearest(metric, known)}")
        labels = {c: c.removeprefix(metric) for c in chosen}
        draw = plots.curves if len(labels) == 1 else plots.panels
        draw(tables, labels, metric.strip("/").replace("_", " ")).savefig(plot, dpi=130)
        data = pd.concat(
            [t[["round", *chosen]].dropna().assign(run=name) for name, t in tables.items()]
        )
        data.to_csv(plot.with_suffix(".csv"), index=False)
        console.print(f"wrote {plot} and {plot.with_suffix('.csv')}", highlight=False)
