"""The folder of a run: what is written where, each file whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import pandas as pd
from safetensors.torch import save_file
from torch import Tensor

from orchestrator.config import Config, load
from orchestrator.errors import UserError
from orchestrator.results import checkpoint
from orchestrator.results.result import Result
from orchestrator.results.storage import Mirror, is_remote

LOCK = ".lock"


class RunFolder:
    """One run's folder: config.yaml, checkpoints/, tensorboard/, and the results."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[str] | None = None

    @classmethod
    def at(cls, place: str | Path) -> RunFolder:
        """The folder of a path, or the local copy of a URI's; raises UserError for a bad URI."""
        if is_remote(str(place)):
            return MirroredRunFolder(Mirror(str(place)))
        return RunFolder(Path(place).resolve())

    @classmethod
    def new(cls, place: str | Path) -> RunFolder:
        """A folder that is not there, or is empty; raises UserError otherwise. Writes nothing."""
        folder = cls.at(place)
        folder.require_empty()
        return folder

    @classmethod
    def existing(cls, place: str | Path) -> RunFolder:
        """The folder of an earlier run; raises UserError if it is not one."""
        folder = cls.at(place)
        if folder.holds("config.yaml"):
            folder.fetch("config.yaml")
        return folder._known(place)

    @classmethod
    def viewed(cls, place: str) -> RunFolder:
        """The folder of an earlier run, only to be read; raises UserError if it is not one."""
        if not is_remote(place):
            return cls.existing(place)
        folder = MirroredRunFolder(Mirror(place, "viewed"))
        # checkpoints and TensorBoard files are in folders, and nobody looks at them
        folder.collect(lambda name: "/" not in name)
        return folder._known(place)

    @property
    def place(self) -> str:
        """Where a user finds the results."""
        return str(self.path)

    def _taken(self, besides: str) -> bool:
        """Whether anything but ``besides`` is there."""
        path = self.path
        if not path.exists():
            return False
        return not path.is_dir() or any(p.name not in (LOCK, besides) for p in path.iterdir())

    def require_empty(self, besides: str = "") -> None:
        """Raises UserError if anything but ``besides`` is there."""
        if self._taken(besides):
            raise UserError(
                f"--out {self.place}: it exists and is not empty; choose another, or continue it "
                "(see --resume)"
            )

    def holds(self, name: str) -> bool:
        """Whether there is a file of that name."""
        return (self.path / name).is_file()

    # What follows brings a copy here and the results there up to date with one another, where they
    # are not the same folder; see MirroredRunFolder.

    def fetch(self, *names: str) -> None:
        """Bring files here; raises UserError if that fails."""

    def collect(self, wanted: Callable[[str], bool]) -> None:
        """Bring here what was written there by others, where a file's name is ``wanted``."""

    def send(self) -> None:
        """Bring there what has changed here; raises UserError if that fails."""

    def publish(self) -> None:
        """:meth:`send`, and remove there what is gone here; raises UserError if that fails."""

    def refresh(self, resuming: bool) -> None:
        """Start with a copy of what is there, or (unless ``resuming``) with nothing."""

    def discard(self) -> None:
        """Remove the copy here, which nobody will look for."""

    def _known(self, place: str | Path) -> RunFolder:
        if not self.begun:
            raise UserError(f"{place} is not the folder of a run: it holds no config.yaml")
        return self

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def config(self) -> Config:
        """The config that the run was started with."""
        return load(self.path / "config.yaml")

    @property
    def begun(self) -> bool:
        """Whether a run has ever been opened here."""
        return (self.path / "config.yaml").is_file()

    @property
    def finished(self) -> bool:
        """Whether a run has come to its end here."""
        return (self.path / "result.json").is_file() and self.result().get("status") == "finished"

    def make(self) -> None:
        """Create the folder, if it is not there; raises UserError if that is impossible."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"--out {self.path}: cannot be created: {error.strerror}") from error

    def open(self, config: Config) -> None:
        """Create the folder with the resolved config."""
        self.make()
        self.write_text("config.yaml", config.dump())

    @property
    def claimed(self) -> bool:
        """Whether this process holds it."""
        return self._lock is not None

    def claim(self, patience: float = 0.0) -> None:
        """Keep other processes out of this folder until :meth:`release`, or this process ends.

        Raises UserError if it cannot be written, or another one holds it and does not let go for
        ``patience`` seconds.
        """
        try:
            # a+ leaves what is in it, which says who holds it
            lock = (self.path / LOCK).open("a+", encoding="utf-8")
        except OSError as error:
            raise UserError(f"{self.path}: cannot be written: {error.strerror}") from error
        deadline = time.monotonic() + patience
        while not _locked(lock):
            if time.monotonic() >= deadline:
                lock.seek(0)
                holder = lock.read().strip() or "another process"
                lock.close()
                raise UserError(f"{self.path} is in use: {holder} is running into it")
            time.sleep(0.2)
        lock.truncate(0)
        lock.write(f"process {os.getpid()} on {socket.gethostname()}")
        lock.flush()
        self._lock = lock

    def release(self) -> None:
        """Let others have the folder."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def write_text(self, name: str, text: str) -> None:
        """Write a file atomically."""
        # hidden, so that no mirror copies it while it is written
        partial = self.path / f".{name}.partial"
        partial.write_text(text, encoding="utf-8")
        partial.replace(self.path / name)

    def save(self, t: int, state: Mapping[str, Any], keep: int) -> None:
        """Write round ``t``'s checkpoint; raises UserError if the disk refuses (others stay)."""
        try:
            checkpoint.save(self.checkpoints, t, state, keep)
        except OSError as error:
            raise UserError(
                f"cannot write the checkpoint of round {t} to {self.checkpoints}: {error}"
            ) from error
        # older checkpoints that have gone here go there, too
        self.publish()

    def write_table(self, name: str, table: pd.DataFrame) -> None:
        """Write a parquet file atomically."""
        partial = self.path / f".{name}.partial"
        table.to_parquet(partial, index=False)
        partial.replace(self.path / name)

    def write_model(self, tensors: Mapping[str, Tensor]) -> None:
        """Write model.safetensors atomically."""
        partial = self.path / ".model.partial"
        save_file(dict(tensors), partial)
        partial.replace(self.path / "model.safetensors")

    def result(self) -> Result:
        """result.json of a run that has ended; raises UserError if there is none."""
        try:
            found: Result = json.loads((self.path / "result.json").read_text())
            return found
        except (OSError, ValueError) as error:
            raise UserError(f"{self.path} holds no readable result.json: {error}") from error

    def rounds(self) -> pd.DataFrame:
        """rounds.parquet; raises UserError if it cannot be read."""
        return self._table("rounds.parquet")

    def clients(self) -> pd.DataFrame:
        """clients.parquet; raises UserError if it cannot be read."""
        return self._table("clients.parquet")

    def _table(self, name: str) -> pd.DataFrame:
        try:
            return pd.read_parquet(self.path / name)
        except (OSError, ValueError) as error:
            raise UserError(f"cannot read {self.path / name}: {error}") from error


class MirroredRunFolder(RunFolder):
    """A folder here whose copy in storage is what the user asked for."""

    def __init__(self, mirror: Mirror) -> None:
        super().__init__(mirror.local)
        self.mirror = mirror

    @property
    def place(self) -> str:
        return self.mirror.uri

    def _taken(self, besides: str) -> bool:
        return any(name.split("/")[0] != besides for name in self.mirror.there)

    def holds(self, name: str) -> bool:
        return name in self.mirror.there

    def fetch(self, *names: str) -> None:
        self.mirror.fetch(*names)

    def collect(self, wanted: Callable[[str], bool]) -> None:
        self.mirror.pull(wanted)

    def send(self) -> None:
        self.mirror.push()

    def publish(self) -> None:
        self.mirror.push()
        self.mirror.prune()

    def refresh(self, resuming: bool) -> None:
        if resuming:
            self.mirror.pull()
        else:
            self.mirror.clear()

    def discard(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def _locked(lock: IO[str]) -> bool:
    """Whether the file could be locked; the kernel unlocks it when its process ends in any way."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        # some network file systems keep no locks; a run there is not protected from another
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP):
            raise
    return True
