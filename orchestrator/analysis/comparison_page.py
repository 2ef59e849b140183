"""A page that compares runs: what ``fedorch compare`` prints, and the curves."""

from __future__ import annotations

import html
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

import pandas as pd

from orchestrator.analysis.written import Written
from orchestrator.pages import page
from orchestrator.pages.bands import band, is_cut, points
from orchestrator.pages.figures import Drawing
from orchestrator.results.contents import REPORT
from orchestrator.results.places import is_remote
from orchestrator.results.run_folder import RunFolder
from orchestrator.terminal import HEADLINES, further

TITLE = "Runs compared"


Links = Mapping[str, Sequence[tuple[str, str]]]
"""Group -> (what a run is called, where its own page is, as seen from a comparison's)."""


def reports_of(
    folders: Sequence[RunFolder],
    seeds: Sequence[int],
    columns: Mapping[str, Sequence[int]],
    page_at: Path,
) -> Links:
    """The runs' own pages, of those that are on this machine and have one."""
    found: dict[str, list[tuple[str, str]]] = {}
    for group, numbers in columns.items():
        for run in numbers:
            theirs = Path(folders[run].place).absolute() / REPORT
            if not is_remote(folders[run].place) and theirs.is_file():
                link = Path(os.path.relpath(theirs, page_at.absolute().parent)).as_posix()
                found.setdefault(group, []).append((f"seed {seeds[run]}", link))
    return found


def _linked(links: Links) -> str:
    lines = (
        f"<li>{html.escape(group)}: "
        + ", ".join(f'<a href="{quote(at)}">{html.escape(what)}</a>' for what, at in theirs)
        + "</li>\n"
        for group, theirs in links.items()
    )
    return page.section("The runs' own reports", f"<ul>{''.join(lines)}</ul>\n" if links else "")


def comparison_of(
    about: str,
    written: Written,
    groups: Mapping[str, Sequence[pd.DataFrame]],
    metrics: Sequence[str],
    links: Links,
) -> str:
    """The page; ``groups`` are the rounds of each group's runs, ``metrics`` what is drawn first;
    ``about``: a sentence on what they are, "" for their names alone.
    """
    drawings = [*_drawings(groups, metrics)]
    known = list(dict.fromkeys(c for d in drawings for row in d.data["points"] for c in row))
    notes = "".join(f"<p>{html.escape(note)}</p>\n" for note in written.notes)
    about_tests = f"<p>{html.escape(written.about_further)}</p>\n"
    tests = written.further.set_index("group") if len(written.further) else None
    body = (
        f"<h1>{TITLE}</h1>\n"
        + f'<p class="lead">{html.escape(about or ", ".join(groups))}</p>\n'
        + page.table(written.table, "all groups of runs")
        + notes
        + (
            about_tests + page.table(tests, "tests of their differences")
            if tests is not None
            else ""
        )
        + page.axis_choice(known)
        + page.HINT
        + page.section("Curves", page.figures(drawings))
        + _linked(links)
    )
    return page.page(TITLE, body, [page.chart(drawing) for drawing in drawings], {})


def _drawings(
    groups: Mapping[str, Sequence[pd.DataFrame]], metrics: Sequence[str]
) -> Iterator[Drawing]:
    every = [str(column) for runs in groups.values() for one in runs for column in one]
    more = [f"test_{name}" for name in further(dict.fromkeys(every))]
    for column in dict.fromkeys((*metrics, *HEADLINES, *more)):
        rows = points(groups, column)
        if rows:
            yield band(column, list(groups), rows, is_cut(groups, column))
