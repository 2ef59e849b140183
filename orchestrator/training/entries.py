"""What a rule keeps of its clients (``work.state``, ``work.extras``), and what its hooks may do
with that: change tensors, or put others in their place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from algorithms.local import LocalRule, Tensors, Work
from orchestrator.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

GROUPS = ("state", "extras")
FIXED = ("start", "steps", "lr", "received", "clients", "samples", "own")
"""What hooks see of a lane's work, and do not replace."""
NO_PART = "in a hook around a step, in which clients that have done their steps have no part"


def entries(rule: LocalRule, work: Work) -> list[tuple[str, str, Tensor]]:
    """Group, name and tensor of all that a rule keeps; raises UserError for what is no tensor."""
    found = [(group, *item) for group in GROUPS for item in getattr(work, group).items()]
    for group, name, one in found:
        if not isinstance(one, torch.Tensor):
            raise UserError(
                f"{type(rule).__name__} puts a {type(one).__name__} into work.{group}[{name!r}]: "
                "there are tensors [C, ...]"
            )
    return found


def require_remembered(rule: LocalRule, work: Work, known: Tensors) -> None:
    """Raise UserError unless clients remember what ``state`` of the rule has named, and are about
    to go on with tensors like those ``known``.
    """
    entries(rule, work)
    called = type(rule).__name__
    for name in sorted(work.state.keys() ^ known.keys()):
        if name in known:
            raise UserError(f"{called} removes {name!r} of work.state, which its clients keep")
        raise UserError(
            f"{called} adds {name!r} to work.state, which its clients would forget: give its first "
            "value in state() (what is of one round alone belongs to work.extras)"
        )
    for name, old in known.items():
        if not _are_alike(work.state[name], old):
            raise UserError(
                f"{called} gives another shape or type to {name!r} of work.state, which is "
                f"{old.dtype} of shape {tuple(old.shape)} by state()"
            )


def _are_alike(new: object, old: Tensor) -> bool:
    return isinstance(new, torch.Tensor) and (new.shape, new.dtype) == (old.shape, old.dtype)


@dataclass(frozen=True)
class Given:
    """What a rule's hooks find, whatever they put in its place."""

    rule: LocalRule
    work: Work
    places: list[tuple[str, str, Tensor, int]]
    """Tensors that they may change, and where their numbers are."""

    @classmethod
    def of(cls, rule: LocalRule, work: Work) -> Given:
        """Before they are called."""
        kept = [("w", "", work.w), *entries(rule, work)]
        places = [(*one, one[-1].data_ptr()) for one in kept]
        return cls(rule, replace(work, state=dict(work.state), extras=dict(work.extras)), places)

    def keep(self, work: Work, mine: Work, whole: bool = False) -> None:
        """What hooks have put in the place of tensors is all clients' (``mine``) for these rows,
        and the model has the numbers of what is in its place. Raises UserError for what no hook may
        replace, for what is gone, and for what was not there, or is of another shape or type,
        unless all clients were given (``whole``).
        """
        called = type(self.rule).__name__
        for name in FIXED:
            if getattr(work, name) is not getattr(self.work, name):
                raise UserError(
                    f"{called} replaces work.{name} in a hook around a step, where nobody looks "
                    "for it"
                )
        self._require_in_place()
        for group in GROUPS:
            before, all_of_them, its = (getattr(one, group) for one in (self.work, mine, work))
            for name, new in [*its.items()]:
                old = before.get(name)
                if new is not old and not whole:
                    self._require_as(name, new, old)
                if new is not old:
                    all_of_them[name] = _merged(all_of_them[name], new, len(mine.clients))
            if gone := before.keys() - its.keys():
                raise UserError(
                    f"{called} removes {min(gone)!r} of work.{group} {NO_PART}; leave it there"
                )
        if work.w is not self.work.w:
            self._require_as("w", work.w, self.work.w)
            work.w = self.work.w.copy_(work.w.clone())

    def _require_in_place(self) -> None:
        """Raise UserError for a tensor that has gone to other memory (by ``.data = ...``): what is
        trained, or kept, stays where it was.
        """
        for group, name, tensor, place in self.places:
            if tensor.data_ptr() != place:
                called = f"work.{group}[{name!r}]" if name else "work.w"
                raise UserError(
                    f"{type(self.rule).__name__} gives {called} other memory (.data = ...), which "
                    f"nobody trains: write into it, or put another tensor in its place ({called} = "
                    "...)"
                )

    def _require_as(self, name: str, new: Tensor, old: Tensor | None) -> None:
        what = "adds" if old is None else "gives another shape or type to"
        if old is None or not _are_alike(new, old):
            raise UserError(
                f"{type(self.rule).__name__} {what} {name!r} of work.state or work.extras "
                f"{NO_PART}; make it in state() (what clients remember) or in begin (work.extras)"
            )


def _merged(all_of_them: Tensor, new: Tensor, clients: int) -> Tensor:
    """A tensor [C, ...] with ``new`` [active, ...] in its first rows, in memory that is nobody
    else's: gradients and models go on changing in theirs.
    """
    if all_of_them.dim() > 0 and len(all_of_them) == clients > len(new):
        return torch.cat([new, all_of_them[len(new) :]])
    return new.clone(memory_format=torch.contiguous_format)
