"""A table of texts with sentences under it, for a terminal, Markdown, HTML or LaTeX."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from html import escape
from typing import Literal

import pandas as pd
from rich.table import Table

from orchestrator.terminal import console, told

FRAME = 3
"""Characters around a cell on the terminal."""
LEAST = 14
"""Characters that a name may be broken into."""
Format = Literal["terminal", "markdown", "html", "latex"]


@dataclass(frozen=True)
class Written:
    """What every form of a table says."""

    head: str
    table: pd.DataFrame
    """Texts; a row's name stands in front of it."""
    notes: tuple[str, ...] = ()
    """What the numbers are."""
    said: tuple[str, ...] = ()
    """Sentences."""
    best: frozenset[tuple[str, str]] = frozenset()
    """The cells (row, column) of the table to be marked, which LaTeX does."""
    starred: frozenset[tuple[str, str]] = frozenset()
    """Others, or the same, to be marked otherwise."""
    further: pd.DataFrame = field(default_factory=lambda: pd.DataFrame())
    """A second table of texts, without names of rows; may be empty."""
    about_further: str = ""
    listed: bool = False
    """Whether the terminal shows that, too, and LaTeX has it as comments."""

    def turned(self) -> Written:
        """With the table's rows as columns."""
        best, starred = (
            frozenset((column, row) for row, column in cells) for cells in (self.best, self.starred)
        )
        return replace(self, table=self.table.T, best=best, starred=starred)

    def as_(self, form: Format) -> str:
        """The text of a form; the terminal's is printed instead, and empty."""
        return FORMS[form](self)


def tell_beside(sentences: Iterable[str]) -> None:
    """Tell what a form of numbers alone (CSV) has no room for, on stderr."""
    for sentence in sentences:
        told("note", sentence)


def _terminal(written: Written) -> str:
    for part in _pieces(written.table, console.width):
        console.print(_drawn(part, written.head))
    if written.notes:
        console.print("; ".join(written.notes))
    for line in written.said:
        console.print(f"  {line}", soft_wrap=True)
    if written.listed and not written.further.empty:
        show_listed(written.about_further, written.further)
    return ""


def _html(written: Written) -> str:
    listed = "".join(f"<li>{escape(line)}</li>" for line in written.said)
    table, notes = written.table.to_html(border=0), escape("; ".join(written.notes))
    further = "" if written.further.empty else written.further.to_html(border=0, index=False)
    further = f"<p>{escape(written.about_further)}</p>\n{further}" if further else ""
    head = f"<h3>{escape(written.head)}</h3>\n" if written.head else ""
    return f"{head}{table}\n<p>{notes}</p>\n<ul>{listed}</ul>\n{further}\n"


def _latex(written: Written) -> str:
    """The sentences are comments: a paper has its own."""
    table = written.table.rename_axis(index=None, columns=None).map(escaped)
    for marked, mark in ((written.best, r"\textbf{%s}"), (written.starred, "%s$^{*}$")):
        for row, column in marked:
            table.loc[row, column] = mark % table.loc[row, column]
    table.index, table.columns = table.index.map(escaped), table.columns.map(escaped)
    about = _sentence("; ".join(part for part in (written.head, *written.notes) if part))
    text = table.to_latex(
        caption=f"{escaped(about)}." if about else None,
        label=f"tab:{_slug(written.head)}" if written.head else None,
        column_format="l" + "r" * table.shape[1],
        position="t",
    ).replace("\\begin{table}[t]\n", "\\begin{table}[t]\n\\centering\n")
    said = [line.replace("\n", " ") for line in (*written.said, *_comments(written))]
    return "".join(f"% {line}\n" for line in ("needs the package booktabs", *said)) + text


def _sentence(text: str) -> str:
    """With a capital, unless it begins with a name that has its own (``drdm/table3: ...``,
    ``test_loss``).
    """
    named = re.match(r"[\w./-]+:|[a-z]+_", text) or not text[:1].isascii()
    return text if named else text[:1].upper() + text[1:]


def _comments(written: Written) -> list[str]:
    """The second table, a line each."""
    if written.further.empty or not written.listed:
        return []
    return [written.about_further, *_rows(written.further)]


def _rows(table: pd.DataFrame) -> Iterator[str]:
    yield from ("; ".join(filter(None, cells)) for cells in table.to_numpy())


def _slug(head: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", head.partition(":")[0].lower()).strip("-")


def _markdown(written: Written) -> str:
    """Markdown lets HTML through: a tag is shown as it is written."""
    table, notes = written.table, "; ".join(written.notes)
    title = f"**{written.head}**" if written.head else ""
    about = " — ".join(part for part in (title, notes) if part)
    text = [
        *([f"{_sentence(about)}.", ""] if about else []),
        _line([str(table.index.name or ""), *table.columns]),
        _line(["---"] * (table.shape[1] + 1)),
        *(_line([str(row), *cells]) for row, cells in table.iterrows()),
    ]
    said = [f"- {line}" for line in written.said]
    whole = "\n".join([*text, "", *said, "", *_further(written)])
    return re.sub(r"<(?=[a-zA-Z/!?])", "&lt;", whole)


def _further(written: Written) -> list[str]:
    further = written.further
    if further.empty:
        return []
    return [
        written.about_further,
        "",
        _line(list(further.columns)),
        _line(["---"] * further.shape[1]),
        *(_line(list(cells)) for _, cells in further.iterrows()),
        "",
    ]


FORMS: dict[Format, Callable[[Written], str]] = {
    "terminal": _terminal, "html": _html, "latex": _latex, "markdown": _markdown,
}  # fmt: skip


def _pieces(table: pd.DataFrame, width: int) -> list[pd.DataFrame]:
    """The table cut into groups of columns that fit a terminal of ``width`` characters, a column at
    least. Where they do not all fit, heads are on several lines, and so are names of rows that take
    more than two sevenths of the terminal: three means with their errors fit beside them in 80.
    """
    first = max(len(str(row)) for row in (table.index.name or "", *table.index))
    if width < first + FRAME + sum(map(_width, table.columns, (table[n] for n in table.columns))):
        first = max(1, min(first, width * 2 // 7))
        table = table.rename(index=lambda row: _lines(str(row), first))
        table = table.rename(columns={name: _folded(name, table[name]) for name in table.columns})
    pieces: list[list[str]] = [[]]
    left = width - first - FRAME
    for name in table.columns:
        needed = _width(name, table[name])
        if needed > left and pieces[-1]:
            pieces.append([])
            left = width - first - FRAME
        pieces[-1].append(name)
        left -= needed
    return [table[names] for names in pieces]


def _width(head: str, cells: Iterable[str]) -> int:
    return FRAME + max(len(text) for text in (*head.splitlines(), *cells))


def _folded(name: str, cells: Iterable[str]) -> str:
    """A head in lines as wide as its cells, or its longest word."""
    return _lines(name, max(len(word) for word in (*name.split(), *cells, " ")))


def _lines(text: str, width: int) -> str:
    return "\n".join(textwrap.wrap(text, width)) or text


def show_listed(about: str, table: pd.DataFrame) -> None:
    """Print a table of texts below what it is ``about``, without a frame."""
    console.print(about)
    if "metric" not in table:
        _list(table)
        return
    for metric, part in table.groupby("metric", sort=False):
        console.print(f"  {metric}")
        _list(part.drop(columns="metric"))


def _list(table: pd.DataFrame) -> None:
    """The first column takes several lines where there is too little room, and each row where there
    is less.
    """
    widths = [
        max(len(line) for c in (n, *table[n]) for line in c.splitlines() or [""])
        for n in table.columns
    ]
    indent = 2 if sum(widths) + 2 * len(widths) <= console.width else 1
    drawn = Table(box=None, padding=(0, 0, 0, indent))
    for i, name in enumerate(table.columns):
        drawn.add_column(name, no_wrap=i > 0, overflow="fold")
    for _, cells in table.iterrows():
        drawn.add_row(*cells)
    if sum(widths[1:]) + indent * len(widths[1:]) + LEAST <= console.width:
        console.print(drawn)
        return
    for line in _rows(table):
        console.print(f"  {line}", soft_wrap=True)


def _drawn(part: pd.DataFrame, head: str) -> Table:
    named = str(part.index.name or "")
    drawn = Table(named, *part.columns, title=head or None, title_justify="left")
    for row, cells in part.iterrows():
        drawn.add_row(str(row), *cells)
    return drawn


def escaped(text: object) -> str:
    """``text`` with what LaTeX would read as commands made plain, and with symbols that its fonts
    for text lack as formulas.
    """
    return "".join(_PLAIN.get(c) or (f"\\{c}" if c in "&%$#_{}" else c) for c in str(text))


_GREEK = (
    *("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"),
    *("iota", "kappa", "lambda", "mu", "nu", "xi", "omicron", "pi"),
    *("rho", "varsigma", "sigma", "tau", "upsilon", "varphi", "chi", "psi", "omega"),
)
_PLAIN = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": "$<$", ">": "$>$", "|": "$|$",
    "−": "$-$", "—": "---", "–": "--", "“": "``", "”": "''",
    **{
        symbol: f"$\\{command}$"
        for symbol, command in {
            "±": "pm", "·": "cdot", "×": "times", "≤": "leq", "≥": "geq", "∞": "infty", "→": "to",
            "Σ": "Sigma", "Θ": "Theta", "Λ": "Lambda", "Γ": "Gamma", "Δ": "Delta",
            "Ω": "Omega", "Π": "Pi", "Φ": "Phi", "Ψ": "Psi", "√": "surd", "∇": "nabla",
            **{chr(0x3B1 + i): name for i, name in enumerate(_GREEK)},
        }.items()
    },
    "ο": "o",  # of which LaTeX has no Greek one
}  # fmt: skip


def _line(cells: list[str]) -> str:
    """A line of a Markdown table; names may hold what ends a cell."""
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"
