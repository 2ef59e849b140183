"""How a table's columns become numbers: found on training rows, kept with the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

# pydantic reads the standard library's only from Python 3.12 on
from typing_extensions import TypedDict

from orchestrator.errors import UserError
from orchestrator.terminal import told

if TYPE_CHECKING:
    import pandas as pd


SOME = 6
"""Texts that a note has room for."""


class Column(TypedDict):
    """A column of a table: one input of numbers, (value − mean) / std; or an input of 0 and 1 for
    each of ``texts``.
    """

    name: str
    mean: float
    std: float
    texts: list[str] | None
    """None: numbers."""


def texts_of(columns: Sequence[Column]) -> set[str]:
    """Names of those that are texts."""
    return {column["name"] for column in columns if column["texts"] is not None}


def of_numbers(name: str, values: np.ndarray, standardize: bool) -> Column:
    """From the training rows' numbers [n] float64."""
    if not standardize:
        return {"name": name, "mean": 0.0, "std": 1.0, "texts": None}
    mean, std = float(values.mean()), float(values.std())
    # the deviation of a constant is what rounding leaves of it; 16-digit numbers in a row are none
    constant = std <= 4 * np.finfo(np.float64).eps * max(1e-300, abs(mean))
    return {"name": name, "mean": mean, "std": 1.0 if constant else std, "texts": None}


def of_texts(name: str, values: pd.Series) -> Column:
    """From the training rows' texts [n]."""
    return {"name": name, "mean": 0.0, "std": 1.0, "texts": sorted(values.unique())}


def encoded(column: Column, values: pd.Series, where: str) -> np.ndarray:
    """Inputs [n, p] float32 of a column's rows; raises UserError for what are no numbers."""
    if column["texts"] is None:
        numbers = plain(values, where)
        return ((numbers - column["mean"]) / column["std"]).astype(np.float32)[:, None]
    # a text that no training row has is none of these
    given = values.astype(str).to_numpy(object)
    return (given[:, None] == np.array(column["texts"], object)).astype(np.float32)


def inputs_of_rows(columns: Sequence[Column], rows: pd.DataFrame) -> np.ndarray:
    """Inputs [n, p] float32 of a table's rows; raises UserError for a column that is not there, an
    empty field, and what are no numbers.
    """
    blocks = []
    for column in columns:
        name = column["name"]
        if name not in rows:
            raise UserError(f"the rows have no column {name!r}, which the model was trained on")
        if rows[name].ndim > 1:
            raise UserError(f"the rows have more than one column {name!r}")
        empty = rows[name].isna().to_numpy()
        if empty.any():
            row = int(np.argmax(empty))
            raise UserError(f"column {name!r}: row {row + 1} is empty or NaN")
        blocks.append(encoded(column, rows[name], f"column {name!r}"))
        if column["texts"] is not None:
            _tell_unknown(column, rows[name], blocks[-1])
    return np.concatenate(blocks, axis=1)


def _tell_unknown(column: Column, values: pd.Series, made: np.ndarray) -> None:
    """Note that rows have a text that no training row had, which is none of those that had."""
    unknown = ~made.any(axis=1)
    if unknown.any():
        row, known = int(np.argmax(unknown)), ", ".join((column["texts"] or [])[:SOME])
        told(
            "note",
            f"column {column['name']!r}: {str(values.iloc[row])[:50]!r} (row {row + 1}; "
            f"{int(unknown.sum()):,} such rows) is no text of the training rows ({known}), and "
            "counts as none of them",
        )


def plain(column: pd.Series, where: str) -> np.ndarray:
    """A column of numbers as float64 [n]; raises UserError for others, and those beyond ±1e30."""
    # dates would become nanoseconds, and complex numbers their real parts
    if column.dtype.kind in "Mmc":
        raise UserError(f"{where} holds no numbers, but {column.dtype}")
    try:
        values = column.to_numpy(np.float64)
    except (TypeError, ValueError) as error:
        raise UserError(
            f"{where} holds no numbers: {' '.join(str(error).split())[:100]}"
        ) from error
    wild = ~(np.abs(values) <= 1e30)
    if wild.any():
        row = int(np.argmax(wild))
        raise UserError(f"{where}: row {row + 1} is {values[row]:g}")
    return values


def frame_of(rows: Mapping[str, object]) -> pd.DataFrame:
    """One row, or columns of as many entries, by the columns' names."""
    import pandas as pd

    several = rows and all(isinstance(v, list | tuple | np.ndarray) for v in rows.values())
    try:
        return pd.DataFrame(dict(rows) if several else [dict(rows)])
    except ValueError as error:
        raise UserError(f"these are no rows: {error}") from error
