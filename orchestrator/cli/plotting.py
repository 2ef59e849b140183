"""``fedorch plot``: a figure in a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.table import Table

from algorithms.part import nearest
from orchestrator.analysis.compared import Runs
from orchestrator.analysis.comparison import column_of
from orchestrator.analysis.left_out import failed_said
from orchestrator.analysis.names import require_curve
from orchestrator.errors import UserError
from orchestrator.pages.figures import Drawing
from orchestrator.pages.library import write_chart
from orchestrator.pages.report import figures_of
from orchestrator.pages.table import AXES
from orchestrator.results.columns import of_round
from orchestrator.results.run_folder import RunFolder
from orchestrator.terminal import HEADLINES, console, told


def show_figures(folders: list[RunFolder]) -> None:
    """List what ``--figure`` may name: a run's figures, or columns that several report."""
    table = Table("figure", "what one sees", title="give one with --figure, and --out FILE")
    for name, meaning in _known(folders):
        table.add_row(name, meaning)
    console.print(table)


def _know_parts(folders: list[RunFolder]) -> None:
    """Have the runs' own parts known, which say what figures and columns there are."""
    for folder in folders:
        folder.config()


def _known(folders: list[RunFolder]) -> Iterator[tuple[str, str]]:
    _know_parts(folders)
    if len(folders) == 1:
        for drawing in figures_of(folders[0]):
            yield drawing.name, f"{drawing.title}: {drawing.about}"
        return
    known = dict.fromkeys(str(c) for folder in folders for c in folder.rounds() if c != "round")
    first = [column for column in HEADLINES if column in known]
    if first:
        yield "accuracy", f"the first of these: {first[0]}"
    for column in dict.fromkeys((*first, *known)):
        yield column, of_round(column)


def draw(
    folders: list[RunFolder], figure: str, over: str, out: Path, inches: tuple[float, float],
    labels: Sequence[str] = (),
) -> None:  # fmt: skip
    """Write the ``figure`` of one run, or the column of that name of several (``accuracy``: of the
    test set), as a picture; ``labels`` are what groups of runs are called instead. Raises UserError
    if they do not have it, or it cannot be written.
    """
    if over and over not in AXES:
        raise UserError(f"--over {over!r}: {nearest(over, [*AXES])}")
    _know_parts(folders)
    if len(folders) == 1:
        if labels:
            raise UserError("--label: names groups of runs, and there is one run")
        figures = figures_of(folders[0])
        drawing = figures.named(figure)
        shared, known = {"rounds": figures.table.rows()}, [*figures.table.axes]
    else:
        drawing = _of_groups(folders, figure, over, labels)
        shared, known = {}, [*drawing.data["points"][0]]
    axis = over or drawing.over or "round"
    if drawing.over is not None and axis not in known:
        raise UserError(f"--over {axis}: the runs do not report it")
    write_chart(drawing.still(axis, shared), out, inches)
    console.print(f"wrote {out}", soft_wrap=True)


def _of_groups(
    folders: list[RunFolder], column: str, over: str, labels: Sequence[str]
) -> Drawing:  # fmt: skip
    """Of each group of runs that differ in the seed alone the mean, in a band; notes what is not
    the same in all.
    """
    runs = Runs.read(folders, labels)
    column = runs.usual() if column == "accuracy" else column_of(column)
    if not any(column in table for table in runs.rounds):
        own = [drawing.name for drawing in figures_of(folders[0])]
        if column in own:
            raise UserError(f"--figure {column}: it is of one run; name one: {folders[0].place}")
    require_curve(column, folders, runs.rounds)
    unlike = runs.judged.said([column], next(iter(runs.columns))).replace(", and not tested", "")
    for note in (
        runs.own_said([column]), unlike, runs.data_said, runs.diverged_said, failed_said(folders),
        runs.stopped_said, runs.pbt_said, *runs.unequal_said([column], [column, over]),
    ):  # fmt: skip
        if note:
            told("note", note)
    return runs.band(column)
