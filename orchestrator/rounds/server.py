"""The server of a run as a Ray actor: owns the round loop, the checkpoints and the metrics."""

from __future__ import annotations

import contextlib
import threading
import traceback
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import RayActorError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from orchestrator.clients.plane import Plane
from orchestrator.clients.pool import RayPool
from orchestrator.cluster.reservation import kept, reserve
from orchestrator.config import Config
from orchestrator.errors import UserError
from orchestrator.monitoring.exporter import Exporter
from orchestrator.results.run_folder import RunFolder
from orchestrator.rounds.drive import begin, drive, leave_failure, own
from orchestrator.rounds.experiment import Experiment
from orchestrator.rounds.metrics import Record
from orchestrator.training.world import World

NAMESPACE = "fedorch"
ENDS_AFTER = 60.0
"""Seconds that a detached server which has ended waits for the command that started it."""

RESTARTS = 3
"""How often a server whose process died is started again; a preempted node does not count."""
CUT_OFF = 300.0
"""Seconds that a server which was started again waits for the folder: on a node that was cut off
from the cluster, Ray ended the one before it only after three minutes."""
TELL_AGAIN = 5.0
"""Seconds after which a server is told to stop again: its process may have died and been started
again since."""
AGAIN = "the server's process died; it was started again from the newest checkpoint"


@dataclass(frozen=True)
class Progress:
    """What has happened since the caller last asked."""

    life: str
    """Of the server's process; another one has notes of its own."""
    records: list[Record]
    ended: bool
    notes: list[str]
    """What went wrong and was mended, newest last."""


class Server:
    """Driver actor of one run.

    It works in a thread of its own, so that it can be asked while it works, and begins by itself:
    when Ray starts it again after its process died, it continues from the newest checkpoint, and
    callers see nothing but the pause.
    """

    def __init__(self, config: Config, out: str, resuming: bool, detached: bool) -> None:
        self.config, self.folder, self.detached = config, RunFolder.at(out), detached
        self.life = uuid.uuid4().hex
        self.again = bool(ray.get_runtime_context().was_current_actor_reconstructed)
        self.notes = [AGAIN] if self.again else []
        self.resuming = resuming or self.again
        self.changed = threading.Condition()
        self.records: list[Record] = []
        self.facts: dict[str, Any] | None = None
        self.result: dict[str, Any] | None = None
        self.failure: Exception | None = None
        self.stopping = threading.Event()
        self.answered = threading.Event()
        threading.Thread(target=self._work, daemon=True).start()

    def __repr__(self) -> str:
        return f"fedorch {self.config.name} server"

    def _work(self) -> None:
        """Build the experiment and the client actors, then the round loop."""
        try:
            if self.again:
                own(self.folder, self.resuming, CUT_OFF)
            experiment = Experiment(
                self.config, lambda world: ray_plane(world, self.config, self.again)
            )
            try:
                facts = begin(experiment, self.folder, self.resuming)
                with self.changed:
                    self.notes += facts["notes"] if self.again else []
                    self.records, self.facts = list(experiment.records), facts
                    self.changed.notify_all()
                result = self._drive(experiment)
            finally:
                experiment.close()
            with self.changed:
                self.result = result
        except Exception as error:
            traceback.print_exc()  # to the actor's log in Ray's dashboard, whoever else hears of it
            self.failure = error
            if (
                self.facts is None and self.folder.claimed
            ):  # nobody may ask once more whether the run is prepared
                leave_failure(self.folder, {"name": self.config.name}, error)
                self.folder.release()
        with self.changed:
            self.changed.notify_all()
        if self.detached:  # nobody owns this actor, so it ends itself; the results are on disk
            self.answered.wait(ENDS_AFTER)
            ray.kill(ray.get_runtime_context().current_actor)

    def _drive(self, experiment: Experiment) -> dict[str, Any]:
        plane = experiment.federation.plane
        exporter = Exporter(self.config, self.folder.place, plane, experiment.t)

        def tell(record: Record) -> None:
            exporter.tell(record)
            with self.changed:
                self.notes += plane.events()
                self.records.append(record)
                self.changed.notify_all()

        try:
            return drive(experiment, self.folder, tell, self.stopping.is_set)
        finally:
            exporter.close()

    def prepared(self) -> dict[str, Any]:
        """Facts about the plan, once the client actors are there; raises what went wrong."""
        with self.changed:
            self.changed.wait_for(lambda: self.facts is not None or self.failure is not None)
        self.answered.set()
        if self.facts is None:
            assert self.failure is not None
            raise self.failure
        return self.facts

    def watch(self, seen: int) -> Progress:
        """Wait until there are more than ``seen`` records, or the run has ended."""
        with self.changed:
            self.changed.wait_for(lambda: len(self.records) > seen or self._ended())
            return Progress(self.life, self.records[seen:], self._ended(), list(self.notes))

    def outcome(self) -> dict[str, Any]:
        """The result, once the run has ended; raises what went wrong."""
        with self.changed:
            self.changed.wait_for(self._ended)
        if self.result is None:
            assert self.failure is not None
            raise self.failure
        return self.result

    def stop(self) -> None:
        """End after the round under way, with a checkpoint."""
        self.stopping.set()

    def _ended(self) -> bool:
        return self.result is not None or self.failure is not None


def ray_plane(world: World, config: Config, again: bool = False) -> Plane:
    """The client actors of a run; those of before, or as many as there is room for, if the server
    runs ``again``.
    """
    reserved = kept() if again else None
    if reserved is None:
        reserved = reserve(config.resources, config.data.clients, fewer=again)
    return RayPool(world, config.name, config.resources, reserved)


def launch(config: Config, out: str | Path, resuming: bool, detached: bool = False) -> ActorHandle:
    """Create the server actor on this node; it shows in the dashboard under the run's name.

    It asks for one byte of memory because Ray puts an actor that asks for nothing on any node, soft
    strategy or not.
    """
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    remote: Any = ray.remote
    cls = remote(
        num_cpus=0, memory=1, max_concurrency=8, max_restarts=RESTARTS, max_task_retries=-1
    )(Server)
    try:
        return cls.options(
            name=f"{config.name} @ {out}",
            namespace=NAMESPACE,
            scheduling_strategy=here,
            lifetime="detached" if detached else None,
        ).remote(config, str(out), resuming, detached)
    except ValueError as error:
        raise UserError(f"a run with folder {out} is already under way on this cluster") from error


def halt(place: str) -> None:
    """Have the run that goes into the folder ``place`` end after its round, and wait until it has.

    Raises UserError if no run goes there on this cluster.
    """
    names = [
        one["name"]
        for one in ray.util.list_named_actors(all_namespaces=True)
        if one["namespace"] == NAMESPACE
    ]
    name = next((n for n in names if n.endswith(f" @ {place}")), None)
    if name is None:
        raise UserError(f"no run goes into {place} on this cluster")
    server = ray.get_actor(name, NAMESPACE)
    with contextlib.suppress(RayActorError):
        ray.get(server.stop.remote())
        ended = (
            server.outcome.remote()
        )  # its answer may be lost: a detached server ends itself with its run
        while not ray.wait([ended], timeout=TELL_AGAIN)[0]:
            ray.get(server.stop.remote())


def answer(reference: Any) -> Any:
    """``ray.get`` that turns a server's UserError, or its death, into a UserError here."""
    try:
        return ray.get(reference)
    except RayTaskError as error:
        if isinstance(error.cause, UserError):
            raise UserError(str(error.cause)) from error
        raise
    except RayActorError as error:
        raise UserError(
            f"the server of the run died: {str(error).splitlines()[0]}; continue it with --resume"
        ) from error
