"""The tables and figures of FedDUAL (adaptive loss at the clients, Wasserstein barycenters at the
server).
"""

from __future__ import annotations

from dataclasses import replace

from sweeps.entry import Entry
from sweeps.papers.feddual.figures import FIGURES
from sweeps.papers.feddual.tables import TABLES

MIXED = "FedNova, SCAFFOLD and FedPVR with SGD, all others with Adam; FedNova alone weighs by rows"


def _told(one: Entry) -> Entry:
    """With what its methods do not have in common in its title."""
    return replace(one, title=f"{one.title}; {MIXED}") if "FedNova" in one.rows else one


ENTRIES: tuple[Entry, ...] = tuple(map(_told, (*TABLES, *FIGURES)))
