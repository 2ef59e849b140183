"""Numbers that an algorithm or an aggregator adds to a round's record."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real

import numpy as np

from algorithms.parts.metrics import nameable
from orchestrator.errors import UserError
from orchestrator.results.columns import OF_A_ROUND, OF_CLIENTS, WHOSE
from orchestrator.rounds.metrics import Record

LARGEST = 1023
"""Bits of whole numbers that all are floats, too."""


def checked(who: str, reported: Record, metrics: Sequence[str]) -> Record:
    """What ``who`` has reported, as floats; raises UserError for a number that has no name, or a
    name of a record's own, which has those of the ``metrics``, too, and for what is no number.
    """
    if strange := [key for key in reported if not nameable(key)]:
        raise UserError(
            f"{who} {repr(strange[0])[:80]} as the name of a number; names are texts of one line"
        )
    if taken := sorted(OF_A_ROUND.keys() & reported):
        raise UserError(
            f"{who} {taken[0]!r}, by which every round records {OF_A_ROUND[taken[0]]!r}; give the "
            "number another name"
        )
    if taken := [name for name in reported if _of_models(name, metrics)]:
        raise UserError(
            f"{who} {taken[0]!r}, which is a name of what models are judged by; give the number "
            "another name"
        )
    for name, value in reported.items():
        if not isinstance(value, Real | np.bool_) or _too_large(value):
            raise UserError(f"{who} {name!r} as a {type(value).__name__}; give a number (float)")
    return {name: float(value) for name, value in reported.items()}


def _of_models(name: str, metrics: Sequence[str]) -> bool:
    """Whether a round's record may have that of its models."""
    of_rows = {f"{who}_{metric}" for who in WHOSE for metric in ("accuracy", "loss", *metrics)}
    return name in of_rows or name.startswith(OF_CLIENTS)


def _too_large(value: Real | np.bool_) -> bool:
    """Whether a whole number is beyond all floats."""
    return isinstance(value, int) and value.bit_length() > LARGEST
