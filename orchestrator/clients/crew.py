"""The crew: which client actors there are, which of them work, start or have been lost, and which
blocks are at home with whom.

Actors have numbers, and a number outlives its actor: when one dies, the next one with that number
is another *life*. Nothing here knows what the actors are asked; see ``dispatch`` for that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import (
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayActorError,
    RayError,
    RayTaskError,
)

from orchestrator.clients.actor import Process
from orchestrator.clients.dispatch import ATTEMPTS, Failed, Lost, Reference
from orchestrator.errors import UserError
from orchestrator.training.host import Key

GONE = (RayActorError, ObjectLostError, OutOfMemoryError, NodeDiedError)
"""What Ray raises for an actor that is gone, its memory monitor's victims among them."""


@dataclass
class Member:
    """One number of the crew."""

    handle: ActorHandle[Any]
    life: int = 0
    """How many actors had this number before."""
    process: Process | None = None
    """The process that it works in; None while it starts, or if it could not be started."""
    failures: int = 0
    """How many of its starts in a row have failed before."""


class Crew:
    """The client actors of a run. Implements :class:`orchestrator.clients.dispatch.Workers`."""

    def __init__(self, size: int, create: Callable[[int, int], ActorHandle[Any]]) -> None:
        """Start ``size`` actors. ``create(number, life)`` makes one, which need not be up yet."""
        self.create = create
        self.members = [Member(create(number, 0)) for number in range(size)]
        self.booting: dict[Reference, int] = {}
        """Reference to an actor's first sign of life -> its number."""
        for number in range(size):
            self._expect(number)
        self.homes: dict[Key, int] = {}
        """Blocks that an actor keeps -> its number."""
        self.replaced = 0
        """Actors that were replaced so far."""
        self.happened: list[str] = []
        """A sentence for each loss that nobody has been told of yet."""

    @property
    def processes(self) -> dict[int, Process]:
        """The processes of the actors that can be given work, by number."""
        return {n: m.process for n, m in enumerate(self.members) if m.process is not None}

    def working(self) -> list[int]:
        return [number for number, member in enumerate(self.members) if member.process is not None]

    def life(self, number: int) -> int:
        return self.members[number].life

    def handle(self, number: int) -> ActorHandle[Any]:
        """The actor that has this number now."""
        return self.members[number].handle

    def now(self) -> float:
        return time.monotonic()

    def wait(self, calls: Sequence[Reference], patience: float | None) -> Reference | None:
        done, _ = ray.wait([*calls, *self.booting], num_returns=1, timeout=patience)
        if done and done[0] in self.booting:
            self.finish_boot(done[0])
        return done[0] if done else None

    def take(self, call: Reference) -> Any:
        try:
            return ray.get(call)
        except RayTaskError as error:
            # the actor itself may live: what the call needed was lost with another node
            if isinstance(error.cause, GONE):
                raise Lost from error
            if (sentence := _sentence(error)) is not None:
                raise sentence from error
            raise Failed(error) from error
        except GONE as error:
            raise Lost from error

    def replace(self, number: int, why: str) -> None:
        self.happened.append(f"client actor {number} {why}; another takes its place")
        self.homes = {key: home for key, home in self.homes.items() if home != number}
        member = self.members[number]
        # it may be alive and only overdue; to kill a dead one does nothing
        ray.kill(member.handle)
        self.replaced += 1
        life = member.life + 1
        self.members[number] = Member(self.create(number, life), life)
        self._expect(number)

    def finish_boot(self, ref: Reference, needed: bool = False) -> None:
        """Take an actor into service that has started, or try another; one that will not start is
        left out where others work.

        Raises UserError if none works or starts, or this one is ``needed``.
        """
        number = self.booting.pop(ref)
        try:
            here: Any = ray.get(ref)
            self.members[number].process = here
        except RayError as error:
            failures = self.members[number].failures + 1
            # what it says of itself it would say again
            if failures < ATTEMPTS and _sentence(error) is None:
                self.replace(number, "died as it started")
                self.members[number].failures = failures
                return
            reason = f"client actor {number} cannot be started: {_reason(error)}"
            if needed or not (self.working() or self.booting):
                raise UserError(reason) from error
            self.happened.append(f"{reason}; the run goes on without it")

    def await_all(self, patience: float) -> None:
        """Wait until every actor works; raises UserError if one does not within ``patience`` s."""
        deadline = self.now() + patience
        while self.booting:
            left = max(0.0, deadline - self.now())
            done, _ = ray.wait([*self.booting], num_returns=1, timeout=left)
            if not done:
                raise UserError(f"client actors did not start within {patience:.0f} s")
            self.finish_boot(done[0], needed=True)

    def end(self) -> None:
        """End all actors."""
        for member in self.members:
            ray.kill(member.handle)

    def _expect(self, number: int) -> None:
        self.booting[self.members[number].handle.ready.remote()] = number


def _sentence(error: Exception) -> UserError | None:
    """What an actor itself has said to the user, if that is what the error is."""
    cause = error.cause if isinstance(error, RayTaskError) else None
    return cause if isinstance(cause, UserError) else None


def _reason(error: Exception) -> str:
    """What an actor has said of itself, or the last line of what has happened to it."""
    if (sentence := _sentence(error)) is not None:
        return str(sentence)
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else repr(error)
