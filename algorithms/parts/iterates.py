"""Averages of the iterates w_1, w_2, …, which is what theorems on saddle points are about."""

from __future__ import annotations

from typing import Any, Literal

from torch import Tensor

Output = Literal["last", "average", "tail"]
"""Which model is judged and saved.

``average``: the mean of all iterates, without the initial model. ``tail``: the mean of those after
the largest power of two that is at most t/2, so of at least the last half and less than the last
three quarters (suffix averaging, Rakhlin et al. 2012, with epochs that double: it need not know the
last round, and keeps two means).
"""
Past = dict[str, Any]
"""What is remembered of the iterates: their number t and means of them; nothing for ``last``."""


def joined(past: Past, w: Tensor, output: Output) -> Past:
    """``past`` ({} at first) with one more iterate ``w`` [d]."""
    if output == "last":
        return past
    before = past.get("t", 0)
    t = before + 1
    # a tail's mean starts again after each power of two
    counted = before if output == "average" else before - power(before)
    # a running mean needs no store of iterates
    mean = past["mean"] + (w - past["mean"]) / (counted + 1) if counted else w
    if output == "average":
        return {"t": t, "mean": mean}
    return {"t": t, "mean": mean, "older": mean if power(t) == t else past["older"]}


def averaged(past: Past, w: Tensor, output: Output) -> Tensor:
    """The model [d] that ``output`` asks for, where ``w`` [d] is the last iterate."""
    if not past:
        return w
    if output == "average":
        return past["mean"]
    newer, older = past["t"] - power(past["t"]), max(1, power(past["t"]) // 2)
    # ``older`` has the iterates after P/2 up to P, the largest power of two ≤ t; ``mean`` those
    # after P, where there are any
    return past["older"] + (past["mean"] - past["older"]) * (newer / (newer + older))


def power(t: int) -> int:
    """The largest power of two that is at most ``t``; 0 for 0."""
    return 1 << (t.bit_length() - 1) if t else 0
