"""The Ray plane: places client actors, feeds them blocks, and replaces the ones that die."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np
import ray
from ray.actor import ActorHandle
from ray.exceptions import RayError
from torch import Tensor

from algorithms.local import Tensors
from orchestrator.clients.actor import ClientActor, Place, tensors_travel_as_arrays
from orchestrator.clients.dispatch import ATTEMPTS, Dispatch, Task
from orchestrator.clients.ledger import payload
from orchestrator.clients.plane import Job, Plane, listed
from orchestrator.cluster.reservation import Reservation
from orchestrator.config.schema import ResourcesConfig
from orchestrator.errors import UserError
from orchestrator.training.host import Answer, Key
from orchestrator.training.world import World

INLINE = 64 * 1024
"""Broadcasts up to this many bytes travel inside the calls, which is faster than the object
store."""


class RayPool(Plane):
    """Client actors in one placement group; work goes to whichever is idle, longest first."""

    def __init__(
        self, world: World, run: str, resources: ResourcesConfig, reserved: Reservation
    ) -> None:
        """Start the actors; of those whose place may be lost, the run goes on with the ones that
        start.

        Raises UserError if the others do not start within ``boot_timeout``.
        """
        tensors_travel_as_arrays()
        self.run_name, self.resources, self.reserved = run, resources, reserved
        self.actors = reserved.actors
        self.world = ray.put(world)
        self.label = uuid.uuid4().hex[:6]
        """Tells this pool's actors from those of an earlier one that are still on their way out."""
        self.incarnations = [0] * self.actors
        self.handles = [self._create(i) for i in range(self.actors)]
        self.failed_boots = 0
        self.booting: dict[Any, int] = {
            handle.ready.remote(): i for i, handle in enumerate(self.handles)
        }
        """Reference to an actor's first sign of life -> its number."""
        self.places: dict[int, Place] = {}
        """The other actors: their number -> where they are."""
        self.resident: dict[Key, int] = {}
        """Blocks that an actor keeps -> its number."""
        self.happened: list[str] = []
        if reserved.whole:
            self._await_all()

    def share(self, tensors: Tensors) -> Any:
        return tensors if payload(tensors) <= INLINE else ray.put(tensors)

    @property
    def available(self) -> int:
        return len(self.places)

    def events(self) -> list[str]:
        happened, self.happened = self.happened, []
        return happened

    def run(self, jobs: Sequence[Job]) -> list[Answer | None]:
        answers: list[Answer | None] = Dispatch(self, [self._task(job) for job in jobs]).run()
        for job in jobs:
            if not job.keep:
                self.resident.pop(job.key, None)
        return answers

    def evaluate(self, model: Any, chunks: Sequence[np.ndarray]) -> list[tuple[Tensor, Tensor]]:
        def task(rows: np.ndarray) -> Task:
            return Task(
                lambda _, actor: actor.evaluate.remote(model, rows), "evaluating", len(rows)
            )

        return Dispatch(self, [task(rows) for rows in chunks]).run()

    def forget(self, keys: Sequence[Key]) -> None:
        for key in keys:
            index = self.resident.pop(key, None)
            if index is not None:
                self.handles[index].forget.remote(key)

    def working(self) -> list[int]:
        """Actors that can be given work."""
        return sorted(self.places)

    def replace(self, index: int, why: str) -> None:
        """Put a new actor in a lost one's place; its blocks will be recreated wherever there is
        room.
        """
        self.happened.append(f"client actor {index} {why}; another takes its place")
        self.resident = {key: home for key, home in self.resident.items() if home != index}
        ray.kill(self.handles[index])
        self.places.pop(index, None)
        self.replaced += 1
        self.incarnations[index] += 1
        self.handles[index] = self._create(index)
        self.booting[self.handles[index].ready.remote()] = index

    def finish_boot(self, ref: Any, needed: bool = False) -> None:
        """Take an actor into service, or try another; one that will not start is left out where
        others work.

        Raises UserError if none works, or this one is ``needed``.
        """
        index = self.booting.pop(ref)
        try:
            self.places[index] = ray.get(ref)
            self.failed_boots = 0
        except RayError as error:
            self.failed_boots += 1
            if self.failed_boots < ATTEMPTS:
                self.replace(index, "died as it started")
                return
            reason = f"client actor {index} cannot be started: {_last_line(error)}"
            if needed or not self.places:
                raise UserError(reason) from error
            self.failed_boots = 0
            self.happened.append(f"{reason}; the run goes on without it")

    def close(self) -> None:
        for handle in self.handles:
            ray.kill(handle)
        self.reserved.end()

    def _task(self, job: Job) -> Task:
        def call(index: int, actor: ActorHandle) -> Any:
            if self.resident.get(job.key) == index:
                return actor.resume.remote(job.key, job.commands, job.keep)
            self.resident[job.key] = index
            return actor.start.remote(
                job.key, job.spec, job.received, job.replay, job.commands, job.keep
            )

        def home() -> int | None:
            kept, each = self.resident.get(job.key), self.resources.clients_per_actor
            if kept is not None or each is None:
                return kept
            fixed = int(job.spec.ids[0]) // each % self.actors
            return fixed if fixed in self.places else None  # while it is away, anywhere

        what = f"training clients {listed(job.spec.ids)} in round {job.spec.t}"
        return Task(call, what, job.cost, home, self.resources.on_timeout == "drop")

    def _create(self, index: int) -> ActorHandle:
        r = self.resources
        options: dict[str, Any] = {
            "name": f"{self.run_name} clients #{index}.{self.incarnations[index]} ({self.label})",
            "num_cpus": r.cpus_per_actor,
            "num_gpus": r.gpus_per_actor,
            "scheduling_strategy": self.reserved.place(index),
        }
        cls: Any = ray.remote(ClientActor)
        return cls.options(**options).remote(self.world, self.run_name, index, r.gpus_per_actor)

    def _await_all(self) -> None:
        patience = self.resources.boot_timeout
        deadline = time.monotonic() + patience
        try:
            while self.booting:
                done, _ = ray.wait(
                    [*self.booting], num_returns=1, timeout=max(0.0, deadline - time.monotonic())
                )
                if not done:
                    raise UserError(f"client actors did not start within {patience:.0f} s")
                self.finish_boot(done[0], needed=True)
        except BaseException:
            self.close()
            raise


def _last_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else repr(error)
