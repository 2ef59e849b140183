"""Rules and compressors of a user's own, tried on copies where they are first called: the same
numbers must give the same result, and each client's must be its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch

from algorithms.local import LocalRule, Tensors, Work
from orchestrator.errors import UserError
from orchestrator.noted import note
from orchestrator.plugins import OURS

if TYPE_CHECKING:
    from torch import Tensor

ROUNDING = 1e-5
"""Part of the largest number by which sums may be off that were added up beside others."""
MOST = 20
"""Tries of one hook of a class, whose instances may differ in numbers."""
_known: WeakKeyDictionary[type, dict[tuple[str, bool], set[object]]] = WeakKeyDictionary()
"""Of classes, hooks that this process has tried, and whether on several clients: with which
attributes."""


def require_own_rows(rule: LocalRule, name: str, work: Work, *given: Tensor) -> None:
    """:func:`require_rows_apart` of a rule's hook, called with ``given`` [C, ...] and ``work``."""

    def outcome(rows: int) -> Tensors:
        there = _copied(work.first(rows))
        hook: Callable[..., Any] = getattr(rule, name)
        made = hook(*(one[:rows].clone() for one in given), there)
        results = made if isinstance(made, dict) else {"result": made}
        found = {f"state/{key}": value for key, value in there.state.items()}
        found |= {f"extras/{key}": value for key, value in there.extras.items()}
        return found | results | {"w": there.w}

    require_rows_apart(rule, name, len(work.clients), outcome)


def require_rows_apart(
    owner: object, name: str, clients: int, outcome: Callable[[int], dict[str, Any]]
) -> None:
    """Raise UserError unless the hook ``name`` of ``owner`` gives, twice, the same for the first of
    so many ``clients``, and the same but for rounding where that is alone.

    ``outcome`` calls it for the first so many rows, in copies: names -> tensors [rows, ...], and
    others, which are passed over. A hook of ours, and one that has been tried, is not called.
    """
    done = _known.setdefault(type(owner), {}).setdefault((name, clients > 1), set())
    if len(done) >= MOST or note(vars(owner)) in done or not _is_own(owner, name):
        return
    whole = _of_first(outcome(clients), clients)
    # what is worked out once, and kept, is there by now
    kept = note(vars(owner))
    again = _of_first(outcome(clients), clients)
    called = f"{type(owner).__name__}.{name}"
    if note(vars(owner)) != kept:
        raise UserError(
            f"{called} changes attributes, which clients, actors and checkpoints do not have in "
            "common; what a rule keeps of a client is in work.state"
        )
    if not _same(whole, again, 0.0):
        raise UserError(
            f"{called} gives another result for the same numbers: it draws, or counts; draw by "
            "keys (fedorch.generator, or the generators that are given), and keep things in "
            "work.state"
        )
    if not _same(whole, _of_first(outcome(1), 1), ROUNDING):
        raise UserError(
            f"{called}: what it gives for a client depends on the clients that are trained beside "
            "it; every row of a tensor [C, ...] must be treated by itself"
        )
    done.add(kept)


def _is_own(owner: object, name: str) -> bool:
    """Whether the hook is no code of ours."""
    its = next(one for one in type(owner).__mro__ if name in vars(one))
    return its.__module__.partition(".")[0] not in OURS


def _of_first(found: dict[str, Any], rows: int) -> Tensors:
    """What is of the first client; what has another shape is refused where it is used."""
    return {
        key: value[:1]
        for key, value in found.items()
        if isinstance(value, torch.Tensor) and value.dim() and len(value) == rows
    }


def _copied(work: Work) -> Work:
    """The same in other memory."""

    def copies(tensors: Tensors) -> Tensors:
        return {key: value.clone() for key, value in tensors.items()}

    return replace(
        work,
        state=copies(work.state),
        own=copies(work.own),
        extras=copies(work.extras),
        received=copies(work.received),
        w=work.w.clone(),
        start=work.start.clone(),
        loss=work.loss[: len(work.clients)].clone(),
    )


def _same(one: Tensors, other: Tensors, part: float) -> bool:
    return one.keys() == other.keys() and all(_near(one[key], other[key], part) for key in one)


def _near(one: Tensor, other: Tensor, part: float) -> bool:
    if one.shape != other.shape:
        return False
    one, other = one.double().nan_to_num(), other.double().nan_to_num()
    size = float(other.abs().max()) if other.numel() else 0.0
    return torch.allclose(one, other, rtol=0.0, atol=part * size)
