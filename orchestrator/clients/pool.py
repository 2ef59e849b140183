"""The Ray plane: a crew of client actors in one placement group, fed with blocks."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np
import ray
from ray.actor import ActorHandle

from algorithms.local import Tensors
from orchestrator.clients.actor import ClientActor, tensors_travel_as_arrays
from orchestrator.clients.crew import Crew
from orchestrator.clients.dispatch import Dispatch, Errand, Reference
from orchestrator.clients.plane import Assignment, Plane, abridged
from orchestrator.cluster.reservation import Reservation
from orchestrator.config.schema import ResourcesConfig
from orchestrator.plugins.sources import publish
from orchestrator.training.evaluation import PerSample
from orchestrator.training.host import Answer, Key
from orchestrator.training.messages import weight
from orchestrator.training.world import World

INLINE = 64 * 1024
"""Broadcasts up to this many bytes travel inside the calls, which is faster than the object
store."""


class RayPool(Plane):
    """Work goes to whichever client actor is idle, longest first."""

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
        publish()
        # once for all actors, and for those that will replace them
        self.world = ray.put(world)
        self.label = uuid.uuid4().hex[:6]
        """Tells this pool's actors from those of an earlier one that are still on their way out."""
        self.crew = Crew(self.actors, self._create)
        if reserved.whole:
            self._await_all()

    @property
    def available(self) -> int:
        return len(self.crew.working())

    @property
    def replaced(self) -> int:
        return self.crew.replaced

    def events(self) -> list[str]:
        happened, self.crew.happened = self.crew.happened, []
        return happened

    def share(self, tensors: Tensors) -> Any:
        return tensors if weight(tensors) <= INLINE else ray.put(tensors)

    def run(self, assignments: Sequence[Assignment]) -> list[Answer | None]:
        answers: list[Answer | None] = self._dispatch([self._errand(a) for a in assignments])
        for one in assignments:
            if not one.keep:
                self.crew.homes.pop(one.key, None)
        return answers

    def evaluate(self, model: Any, chunks: Sequence[np.ndarray]) -> list[PerSample]:
        def errand(rows: np.ndarray) -> Errand:
            def call(number: int) -> Reference:
                return self.crew.handle(number).evaluate.remote(model, rows)

            return Errand(call, "evaluating", len(rows))

        return self._dispatch([errand(rows) for rows in chunks])

    def forget(self, keys: Sequence[Key]) -> None:
        for key in keys:
            number = self.crew.homes.pop(key, None)
            if number is not None:
                # nobody waits for it: an actor takes calls in the order in which they were made
                self.crew.handle(number).forget.remote(key)

    def close(self) -> None:
        self.crew.end()
        self.reserved.end()

    def _dispatch(self, errands: list[Errand]) -> list[Any]:
        limits = self.resources.client_timeout, self.resources.boot_timeout
        return Dispatch(self.crew, errands, *limits, self._count_repeat).run()

    def _count_repeat(self) -> None:
        self.repeated += 1

    def _errand(self, one: Assignment) -> Errand:
        crew, drop = self.crew, self.resources.on_timeout == "drop"

        def call(number: int) -> Reference:
            actor = crew.handle(number)
            if crew.homes.get(one.key) == number:
                return actor.resume.remote(one.key, one.commands, one.keep)
            # noted before it is true; if the actor dies first, the crew forgets all its blocks
            crew.homes[one.key] = number
            return actor.start.remote(
                one.key, one.spec, one.received, one.replay, one.commands, one.keep
            )

        what = f"training clients {abridged(one.spec.ids)} in round {one.spec.t}"
        return Errand(call, what, one.cost, lambda: self._home(one), drop)

    def _home(self, one: Assignment) -> int | None:
        """The actor that must do an assignment: the one that has its block, or, where the config
        gives every client a home, that one while it is there.
        """
        resident, each = self.crew.homes.get(one.key), self.resources.clients_per_actor
        if resident is not None or each is None:
            return resident
        home = int(one.spec.ids[0]) // each % self.actors
        return home if home in self.crew.working() else None

    def _create(self, number: int, life: int) -> ActorHandle[Any]:
        r = self.resources
        # no max_restarts: Ray would bring it back without its clients' state
        options: dict[str, Any] = {
            "name": f"{self.run_name} clients #{number}.{life} ({self.label})",
            "num_cpus": r.cpus_per_actor,
            "num_gpus": r.gpus_per_actor,
            "scheduling_strategy": self.reserved.bundle_of(number),
        }
        cls: Any = ray.remote(ClientActor)
        return cls.options(**options).remote(self.world, self.run_name, number, r.gpus_per_actor)

    def _await_all(self) -> None:
        try:
            self.crew.await_all(self.resources.boot_timeout)
        # an interrupt, too: nobody outside knows of these actors yet
        except BaseException:
            self.close()
            raise
