"""Dispatch: hands tasks to client actors, longest expected first, and hands lost ones out again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import ObjectLostError, RayActorError, RayTaskError

from orchestrator.errors import UserError

if TYPE_CHECKING:
    from orchestrator.clients.pool import RayPool

ATTEMPTS = 4
"""How often one task may lose its actor before the run gives up."""


@dataclass
class Task:
    """One call to be made on some actor."""

    call: Callable[[int, ActorHandle], Any]
    """Makes the call on the actor of that number and returns the reference to its result."""
    what: str
    cost: int
    home: Callable[[], int | None] = lambda: None
    """The actor that must execute it, if any."""
    attempts: int = 0


@dataclass(frozen=True)
class InFlight:
    """A call under way."""

    task: int
    actor: int
    incarnation: int


class Dispatch:
    """One batch of tasks on the pool's actors."""

    def __init__(self, pool: RayPool, tasks: Sequence[Task]) -> None:
        self.pool, self.tasks = pool, tasks
        self.queue = sorted(range(len(tasks)), key=lambda i: (-tasks[i].cost, i))
        self.running: dict[Any, InFlight] = {}
        self.results: dict[int, Any] = {}

    def run(self) -> list[Any]:
        """Run all tasks; results in their order. Raises UserError if a task keeps losing its actor."""
        while len(self.results) < len(self.tasks):
            self._hand_out()
            patience = None if self.running else self.pool.resources.boot_timeout
            done, _ = ray.wait([*self.running, *self.pool.booting], num_returns=1, timeout=patience)
            if not done:
                raise UserError(f"no client actor came back within {patience:.0f} s; is the cluster out of resources?")
            if done[0] in self.pool.booting:
                self.pool.finish_boot(done[0])
            else:
                self._take(done[0], self.running.pop(done[0]))
        return [self.results[i] for i in range(len(self.tasks))]

    def _hand_out(self) -> None:
        """First one task to every idle actor, then, while much is waiting, a second one to overlap its transfer."""
        load = dict.fromkeys(self.pool.working(), 0)
        for call in self.running.values():
            if call.actor in load:
                load[call.actor] += 1
        for depth in (0, 1):
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
        self.running[ref] = InFlight(task, actor, self.pool.incarnations[actor])
        return True

    def _take(self, ref: Any, call: InFlight) -> None:
        try:
            self.results[call.task] = ray.get(ref)
        except RayTaskError as error:
            if isinstance(error.cause, UserError):
                raise error.cause from error
            if not isinstance(error.cause, RayActorError | ObjectLostError):
                raise RuntimeError(f"{self.tasks[call.task].what} failed: {error}") from error
            self._again(call)
        except (RayActorError, ObjectLostError):
            self._again(call)

    def _again(self, call: InFlight) -> None:
        """The actor died under the call: have it replaced (once), and queue the task anew."""
        task = self.tasks[call.task]
        task.attempts += 1
        if task.attempts >= ATTEMPTS:
            raise UserError(f"client actor {call.actor} died {ATTEMPTS} times while {task.what}; see its log in Ray's")
        if call.incarnation == self.pool.incarnations[call.actor]:
            self.pool.replace(call.actor)
        self.queue.insert(0, call.task)
