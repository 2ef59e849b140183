"""The tables and figures of DRDM (distributionally robust learning with client-drift
minimisation).
"""

from __future__ import annotations

from sweeps.entry import Entry
from sweeps.papers.drdm.figures import FIGURES
from sweeps.papers.drdm.ours import OURS
from sweeps.papers.drdm.tables import TABLES

ENTRIES: tuple[Entry, ...] = (*TABLES, *FIGURES, *OURS)
