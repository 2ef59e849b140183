"""The folder of a run: what is written where, each file whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any

import pandas as pd
from safetensors.torch import save_file
from torch import Tensor

from orchestrator.config import Config, load
from orchestrator.errors import UserError
from orchestrator.results import checkpoint
from orchestrator.results.storage import Mirror, is_remote

LOCK = ".lock"
PACKAGES = ("fedorch", "ray", "torch", "torchvision", "numpy", "pydantic")


class RunFolder:
    """One run's folder: config.yaml, checkpoints/, tensorboard/, and the results."""

    def __init__(self, path: Path, mirror: Mirror | None = None) -> None:
        self.path, self.mirror = path, mirror
        self._lock: IO[str] | None = None

    @classmethod
    def at(cls, place: str | Path) -> RunFolder:
        """The folder of a path, or of a URI, whose local copy is then worked in; raises UserError
        for a bad URI.
        """
        if not is_remote(str(place)):
            return cls(Path(place).resolve())
        mirror = Mirror(str(place))
        return cls(mirror.local, mirror)

    @property
    def place(self) -> str:
        """Where a user finds the results."""
        return self.mirror.uri if self.mirror else str(self.path)

    @classmethod
    def new(cls, place: str | Path) -> RunFolder:
        """A folder that does not exist yet or is empty; raises UserError otherwise. Nothing is
        written.
        """
        folder = cls.at(place)
        folder.require_empty()
        return folder

    def require_empty(self, besides: str = "") -> None:
        """Raises UserError if anything but ``besides`` is there."""
        if self.mirror is not None:
            taken = any(name.split("/")[0] != besides for name in self.mirror.there)
        else:
            path = self.path
            taken = path.exists() and (
                not path.is_dir() or any(p.name not in (LOCK, besides) for p in path.iterdir())
            )
        if taken:
            raise UserError(
                f"--out {self.place}: it exists and is not empty; choose another, or continue it "
                "(see --resume)"
            )

    @classmethod
    def existing(cls, place: str | Path) -> RunFolder:
        """The folder of an earlier run; raises UserError if it is not one."""
        folder = cls.at(place)
        if folder.mirror is not None and "config.yaml" in folder.mirror.there:
            folder.mirror.fetch("config.yaml")
        return folder._known(place)

    @classmethod
    def viewed(cls, place: str) -> RunFolder:
        """The folder of an earlier run, to be read, not continued; raises UserError if it is not
        one.
        """
        if not is_remote(place):
            return cls.existing(place)
        mirror = Mirror(place, "viewed")
        mirror.pull(lambda name: "/" not in name)
        return cls(mirror.local, mirror)._known(place)

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
        """Keep other processes from running into this folder until :meth:`release`, or until this
        process ends.

        Raises UserError if it cannot be written, or another one holds it and does not let go for
        ``patience`` seconds.
        """
        try:
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

    def refresh(self, resuming: bool) -> None:
        """Where the results are elsewhere: start with a copy of what is there, or with nothing."""
        if self.mirror is not None:
            if resuming:
                self.mirror.pull()
            else:
                self.mirror.clear()

    def publish(self) -> None:
        """Where the results are elsewhere: bring that up to date; raises UserError if it cannot
        be."""
        if self.mirror is not None:
            self.mirror.push()
            self.mirror.prune()

    def discard(self) -> None:
        """Where the results are elsewhere: remove the copy here, which nobody will look for."""
        if self.mirror is not None:
            shutil.rmtree(self.path, ignore_errors=True)

    def release(self) -> None:
        """Let others have the folder."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def write_text(self, name: str, text: str) -> None:
        """Write a file atomically."""
        partial = self.path / f".{name}.partial"
        partial.write_text(text, encoding="utf-8")
        partial.replace(self.path / name)

    def save(self, t: int, state: Mapping[str, Any], keep: int) -> None:
        """Write the checkpoint of round ``t``; raises UserError if the disk refuses (older ones
        stay).
        """
        try:
            checkpoint.save(self.checkpoints, t, state, keep)
        except OSError as error:
            raise UserError(
                f"cannot write the checkpoint of round {t} to {self.checkpoints}: {error}"
            ) from error
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

    def result(self) -> dict[str, Any]:
        """result.json of a run that has ended; raises UserError if there is none."""
        try:
            return json.loads((self.path / "result.json").read_text())
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


def _locked(lock: IO[str]) -> bool:
    """Whether the file could be locked; the kernel unlocks it when its process ends, however that
    ends.
    """
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in (
            errno.ENOLCK,
            errno.ENOTSUP,
        ):  # some network file systems keep no locks
            raise
    return True


def told_apart(folders: list[RunFolder], names: list[str] | None = None) -> list[str]:
    """The runs' ``names``, or what tells them apart: the names of their folders, or the whole
    paths.
    """
    for known in (
        names or [],
        [f.place.partition("?")[0].rstrip("/").rpartition("/")[2] for f in folders],
    ):
        if known and len(set(known)) == len(folders):
            return known
    return [f.place for f in folders]


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide a run's bits."""
    found = {"python": sys.version.split()[0]}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def git_commit() -> str | None:
    """Commit of the source tree that runs, if it is a git checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
