"""The papers' tables and figures as data, one paper a module."""

from __future__ import annotations

from collections.abc import Iterable

from algorithms.part import nearest
from orchestrator.errors import UserError
from sweeps.entry import Entry
from sweeps.papers import drdm, fda, fedaa, feddual

PAPERS = {"drdm": drdm, "feddual": feddual, "fedaa": fedaa, "fda": fda}
SOURCES = {
    "drdm": "M. Krouka, C. Ben Issaid, M. Bennis: Distributionally Robust Federated Learning with "
    "Client Drift Minimization",
    "feddual": "P. Sahoo, A. Tripathi, S. Saha, S. Mondal: FedDUAL: A Dual-Strategy with Adaptive "
    "Loss and Dynamic Aggregation for Mitigating Data Heterogeneity in Federated Learning, "
    "arXiv:2412.04416",
    "fedaa": "J. He, W. Chen, X. Zhang: FedAA: A Reinforcement Learning Perspective on Adaptive "
    "Aggregation for Fair and Robust Federated Learning",
    "fda": "M. Theologitis: Communication-Efficient Federated Deep Learning via Dynamic Averaging, "
    "thesis, Technical University of Crete, 2025, doi:10.26233/heallink.tuc.103444",
}
"""What is reproduced."""


def entries() -> dict[str, Entry]:
    """All tables and figures by id, in the order of the papers."""
    return {e.id: e for module in PAPERS.values() for e in module.ENTRIES}


def of_paper(name: str) -> dict[str, Entry]:
    """Those of the paper called ``name`` (``drdm``), of all papers if it is empty; raises UserError
    with the nearest name.
    """
    if not name:
        return entries()
    if name not in PAPERS:
        raise _unknown(name, (*PAPERS, *entries()))
    return {e.id: e for e in PAPERS[name].ENTRIES}


def entry(name: str) -> Entry:
    """The entry called ``name``; raises UserError with the nearest name."""
    known = entries()
    if name not in known:
        raise _unknown(name, known)
    return known[name]


def _unknown(name: str, known: Iterable[str]) -> UserError:
    hint = nearest(name, list(known)).split("valid:")[0]
    return UserError(
        f"there is no {name!r} among the papers' entries; {hint}`fedorch sweep --list` shows all"
    )
