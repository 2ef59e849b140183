"""A paper's figure from a sweep's results: the picture, and its data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from textwrap import fill

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from scipy.stats import gaussian_kde

from orchestrator.results.run_folder import RunFolder
from sweeps.entry import Column, Entry, Values
from sweeps.reproduction import Reproduction
from sweeps.results import Result, by_trial
from sweeps.rules import Line, lines
from sweeps.tables import conditions, numbers

SIZE = (5.2, 3.6)
"""Of a panel, in inches."""
WORDS = 72
"""Characters of a line under a panel."""
ABREAST = 4
COLORS = [colormaps["tab20"](number) for number in range(20)]
"""For panels with more rows than matplotlib has colours."""
DECADES = 100
"""Ratio of an axis' ends from which on it is logarithmic."""
LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
"""Parts of a density's maximum between which a cloud has one shade."""
SHADES = (0.1, 0.2, 0.3, 0.4, 0.5)
MARGIN, FINENESS = 0.3, 60
"""Decades that a cloud's density is computed beyond its points, and values on each side."""
NAMED = 3
"""Rows that a title names of those with fewer seeds."""
NO_COURSE = pd.DataFrame({"round": [pd.NA], "over": [np.nan], "value": [np.nan]}).astype(
    {"round": "Int64"}
)
"""Of a cell without any run that has numbers."""


def curves(one: Reproduction, folder: Path) -> pd.DataFrame:
    """Metrics over rounds, mean over seeds: row, column, round, place on the x axis, mean, standard
    error, seeds, and how many of them have a number there. What has none anywhere is one line
    that says so.
    """
    results, pieces = by_trial(folder), []
    seeds = sorted({seed for _, seed in results})
    for (row, column), label in one.labels.items():
        ended = [results[label, seed] for seed in seeds if (label, seed) in results]
        of = one.entry.columns[column]
        courses = [_course(result, of, one.entry.over) for result in ended]
        known = [course for course in courses if course is not None]
        for course in known or [NO_COURSE]:
            pieces.append(course.assign(row=row, column=column, seeds=len(ended)))
    grouped = pd.concat(pieces).groupby(["row", "column", "round"], sort=False, dropna=False)
    return grouped.agg(
        over=("over", "mean"),
        mean=("value", "mean"),
        standard_error=("value", "sem"),
        seeds=("seeds", "first"),
        known=("value", "count"),
    ).reset_index()


def _known(data: pd.DataFrame) -> pd.DataFrame:
    """A table's numbers, with how many seeds a mean is of (``known``)."""
    lost = data["missed"] + data["diverged"]
    return data.assign(known=(data["seeds"] - lost).where(data["mean"].notna(), 0))


def sound(one: Reproduction, folder: Path) -> dict[str, list[RunFolder]]:
    """Row -> its trials that have ended in a model, by seed; rows without one are left out."""
    results, rows = by_trial(folder), dict[str, list[RunFolder]]()
    for (label, _), result in sorted(results.items(), key=lambda item: item[0][1]):
        (row,) = {row for (row, _), own in one.labels.items() if own == label}
        if result.status == "finished" and not result.diverged:
            rows.setdefault(row, []).append(result.folder)
    return {row: rows[row] for row in one.rows if row in rows}


def _course(result: Result, column: Column, over: str) -> pd.DataFrame | None:
    """A run's rounds that report the column's metric: round, over, value; None if none does."""
    if not result.has(column.metric):
        return None
    rounds = result.rounds
    if column.metric not in rounds:
        return None
    known = rounds[rounds[column.metric].notna()]
    value = column.scale * known[column.metric]
    return pd.DataFrame({"round": known["round"], "over": known[over], "value": value})


def draw(one: Reproduction, values: Values, folder: Path) -> tuple[Figure, pd.DataFrame]:
    """The figure of an entry and its data; curves, and what runs have left, are read from
    ``folder``. Both say what is not as in the paper.
    """
    said = conditions(one)
    if one.entry.drawn is None:
        figure, data = _of_numbers(one, values, folder)
    else:
        runs = sound(one, folder)
        figure, data = one.entry.drawn(runs) if runs else (Figure(), pd.DataFrame())
        said += _gone(one, runs)
    if said and figure.axes:
        width = figure.get_figwidth() / SIZE[0]
        # below all: the legend is beside a title
        figure.supxlabel(fill("; ".join(said), int(WORDS * width)), fontsize=7)
    return figure, data.assign(conditions="; ".join(said)) if said else data


def _gone(one: Reproduction, runs: Mapping[str, Sequence[RunFolder]]) -> list[str]:
    """Of a picture of what ``runs`` have left: which rows are of fewer seeds."""
    seeds = len(one.budget.seeds)
    short = {row: len(runs.get(row, [])) for row in one.rows}
    lost = [f"{row} ({many} of {seeds})" for row, many in short.items() if many < seeds]
    return [f"seeds that ended in a model: {', '.join(lost)}"] if lost else []


def _of_numbers(one: Reproduction, values: Values, folder: Path) -> tuple[Figure, pd.DataFrame]:
    entry = one.entry
    data = curves(one, folder) if entry.figure == "curves" else _known(numbers(one, values))
    panels = _panels(entry, data)
    across, down = min(ABREAST, len(panels)), -(-len(panels) // ABREAST)
    figure = Figure(figsize=(SIZE[0] * across, SIZE[1] * down), layout="constrained")
    for number, (title, part) in enumerate(panels.items(), start=1):
        place = _place(figure, (down, across, number), title, part)
        if entry.picture == "rule":
            _rule(place, lines(entry, values))
        else:
            DRAWN[entry.picture](place, part, entry)
        if entry.logarithmic and (part["mean"] > 0).any():
            place.set_yscale("log")
    _legend(figure)
    return figure, data


def _place(figure: Figure, where: tuple[int, int, int], title: str, part: pd.DataFrame) -> Axes:
    """An empty panel at (lines, columns, number), with colours for the rows of ``part``."""
    place = figure.add_subplot(*where)
    place.set_title(fill(f"{title}{_lost(part)}", 48), fontsize=8)
    place.grid(alpha=0.3)
    if part["row"].nunique() > len(COLORS) // 2:
        place.set_prop_cycle(color=COLORS)
    return place


def _lost(part: pd.DataFrame) -> str:
    """What a title says of rows with a mean of fewer seeds than the most: survivors look better."""
    most = part["seeds"].max()
    short = part[part["known"] < most]
    each = short.sort_values("known").groupby("row", sort=False)["known"].first()
    lost = [f"{row} ({known} of {most})" for row, known in each.items()]
    more = f" and {len(lost) - NAMED} more" if len(lost) > NAMED else ""
    return f"; means of fewer seeds: {', '.join(lost[:NAMED])}{more}" if lost else ""


def _legend(figure: Figure) -> None:
    """One legend beside all panels: a row has the same colour in each."""
    named = {
        name: line
        for place in figure.axes
        for line, name in zip(*place.get_legend_handles_labels(), strict=True)
    }
    if named:
        figure.legend(named.values(), named, loc="outside right upper", fontsize=7)


def _panels(entry: Entry, data: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Title -> the part of the data that is drawn under it."""
    columns = list(dict.fromkeys(data["column"]))
    if entry.figure == "curves" and columns:
        return {c: data[data["column"] == c] for c in columns}
    if entry.figure == "clouds":
        pairs = zip(columns[::2], columns[1::2], strict=True)
        return {f"{a} and {b}": data[data["column"].isin((a, b))] for a, b in pairs}
    if entry.figure == "axis":
        panel = data["column"].map(lambda name: entry.columns[name].panel)
        return {title or entry.title: data[panel == title] for title in panel.unique()}
    return {entry.title: data}


def _curves(place: Axes, data: pd.DataFrame, entry: Entry) -> None:
    for row, line in data.groupby("row", sort=False):
        drawn = place.plot(line["over"], line["mean"], label=row, linewidth=1.3)
        band = line["mean"] - line["standard_error"], line["mean"] + line["standard_error"]
        place.fill_between(line["over"], *band, color=drawn[0].get_color(), alpha=0.2, linewidth=0)
    place.set_xlabel(entry.over.replace("_", " "))


def _axis(place: Axes, data: pd.DataFrame, entry: Entry) -> None:
    """Points whose x are numbers are drawn there, others beside each other."""
    known = {name: entry.columns[name].x for name in data["column"]}
    at = data["column"].map({name: name if x is None else x for name, x in known.items()})
    for row, line in data.assign(at=at).groupby("row", sort=False):
        place.errorbar(
            line["at"], line["mean"], line["standard_error"], label=row, marker="o",
            capsize=2,
        )  # fmt: skip
    if not pd.api.types.is_numeric_dtype(at):
        place.tick_params(axis="x", rotation=45)
        return
    place.set_xlabel(entry.along)
    if at.min() > 0 and at.max() >= DECADES * at.min():
        place.set_xscale("log")


def _pairs(place: Axes, data: pd.DataFrame) -> pd.DataFrame:
    """Each row's values in the first two columns, which the axes are named after."""
    first, second = list(dict.fromkeys(data["column"]))[:2]
    place.set_xlabel(first)
    place.set_ylabel(second)
    wide = data.pivot(index="row", columns="column", values="mean")
    return wide.loc[list(dict.fromkeys(data["row"])), [first, second]].dropna()


def _scatter(place: Axes, data: pd.DataFrame, entry: Entry) -> None:
    for row, pair in _pairs(place, data).iterrows():
        place.scatter(pair.iloc[0], pair.iloc[1], label=row, s=18)


def _clouds(place: Axes, data: pd.DataFrame, entry: Entry) -> None:
    """A point a run on logarithmic axes, over the density of each strategy's runs."""
    place.set_xscale("log")
    place.set_yscale("log")
    pairs = _pairs(place, data)
    strategies = [entry.strategies.get(row, row) for row in pairs.index]
    for number, (strategy, runs) in enumerate(pairs.groupby(strategies, sort=False)):
        points = np.log10(runs.to_numpy(float).T)
        place.scatter(10 ** points[0], 10 ** points[1], label=strategy, s=12, color=f"C{number}")
        # a density needs points that do not lie on one line
        if points.shape[1] > 3 and np.linalg.matrix_rank(np.cov(points)) == 2:
            _density(place, points, f"C{number}")


def _density(place: Axes, points: np.ndarray, color: str) -> None:
    """Shades where ``points`` (2 x runs, in decades) are dense."""
    across, up = (np.linspace(v.min() - MARGIN, v.max() + MARGIN, FINENESS) for v in points)
    grid = np.stack(np.meshgrid(across, up)).reshape(2, -1)
    density = gaussian_kde(points)(grid).reshape(FINENESS, FINENESS)
    shades = [to_rgba(color, alpha) for alpha in SHADES]
    levels = density.max() * np.array(LEVELS)
    place.contourf(10**across, 10**up, density, levels=levels, colors=shades)


def _rule(place: Axes, found: list[Line]) -> None:
    """Each setting's points, the line through them, and the paper's, dotted."""
    place.set_xscale("log")
    place.set_yscale("log")
    place.set_xlabel("parameters d")
    place.set_ylabel("Θ")
    for number, line in enumerate(found):
        if line.points:
            _line(place, line, f"C{number}")


def _line(place: Axes, line: Line, color: str) -> None:
    x, y = np.array([(point.x, point.y) for point in line.points.values()]).T
    ends = np.array([x.min() / 2, 2 * x.max()])
    ours, theirs = f"{line.setting}: {line.slope:.3g} d", f"published {line.published:.3g} d"
    place.scatter(x, y, color=color, s=24, alpha=0.7)
    place.plot(ends, line.slope * ends, color=color, label=ours)
    place.plot(ends, line.published * ends, ":", color=color, label=theirs)


DRAWN: dict[str, Callable[[Axes, pd.DataFrame, Entry], None]] = {
    "curves": _curves, "axis": _axis, "scatter": _scatter, "clouds": _clouds,
}  # fmt: skip
