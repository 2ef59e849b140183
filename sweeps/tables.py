"""A paper's table with measured numbers beside the published ones, for a terminal, Markdown, CSV,
HTML or LaTeX.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pandas as pd

from orchestrator.analysis.comparison import standard_error
from orchestrator.analysis.written import Written, tell_beside
from orchestrator.files import json_text
from sweeps.claims import differences, summaries
from sweeps.entry import Column, Diverged, Entry, Published, Values
from sweeps.reproduction import UNTUNED_BUDGET, Reproduction
from sweeps.rules import lines

Format = Literal["terminal", "markdown", "csv", "html", "latex", "json"]
FOR_PROGRAMS = ("csv", "json")
"""Those that come without a figure's picture."""
PAIRS = (
    "Pairs behind the claims (same seeds; two-sided paired t-test, or signed ranks where a run "
    "missed, or signs where all differ by the same; none where both have one number each on all "
    "seeds, but for counts of what it took to a target; Holm's correction within a claim):"
)


SMOKE = (
    "smoke: checks that it runs, and says nothing of the paper's claims; published numbers stand "
    "beside those of larger budgets"
)


@dataclass(frozen=True)
class Number:
    """A cell: what was measured, what the paper says."""

    row: str
    column: str
    mean: float
    """Over the seeds that have a number; NaN without one, as everywhere below."""
    standard_error: float
    seeds: int
    missed: int
    """Seeds that did not reach the target, but for those that diverged."""
    diverged: int
    """Seeds whose run ended in NaN or infinity, whether it has a number or not."""
    published: float
    published_spread: float
    difference: float
    note: str


def numbers(one: Reproduction, values: Values, diverged: Diverged | None = None) -> pd.DataFrame:
    """One row a cell, with ``Number``'s fields as columns."""
    cells = [
        _number(one.entry, row, column, values, (diverged or {}).get((row, column), ()))
        for row, column in one.labels
    ]
    return pd.DataFrame([vars(cell) for cell in cells])


def _number(
    entry: Entry, row: str, column: str, values: Values, diverged: Collection[int]
) -> Number:
    published = entry.published.get((row, column), Published(None))
    # what a method does not have (a global model) its runs may report all the same
    measured = values.get((row, column), {}) if published.exists else {}
    known = np.array([value for value in measured.values() if math.isfinite(value)])
    gone = [seed for seed in measured if seed in diverged]
    missed = [s for s, value in measured.items() if not math.isfinite(value) and s not in gone]
    mean = float(known.mean()) if len(known) else math.nan
    said = _or_nan(published.value)
    return Number(
        row, column, mean, standard_error(known), len(measured), len(missed), len(gone),
        said, _or_nan(published.spread), mean - said, published.note,
    )  # fmt: skip


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


def _spread(data: pd.DataFrame, planned: int) -> str:
    """What a cell's numbers are, and of how many seeds, of those that are ``planned``: the most
    that a cell has.
    """
    most = int(data["seeds"].max()) if len(data) else 0
    if not most:
        return f"nothing so far, of {planned} seeds"
    some = f" of {planned} seeds so far, which may change what holds" if most < planned else ""
    if most < 2:
        return f"one seed{some and f' of {planned} so far'}, no spread"
    return f"mean ± standard error of it, {most}{some or ' seeds'}"


def _shown(one: Reproduction) -> Iterator[str]:
    """What the cells are of; column by column, where they do not all show the same."""
    of: dict[str, list[str]] = {}
    for column in one.columns:
        of.setdefault(one.entry.columns[column].shows, []).append(column)
    if len(of) == 1:
        yield f"of {next(iter(of))}"
    else:
        yield from (f"{', '.join(columns)}: {shows}" for shows, columns in of.items())


def wide(entry: Entry, data: pd.DataFrame) -> pd.DataFrame:
    """The table as a paper prints it: a line a method, each cell ``measured ± s.e.
    (published)``."""
    most, marks = data["seeds"].max(), _marks(data)
    cells = data.assign(
        text=[
            _cell(line, entry.columns[str(line["column"])], most, marks)
            for _, line in data.iterrows()
        ]
    )
    table = cells.pivot(index="row", columns="column", values="text")
    return table.loc[list(dict.fromkeys(data["row"])), list(dict.fromkeys(data["column"]))]


def _marks(data: pd.DataFrame) -> dict[str, str]:
    """What is to be known of published numbers -> the mark that they have."""
    known = data[data["published"].notna() & (data["note"] != "")]
    return {note: f"note {i}" for i, note in enumerate(dict.fromkeys(known["note"]), start=1)}


def _cell(line: pd.Series, column: Column, most: int, marks: Mapping[str, str]) -> str:
    """As printed; with the number of its seeds where others have ``most``, and with the mark of
    what is to be known of the published number.
    """
    measured, said = _measured(line, column.digits), line["note"]
    measured += f", n = {line['seeds']}" if 0 < line["seeds"] < most else ""
    if not math.isnan(line["published"]):
        published = f"{line['published']:.{column.digits}f}"
        said = ", ".join(filter(None, [published, marks.get(line["note"], "")]))
    return f"{measured} ({said})" if said else measured


def _measured(line: pd.Series, digits: int) -> str:
    if not line["seeds"]:
        return "·"
    marks = [f"{line[what]} {what}" for what in ("missed", "diverged") if line[what]]
    if math.isnan(line["mean"]):
        return ", ".join(marks) if len(marks) > 1 else marks[0].split()[-1]
    text = f"{line['mean']:.{digits}f}"
    if not math.isnan(line["standard_error"]):
        text += f" ± {line['standard_error']:.{digits}f}"
    return ", ".join([text, *marks])


@dataclass(frozen=True)
class About:
    """What is said of a table beside its numbers."""

    diverged: Diverged = field(default_factory=dict)
    how: Sequence[str] = ()
    """How its rows were tuned and what they spent, a sentence each."""


def _conditions(one: Reproduction) -> Iterator[str]:
    """What is not as in the paper, and which part of it is shown."""
    if one.budget.reduced:
        yield f"{one.size}: {one.budget.reduced.rstrip('.')}"
    if one.entry.unavailable:
        yield one.entry.unavailable.rstrip(".")
    if one.also:
        yield f"and with {', '.join(one.also)}"
    if one.only:
        many = f"{len(one.columns)} of {len(one.whole.columns)} columns"
        yield f"{many}; claims are tested over all that the budget has"


def _beside(one: Reproduction, data: pd.DataFrame) -> pd.DataFrame:
    """Without the published numbers of what is of other data here, or adds up other rounds."""
    apart = data["column"].isin(one.columns if one.elsewhere else one.partial)
    theirs = ("published", "published_spread", "difference")
    return data.assign(**{name: data[name].mask(apart) for name in theirs})


def conditions(one: Reproduction) -> list[str]:
    """What is not as in the paper, for what has no title that says it."""
    said = [f"run on {one.stand_in}"] if one.stand_in else []
    said += _conditions(one)
    return said + ([SMOKE.partition(";")[0]] if one.size == UNTUNED_BUDGET else [])


def _as_numbers(one: Reproduction, data: pd.DataFrame, form: Format, about: About) -> str:
    if form == "csv":
        tell_beside(about.how)
        return data.assign(conditions="; ".join(conditions(one))).to_csv(index=False)
    told = {"id": one.entry.id, "conditions": conditions(one), "how": about.how}
    of = _spread(data, len(one.budget.seeds))
    return json_text({**told, "measured": of, "cells": data.to_dict("records")})


def render(one: Reproduction, values: Values, form: Format, about: About | None = None) -> str:
    """The table as text; the terminal's is printed instead, and empty."""
    about = about or About()
    data, entry, other = numbers(one, values, about.diverged), one.entry, [*_conditions(one)]
    data = _beside(one, data)
    if form == "csv" or form == "json":
        return _as_numbers(one, data, form, about)
    head = f"{entry.id}: {entry.title}"
    head += f" — run on {one.stand_in}" if one.stand_in else ""
    table = wide(entry, data)
    published = " (published)" if data["published"].notna().any() else ""
    notes = (f"measured: {_spread(data, len(one.budget.seeds))}{published}", *_shown(one), *other)
    if one.size == UNTUNED_BUDGET:
        asked = [f"asked at other budgets: {claim.text}" for claim in entry.claims]
        return Written(head, table, notes, (SMOKE, *asked, *about.how)).as_(form)
    noted = [f"{mark}: {note}" for note, mark in _marks(data).items()]
    if one.partial and not one.elsewhere:
        which = ", ".join(one.partial)
        noted.append(f"published numbers are left out of sums over other rounds or work: {which}")
    said = (*noted, *summaries(entry, values), *map(str, lines(entry, values)), *about.how)
    return Written(
        head, table, notes, said, further=differences(entry, values), about_further=PAIRS
    ).as_(form)
