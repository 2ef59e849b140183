"""A paper's table with measured numbers beside the published ones, for a terminal, Markdown, CSV,
HTML or LaTeX.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd
from rich.table import Table

from orchestrator.terminal import console
from sweeps.entry import Column, Entry, Published
from sweeps.reproduction import Values, Verdict, chosen_budget, shown, verdicts
from sweeps.rules import lines

FRAME = 3
"""Characters around a cell on the terminal."""
Format = Literal["terminal", "markdown", "csv", "html", "latex"]


def numbers(entry: Entry, budget: str, values: Values) -> pd.DataFrame:
    """One row a cell: measured mean, standard error and seeds; published value and spread; their
    difference.
    """
    rows, columns = shown(entry, chosen_budget(entry, budget))
    found = []
    for row in rows:
        for column in columns:
            published = entry.published.get((row, column), Published(None))
            seeds = np.array(
                list(values.get((row, column), {}).values()) if published.exists else []
            )
            known = seeds[np.isfinite(seeds)]
            mean = float(known.mean()) if len(known) else math.nan
            spread = (
                float(known.std(ddof=1) / math.sqrt(len(known))) if len(known) > 1 else math.nan
            )
            said = math.nan if published.value is None else published.value
            found.append({
                "row": row, "column": column, "mean": mean, "standard_error": spread,
                "seeds": len(seeds),
                "missed": int((~np.isfinite(seeds)).sum()), "published": said,
                "published_spread": math.nan if published.spread is None else published.spread,
                "difference": mean - said, "note": published.note,
            })  # fmt: skip
    return pd.DataFrame(found)


def wide(entry: Entry, data: pd.DataFrame) -> pd.DataFrame:
    """The table as a paper prints it: a line a method, each cell ``measured ± s.e.
    (published)``."""
    cells = data.assign(
        text=[_cell(line, entry.columns[str(line["column"])]) for _, line in data.iterrows()]
    )
    table = cells.pivot(index="row", columns="column", values="text")
    return table.loc[list(dict.fromkeys(data["row"])), list(dict.fromkeys(data["column"]))]


def _cell(line: pd.Series, column: Column) -> str:
    digits = column.digits
    if not line["seeds"]:
        text = "·"
    elif math.isnan(line["mean"]):
        text = "missed"
    else:
        text = f"{line['mean']:.{digits}f}"
        if not math.isnan(line["standard_error"]):
            text += f" ± {line['standard_error']:.{digits}f}"
        if line["missed"]:
            text += f", {line['missed']} missed"
    if not math.isnan(line["published"]):
        text += f" ({line['published']:.{digits}f})"
    elif line["note"]:
        text += f" ({line['note']})"
    return text


def render(
    entry: Entry, budget: str, values: Values, form: Format, also: Sequence[str] = ()
) -> str:
    """The table as text; the terminal's is printed instead, and empty. ``also``: what --set has
    changed.
    """
    data = numbers(entry, budget, values)
    reduced = chosen_budget(entry, budget).reduced
    other = [f"reduced: {reduced.rstrip('.')}"] if reduced else []
    other += [f"and with {', '.join(also)}"] if also else []
    if form == "csv":
        return data.assign(conditions="; ".join(other)).to_csv(index=False)
    table, said = wide(entry, data), [*claims(entry, values), *map(str, lines(entry, values))]
    head = f"{entry.id}: {entry.title}"
    notes = ["measured ± standard error over seeds (published)", *other]
    if form == "terminal":
        for part in _pieces(table, console.width):
            console.print(_drawn(part, head))
        console.print("; ".join(notes), highlight=False)
        for line in said:
            console.print(f"  {line}", highlight=False)
        return ""
    if form == "html":
        listed = "".join(f"<li>{line}</li>" for line in said)
        shown = table.to_html(border=0)
        return f"<h3>{head}</h3>\n{shown}\n<p>{'; '.join(notes)}</p>\n<ul>{listed}</ul>\n"
    if form == "latex":
        caption = _latex(f"{head}; {'; '.join(notes)}. {' '.join(f'{line}.' for line in said)}")
        return table.to_latex(
            caption=caption, column_format="l" + "r" * table.shape[1], escape=True
        )
    text = [
        f"**{head}** — {'; '.join(notes)}.",
        "",
        _line(["", *table.columns]),
        _line(["---"] * (table.shape[1] + 1)),
    ]
    text += [_line([str(row), *cells]) for row, cells in table.iterrows()]
    return "\n".join([*text, "", *[f"- {line}" for line in said], ""])


def _pieces(table: pd.DataFrame, width: int) -> list[pd.DataFrame]:
    """The table cut into groups of columns that fit a terminal of ``width`` characters, a column at
    least.
    """
    first = max(len(str(row)) for row in table.index)
    pieces: list[list[str]] = [[]]
    left = width - first - FRAME
    for name in table.columns:
        needed = FRAME + max(len(word) for word in (name, *table[name]))
        if needed > left and pieces[-1]:
            pieces.append([])
            left = width - first - FRAME
        pieces[-1].append(name)
        left -= needed
    return [table[names] for names in pieces]


def _drawn(part: pd.DataFrame, head: str) -> Table:
    drawn = Table("", *part.columns, title=head, title_justify="left")
    for row, cells in part.iterrows():
        drawn.add_row(str(row), *cells)
    return drawn


def _latex(text: str) -> str:
    """``text`` with what LaTeX would read as commands made plain."""
    plain = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(plain.get(c, f"\\{c}" if c in "&%$#_{}" else c) for c in text)


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def claims(entry: Entry, values: Values) -> list[str]:
    """A sentence for each claim of the paper: in how many cells it holds (p < 0.05), leans so,
    fails, or is open.
    """
    return [f"{text}: {_summary(found)}" for text, found in verdicts(entry, values).items()]


def _summary(found: list[Verdict]) -> str:
    words = Counter(v.word for v in found)
    if not found or words["open"] == len(found):
        return "not measured yet"
    names = {
        "holds": "holds (p < 0.05)",
        "leans": "leans so",
        "fails": "fails",
        "open": "not measured",
    }
    return (
        ", ".join(f"{names[w]} in {words[w]}" for w in names if words[w])
        + f" of {len(found)} cells"
    )
