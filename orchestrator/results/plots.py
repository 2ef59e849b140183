"""Figures of runs, as matplotlib figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

SIZE = (6.4, 3.6)


def curves(runs: Mapping[str, pd.DataFrame], columns: Mapping[str, str], ylabel: str) -> Figure:
    """Columns of the runs' round tables over rounds; rounds without a value are passed over."""
    # without pyplot: nothing is global, and no display is needed
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.add_subplot()
    for run, rounds in runs.items():
        for column, label in columns.items():
            if column in rounds:
                known = rounds[["round", column]].dropna()
                axes.plot(
                    known["round"],
                    known[column],
                    label=_shown(f"{run} {label}".strip()),
                    linewidth=1.4,
                )
    axes.set_xlabel("round")
    axes.set_ylabel(ylabel)
    axes.grid(alpha=0.3)
    if axes.has_data():
        axes.legend(fontsize=8)
    return figure


def bands(groups: Mapping[str, Sequence[pd.DataFrame]], column: str, ylabel: str) -> Figure:
    """A column over rounds: for each group of runs the mean, and where there are several a band of
    one standard error to either side; over the rounds that all of its runs report.
    """
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.add_subplot()
    for name, runs in groups.items():
        known = [one.set_index("round")[column].dropna() for one in runs if column in one]
        if not known:
            continue
        table = pd.concat(known, axis=1, join="inner")
        mean, error = table.mean(axis=1), table.sem(axis=1).fillna(0.0)
        (line,) = axes.plot(table.index, mean, label=_shown(name), linewidth=1.4)
        if table.shape[1] > 1:
            low, high = mean - error, mean + error
            axes.fill_between(
                table.index, low, high, color=line.get_color(), alpha=0.2, linewidth=0
            )
    axes.set_xlabel("round")
    axes.set_ylabel(ylabel)
    axes.grid(alpha=0.3)
    if axes.has_data():
        axes.legend(fontsize=8)
    return figure


def _shown(name: str) -> str:
    """A name in a legend, where matplotlib leaves out those that begin with an underscore."""
    return f" {name}" if name.startswith("_") else name


def panels(runs: Mapping[str, pd.DataFrame], columns: Mapping[str, str], ylabel: str) -> Figure:
    """Many columns over rounds: a panel for each run, on one scale."""
    width, height = SIZE
    figure = Figure(figsize=(0.55 * width * len(runs), height), layout="constrained")
    places = figure.subplots(1, len(runs), sharey=True, squeeze=False)[0]
    for axes, (run, rounds) in zip(places, runs.items(), strict=True):
        for column, label in columns.items():
            known = rounds[["round", column]].dropna()
            axes.plot(known["round"], known[column], label=label, linewidth=1.2)
        axes.set_title(run, fontsize=9)
        axes.set_xlabel("round")
        axes.grid(alpha=0.3)
    places[0].set_ylabel(ylabel)
    places[-1].legend(fontsize=8)
    return figure


def label_map(histogram: np.ndarray) -> Figure:
    """Training rows per client (horizontal) and label (vertical) as a heat map."""
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(histogram.T, aspect="auto", cmap="viridis", interpolation="nearest")
    figure.colorbar(image, label="training rows")
    axes.set_xlabel("client")
    axes.set_ylabel("label")
    return figure


def landscape(data: pd.DataFrame, dims: int) -> Figure:
    """Mean loss over seeds around runs (columns run, seed, x0, x1, loss): curves on one plot, each
    seed's beside them, or contours.
    """
    runs = list(dict.fromkeys(data["run"]))
    width, height = SIZE
    figure = Figure(
        figsize=SIZE if dims == 1 else (0.6 * width * len(runs) + 1, height), layout="constrained"
    )
    if dims == 1:
        axes = figure.add_subplot()
        for run in runs:
            each = data[data["run"] == run].pivot(index="x0", columns="seed", values="loss")
            (line,) = axes.plot(each.index, each.mean(axis=1), label=_shown(run), linewidth=1.4)
            if each.shape[1] > 1:
                axes.plot(each.index, each, color=line.get_color(), linewidth=0.5, alpha=0.5)
        axes.set_xlabel("distance along the direction")
        axes.set_ylabel("loss")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
        return figure
    data = data.groupby(["run", "x0", "x1"], sort=False)["loss"].mean().reset_index()
    # losses near a minimum and far from it differ by orders of magnitude; 0 has no logarithm
    logs = np.log10(data["loss"].clip(lower=1e-6))
    # a little above the highest, for levels must rise even where the loss does not
    levels = np.linspace(logs.min(), logs.max() + 1e-9, 25)
    panels = figure.subplots(1, len(runs), squeeze=False)[0]
    for axes, run in zip(panels, runs, strict=True):
        table = data[data["run"] == run].pivot(index="x1", columns="x0", values="loss")
        heights = np.log10(np.clip(table.to_numpy(), 1e-6, None))
        image = axes.contourf(
            table.columns.to_numpy(), table.index.to_numpy(), heights, levels, cmap="viridis"
        )
        axes.set_title(run, fontsize=8)
        axes.set_aspect("equal")
    figure.colorbar(image, ax=list(panels), label="log10 loss")
    return figure


def steps_map(grid: pd.DataFrame, said: str = "") -> Figure:
    """Best number of local steps: SNR in dB (index) by bandwidth in Hz (columns); over it what is
    ``said`` of it.
    """
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(grid.to_numpy(float), aspect="auto", cmap="viridis")
    axes.set_xticks(range(grid.shape[1]), [f"{b:g}" for b in grid.columns])
    axes.set_yticks(range(grid.shape[0]), [f"{s:g}" for s in grid.index])
    for (row, column), value in np.ndenumerate(grid.to_numpy(float)):
        axes.text(column, row, f"{value:g}", ha="center", va="center", color="white")
    figure.colorbar(image, label="local steps τ")
    axes.set_title(said, fontsize=8)
    axes.set_xlabel("bandwidth (Hz)")
    axes.set_ylabel("SNR (dB)")
    return figure
