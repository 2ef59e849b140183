"""Dispatch: hands tasks to client actors, longest expected first, and hands lost and overdue ones
out again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import (
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayActorError,
    RayTaskError,
)

from orchestrator.errors import UserError

if TYPE_CHECKING:
    from orchestrator.clients.pool import RayPool

LOST = (RayActorError, ObjectLostError, OutOfMemoryError, NodeDiedError)
"""What Ray raises for an actor that is gone, its memory monitor's victims among them."""
ATTEMPTS = 4
"""How often one task may lose its actor, or be overdue, before the run gives up."""


@dataclass
class Task:
    """One call to be made on some actor."""

    call: Callable[[int, ActorHandle], Any]
    """Makes the call on the actor of that number and returns the reference to its result."""
    what: str
    cost: int
    home: Callable[[], int | None] = lambda: None
    """The actor that must execute it, if any."""
    droppable: bool = False
    """Whether it is given up (its result is None) when it takes too long."""
    attempts: int = 0


@dataclass(frozen=True)
class InFlight:
    """A call under way."""

    task: int
    actor: int
    incarnation: int
    begun: float


class Dispatch:
    """One batch of tasks on the pool's actors."""

    def __init__(self, pool: RayPool, tasks: Sequence[Task]) -> None:
        self.pool, self.tasks = pool, tasks
        self.queue = sorted(range(len(tasks)), key=lambda i: (-tasks[i].cost, i))
        self.running: dict[Any, InFlight] = {}
        self.results: dict[int, Any] = {}

    def run(self) -> list[Any]:
        """Run all tasks; results in their order. Raises UserError if a task keeps losing its
        actor."""
        while len(self.results) < len(self.tasks):
            self._hand_out()
            patience = self._patience() if self.running else self.pool.resources.boot_timeout
            done, _ = ray.wait([*self.running, *self.pool.booting], num_returns=1, timeout=patience)
            if not done and self.running:
                self._end_overdue()
            elif not done:
                raise UserError(
                    f"no client actor came back within {patience:.0f} s; is the cluster out of "
                    "resources?"
                )
            elif done[0] in self.pool.booting:
                self.pool.finish_boot(done[0])
            else:
                self._take(done[0], self.running.pop(done[0]))
        return [self.results[i] for i in range(len(self.tasks))]

    def _hand_out(self) -> None:
        """First one task to every idle actor, then, while much is waiting, a second one to overlap
        its transfer.
        """
        load = dict.fromkeys(self.pool.working(), 0)
        for call in self.running.values():
            if call.actor in load:
                load[call.actor] += 1
        for depth in (0,) if self.pool.resources.client_timeout else (0, 1):
            for actor in load:
                enough = depth == 0 or len(self.queue) > len(load)
                if load[actor] == depth and enough and self._give(actor):
                    load[actor] += 1

    def _give(self, actor: int) -> bool:
        """Start the longest waiting task that ``actor`` may execute; False if there is none."""
        task = next((i for i in self.queue if self.tasks[i].home() in (None, actor)), None)
        if task is None:
            return False
        self.queue.remove(task)
        ref = self.tasks[task].call(actor, self.pool.handles[actor])
        self.running[ref] = InFlight(task, actor, self.pool.incarnations[actor], time.monotonic())
        return True

    def _patience(self) -> float | None:
        """Seconds until the first running call is overdue; None: never."""
        limit = self.pool.resources.client_timeout
        if limit is None:
            return None
        return max(
            0.0, min(call.begun for call in self.running.values()) + limit - time.monotonic()
        )

    def _end_overdue(self) -> None:
        """End the actors whose call takes too long; the work is done elsewhere, or given up."""
        limit = self.pool.resources.client_timeout
        assert limit is not None
        late = [ref for ref, call in self.running.items() if time.monotonic() - call.begun >= limit]
        for ref in late:
            call = self.running.pop(ref)
            task = self.tasks[call.task]
            why = f"did not answer within {limit:g} s while {task.what}"
            if task.droppable:
                self.pool.replace(call.actor, f"{why}, which are left out")
                self.results[call.task] = None
            else:
                self._again(call, why)

    def _take(self, ref: Any, call: InFlight) -> None:
        try:
            self.results[call.task] = ray.get(ref)
        except RayTaskError as error:
            if isinstance(error.cause, UserError):
                raise error.cause from error
            if not isinstance(error.cause, LOST):
                raise RuntimeError(f"{self.tasks[call.task].what} failed: {error}") from error
            self._again(call, f"died while {self.tasks[call.task].what}")
        except LOST:
            self._again(call, f"died while {self.tasks[call.task].what}")

    def _again(self, call: InFlight, why: str) -> None:
        """The actor was lost under the call: have it replaced (once), and queue the task anew."""
        task = self.tasks[call.task]
        task.attempts += 1
        self.pool.repeated += 1
        if task.attempts >= ATTEMPTS:
            raise UserError(
                f"client actor {call.actor} {why}, {ATTEMPTS} times; see its log in Ray's dashboard"
            )
        if call.incarnation == self.pool.incarnations[call.actor]:
            self.pool.replace(call.actor, why)
        self.queue.insert(0, call.task)
