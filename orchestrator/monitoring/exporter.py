"""Tells the cluster how a run is doing: metrics for Prometheus, a note for ``fedorch top``."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

import ray
from pydantic import TypeAdapter, ValidationError
from ray.experimental import internal_kv
from ray.util.metrics import Counter, Gauge

from orchestrator.clients.plane import Plane
from orchestrator.config import Config
from orchestrator.monitoring.signals import BYTES, LABELS, PHASE_SECONDS, PHASES, SIGNALS

HEARTBEAT = 5.0
"""Seconds between repetitions: Ray forgets a gauge that has not been set for two of its report
intervals (20 s)."""
PERIOD = 1.0
"""Seconds between looks at what is new."""
BOARD = b"fedorch"
"""Namespace of the notes in the cluster's key-value store."""
REMEMBERED = 60
"""Rounds whose accuracy a note holds."""


@dataclass
class Note:
    """A run at a glance."""

    experiment: str
    trial: str
    actor: str
    """Ray's id of the actor that runs it."""
    folder: str
    rounds: int
    round: int = 0
    seconds: float = 0.0
    """Mean duration of the rounds that this process has done."""
    accuracy: list[float] = field(default_factory=list)
    metric: str = ""
    bytes: float = 0.0
    client_actors: int = 0
    working: int = 0
    replaced: int = 0
    gpus: float = 0.0
    """GPUs of the client actors at work."""
    updated: float = 0.0
    """When it was written (seconds since the epoch)."""


class Exporter:
    """Lives as long as a run does in this process; ``tell`` it every round."""

    def __init__(
        self,
        config: Config,
        folder: str,
        plane: Plane,
        before: Sequence[Mapping[str, float]] = (),
        trial: str = "",
    ) -> None:
        """``before``: records of the rounds that were there when this process began."""
        done = len(before)
        self.tags = {"experiment": config.name, "trial": trial}
        actor = ray.get_runtime_context().get_actor_id() or ""
        self.note = Note(
            config.name, trial, actor, folder, config.rounds, done, client_actors=plane.actors
        )
        self.gpus = config.resources.gpus_per_actor
        self.key = f"{actor or os.getpid()}".encode()
        self.plane, self.began_at, self.spent = plane, done, 0.0
        self.gauges = {s.key: Gauge(s.name, s.about, LABELS) for s in SIGNALS}
        self.phases = Gauge(
            PHASE_SECONDS, "Duration of the last round's phases", (*LABELS, "phase")
        )
        self.bytes = Counter(BYTES, "Bytes of the algorithm's messages", (*LABELS, "direction"))
        for record in before:
            self._note(record)
        self.values: dict[str, float] = {"round": float(done)}
        self.times: dict[str, float] = {}
        self.ended, self.fresh = threading.Event(), False
        self._publish()
        self.thread = threading.Thread(target=self._beat, daemon=True)
        self.thread.start()

    def _note(self, record: Mapping[str, float]) -> None:
        """What a round adds to the run's line."""
        note = self.note
        note.bytes += record["bytes_up"] + record["bytes_down"]
        note.metric = next(
            (m for m in ("test_accuracy", "personal_accuracy_mean") if m in record), note.metric
        )
        if note.metric in record:
            note.accuracy = [*note.accuracy, record[note.metric]][-REMEMBERED:]

    def tell(self, record: dict[str, float]) -> None:
        """Publish one round's record."""
        plane, note = self.plane, self.note
        self._note(record)
        self.values.update({k: v for k, v in record.items() if k in self.gauges})
        self.times = {phase: record[f"seconds_{phase}"] for phase in PHASES}
        for direction in ("up", "down"):
            if sent := record[f"bytes_{direction}"]:
                self.bytes.inc(sent, {**self.tags, "direction": direction})
        self.spent += record["seconds"]
        note.round = int(record["round"])
        # of a resumed run only the rounds of this process were timed
        note.seconds = self.spent / max(1, note.round - self.began_at)
        note.replaced = plane.replaced
        self.fresh = True

    def close(self) -> None:
        """The run has ended here."""
        self.ended.set()
        # or a last beat would put back the note that is removed here
        self.thread.join()
        self._publish()
        internal_kv._internal_kv_del(self.key, namespace=BOARD)

    def _beat(self) -> None:
        """Publish at most every second, so that rounds do not wait, and at least every few."""
        said = time.monotonic()
        while not self.ended.wait(PERIOD):
            if self.fresh or time.monotonic() - said >= HEARTBEAT:
                self.fresh, said = False, time.monotonic()
                self._publish()

    def _publish(self) -> None:
        plane, note = self.plane, self.note
        note.working, note.gpus, note.updated = (
            plane.available,
            self.gpus * plane.available,
            time.time(),
        )
        counts = {
            "actors": plane.available,
            "actors_replaced": plane.replaced,
            "calls_repeated": plane.repeated,
        }
        # set again at every beat, changed or not: Ray forgets a gauge that is silent
        for key, value in (self.values | counts).items():
            self.gauges[key].set(value, self.tags)
        for phase, value in self.times.items():
            self.phases.set(value, {**self.tags, "phase": phase})
        internal_kv._internal_kv_put(
            self.key, json.dumps(asdict(note)).encode(), True, namespace=BOARD
        )


def notes() -> list[Note]:
    """All notes on the cluster that Ray is connected to, perhaps with those of dead actors; what
    another version, or somebody else, has left there is passed over.
    """
    found = []
    for key in internal_kv._internal_kv_list(b"", namespace=BOARD):
        value = internal_kv._internal_kv_get(key, namespace=BOARD)
        with contextlib.suppress(ValidationError):
            found += [TypeAdapter(Note).validate_json(value)] if value is not None else []
    return sorted(found, key=lambda n: (n.experiment, n.trial, n.actor))


def forget(note: Note) -> None:
    """Remove the note of an actor that is gone."""
    internal_kv._internal_kv_del(note.actor.encode(), namespace=BOARD)
