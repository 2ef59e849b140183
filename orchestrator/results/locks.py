"""Locks of folders: a file that a process holds until it ends, however it ends."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from pathlib import Path
from typing import IO

from orchestrator.files import require_file, said

NAME = ".lock"


def take(path: Path) -> IO[str] | None:
    """The locked file, made where it is missing; None if another one holds it.

    Raises UserError if it cannot be written, or is no file: a link would have another file written.
    """
    with said(f"{path.parent}: cannot be written: {path.name}"):
        # the folder may be gone with the process that held it
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = _opened(path)
    if _locked(lock) and is_at(lock, path):
        return lock
    lock.close()
    return None


def is_held(path: Path) -> bool | None:
    """Whether a process holds the lock; None if that cannot be known: there is no such file, or its
    file system keeps no locks.
    """
    try:
        require_file(path)
        with path.open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False


def is_at(file: IO[str], path: Path) -> bool:
    """Whether an open file is still what has that name: one that was removed keeps nobody out."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file.fileno()), path.lstat())
    return False


def _opened(path: Path) -> IO[str]:
    """The file, with what is in it; raises OSError for a link, a folder or a pipe."""
    if path.is_symlink():
        raise OSError(errno.ELOOP, "it is a link")
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(path, flags, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no file")
    return os.fdopen(descriptor, "r+", encoding="utf-8")


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
