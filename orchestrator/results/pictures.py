"""Pictures that a command was asked for, written with their data beside them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from orchestrator.errors import UserError
from orchestrator.files import write_whole
from orchestrator.terminal import errors

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURES = (".png", ".pdf", ".svg", ".jpg", ".jpeg")
"""Their endings."""


def require_free(plot: Path) -> None:
    """Raises UserError if a table lies where the data of the picture ``plot`` would go, and is not
    that of an earlier one of that name, in whatever form: nobody has named it.
    """
    table = _table_beside(plot)
    drawn = any(plot.with_suffix(form).exists() for form in PICTURES)
    if os.path.lexists(table) and not drawn:
        raise UserError(
            f"{table}: it is there without {plot}, whose data would replace it; choose another name"
        )


def require_unused_beside(file: Path) -> None:
    """Raises UserError if a PNG and its data beside ``file`` would replace it, or a picture or a
    table there that are not an earlier figure with its data.
    """
    plot = file.with_suffix(".png")
    table = _table_beside(plot)
    if file in (plot, table):
        raise UserError(
            f"--file {file}: the figure goes to {plot}, and its data to {table}; choose another "
            "ending"
        )
    require_free(plot)
    if os.path.lexists(plot) and not os.path.lexists(table):
        raise UserError(
            f"{plot}: it is there without its data, and the figure would replace it; choose "
            "another name"
        )


def require_no_data(file: Path) -> None:
    """Raises UserError if ``file`` holds the data of a picture beside it."""
    plot = file.with_suffix(".png")
    if file == _table_beside(plot) and file.exists() and plot.exists():
        raise UserError(f"{file}: it is there with {plot}, whose data it is; choose another name")


def write_picture(figure: Figure, plot: Path, data: pd.DataFrame | None = None) -> None:
    """Write ``figure`` as ``plot``, as :func:`write_beside` does."""
    from matplotlib import rc_context

    def save(partial: Path) -> None:
        _take_words_as_they_are(figure)
        # publishers refuse Type 3, which is matplotlib's own choice
        with rc_context({"pdf.fonttype": 42}):
            figure.savefig(partial, dpi=130, format=plot.suffix.lstrip(".").lower())

    write_beside(save, plot, data)


def write_beside(
    save: Callable[[Path], object], plot: Path, data: pd.DataFrame | None = None
) -> None:
    """Have a picture saved as ``plot``, and write ``data`` beside it as CSV: both or neither.

    Raises UserError if they cannot be written, and as :func:`require_free`.
    """
    table = _table_beside(plot)

    def write(partial: Path) -> None:
        save(partial)
        # before the picture has its name
        if data is not None:
            write_whole(table, lambda beside: data.to_csv(beside, index=False))

    if data is not None:
        require_free(plot)
    write_whole(plot, write)
    also = f" and {table}" if data is not None else ""
    errors.print(f"wrote {plot}{also}", soft_wrap=True)


def _take_words_as_they_are(figure: Figure) -> None:
    """Names of runs and folders are shown as they are, also with dollars in them; numbers at the
    axes are formulas of matplotlib's own.
    """
    from matplotlib.text import Text

    sides = [side for place in figure.axes for side in (place.xaxis, place.yaxis)]
    numbers = {id(text) for side in sides for text in side.findobj(Text) if text is not side.label}
    for text in figure.findobj(Text):
        if id(text) not in numbers:
            text.set_parse_math(False)


def _table_beside(plot: Path) -> Path:
    return plot.with_suffix(".csv")
