"""A paper's figure from a sweep's results: the picture, and its data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import fill

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from scipy.stats import gaussian_kde

from sweeps.entry import Entry
from sweeps.reproduction import Values, labels
from sweeps.results import by_trial
from sweeps.rules import Line, lines
from sweeps.tables import numbers

SIZE = (5.2, 3.6)
"""Of a panel, in inches."""
ABREAST = 4
COLORS = [colormaps["tab20"](number) for number in range(20)]
"""For panels with more rows than matplotlib has colours."""
DECADES = 100
"""Ratio of an axis' ends from which on it is logarithmic."""


def curves(entry: Entry, budget: str, folder: Path) -> pd.DataFrame:
    """Metrics over rounds, mean over seeds: row, column, round, place on the x axis, mean, standard
    error, seeds.
    """
    results, pieces = by_trial(folder), []
    seeds = sorted({seed for _, seed in results})
    for (row, column), label in labels(entry, budget).items():
        metric, scale = entry.columns[column].metric, entry.columns[column].scale
        ended = [results[label, seed] for seed in seeds if (label, seed) in results]
        for result in ended:
            rounds = None if result.status == "failed" else result.folder.rounds()
            if rounds is not None and metric in rounds:
                known = rounds[rounds[metric].notna()]
                one = {
                    "round": known["round"],
                    "over": known[entry.over],
                    "value": scale * known[metric],
                }
                pieces.append(pd.DataFrame({"row": row, "column": column, **one}))
    if not pieces:
        return pd.DataFrame(
            columns=["row", "column", "round", "over", "mean", "standard_error", "seeds"]
        )
    grouped = pd.concat(pieces).groupby(["row", "column", "round"], sort=False)
    return grouped.agg(
        over=("over", "mean"),
        mean=("value", "mean"),
        standard_error=("value", "sem"),
        seeds=("value", "count"),
    ).reset_index()


def draw(entry: Entry, budget: str, values: Values, folder: Path) -> tuple[Figure, pd.DataFrame]:
    """The figure of an entry and its data."""
    data = (
        curves(entry, budget, folder)
        if entry.figure == "curves"
        else numbers(entry, budget, values)
    )
    panels = _panels(entry, data)
    across, down = min(ABREAST, len(panels)), -(-len(panels) // ABREAST)
    figure = Figure(figsize=(SIZE[0] * across, SIZE[1] * down), layout="constrained")
    for number, (title, part) in enumerate(panels.items(), start=1):
        place = figure.add_subplot(down, across, number)
        place.set_title(fill(title, 48), fontsize=8)
        place.grid(alpha=0.3)
        if part["row"].nunique() > len(COLORS) // 2:
            place.set_prop_cycle(color=COLORS)
        if entry.rule is not None:
            _rule(place, lines(entry, values))
        else:
            DRAWN[entry.figure](place, part)
        if entry.figure == "curves":
            place.set_xlabel(entry.over.replace("_", " "))
        if entry.logarithmic and (part["mean"] > 0).any():
            place.set_yscale("log")
    named = {
        name: line
        for place in figure.axes
        for line, name in zip(*place.get_legend_handles_labels(), strict=True)
    }
    if named:
        figure.legend(named.values(), named, loc="outside right upper", fontsize=7)
    return figure, data


def _panels(entry: Entry, data: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Title -> the part of the data that is drawn under it."""
    columns = list(dict.fromkeys(data["column"]))
    if entry.figure == "curves" and columns:
        return {c: data[data["column"] == c] for c in columns}
    if entry.figure == "clouds":
        pairs = zip(columns[::2], columns[1::2], strict=True)
        return {f"{a} and {b}": data[data["column"].isin((a, b))] for a, b in pairs}
    if entry.figure == "axis":  # "IID, GB, K=5" is the point K=5 of the panel "IID, GB"
        above, points = (
            data["column"].str.rpartition(", ")[0],
            data["column"].str.rpartition(", ")[2],
        )
        return {
            a or entry.title: data[above == a].assign(column=points[above == a])
            for a in above.unique()
        }
    return {entry.title: data}


def _curves(place: Axes, data: pd.DataFrame) -> None:
    for row, line in data.groupby("row", sort=False):
        place.plot(line["over"], line["mean"], label=row, linewidth=1.3)


def _axis(place: Axes, data: pd.DataFrame) -> None:
    """Points named "K=5" are drawn at 5, others beside each other."""
    named = data["column"].str.extract(r"^(\S+)=(\S+)$")
    values = pd.to_numeric(named[1], errors="coerce")
    measured = values.notna().all()
    data = data.assign(at=values if measured else data["column"])
    for row, line in data.groupby("row", sort=False):
        place.errorbar(
            line["at"], line["mean"], line["standard_error"], label=row, marker="o", capsize=2
        )
    if not measured:
        place.tick_params(axis="x", rotation=45)
        return
    place.set_xlabel(named[0].iloc[0])
    if values.min() > 0 and values.max() >= DECADES * values.min():
        place.set_xscale("log")


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
    """A point a run on logarithmic axes, over the density of each strategy's runs (first word of
    the row).
    """
    place.set_xscale("log")
    place.set_yscale("log")
    pairs = _pairs(place, data)
    for number, (strategy, runs) in enumerate(
        pairs.groupby(pairs.index.str.split(" ").str[0], sort=False)
    ):
        color = f"C{number}"
        points = np.log10(runs.to_numpy(float).T)
        place.scatter(10 ** points[0], 10 ** points[1], label=strategy, s=12, color=color)
        if points.shape[1] > 3 and np.linalg.matrix_rank(np.cov(points)) == 2:
            across, up = (np.linspace(v.min() - 0.3, v.max() + 0.3, 60) for v in points)
            density = gaussian_kde(points)(
                np.stack(np.meshgrid(across, up)).reshape(2, -1)
            ).reshape(60, 60)
            levels = density.max() * np.array([0.1, 0.3, 0.5, 0.7, 0.9, 1.0])
            shades = [to_rgba(color, alpha) for alpha in (0.1, 0.2, 0.3, 0.4, 0.5)]
            place.contourf(10**across, 10**up, density, levels=levels, colors=shades)


def _rule(place: Axes, found: list[Line]) -> None:
    """Each setting's points, the line through them, and the paper's, dotted."""
    place.set_xscale("log")
    place.set_yscale("log")
    place.set_xlabel("parameters d")
    place.set_ylabel("Θ")
    for number, line in enumerate(found):
        if not line.points:
            continue
        x, y = np.array(list(line.points.values())).T
        ends = np.array([x.min() / 2, 2 * x.max()])
        place.scatter(x, y, color=f"C{number}", s=24, alpha=0.7)
        place.plot(
            ends, line.slope * ends, color=f"C{number}", label=f"{line.setting}: {line.slope:.3g} d"
        )
        place.plot(
            ends,
            line.published * ends,
            ":",
            color=f"C{number}",
            label=f"published {line.published:.3g} d",
        )


DRAWN: dict[str, Callable[[Axes, pd.DataFrame], None]] = {
    "curves": _curves, "axis": _axis, "scatter": _scatter, "clouds": _clouds,
}  # fmt: skip
