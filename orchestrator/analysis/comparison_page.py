"""A page that compares runs: what ``fedorch compare`` prints, and the curves."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from orchestrator.analysis.names import without_seeds
from orchestrator.analysis.written import Written
from orchestrator.pages import page
from orchestrator.pages.bands import band, points
from orchestrator.pages.figures import Drawing
from orchestrator.terminal import HEADLINES, further

TITLE = "Runs compared"


def comparison_of(
    about: str, written: Written, groups: Mapping[str, Sequence[pd.DataFrame]], metric: str
) -> str:
    """The page; ``groups`` are the rounds of each group's runs, ``metric`` what is drawn first;
    ``about``: a sentence on what they are, "" for their names alone.
    """
    drawings = [*_drawings(without_seeds(groups), metric)]
    known = list(dict.fromkeys(c for d in drawings for row in d.data["points"] for c in row))
    notes = "".join(f"<p>{html.escape(note)}</p>\n" for note in written.notes)
    tests = "".join(f"<li>{html.escape(line)}</li>\n" for line in written.said)
    body = (
        f"<h1>{TITLE}</h1>\n"
        + f'<p class="lead">{html.escape(about or ", ".join(groups))}</p>\n'
        + page.table(written.table)
        + notes
        + (f"<ul>{tests}</ul>\n" if tests else "")
        + page.axis_choice(known)
        + page.HINT
        + page.section("Curves", page.figures(drawings))
    )
    return page.page(TITLE, body, [page.chart(drawing) for drawing in drawings], {})


def _drawings(groups: Mapping[str, Sequence[pd.DataFrame]], metric: str) -> Iterator[Drawing]:
    every = [str(column) for runs in groups.values() for one in runs for column in one]
    more = [f"test_{name}" for name in further(dict.fromkeys(every))]
    for column in dict.fromkeys((metric, *HEADLINES, *more)):
        rows = points(groups, column)
        if rows:
            yield band(column, list(groups), rows)
