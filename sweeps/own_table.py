"""The table of a sweep of one's own: a line for each setting, the best first."""

from __future__ import annotations

import itertools
import math
import shlex
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from rich.table import Table

from orchestrator.analysis.comparison import Form
from orchestrator.analysis.names import apart_in, with_values
from orchestrator.analysis.paired import is_tied
from orchestrator.analysis.tested import PairedTests
from orchestrator.analysis.written import Written, show_listed, tell_beside
from orchestrator.files import json_text
from orchestrator.results.members import PBT
from orchestrator.rounds.metrics import is_cost, level_of, on_test
from orchestrator.terminal import console
from sweeps import edges, efforts
from sweeps.apart import is_lost, key_of
from sweeps.cells import Cells, cell_text, judged_by
from sweeps.results import broken_said

CHOSEN_ON = {
    "validation": "best first, by data that is not tested on",
    "test": "best first, chosen on test data: the best number is better than it would be on new "
    "data",
    "nothing": "in the order of the sweep: a comparison, and who picks its best picks on test data",
}
OTHERWISE = "best first, by a metric that is of no test data"
OVERSHOT = (
    "a goal has ended trials: how good their models are says how far each overshot it, and the "
    "others had more rounds; the order says nothing of who is better: compare what they took"
)
"""What a table says of its order."""
SAME_RUNS = (
    "the first was chosen by the runs that it is tested in: whom luck made the first is ahead on "
    "test data, too, and p is too small; only new seeds are free of that"
)
PICKED = (
    "each number is the best of its run's rounds, picked by what it says: it is better than it "
    "would be on new data"
)
SPREAD = {"mean": "sem", "test": "test_sem"}
"""Column of a table of cells -> the one of its standard errors."""
LISTED = 12
"""Tests that the terminal has below the table."""


def show_cells(folder: Path) -> None:
    """Print the cells of a sweep file, best first."""
    cells = Cells.read(folder)
    if not len(cells.data):
        console.print(f"{cells.title}: no trial has ended yet", soft_wrap=True)
        return
    shown = _shown(cells)
    drawn = Table(title=cells.title, title_justify="left")
    for column in shown.columns:
        # a setting that is cut off is another's
        drawn.add_column(str(column), overflow="fold")
    for _, line in shown.iterrows():
        drawn.add_row(*line)
    console.print(drawn)
    for sentence in sentences(cells):
        console.print(sentence, soft_wrap=True)
    show_tests(cells.tests, folder)


def show_tests(tests: PairedTests, folder: Path) -> None:
    """Print them, or where they are, if there are many."""
    if len(tests.each) > LISTED:
        where = shlex.quote(str(folder))
        console.print(
            f"tests of {len(tests.each)} settings against the first: fedorch table {where} "
            "--format markdown",
            soft_wrap=True,
        )
    elif tests.each:
        table = tests.table()
        show_listed(tests.about, table.assign(group=_by_lines(table["group"], ",\n")))


def cells_as(folder: Path, form: Form) -> str:
    """The same as a text, with paired tests against the first setting on data that did not choose
    it; CSV and JSON have the numbers as they are.
    """
    cells = Cells.read(folder)
    if form == "csv":
        tell_beside([cells.title, *sentences(cells)])
        return cells.numbered.to_csv(index=False)
    tests = cells.tests
    if form == "json":
        numbers = cells.numbered.to_dict("records")
        told = {"title": cells.title, "metric": cells.plan.metric, "notes": [*sentences(cells)]}
        return json_text(told | {"cells": numbers, "tests": tests.records()})
    table = _shown(cells).replace("\n", ", ", regex=True)
    named = table.set_index("trial") if "trial" in table else table
    return Written(
        cells.title, named, ("mean ± standard error over seeds",), tuple(sentences(cells)),
        further=tests.table(), about_further=tests.about, listed=True,
    ).as_(form)  # fmt: skip


def sentences(cells: Cells) -> Iterator[str]:
    """What one should know of the order, of the first, and of what is not the same of all."""
    yield from _order(cells)
    yield from _given(cells)


def _order(cells: Cells) -> Iterator[str]:
    """What the order is by, and how sure the first is."""
    plan, data = cells.plan, cells.data
    on_rows = plan.choose_on != "validation" or on_test(plan.metric) is not None
    chosen = CHOSEN_ON[plan.choose_on] if on_rows else OTHERWISE
    # what compares only is in the order of the sweep
    yield OVERSHOT if cells.overshot and plan.choose_on != "nothing" else chosen
    if plan.choose_on == "nothing" and plan.statistic == "best":
        yield PICKED
    yield from _problems(cells)
    yield from _alike(cells)
    if plan.choose_on == "nothing" or not len(data):
        return
    yield from _cut(cells)
    yield from _fewer(cells)
    yield from _tied(cells)
    if on_rows and plan.choose_on == "validation" and cells.tests.each:
        yield SAME_RUNS
    if len(cells.results) >= plan.trials:  # which setting is the best is open before that
        yield from edges.said(cells)


def _fewer(cells: Cells) -> Iterator[str]:
    """That some lines stand below others for having fewer seeds, which have not ended, or broke."""
    fewer = len(cells.results) < cells.plan.trials or any(one.broken for one in cells.results)
    if fewer and cells.data["count"].nunique() > 1:
        yield (
            "settings of which fewer seeds have finished stand below the others, whatever their "
            "mean"
        )


def _tied(cells: Cells) -> Iterator[str]:
    """That several are the best, where that says something."""
    if not cells.overshot and (tied := cells.tied([*cells.groups])) > 1:
        yield f"{tied} settings are tied for the best; the first of them counts as it"


def _alike(cells: Cells) -> Iterator[str]:
    """That who serves all clients alike need not serve them well: a constant serves them best."""
    metric = cells.plan.metric
    level, runs = level_of(metric), cells.runs
    side = runs.more_is_better(level) if runs is not None and level is not None else None
    if level is None or side is None:
        return
    levels = {
        name: float(np.mean([one.beside(cells.plan.column, level) for one in trials]))
        for name, trials in cells.groups.items()
    }
    known = {name: mean for name, mean in levels.items() if math.isfinite(mean)}
    first = next(iter(levels), "")
    if first not in known:
        return
    ahead = (max if side else min)(known, key=known.__getitem__)
    if not is_tied(known[ahead], known[first]):
        yield (
            f"{metric} says how alike clients are, not how well they are served: {level} of "
            f"{first} is {cell_text(known[first])}, and of {ahead} {cell_text(known[ahead])}"
        )


def _problems(cells: Cells) -> Iterator[str]:
    """What lines of several problems are to one another."""
    if len(cells.problems) < 2:
        return
    firsts = [cells.config(cells.groups[lines[0]][0]) for lines in cells.problems.values()]
    goals = ["stop"] if is_cost(cells.plan.metric) else []
    apart = apart_in(["data", "attack", *goals], firsts)
    told = [
        key for key in apart if not key.startswith(tuple(f"data.{one}" for one in cells.no_problem))
    ]
    keys = ", ".join(with_values(told, firsts))
    tested = ", and only those of the first line's are tested against it"
    yield (
        f"the lines are of {len(cells.problems)} problems: they differ in {keys}; who has an "
        f"easier one is no better for that{tested * (cells.plan.choose_on != 'nothing')}"
    )


def _cut(cells: Cells) -> Iterator[str]:
    """What a scheduler did to the lines."""
    if cells.plan.scheduler.name == "pbt":
        yield PBT.format(what="a line")
    elif cells.data["stopped"].any() and len(cells.plan.seeds) > 1:
        yield (
            f"{cells.plan.scheduler.name} has stopped trials: means are over the n seeds that it "
            "let finish, which are the better ones and not the same in all lines; lines of fewer "
            "are below"
        )
    elif cells.data["stopped"].any():
        rounds = [one.folder.result()["rounds"] for one in cells.results if one.status == "stopped"]
        some = f"{min(rounds)}" if min(rounds) == max(rounds) else f"{min(rounds)} to {max(rounds)}"
        yield (
            f"trials that {cells.plan.scheduler.name} stopped stand below the others: their "
            f"numbers are after {some} rounds"
        )


def _given(cells: Cells) -> Iterator[str]:
    """What the lines of the table were given, as far as that is not the same: what a reader must
    know who compares them.
    """
    plan = cells.plan
    winning = {*map(key_of, plan.also), *plan.axes}
    for cell in plan.cells:
        if said := [one for one in cell.settings if not is_lost(one, winning)]:
            yield f"{cell.label}: {', '.join(said)}"
    if plan.also:
        yield f"all with {', '.join(plan.also)}"
    yield from efforts.tries(cells.methods)
    yield from efforts.unequal(cells.groups)
    first = next(iter(cells.groups), "")
    if others := cells.looked_at_otherwise(first):
        each = "; ".join(f"{name} ({rounds})" for name, rounds in [*others.items()][:LISTED])
        yield (
            f"numbers that are the {'best' if cells.plan.statistic == 'best' else 'mean'} of other "
            f"rounds than those of {first}, and not tested: {each}"
        )
    yield from broken_said(itertools.chain(*cells.groups.values()))
    if (runs := cells.runs) is not None:
        judged = judged_by(cells.plan, runs.rounds)[0]
        compared = dict.fromkeys((cells.plan.metric, judged))
        unlike = cells.judged.said(compared, first)
        if silent := cells.silent(judged):
            yield f"{judged} is not reported by {', '.join(silent[:LISTED])}, and not tested there"
        yield from filter(None, [runs.data_said, unlike])
        yield from runs.unequal_said(compared, compared)
        yield from cells.reached.said()
        if first in cells.reached.columns:
            yield from cells.reached.untested_said(first, {judged: cells.spent(judged)})
        yield from filter(None, [cells.reached.looks_said()])


def _shown(cells: Cells) -> pd.DataFrame:
    """The table as texts: a setting a line, the mean with its standard error, and of what may have
    befallen trials only what has.
    """
    data = cells.numbered
    nothing = [c for c in ("stopped", "failed", "diverged") if c in data and not data[c].any()]
    texts = data.drop(columns=[*nothing, *SPREAD.values()], errors="ignore")
    # a label is one whatever it looks like
    for column in texts.columns.difference(["trial"]):
        texts[column] = texts[column].map(cell_text)
    if "trial" in texts:
        texts["trial"] = _by_lines(texts["trial"], "\n")
    for mean, spread in SPREAD.items():
        if mean in texts and spread in data:
            texts[mean] = [*map(_with_error, data[mean], data[spread])]
    metric = cells.plan.metric
    names = {"count": "n", "mean": metric, "test": on_test(metric) or "test"}
    return texts.rename(columns=names)


def _by_lines(labels: pd.Series[str], end: str) -> pd.Series[str]:
    """Each setting of a label on a line of its own."""
    return labels.str.replace(r", (?=[\w.]+=)", end, regex=True)


def _with_error(mean: float, error: float) -> str:
    """The mean to four digits, and its standard error to the same place; without one where there is
    none.
    """
    text = cell_text(mean)
    if not text or "e" in text or not math.isfinite(error):
        return f"{text} ± {error:.2g}" if text and math.isfinite(error) else text
    digits = max(0, 3 - math.floor(math.log10(abs(mean)))) if mean else 4
    return f"{mean:.{digits}f} ± {error:.{digits}f}"
