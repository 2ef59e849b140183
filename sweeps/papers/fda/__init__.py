"""The tables and figures of the FDA thesis: chapter 3 and its appendix (FDA), chapter 4
(FDA-Opt)."""

from __future__ import annotations

from sweeps.entry import Entry
from sweeps.papers.fda import appendix, chapter3, chapter4

ENTRIES: tuple[Entry, ...] = (*chapter3.ENTRIES, *appendix.ENTRIES, *chapter4.ENTRIES)
