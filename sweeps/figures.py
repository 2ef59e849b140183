"""A paper's figure from a sweep's results: the picture, and its data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from scipy.stats import gaussian_kde

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
    panels = _panels(entry, data)
    figure = Figure(figsize=(SIZE[0] * len(panels), SIZE[1]), layout="constrained")
    for place, (title, part) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        place.set_title(title, fontsize=8)
        place.grid(alpha=0.3)
        DRAWN[entry.figure](place, part)
        if place.get_legend_handles_labels()[1]:
            place.legend(fontsize=7)
    return figure, data


def _panels(entry: Entry, data: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Title -> the part of the data that is drawn under it."""
    columns = list(dict.fromkeys(data["column"]))
    if entry.figure == "curves" and columns:
        return {c: data[data["column"] == c] for c in columns}
    if entry.figure == "clouds":
        pairs = zip(columns[::2], columns[1::2], strict=True)
        return {f"{a} and {b}": data[data["column"].isin((a, b))] for a, b in pairs}
    return {entry.title: data}


def _curves(place: Axes, data: pd.DataFrame) -> None:
    for row, line in data.groupby("row", sort=False):
        place.plot(line["round"], line["mean"], label=row, linewidth=1.3)
    place.set_xlabel("round")


def _axis(place: Axes, data: pd.DataFrame) -> None:
    for row, line in data.groupby("row", sort=False):
        place.errorbar(line["column"], line["mean"], line["standard_error"], label=row, marker="o", capsize=2)
    place.tick_params(axis="x", rotation=45)


def _pairs(place: Axes, data: pd.DataFrame) -> pd.DataFrame:
    """Each row's values in the first two columns, which the axes are named after."""
    first, second = list(dict.fromkeys(data["column"]))[:2]
    place.set_xlabel(first)
    place.set_ylabel(second)
    wide = data.pivot(index="row", columns="column", values="mean")
    return wide.loc[list(dict.fromkeys(data["row"])), [first, second]].dropna()


def _scatter(place: Axes, data: pd.DataFrame) -> None:
    for row, pair in _pairs(place, data).iterrows():
        place.scatter(pair.iloc[0], pair.iloc[1], label=row, s=18)


def _clouds(place: Axes, data: pd.DataFrame) -> None:
    """A point a run on logarithmic axes, over the density of each strategy's runs (first word of the row)."""
    place.set_xscale("log")
    place.set_yscale("log")
    pairs = _pairs(place, data)
    for number, (strategy, runs) in enumerate(pairs.groupby(pairs.index.str.split(" ").str[0], sort=False)):
        color = f"C{number}"
        points = np.log10(runs.to_numpy(float).T)
        place.scatter(10 ** points[0], 10 ** points[1], label=strategy, s=12, color=color)
        if points.shape[1] > 3 and np.linalg.matrix_rank(np.cov(points)) == 2:
            across, up = (np.linspace(v.min() - 0.3, v.max() + 0.3, 60) for v in points)
            density = gaussian_kde(points)(np.stack(np.meshgrid(across, up)).reshape(2, -1)).reshape(60, 60)
            levels = density.max() * np.array([0.1, 0.3, 0.5, 0.7, 0.9, 1.0])
            shades = [to_rgba(color, alpha) for alpha in (0.1, 0.2, 0.3, 0.4, 0.5)]
            place.contourf(10**across, 10**up, density, levels=levels, colors=shades)


DRAWN: dict[str, Callable[[Axes, pd.DataFrame], None]] = {
    "curves": _curves, "axis": _axis, "scatter": _scatter, "clouds": _clouds,
}  # fmt: skip
