"""The tables and figures of FedDUAL (adaptive loss at the clients, Wasserstein barycenters at the
server).
"""

from __future__ import annotations

from sweeps.entry import Entry
from sweeps.papers.feddual.figures import FIGURES
from sweeps.papers.feddual.tables import TABLES

ENTRIES: tuple[Entry, ...] = (*TABLES, *FIGURES)
