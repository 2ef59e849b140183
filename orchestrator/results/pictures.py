"""Pictures that a command was asked for, written with their data beside them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure

from orchestrator.files import write_whole
from orchestrator.terminal import console


def write_picture(figure: Figure, plot: Path, data: pd.DataFrame | None = None) -> None:
    """Write ``figure`` as ``plot``, and ``data`` beside it as CSV; raises UserError if they cannot
    be written.
    """
    kind, table = plot.suffix.lstrip(".").lower(), plot.with_suffix(".csv")
    # names of runs and folders are shown as they are, also with a dollar in them
    with rc_context({"text.parse_math": False}):
        write_whole(plot, lambda partial: figure.savefig(partial, dpi=130, format=kind))
    if data is not None:
        write_whole(table, lambda partial: data.to_csv(partial, index=False))
    also = f" and {table}" if data is not None else ""
    console.print(f"wrote {plot}{also}", soft_wrap=True)
