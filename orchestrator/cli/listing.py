"""Lists for programs: the tables that a command prints, as one JSON document."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.table import Table

from orchestrator.files import json_text
from orchestrator.terminal import console


@contextmanager
def listed(as_json: bool) -> Iterator[None]:
    """With ``as_json``: print what would be tables as a list, an object of texts for each row by
    the names of the columns (lines between the tables are left out).
    """
    if not as_json:
        yield
        return
    console.kept = []
    try:
        yield
        rows = [row for table in console.kept if isinstance(table, Table) for row in _rows(table)]
    finally:
        console.kept = None
    console.print(json_text(rows), soft_wrap=True)


def _rows(table: Table) -> Iterator[dict[str, str]]:
    names = [str(column.header) or "about" for column in table.columns]
    for cells in zip(*(column.cells for column in table.columns), strict=True):
        yield dict(zip(names, map(str, cells), strict=True))
