"""Dispatch: hands errands to workers, longest first, and lost and overdue ones out again.

It knows neither Ray nor a clock: both are the workers' (:class:`Workers`), so that any order of
lateness, death and restart can be tried without them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from orchestrator.errors import UserError

ATTEMPTS = 4
"""How often one errand may lose its worker, or be overdue, before the run gives up; and how many
starts of a worker may fail in a row."""

Reference = Any
"""A call under way, as its worker's side knows it (Ray's object reference); hashable."""


class Lost(Exception):
    """The worker was gone before it answered."""


class Failed(Exception):
    """What was called has raised an error of its own."""


class Workers(Protocol):
    """Who can be given errands, by number; when a worker dies its number gets another life."""

    def working(self) -> list[int]:
        """Numbers that can be given work now, ascending."""

    def life(self, number: int) -> int:
        """Which worker with that number this is, counted from 0."""

    def now(self) -> float:
        """Seconds on some clock that never goes back."""

    def wait(self, calls: Sequence[Reference], patience: float | None) -> Reference | None:
        """The first of ``calls`` that is done, or anything else once a worker has come into
        service; None after ``patience`` seconds (None: never).

        Raises UserError if no worker is left and none can be started.
        """

    def take(self, call: Reference) -> Any:
        """What a call that is done has answered; raises :class:`Lost`, UserError if the call did,
        and :class:`Failed` for any other error of its own.
        """

    def replace(self, number: int, why: str) -> None:
        """Start another worker in the place of one that died or is to be ended."""


@dataclass
class Errand:
    """One call to be made on some worker."""

    call: Callable[[int], Reference]
    """Begins the call on the worker of that number."""
    what: str
    """For people: what is being done."""
    cost: int
    """Expected work; longer errands are begun first."""
    home: Callable[[], int | None] = lambda: None
    """The worker that must execute it, if any."""
    droppable: bool = False
    """Whether it is given up (its result is None) when it takes too long."""
    attempts: int = 0
    """How often its worker was lost so far."""


@dataclass(frozen=True)
class InFlight:
    """A call under way."""

    errand: int
    worker: int
    life: int
    deadline: float
    """When it is overdue, on the workers' clock."""


class Dispatch:
    """One batch of errands."""

    def __init__(
        self,
        workers: Workers,
        errands: Sequence[Errand],
        limit: float | None = None,
        boot_timeout: float | None = None,
        on_repeat: Callable[[], None] = lambda: None,
    ) -> None:
        """``limit``: seconds after which a call is overdue and its worker is ended (None: never).

        ``boot_timeout``: seconds to wait for a worker when there is none. ``on_repeat`` is called
        whenever a call is to be made again because its worker was lost or too slow.
        """
        self.workers, self.errands = workers, errands
        self.limit, self.boot_timeout = limit, boot_timeout
        self.queue = sorted(range(len(errands)), key=lambda i: (-errands[i].cost, i))
        self.running: dict[Reference, InFlight] = {}
        self.results: dict[int, Any] = {}
        self.on_repeat = on_repeat

    def run(self) -> list[Any]:
        """Run all errands; results in their order.

        Raises UserError if one keeps losing its worker, or no worker comes back.
        """
        while len(self.results) < len(self.errands):
            self._hand_out()
            patience = self._patience() if self.running else self.boot_timeout
            done = self.workers.wait([*self.running], patience)
            # anything else is a worker's start, come to something or not: hand out anew
            if done in self.running:
                self._take(done, self.running.pop(done))
            elif done is None and self.running:
                self._end_overdue()
            elif done is None:
                raise UserError(
                    f"no client actor came back within {patience or 0:.0f} s; is the cluster out "
                    "of resources?"
                )
        return [self.results[i] for i in range(len(self.errands))]

    def _hand_out(self) -> None:
        """First one errand to every idle worker, then, while much is waiting, a second one to
        overlap its transfer (but not where calls are timed: it would count as late while it waits).
        """
        load = dict.fromkeys(self.workers.working(), 0)
        for call in self.running.values():
            if call.worker in load:
                load[call.worker] += 1
        for depth in (0,) if self.limit else (0, 1):
            for worker in load:
                enough = depth == 0 or len(self.queue) > len(load)
                if load[worker] == depth and enough and self._give(worker):
                    load[worker] += 1

    def _give(self, worker: int) -> bool:
        """Start the longest waiting errand that ``worker`` may execute; False if there is none."""
        errand = next((i for i in self.queue if self.errands[i].home() in (None, worker)), None)
        if errand is None:
            return False
        self.queue.remove(errand)
        ref = self.errands[errand].call(worker)
        life, now = self.workers.life(worker), self.workers.now()
        self.running[ref] = InFlight(errand, worker, life, now + (self.limit or math.inf))
        return True

    def _patience(self) -> float | None:
        """Seconds until the first running call is overdue; None: never."""
        if self.limit is None:
            return None
        first = min(call.deadline for call in self.running.values())
        return max(0.0, first - self.workers.now())

    def _end_overdue(self) -> None:
        """End the workers whose call takes too long; the work is done elsewhere, or given up."""
        assert self.limit is not None
        now = self.workers.now()
        for ref in [r for r, call in self.running.items() if call.deadline <= now]:
            call = self.running.pop(ref)
            errand = self.errands[call.errand]
            why = f"did not answer within {self.limit:g} s while {errand.what}"
            # a call under way cannot be cancelled, so its worker goes in either case
            if errand.droppable:
                self.workers.replace(call.worker, f"{why}, which are left out")
                self.results[call.errand] = None
            else:
                self._again(call, why)

    def _take(self, ref: Reference, call: InFlight) -> None:
        what = self.errands[call.errand].what
        try:
            self.results[call.errand] = self.workers.take(ref)
        except Lost:
            self._again(call, f"died while {what}")
        except Failed as error:
            raise RuntimeError(f"{what} failed: {error}") from error

    def _again(self, call: InFlight, why: str) -> None:
        """The worker was lost under the call: have it replaced (once), queue the errand again."""
        errand = self.errands[call.errand]
        errand.attempts += 1
        self.on_repeat()
        if errand.attempts >= ATTEMPTS:
            raise UserError(
                f"client actor {call.worker} {why}, {ATTEMPTS} times; see its log in Ray's "
                "dashboard"
            )
        # two calls can be under way on one worker; the first one lost has had it replaced
        if call.life == self.workers.life(call.worker):
            self.workers.replace(call.worker, why)
        # before all that waits: it was handed out before them
        self.queue.insert(0, call.errand)
