"""The server of a run as a Ray actor: owns the round loop, the checkpoints and the metrics."""

from __future__ import annotations

import threading
import traceback
import uuid
from dataclasses import dataclass

import ray

from orchestrator.clients.plane import Plane
from orchestrator.clients.pool import RayPool
from orchestrator.cluster.reservation import reserve, reserved_before
from orchestrator.config import Config
from orchestrator.monitoring.exporter import Exporter
from orchestrator.results.result import Result
from orchestrator.results.run_folder import RunFolder
from orchestrator.rounds.drive import PATIENCE, Prepared, begin, drive, held, leave_failure
from orchestrator.rounds.experiment import Experiment
from orchestrator.rounds.metrics import Record
from orchestrator.training.world import World

ENDS_AFTER = 60.0
"""Seconds that a detached server which has ended waits for the command that started it."""

CUT_OFF = 300.0
"""Seconds that a server which was started again waits for the folder: on a node that was cut off
from the cluster, Ray ended the one before it only after three minutes."""
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
        self.prepared_run: Prepared | None = None
        self.result: Result | None = None
        self.failure: Exception | None = None
        self.stopping = threading.Event()
        self.answered = threading.Event()
        # the constructor must end before Ray lets anybody call
        threading.Thread(target=self._work, daemon=True).start()

    def __repr__(self) -> str:
        # Ray asks for it, too, of one whose constructor could not be called
        named = f" {self.config.name}" if hasattr(self, "config") else ""
        return f"fedorch{named} server"

    def _work(self) -> None:
        """Build the experiment and the client actors, then the round loop."""
        try:
            with held(self.folder, self.resuming, CUT_OFF if self.again else PATIENCE):
                self._run()
        except Exception as error:
            traceback.print_exc()  # to the actor's log in Ray's dashboard, whoever else hears of it
            self.failure = error
        with self.changed:
            self.changed.notify_all()
        if self.detached:  # nobody owns this actor, so it ends itself; the results are on disk
            self.answered.wait(ENDS_AFTER)
            ray.kill(ray.get_runtime_context().current_actor)

    def _run(self) -> None:
        try:
            experiment = Experiment(
                self.config, lambda world: ray_plane(world, self.config, self.again)
            )
            try:
                self._prepare(experiment)
                result = self._drive(experiment)
            finally:
                experiment.close()
        except Exception as error:
            if self.again and self.prepared_run is None:
                # nobody may ask once more whether the run is prepared
                leave_failure(self.folder, {"name": self.config.name}, error)
            raise
        with self.changed:
            self.result = result

    def _prepare(self, experiment: Experiment) -> None:
        prepared = begin(experiment, self.folder, self.resuming)
        with self.changed:
            # else the command that waits for `prepared` shows them
            self.notes += prepared.notes if self.again else []
            self.records, self.prepared_run = list(experiment.records), prepared
            self.changed.notify_all()

    def _drive(self, experiment: Experiment) -> Result:
        plane = experiment.federation.plane
        exporter = Exporter(self.config, self.folder.place, plane, experiment.records)

        def tell(record: Record) -> None:
            exporter.tell(record)
            with self.changed:
                self.notes += plane.events() + experiment.alarm.news()
                self.records.append(record)
                self.changed.notify_all()

        try:
            return drive(experiment, self.folder, tell, self.stopping.is_set)
        finally:
            with self.changed:  # also of the round that has failed
                self.notes += plane.events() + experiment.alarm.news()
            exporter.close()

    def prepared(self) -> Prepared:
        """What is about to run, once the client actors are there; raises what went wrong."""
        with self.changed:
            self.changed.wait_for(lambda: self.prepared_run is not None or self.failure is not None)
        # a detached server may end: who started it knows what became of it
        self.answered.set()
        if self.prepared_run is None:
            assert self.failure is not None
            raise self.failure
        return self.prepared_run

    def watch(self, seen: int) -> Progress:
        """Wait until there are more than ``seen`` records, or the run has ended."""
        with self.changed:
            self.changed.wait_for(lambda: len(self.records) > seen or self._ended())
            return Progress(self.life, self.records[seen:], self._ended(), list(self.notes))

    def outcome(self) -> Result:
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
    """A run's client actors; ``again``: those of before, or as many as there is room for."""
    reserved = reserved_before() if again else None
    if reserved is None:
        reserved = reserve(config.resources, config.data.clients, fewer=again)
    return RayPool(world, config.name, config.resources, reserved)
