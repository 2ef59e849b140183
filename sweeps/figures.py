"""A paper's figure from a sweep's results: the picture, and its data."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from sweeps.entry import Entry
from sweeps.reproduction import Values, labels
from sweeps.results import by_trial
from sweeps.tables import numbers

SIZE = (5.2, 3.6)


def curves(entry: Entry, budget: str, folder: Path) -> pd.DataFrame:
    """Metrics over rounds, mean over seeds: row, column, round, mean, standard error, seeds."""
    results, pieces = by_trial(folder), []
    seeds = sorted({seed for _, seed in results})
    for (row, column), label in labels(entry, budget).items():
        metric, scale = entry.columns[column].metric, entry.columns[column].scale
        ended = [results[label, seed] for seed in seeds if (label, seed) in results]
        for result in ended:
            rounds = None if result.status == "failed" else result.folder.rounds()
            if rounds is not None and metric in rounds:
                one = rounds[["round", metric]].dropna().rename(columns={metric: "value"})
                pieces.append(one.assign(row=row, column=column, value=scale * one["value"]))
    if not pieces:
        return pd.DataFrame(columns=["row", "column", "round", "mean", "standard_error", "seeds"])
    grouped = pd.concat(pieces).groupby(["row", "column", "round"], sort=False)["value"]
    table = grouped.agg(["mean", "sem", "count"]).reset_index()
    return table.rename(columns={"sem": "standard_error", "count": "seeds"})


def draw(entry: Entry, budget: str, values: Values, folder: Path) -> tuple[Figure, pd.DataFrame]:
    """The figure of an entry and its data."""
    data = curves(entry, budget, folder) if entry.figure == "curves" else numbers(entry, budget, values)
    panels = list(dict.fromkeys(data["column"])) if entry.figure == "curves" else [entry.title]
    figure = Figure(figsize=(SIZE[0] * max(1, len(panels)), SIZE[1]), layout="constrained")
    axes = figure.subplots(1, max(1, len(panels)), squeeze=False)[0]
    for place, panel in zip(axes, panels, strict=False):
        place.set_title(panel, fontsize=8)
        place.grid(alpha=0.3)
        part = data[data["column"] == panel] if entry.figure == "curves" else data
        for row in dict.fromkeys(part["row"]):
            line = part[part["row"] == row]
            if entry.figure == "curves":
                place.plot(line["round"], line["mean"], label=row, linewidth=1.3)
                place.set_xlabel("round")
            elif entry.figure == "scatter":
                first, second = list(dict.fromkeys(data["column"]))[:2]
                pair = [line[line["column"] == c]["mean"] for c in (first, second)]
                place.scatter(*pair, label=row, s=18)
                place.set_xlabel(first)
                place.set_ylabel(second)
            else:
                place.errorbar(line["column"], line["mean"], line["standard_error"], label=row, marker="o", capsize=2)
                place.tick_params(axis="x", rotation=45)
        if place.has_data():
            place.legend(fontsize=7)
    return figure, data
