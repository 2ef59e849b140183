"""Pictures that a command was asked for, written with their data beside them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure

from orchestrator.errors import UserError
from orchestrator.terminal import console


def write_picture(figure: Figure, plot: Path, data: pd.DataFrame | None = None) -> None:
    """Write ``figure`` as ``plot``, and ``data`` beside it as CSV; raises UserError if they cannot
    be written.
    """
    table = plot.with_suffix(".csv")
    try:
        # names of runs and folders are shown as they are, also with a dollar in them
        with rc_context({"text.parse_math": False}):
            figure.savefig(plot, dpi=130)
        if data is not None:
            data.to_csv(table, index=False)
    except OSError as error:
        raise UserError(f"{plot}: cannot be written: {error.strerror}") from error
    also = f" and {table}" if data is not None else ""
    console.print(f"wrote {plot}{also}", soft_wrap=True)
