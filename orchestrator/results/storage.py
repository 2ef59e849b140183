"""Results on storage such as ``s3://bucket/prefix``: a folder here, kept equal to one there."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, TypeVar
from urllib.parse import urlsplit

from pyarrow import ArrowException, fs

from orchestrator.cluster.waiting import patience, within
from orchestrator.errors import UserError, refuse_credentials
from orchestrator.files import cache
from orchestrator.results import locks
from orchestrator.results.places import join

OUTAGE = 60
"""Seconds that Google's storage may be away in the middle of a run."""
SILENCE = 600.0
"""Seconds that one call may take, the copy of a file among them: a storage that accepts calls and
answers none would hold up a run for ever."""
T = TypeVar("T")


class Mirror:
    """Copies a folder to a URI as it changes: any storage of pyarrow's (s3, gs, hdfs, file)."""

    def __init__(self, uri: str, viewed: bool = False) -> None:
        """``viewed``: a copy only to be looked at, by this process alone until it ends; else all
        processes on this machine have the same.

        Raises UserError if the URI has credentials in it, or there is no such storage, or it does
        not answer in time.
        """
        refuse_credentials(uri, "results at a URI")
        if "#" in uri:
            raise UserError(f"{uri}: what follows # in a URI names no place; write %23 for it")
        self.uri = join(uri)
        with _told(f"{self.uri}: cannot be reached"):
            self.files, self.base, self.there = within(patience(), self._first_look)
        self.sent: dict[str, tuple[int, int]] = {}
        """What was copied: name -> size and time of change."""
        name = hashlib.sha256(self.uri.encode()).hexdigest()[:16]
        self.local = _to_look_at(name) if viewed else cache() / "mirrored" / name
        """The folder on this machine whose copy is there."""

    @property
    def folder(self) -> Path | None:
        """The folder there, where it is one of this machine's (``file://``)."""
        return Path(self.base) if isinstance(self.files, fs.LocalFileSystem) else None

    def clear(self) -> None:
        """Empty the local folder, but for hidden files (a lock)."""
        for path in self.local.glob("[!.]*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        self.sent = {}

    def pull(self, wanted: Callable[[str], bool] = lambda name: True) -> None:
        """Replace the local folder by what is there and ``wanted``; raises UserError on failure."""
        self.look()
        if not self.there and (self.local / "config.yaml").exists():
            raise UserError(
                f"there is nothing at {self.uri} any more, and {self.local} has what this "
                "machine knows of it: put that there, or go on with that folder"
            )
        self.clear()
        self.fetch(*filter(wanted, self.there))
        # what has come from there need not be sent back
        self.sent = self._states()

    def look(self) -> None:
        """See what is there by now; raises UserError on failure."""
        self.there = self._ask("read", partial(_names, self.files, self.base))

    def fetch(self, *names: str) -> None:
        """Copy files from there; raises UserError if that fails."""
        for name in names:
            self._ask("read", partial(self._bring, name))

    def _bring(self, name: str) -> None:
        here = self.local / name
        here.parent.mkdir(parents=True, exist_ok=True)
        fs.copy_files(f"{self.base}/{name}", str(here), self.files, fs.LocalFileSystem())

    def push(self) -> None:
        """Copy what has changed; raises UserError if that fails.

        A checkpoint that was half copied when the machine died is a damaged one, which is passed
        over.
        """
        # looked at before copying: what changes meanwhile is copied again next time
        changed = self._states()
        for name in (n for n, state in changed.items() if self.sent.get(n) != state):
            source, target = str(self.local / name), f"{self.base}/{name}"
            self._ask("written", partial(self.files.create_dir, _parent(target), recursive=True))
            self._ask(
                "written", partial(fs.copy_files, source, target, fs.LocalFileSystem(), self.files)
            )
        self.sent = changed
        self.there |= set(changed)

    def prune(self) -> None:
        """Remove there what is gone here, but for hidden files, which are nobody's here; raises
        UserError if that fails.
        """
        kept = set(self._states())
        gone = self.there - kept
        empty = {_parent(name) for name in gone} - {_parent(name) for name in kept} - {""}
        for name in gone:
            self._ask("written", partial(self.files.delete_file, f"{self.base}/{name}"))
        for folder in empty:
            self._ask("written", partial(_forget_empty, self.files, f"{self.base}/{folder}"))
        self.there = kept

    def _ask(self, verb: str, call: Callable[[], T]) -> T:
        """What the storage answers; raises UserError if it refuses, or falls silent."""
        with _told(f"{self.uri}: cannot be {verb}"):
            return within(SILENCE, call)

    def _states(self) -> dict[str, tuple[int, int]]:
        """Size and time of change of local files, but for hidden ones: locks, or half-written."""
        paths = ((path, path.relative_to(self.local)) for path in sorted(self.local.rglob("*")))
        return {
            str(name): (path.stat().st_size, path.stat().st_mtime_ns)
            for path, name in paths
            if path.is_file() and not _hidden(str(name))
        }

    def _first_look(self) -> tuple[fs.FileSystem, str, set[str]]:
        """The storage, where in it, and the names of the files there."""
        files, base = fs.FileSystem.from_uri(_bounded(self.uri))
        if files.type_name == "mock":
            raise ValueError("it would be in the memory of one process, and gone with it")
        return files, base, _names(files, base)


def folders_in(uri: str) -> list[str]:
    """The names of the folders right there; raises UserError as :class:`Mirror`."""

    def look() -> list[fs.FileInfo]:
        files, base = fs.FileSystem.from_uri(_bounded(uri))
        return list(files.get_file_info(fs.FileSelector(base, allow_not_found=True)))

    with _told(f"{uri}: cannot be reached"):
        found = within(patience(), look)
    return sorted(one.base_name for one in found if one.type == fs.FileType.Directory)


_held: list[IO[str]] = []
"""Locks of the copies that this process looks at."""


def _to_look_at(name: str) -> Path:
    """The first of a URI's copies that no other process looks at; this one does until it ends."""
    for number in itertools.count(1):
        path = cache() / "viewed" / f"{name}-{number}"
        # beside it: what is in it is a copy of what is there
        lock = locks.take(path.with_name(f"{path.name}.lock"))
        if lock is not None:
            _held.append(lock)
            break
    return path


def _names(files: fs.FileSystem, base: str) -> set[str]:
    """Files there, but for hidden ones, which are neither copied nor removed."""
    found = files.get_file_info(fs.FileSelector(base, recursive=True, allow_not_found=True))
    names = {i.path.removeprefix(base).lstrip("/") for i in found if i.type == fs.FileType.File}
    return {name for name in names if not _hidden(name)}


def _hidden(name: str) -> bool:
    return any(part.startswith(".") for part in name.split("/"))


def _forget_empty(files: fs.FileSystem, folder: str) -> None:
    """Remove a folder if nothing is in it."""
    if not files.get_file_info(fs.FileSelector(folder, allow_not_found=True)):
        files.delete_dir(folder)


def _bounded(uri: str) -> str:
    """The URI with a bound on how long each call tries again: for S3 that is three times, but for
    Google's storage a quarter of an hour.
    """
    place, _, options = uri.partition("?")
    if urlsplit(place).scheme not in ("gs", "gcs") or "retry_limit_seconds=" in options:
        return uri
    return f"{place}?{options}{'&' if options else ''}retry_limit_seconds={OUTAGE}"


@contextlib.contextmanager
def _told(problem: str) -> Iterator[None]:
    """Say in one sentence what storage, or a URI, has against something."""
    try:
        yield
    except (OSError, ArrowException, ValueError) as error:
        raise UserError(f"{problem}: {' '.join(str(error).split())[:200]}") from error


def _parent(name: str) -> str:
    return name.rpartition("/")[0]
