"""The trackers of a run: none of them can end it, and none can hold it up for long."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence

from orchestrator.credentials import discreet
from orchestrator.errors import UserError
from orchestrator.files import read_sealed
from orchestrator.results.contents import SEALED
from orchestrator.results.run_folder import RunFolder
from orchestrator.tracking.tracker import Log, Tracked, Tracker

FOLDER = "tracking"
"""Where a run keeps what its trackers must know to go on."""
PATIENCE = 30.0
"""Seconds that a run waits for a tracker at a checkpoint, and at its end."""

Call = Callable[[Log], None]


class Tracks:
    """What a run tells its trackers, each round and at its end."""

    def __init__(
        self,
        trackers: Sequence[Tracker],
        run: Tracked,
        folder: RunFolder,
        note: Callable[[str], None],
    ) -> None:
        """``note`` hears of each that has failed, or keeps the run waiting, once."""
        self.folder = folder
        self.lines = [
            (_Remote if one.remote else _Line)(one, run, folder, note) for one in trackers
        ]

    def add(self, record: Mapping[str, float]) -> None:
        """Pass on a round's metrics."""
        for line in self.lines:
            # one of its own for each, which it may do with as it likes
            line.do(lambda log, mine=dict(record): log.add(mine))  # type: ignore[misc]

    def flush(self) -> None:
        """Wait until all that was added is where it belongs."""
        for line in self.lines:
            line.do(lambda log: log.flush())
        for line in self.lines:
            line.wait()

    def end(self, ending: Mapping[str, object]) -> None:
        """Pass on how the run has ended, and its files; nothing follows."""
        files = [path for name in SEALED if (path := self.folder.path / name).is_file()]
        for line in self.lines:
            line.do(lambda log: log.end(dict(ending), list(files)))
        for line in self.lines:
            line.wait()
            line.close()


class _Line:
    """One tracker, which is called at once."""

    def __init__(
        self, tracker: Tracker, run: Tracked, folder: RunFolder, note: Callable[[str], None]
    ) -> None:
        self.name, self.note, self.folder = tracker.name, note, folder
        self.log: Log | None = None
        self.failed = False
        self._guarded(lambda: self._begin(tracker, run))

    def _begin(self, tracker: Tracker, run: Tracked) -> None:
        self.log = tracker.begin(
            Tracked(run.name, run.config, run.folder, run.done, self._known(run))
        )
        if self.log.known:
            (self.folder.path / FOLDER).mkdir(exist_ok=True)
            self.folder.write_sealed(self._file, {"known": self.log.known[:1000]})

    def _known(self, run: Tracked) -> str:
        """Of the process before; "" for a run that begins anew."""
        path = self.folder.path / self._file
        return read_sealed(path, dict[str, str]).get("known", "") if path.is_file() else ""

    @property
    def _file(self) -> str:
        return f"{FOLDER}/{self.name}.json"

    def do(self, call: Call) -> None:
        """Make the call, unless one has failed."""

        def called() -> None:
            assert self.log is not None
            call(self.log)

        self._guarded(called)

    def wait(self) -> None:
        """Until all calls are made."""

    def close(self) -> None:
        """No call follows."""

    def _guarded(self, call: Callable[[], None]) -> None:
        if self.failed:
            return
        try:
            call()
        except (Exception, SystemExit) as error:  # whatever other libraries raise
            self.failed = True
            said = (
                str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
            )
            why = " ".join(discreet(said).split())[:300]
            self.note(f"track: {self.name}: {why}; the run goes on without it")


class _Remote(_Line):
    """One whose calls may take long: they wait for one another, and the run does not."""

    def __init__(
        self, tracker: Tracker, run: Tracked, folder: RunFolder, note: Callable[[str], None]
    ) -> None:
        self.calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.slow = False
        # a daemon: a service that never answers does not keep the process from ending
        threading.Thread(target=self._work, daemon=True, name=f"track-{tracker.name}").start()
        super().__init__(tracker, run, folder, note)

    def _guarded(self, call: Callable[[], None]) -> None:
        self.calls.put(lambda: super(_Remote, self)._guarded(call))

    def _work(self) -> None:
        while (call := self.calls.get()) is not None:
            call()

    def wait(self) -> None:
        done = threading.Event()
        self.calls.put(done.set)
        # one that was slow is not waited for again
        if not self.slow and not done.wait(PATIENCE):
            self.slow = True
            self.note(
                f"track: {self.name} has not answered for {PATIENCE:g} s; the run goes on, and "
                "what it has not taken by its end is lost there"
            )

    def close(self) -> None:
        self.calls.put(None)
