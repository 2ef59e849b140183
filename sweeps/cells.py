"""The table of a sweep of one's own: a line for each setting, the best first."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from rich.table import Table

from orchestrator.results.run_folder import RunFolder
from orchestrator.rounds.metrics import on_test
from orchestrator.terminal import console
from sweeps.choice import Choice
from sweeps.plan import Sweep
from sweeps.results import Result, stored, table_of
from sweeps.results import table as cells_of
from sweeps.spaces import as_settings, numbers_of

CHOSEN_ON = {
    "validation": "best first, by data that is not tested on",
    "test": "best first, chosen on test data: the best number is better than it would be on new "
    "data",
    "nothing": "in the order of the sweep: a comparison, and who picks its best picks on test data",
}
OTHERWISE = "best first, by a metric that is of no test data"
"""What a table says of its order."""


SPREAD = {"mean": "sem", "test": "test_sem"}
"""Column of a table of cells -> the one of its standard errors."""


def show_cells(folder: Path) -> None:
    """The cells of a sweep file, best first."""
    plan, results = stored(folder)
    data = cells_of(folder)
    if plan.samples > 1 and len(data):  # draws of the same axes have the same label
        data["trial"] = [f"{label} #{i}" for i, label in enumerate(data["trial"], start=1)]
    title = f"{plan.name}: {plan.metric}, {plan.how}, {len(results)} trials ended"
    shown = _shown(data)
    drawn = Table(title=title, title_justify="left")
    for column in shown.columns:
        # a setting that is cut off is another's
        drawn.add_column(str(column), overflow="fold")
    for _, line in shown.iterrows():
        drawn.add_row(*line)
    console.print(drawn)
    on_rows = plan.choose_on != "validation" or on_test(plan.metric) is not None
    console.print(CHOSEN_ON[plan.choose_on] if on_rows else OTHERWISE, soft_wrap=True)
    tied = int((data["mean"] == data["mean"].iloc[0]).sum()) if len(data) else 0
    if tied > 1 and plan.choose_on != "nothing":
        console.print(f"{tied} settings are tied for the best; the first of them counts as it")
    for edge in _edges(plan, folder):
        console.print(
            f"the best has {edge} of its grid: what lies beyond may be better", soft_wrap=True
        )


def _edges(plan: Sweep, folder: Path) -> Iterator[str]:
    """The axes of numbers at whose end the best setting is, where one is chosen."""
    runs, _ = best_first(folder)
    if plan.choose_on == "nothing" or not runs:
        return
    settings = Choice.read(runs[0].path).planned.settings
    for path, axis in plan.axes.items():
        numbers = numbers_of(axis.grid or ())
        ends = {"smallest": numbers[0], "largest": numbers[-1]} if len(numbers) > 1 else {}
        for which, end in ends.items():
            if as_settings({path: end})[0] in settings:
                yield f"{path} = {end:g}, the {which}"


def _shown(data: pd.DataFrame) -> pd.DataFrame:
    """The table as texts: a setting a line, the mean with its standard error, and of what may have
    befallen trials only what has.
    """
    nothing = [c for c in ("stopped", "failed", "diverged") if c in data and not data[c].any()]
    texts = data.drop(columns=[*nothing, *SPREAD.values()], errors="ignore").map(_cell)
    if "trial" in texts:
        texts["trial"] = texts["trial"].str.replace(r", (?=[\w.]+=)", "\n", regex=True)
    for mean, spread in SPREAD.items():
        if mean in texts and spread in data:
            texts[mean] = [*map(_with_error, data[mean], data[spread])]
    return texts.rename(columns={"count": "n"})


def _with_error(mean: float, error: float) -> str:
    """The mean to four digits, and its standard error to the same place; without one where there is
    none.
    """
    text = _cell(mean)
    if not text or "e" in text or not math.isfinite(error):
        return f"{text} ± {error:.2g}" if text and math.isfinite(error) else text
    digits = max(0, 3 - math.floor(math.log10(abs(mean)))) if mean else 4
    return f"{mean:.{digits}f} ± {error:.{digits}f}"


def _cell(cell: object) -> str:
    """Numbers to four digits, nothing where there is none."""
    try:
        number = float(str(cell))
    except ValueError:
        return str(cell)
    return f"{number:.4g}" if math.isfinite(number) else ""


def best_first(folder: Path) -> tuple[list[RunFolder], int]:
    """The finished trials in the order of the table, so that others are compared with the best; and
    how many the scheduler has stopped, which are left out if any has finished.
    """
    plan, results = stored(folder)
    rows = table_of(plan, results).to_dict("records")

    def place(result: Result) -> int:
        return next(i for i, row in enumerate(rows) if result.setting.items() <= row.items())

    ended = [result for result in results if result.status != "failed"]
    whole = [result for result in ended if result.status == "finished"] or ended
    ordered = sorted(whole, key=lambda result: (place(result), result.seed))
    return [result.folder for result in ordered], len(ended) - len(whole)
