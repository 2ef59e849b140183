"""A page that a browser shows without a network: words, tables, and charts with their data."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

import pandas as pd

from orchestrator.pages.figures import Drawing
from orchestrator.pages.library import COLOURS, NOTICE, script
from orchestrator.pages.table import AXES

Charts = Sequence[Mapping[str, Any]]


HINT = (
    '<p class="hint">Rest the mouse on a curve for its numbers; click a name to see it alone; drag '
    "to move, Ctrl + wheel to zoom, double-click to go back; the … of a chart saves it.</p>\n"
)


def page(title: str, body: str, charts: Charts, tables: Mapping[str, Any]) -> str:
    """The whole document. ``charts`` are those of :func:`chart`; ``tables`` name -> columns that
    they share.
    """
    # what ends a script ends it within a text, too
    given = {"charts": charts, "tables": tables, "axes": AXES, "colours": COLOURS}
    data = json.dumps(given, allow_nan=False).replace("<", "\\u003c")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>\n{_text('style.css')}</style>\n</head>\n"
        f"<body>\n<main>\n{body}</main>\n"
        "<noscript><p>Charts and sorting need JavaScript; nothing is loaded from elsewhere.</p>"
        "</noscript>\n"
        f'<script type="application/json" id="page">{data}</script>\n'
        f"<!-- {NOTICE} -->\n<script>\n{script()}</script>\n"
        f"<script>\n{_text('behaviour.js')}</script>\n</body>\n</html>\n"
    )


def _text(name: str) -> str:
    return files("orchestrator.pages").joinpath(name).read_text(encoding="utf-8")


def chart(drawing: Drawing) -> dict[str, Any]:
    """What the page's script needs of a figure."""
    spec = drawing.spec(drawing.over or "round", still=False)
    return {"id": drawing.name, "spec": spec, "over": drawing.over, "data": drawing.data}


def figure(drawing: Drawing) -> str:
    """The place of a figure on the page."""
    name, title = html.escape(drawing.name), html.escape(drawing.title)
    return (
        f"<figure><figcaption><h3>{title}</h3><p>{html.escape(drawing.about)}</p></figcaption>"
        f'<div class="chart" id="chart-{name}"></div></figure>\n'
    )


def figures(drawings: Iterable[Drawing]) -> str:
    """Several beside one another."""
    return f'<div class="figures">\n{"".join(map(figure, drawings))}</div>\n'


def axis_choice(known: Iterable[str]) -> str:
    """What all curves are drawn over, for the reader to choose."""
    buttons = "".join(
        f'<label><input type="radio" name="over" value="{axis}"> {html.escape(AXES[axis])}</label>'
        for axis in AXES
        if axis in known
    )
    return (
        '<fieldset class="choice"><legend>Curves over</legend>'
        '<label><input type="radio" name="over" value="" checked> as each is best read</label>'
        f"{buttons}</fieldset>\n"
    )


def section(title: str, content: str) -> str:
    """A part of the page; nothing of one without content."""
    name = "".join(c if c.isalnum() else "-" for c in title.lower())
    if not content:
        return ""
    return (
        f'<section aria-labelledby="{name}"><h2 id="{name}">{html.escape(title)}</h2>\n'
        f"{content}</section>\n"
    )


def tiles(facts: Iterable[tuple[str, str]]) -> str:
    """A few numbers, large: (what, value)."""
    inside = "".join(
        f"<div><dt>{html.escape(what)}</dt><dd>{html.escape(value)}</dd></div>"
        for what, value in facts
    )
    return f'<dl class="tiles">{inside}</dl>\n'


def folded(summary: str, content: str) -> str:
    """What opens on demand."""
    return f"<details><summary>{html.escape(summary)}</summary>\n{content}</details>\n"


def folded_facts(summary: str, rows: Iterable[tuple[str, str, str]]) -> str:
    """A table of names, values, and what the names mean, which opens on demand."""
    inside = "".join(
        f'<tr><th scope="row">{html.escape(name)}</th><td>{html.escape(value)}</td>'
        f"<td>{html.escape(meaning)}</td></tr>\n"
        for name, value, meaning in rows
    )
    content = (
        '<table class="facts"><thead><tr><th scope="col">name</th>'
        f'<th scope="col">value</th><th scope="col">meaning</th></tr></thead><tbody>\n{inside}'
        "</tbody></table>"
    )
    return folded(summary, _wide(summary, content))


def _wide(what: str, content: str) -> str:
    """What may be wider or longer than its place, and then moves within it, by keys, too."""
    label = html.escape(what)
    return f'<section class="wide" tabindex="0" aria-label="{label}">{content}</section>\n'


def _head(name: str) -> str:
    # a head without a word is none, for who has it read aloud
    return f'<th scope="col">{html.escape(name)}</th>' if name else "<td></td>"


def table(frame: pd.DataFrame, what: str) -> str:
    """A table of texts, as it is; its rows have names. ``what``: what it is of, read aloud."""
    heads = "".join(_head(str(name)) for name in (frame.index.name or "", *frame.columns))
    rows = "".join(
        f'<tr><th scope="row">{html.escape(str(name))}</th>'
        f"{''.join(f'<td>{html.escape(str(cell))}</td>' for cell in cells)}</tr>\n"
        for name, cells in zip(frame.index, frame.itertuples(index=False), strict=True)
    )
    content = (
        f'<table class="numbers"><thead><tr>{heads}</tr></thead><tbody>\n{rows}</tbody></table>'
    )
    return _wide(what, content)


def sortable(
    name: str, columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]], first: int
) -> str:
    """A table whose columns (name, meaning) sort it; only the ``first`` rows are shown at first."""
    heads = "".join(
        f'<th scope="col"><button type="button" title="{html.escape(meaning)}">'
        f"{html.escape(column)}</button></th>"
        for column, meaning in columns
    )
    cells = "".join(
        f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>\n" for row in rows
    )
    more = (
        f'<p><button type="button" class="more" aria-controls="{name}">show all {len(rows):,}'
        "</button></p>\n"
        if len(rows) > first
        else ""
    )
    content = (
        f'<table class="sortable" id="{html.escape(name)}" data-first="{first}">'
        f"<thead><tr>{heads}</tr></thead><tbody>\n{cells}</tbody></table>"
    )
    return _wide(f"all {name}", content) + more
