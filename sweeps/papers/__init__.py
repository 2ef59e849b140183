"""The papers' tables and figures as data, one paper a module."""

from __future__ import annotations

from algorithms.part import nearest
from orchestrator.errors import UserError
from sweeps.entry import Entry
from sweeps.papers import drdm, fda, fedaa, feddual


def entries() -> dict[str, Entry]:
    """All tables and figures by id, in the order of the papers."""
    return {e.id: e for module in (drdm, feddual, fedaa, fda) for e in module.ENTRIES}


def entry(name: str) -> Entry:
    """The entry called ``name``; raises UserError with the nearest name."""
    known = entries()
    if name not in known:
        hint = nearest(name, list(known)).split("valid:")[0]
        raise UserError(f"there is no {name!r}; {hint}`fedorch sweep --list` shows all")
    return known[name]
