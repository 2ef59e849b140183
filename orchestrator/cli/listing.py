"""Lists for programs: the tables that a command prints, as one JSON document."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.table import Table

from orchestrator.files import json_text
from orchestrator.terminal import console


class Facts(Table):
    """A table whose rows are data, too: a program gets them by names that do not change, with lists
    as lists and numbers as numbers.
    """

    def __init__(self, **headers: str) -> None:
        """``headers``: name of a column -> what stands above it."""
        super().__init__()
        for i, head in enumerate(headers.values()):
            # the first is what a row is called: copied into other commands, so never shortened
            self.add_column(head, no_wrap=i == 0, overflow="fold")
        self.shown = tuple(headers)
        self.facts: list[dict[str, Any]] = []

    def add(self, **fact: Any) -> None:
        """One row; what is of no column is for programs only."""
        self.facts.append(fact)
        self.add_row(*(_cell(fact[name]) for name in self.shown))


def _cell(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


@contextmanager
def listed(as_json: bool) -> Iterator[None]:
    """With ``as_json``: print what would be tables as a list, an object for each row: its facts, or
    its texts by the names of the columns (lines between the tables are left out).
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


def _rows(table: Table) -> Iterator[dict[str, Any]]:
    if isinstance(table, Facts):
        yield from table.facts
        return
    names = [str(column.header) or "about" for column in table.columns]
    for cells in zip(*(column.cells for column in table.columns), strict=True):
        yield dict(zip(names, map(str, cells), strict=True))
