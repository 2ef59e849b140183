"""TensorBoard's files of events: one scalar per metric and round."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from orchestrator.files import said
from orchestrator.tracking.tracker import Log, Tracked


class Board(Log):
    """Writes a run's records; after a resume, later steps of the killed run are purged.

    A round's events are written at once, into a file that is opened for it: torch's SummaryWriter
    writes from a thread, whose errors end in a traceback, and come too late.
    """

    def __init__(self, run: Tracked) -> None:
        now, folder, done = time.time(), run.folder / "tensorboard", run.done
        # the name that TensorBoard looks for
        name = f"events.out.tfevents.{now:.6f}.{socket.gethostname()}.{os.getpid()}"
        self.path = folder / name
        self.first = Event(wall_time=now, step=done + 1, file_version="brain.Event:2")
        before = done or any(folder.glob("events.out.tfevents.*"))
        self.purge = [_purge(done + 1)] if before else []

    def add(self, record: Mapping[str, float]) -> None:
        """Add one round's record; raises UserError if it cannot be written."""
        values = [
            # TensorBoard groups by what precedes a slash: test/accuracy, test/loss
            Summary.Value(tag=name.replace("_", "/", 1), simple_value=value)
            for name, value in record.items()
            if name != "round"
        ]
        step = int(record["round"])
        self._write(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))

    def _write(self, event: Event) -> None:
        with said(f"cannot write {self.path}"):
            # somebody may have tidied it away, in mid-run
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as f:
                events = [event] if f.tell() else [self.first, *self.purge, event]
                for one in events:
                    RecordWriter(f).write(one.SerializeToString())


def _purge(step: int) -> Event:
    """Has TensorBoard forget what other files hold from that step on."""
    start = SessionLog(status=SessionLog.START)
    return Event(wall_time=time.time(), step=step, session_log=start)
