"""Rules, probes and compressors of a user's own, tried on copies where they are first called: the
same numbers must give the same result, and each client's must be its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch

from algorithms.local import LocalRule, Probe, Tensors, Work
from orchestrator.errors import UserError
from orchestrator.noted import note
from orchestrator.plugins.sources import is_ours

if TYPE_CHECKING:
    from torch import Tensor

ROUNDING = 1e-5
"""Part of the largest number by which sums may be off that were added up beside others."""
STIR = 1e-6
"""Part of each number by which it is changed to see what rounding does to a result."""
STIRS = 3
ROUNDS = 3
"""Up to which hooks are tried anew: what clients remember is all the same at first."""
CALLS = 2
"""Of a hook in a round, that are tried."""
MOST = 20
"""Tries of one hook of a class, whose instances may differ in numbers."""
When = tuple[int, int]
"""A round, and which call it is in that."""
Tried = dict[tuple[str, bool, When], set[object]]
_known: WeakKeyDictionary[type, Tried] = WeakKeyDictionary()
"""Of classes, hooks that were tried in this process's last run, whether on several clients, and
when: with which attributes."""
FEW = 4
"""Clients that hooks are tried on at most."""
Outcome = Callable[..., dict[str, Any]]
"""What a hook makes of some clients' rows, of numbers that a generator (if there is one) stirs."""


def forget() -> None:
    """A run begins: what another one's numbers have not shown, its own may."""
    _known.clear()


@dataclass(frozen=True)
class Tries:
    """Of the hooks that a lane calls in round ``t``, those of a user's own."""

    t: int
    on: bool = True
    calls: dict[tuple[type, str, bool], int] = field(default_factory=dict)
    """How often hooks have been tried, and whether of several clients."""

    def of(self, owner: LocalRule | Probe, name: str, work: Work, *given: Tensor | Tensors) -> None:
        """Have a hook tried before it is called, of several clients and of one."""
        key = type(owner), name, len(work.clients) > 1
        calls = self.calls.get(key, 0)
        # before the first step models are all the same, and nobody sees who mixes them
        if self.on and calls < CALLS:
            self.calls[key] = calls + 1
            require_own_rows(owner, name, (self.t, calls), work, *given)


def require_own_rows(
    owner: LocalRule | Probe, name: str, when: When, work: Work, *given: Tensor | Tensors
) -> None:
    """:func:`require_rows_apart` of a hook, called with ``work`` and what is ``given`` [C, ...]."""

    def outcome(rows: slice, stir: torch.Generator | None = None) -> dict[str, Any]:
        there = _copied(work.part(rows), stir)
        some = [_some(one, rows, stir) for one in given]
        hook: Callable[..., Any] = getattr(owner, name)
        made = hook(*some, there) if name == "direction" else hook(there, *some)
        found = {f"state/{key}": value for key, value in there.state.items()}
        found |= {f"extras/{key}": value for key, value in there.extras.items()}
        found |= {f"result/{key}": value for key, value in _results(made).items()}
        return found | {"w": there.w}

    require_rows_apart(owner, name, when, len(work.clients), outcome)


def _some(given: Tensor | Tensors, rows: slice, stir: torch.Generator | None) -> Tensor | Tensors:
    """Some clients' part of it, in other memory."""
    if isinstance(given, torch.Tensor):
        return stirred(given[rows], stir)
    return {name: stirred(one[rows], stir) for name, one in given.items()}


def stirred(given: Tensor, generator: torch.Generator | None) -> Tensor:
    """A copy, by a generator a hair's breadth beside."""
    if generator is None or not given.is_floating_point():
        return given.clone()
    noise = torch.randn(given.shape, generator=generator).to(given)
    return given * (1 + STIR * noise)


def _results(made: Any) -> dict[str, Any]:
    if isinstance(made, list | tuple):
        return {f"result {i}": one for i, one in enumerate(made)}
    return made if isinstance(made, dict) else {"result": made}


def require_rows_apart(
    owner: object,
    name: str,
    when: When,
    clients: int,
    outcome: Outcome,
) -> None:
    """Raise UserError unless the hook ``name`` of ``owner`` gives, twice, the same for the first
    few of so many ``clients``, and for the first and the last of these the same but for rounding
    where that is alone.

    ``outcome`` calls it for some of the rows, in copies, stirred by a generator where one is given:
    names -> tensors [rows, ...], and others, which are passed over. A hook of ours, and one
    that has been tried, is not called.
    """
    if not is_own_hook(owner, name):
        return
    t, call = min(when[0], ROUNDS), min(when[1], CALLS)
    done = _known.setdefault(type(owner), {}).setdefault((name, clients > 1, (t, call)), set())
    if len(done) >= MOST or _attributes(owner) in done:
        return
    # more would take time and memory, and mix as these do
    several, clients = slice(0, FEW), min(clients, FEW)
    whole = outcome(several)
    # what is worked out once, and kept, is there by now
    kept = _attributes(owner)
    again = outcome(several)
    called = f"{type(owner).__name__}.{name}"
    if _attributes(owner) != kept:
        raise UserError(_changes(called, owner))
    if not _same(whole, again, clients, several, 0.0):
        raise UserError(
            f"{called} gives another result for the same numbers: it draws, or counts; draw by "
            f"keys (fedorch.generator, or the generators that are given){_where_to_keep(owner)}"
        )
    for row in {0, clients - 1}:
        its = slice(row, row + 1)
        alone = outcome(its)
        if _attributes(owner) != kept:
            raise UserError(_changes(called, owner))
        if not (
            _same(whole, alone, clients, its, ROUNDING)
            or _is_rounding(_by_client(whole, clients), alone, its, outcome)
        ):
            raise UserError(
                f"{called}: what it gives for a client depends on the clients that are trained "
                "beside it; every row of a tensor [C, ...] must be treated by itself, whatever its "
                "place"
            )
    # where all clients are alike (gradients of zeros, say), mixing them shows nothing
    if clients == 1 or t >= ROUNDS or _differ(whole, clients):
        done.add(kept)


def _changes(called: str, owner: object) -> str:
    return (
        f"{called} changes attributes, which clients, actors and checkpoints do not have in common"
        f"{_where_to_keep(owner)}"
    )


def _where_to_keep(owner: object) -> str:
    return "; what a rule keeps of a client is in work.state" * isinstance(owner, LocalRule)


def _is_rounding(whole: Tensors, alone: dict[str, Any], its: slice, outcome: Outcome) -> bool:
    """Whether what comes of one client alone is off by no more than it is when all that it is given
    is off by ``STIR``: as sums are that cancel.
    """
    stirred = [outcome(its, torch.Generator().manual_seed(n)) for n in range(STIRS)]

    def off(key: str, other: Tensor) -> float:
        one = alone[key]
        if not isinstance(one, torch.Tensor) or one.shape != other.shape:
            return math.inf
        return float((one.double() - other.double()).abs().max()) if one.numel() else 0.0

    return all(
        off(key, value[its]) <= max(off(key, one[key]) for one in stirred)
        for key, value in whole.items()
        if key in alone
    )


def _differ(whole: dict[str, Any], clients: int) -> bool:
    """Whether the first client has anything that the last one has not."""
    return any(not torch.equal(v[0], v[-1]) for v in _by_client(whole, clients).values())


def _by_client(found: dict[str, Any], clients: int) -> Tensors:
    """What has a row for each; what has another shape is refused where it is used."""
    return {
        key: value
        for key, value in found.items()
        if isinstance(value, torch.Tensor) and value.dim() and len(value) == clients
    }


def is_own_hook(owner: object, name: str) -> bool:
    """Whether the hook is no code of ours."""
    its = next(one for one in type(owner).__mro__ if name in vars(one))
    return not is_ours(its.__module__)


def _attributes(owner: object) -> object:
    """What stands for all that it holds."""
    return note({**vars(owner), **(getattr(owner, "__pydantic_private__", None) or {})})


def _same(
    whole: dict[str, Any], other: dict[str, Any], clients: int, rows: slice, part: float
) -> bool:
    """Whether what ``other`` has of some clients' ``rows`` is what all of them together have; what
    is of no client is passed over.
    """
    return all(
        isinstance(found := other.get(key), torch.Tensor) and _near(value[rows], found, part)
        for key, value in _by_client(whole, clients).items()
    )


def _copied(work: Work, stir: torch.Generator | None) -> Work:
    """The same in other memory, :func:`stirred`."""

    def copies(tensors: Tensors) -> Tensors:
        return {key: stirred(value, stir) for key, value in tensors.items()}

    return replace(
        work,
        state=copies(work.state),
        own=copies(work.own),
        extras=copies(work.extras),
        received=copies(work.received),
        w=stirred(work.w, stir),
        start=stirred(work.start, stir),
        loss=work.loss.clone(),
    )


def _near(one: Tensor, other: Tensor, part: float) -> bool:
    if one.shape != other.shape:
        return False
    one, other = one.double(), other.double()
    finite = one.isfinite()
    if not torch.equal(finite, other.isfinite()):
        return False
    one, other = one[finite], other[finite]
    size = float(other.abs().max()) if other.numel() else 0.0
    return torch.allclose(one, other, rtol=0.0, atol=part * size)
