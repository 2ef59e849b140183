"""The Ray plane: places client actors, feeds them blocks, and replaces the ones that die."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import ray
from ray.actor import ActorHandle
from ray.exceptions import GetTimeoutError, OwnerDiedError, RayActorError, RayTaskError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from torch import Tensor

from algorithms.local import Tensors
from orchestrator.clients.actor import ClientActor, Place, tensors_travel_as_arrays
from orchestrator.clients.plane import Job, Plane
from orchestrator.errors import UserError
from orchestrator.training.host import Answer, Key
from orchestrator.training.world import World

ATTEMPTS = 4
"""How often one piece of work may lose its actor before the run gives up."""


@dataclass(frozen=True)
class Resources:
    """What each client actor is pinned to, and how many there are."""

    actors: int
    cpus_per_actor: float
    gpus_per_actor: float
    clients_per_actor: int | None
    strategy: str
    boot_timeout: float


@dataclass
class Task:
    """One call to be made on some actor."""

    call: Callable[[ActorHandle], Any]
    """Makes the call and returns its reference."""
    what: str
    cost: int
    key: Key | None = None
    home: int | None = None
    """The actor that must execute it, if any."""
    attempts: int = 0


class RayPool(Plane):
    """Client actors in one placement group; work goes to whichever is idle, longest first."""

    def __init__(self, world: World, run: str, resources: Resources) -> None:
        tensors_travel_as_arrays()
        self.run_name, self.resources = run, resources
        self.actors = resources.actors
        self.world = ray.put(world)
        self.group = self._reserve()
        self.handles = [self._create(i) for i in range(self.actors)]
        self.booting: dict[Any, int] = {}
        self.resident: dict[Key, int] = {}
        self.places = self._boot()

    def share(self, tensors: Tensors) -> Any:
        return ray.put(tensors)

    def run(self, jobs: Sequence[Job]) -> list[Answer]:
        tasks = [self._task(job) for job in jobs]
        answers: list[Answer] = self._execute(tasks)
        for job in jobs:
            if not job.keep:
                self.resident.pop(job.key, None)
        return answers

    def evaluate(self, model: Any, chunks: Sequence[np.ndarray]) -> list[tuple[Tensor, Tensor]]:
        def call(rows: np.ndarray) -> Callable[[ActorHandle], Any]:
            return lambda actor: actor.evaluate.remote(model, rows)

        return self._execute([Task(call(rows), "evaluating", len(rows)) for rows in chunks])

    def forget(self, keys: Sequence[Key]) -> None:
        for key in keys:
            index = self.resident.pop(key, None)
            if index is not None:
                self.handles[index].forget.remote(key)

    def close(self) -> None:
        for handle in self.handles:
            ray.kill(handle)
        remove_placement_group(self.group)

    def _task(self, job: Job) -> Task:
        key, commands, keep = job.key, job.commands, job.keep

        def start(actor: ActorHandle) -> Any:
            return actor.start.remote(key, job.spec, job.received, job.replay, commands, keep)

        def resume(actor: ActorHandle) -> Any:
            if key in self.resident:
                return actor.resume.remote(key, commands, keep)
            return start(actor)

        what = f"training clients {', '.join(map(str, job.spec.ids[:5]))}"
        home = self.resident.get(key)
        if home is None and self.resources.clients_per_actor:
            home = int(job.spec.ids[0]) // self.resources.clients_per_actor
        return Task(resume, what, job.cost, key, home)

    def _execute(self, tasks: Sequence[Task]) -> list[Any]:
        """Run all tasks; results in the order of ``tasks``."""
        results: dict[int, Any] = {}
        queue = sorted(range(len(tasks)), key=lambda i: (-tasks[i].cost, i))
        running: dict[Any, tuple[int, int]] = {}
        idle = [i for i in range(self.actors) if i not in self.booting.values()]
        while len(results) < len(tasks):
            self._dispatch(tasks, queue, idle, running)
            done, _ = ray.wait([*running, *self.booting], num_returns=1)
            ref = done[0]
            if ref in self.booting:
                self._finish_boot(ref, idle)
                continue
            task, actor = running.pop(ref)
            try:
                results[task] = ray.get(ref)
                idle.append(actor)
            except RayTaskError as error:
                if not isinstance(error.cause, RayActorError | OwnerDiedError):
                    raise self._failed(tasks[task], error) from error.cause
                self._lost(actor, tasks[task], tasks)
                queue.insert(0, task)
            except (RayActorError, OwnerDiedError):
                self._lost(actor, tasks[task], tasks)
                queue.insert(0, task)
        return [results[i] for i in range(len(tasks))]

    def _dispatch(self, tasks: Sequence[Task], queue: list[int], idle: list[int], running: dict[Any, Any]) -> None:
        """Give every idle actor the longest waiting task that it may execute."""
        for actor in sorted(idle):
            task = next((i for i in queue if tasks[i].home in (None, actor)), None)
            if task is None:
                continue
            queue.remove(task)
            idle.remove(actor)
            running[tasks[task].call(self.handles[actor])] = (task, actor)
            key = tasks[task].key
            if key is not None:
                self.resident[key] = actor

    def _lost(self, actor: int, task: Task, tasks: Sequence[Task]) -> None:
        """Replace a dead actor; its blocks are to be recreated wherever there is room."""
        task.attempts += 1
        if task.attempts >= ATTEMPTS:
            raise UserError(f"client actor {actor} died {ATTEMPTS} times while {task.what}; see its log in Ray's")
        for key in [k for k, a in self.resident.items() if a == actor]:
            del self.resident[key]
        if not self.resources.clients_per_actor:
            for other in tasks:
                other.home = None if other.home == actor else other.home
        ray.kill(self.handles[actor])
        self.replaced += 1
        self.handles[actor] = self._create(actor)
        self.booting[self.handles[actor].ready.remote()] = actor

    def _finish_boot(self, ref: Any, idle: list[int]) -> None:
        actor = self.booting.pop(ref)
        try:
            self.places[actor] = ray.get(ref)
            idle.append(actor)
        except RayActorError as error:
            raise UserError(f"client actor {actor} cannot be restarted: {_first_line(error)}") from error

    def _failed(self, task: Task, error: RayTaskError) -> Exception:
        cause = error.cause
        return cause if isinstance(cause, UserError) else RuntimeError(f"{task.what}: {cause!r}\n{error}")

    def _reserve(self) -> PlacementGroup:
        """One bundle per actor; raises UserError if the cluster cannot give them in time."""
        r = self.resources
        bundle = {k: v for k, v in (("CPU", r.cpus_per_actor), ("GPU", r.gpus_per_actor)) if v}
        group = placement_group([bundle or {"CPU": 0.001}] * r.actors, strategy=r.strategy)
        if not group.wait(r.boot_timeout):
            remove_placement_group(group)
            free = {k: v for k, v in ray.available_resources().items() if k in ("CPU", "GPU")}
            raise UserError(f"resources: no room for {r.actors} x {bundle} within {r.boot_timeout:.0f} s; free: {free}")
        return group

    def _create(self, index: int) -> ActorHandle:
        r = self.resources
        place = PlacementGroupSchedulingStrategy(self.group, placement_group_bundle_index=index)
        options: dict[str, Any] = {
            "num_cpus": r.cpus_per_actor,
            "num_gpus": r.gpus_per_actor,
            "scheduling_strategy": place,
        }
        cls: Any = ray.remote(ClientActor)
        return cls.options(**options).remote(self.world, self.run_name, index, r.gpus_per_actor)

    def _boot(self) -> list[Place]:
        try:
            return ray.get([h.ready.remote() for h in self.handles], timeout=self.resources.boot_timeout)
        except GetTimeoutError as error:
            raise UserError(f"client actors did not start within {self.resources.boot_timeout:.0f} s") from error
        except (RayActorError, RayTaskError) as error:
            raise UserError(f"client actors could not start: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else repr(error)
