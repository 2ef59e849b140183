"""Inputs that stay on the disk: rows of .npy files, read when they are asked for."""

from __future__ import annotations

import hashlib
import mmap
import os
import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from orchestrator.data.sources import reading
from orchestrator.errors import UserError

PIECE = 2**22
"""Bytes of inputs that are read at once where all are looked at."""
PROBES, PROBE = 64, 4096
"""How many parts of a file are compared where it is mapped again, and bytes of each."""


def mapped(path: Path) -> np.memmap:
    """The array of an .npy file (never a pickled one) as it lies on the disk; raises UserError if
    it cannot be read, or holds more or fewer bytes than its header says.
    """
    with reading(path):
        x = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(x, np.memmap):
            x.close()
            raise ValueError("not an .npy file")
        promised, there = x.offset + x.nbytes, path.stat().st_size
        if promised != there:
            raise ValueError(f"its header promises {promised} bytes, and it holds {there}")
        return x


@dataclass(frozen=True)
class MappedFile:
    """An .npy file of rows [n, ...]. It travels as its name and what tells it from others, and is
    mapped again where it arrives.
    """

    path: str
    """Absolute: it must lead to the same file on every node."""
    size: int
    """Bytes."""
    probe: str
    """Digest of parts of it (:func:`_probed`)."""

    @classmethod
    def of(cls, path: Path) -> MappedFile:
        """Raises UserError as :func:`mapped`, and for columns that lie one after the other."""
        x = mapped(path)
        if not x.flags.c_contiguous:
            # a row would be all over the file
            raise UserError(
                f"{path}: its array lies in Fortran's order, and rows are read from it one by one; "
                "save np.ascontiguousarray(x)"
            )
        return cls(str(path.absolute()), x.offset + x.nbytes, _probed(path))

    def __reduce__(self) -> tuple[type[MappedFile], tuple[str, int, str]]:
        return MappedFile, (self.path, self.size, self.probe)

    @cached_property
    def array(self) -> np.memmap:
        """All rows; raises UserError unless the file is here, and the one that it was."""
        path = Path(self.path)
        must = (
            "inputs that stay on the disk must be at the same path on every node "
            f"({platform.node()} has been asked)"
        )
        try:
            found = mapped(path)
            probe = _probed(path)
        except UserError as error:
            raise UserError(f"{error}; {must}") from error
        if (found.offset + found.nbytes, probe) != (self.size, self.probe):
            raise UserError(f"{path}: it is not the file that the run has begun with; {must}")
        return found

    @cached_property
    def _written(self) -> tuple[int, int] | None:
        """Which file it is, and when it was written last, as it is opened."""
        return _state(self.path)

    def rows(self, places: np.ndarray) -> np.ndarray:
        """A copy of the rows at ``places`` [b]; raises UserError for a file that has been cut."""
        whole, opened = self.array, self._written
        # the system ends a process, without a word, that looks beyond the end of a mapped file
        there = whole.base.size() if isinstance(whole.base, mmap.mmap) else self.size
        if there < self.size:
            raise UserError(
                f"{self.path}: it has been cut to {there} of its {self.size} bytes since it was "
                "checked"
            )
        now = _state(self.path)
        # another file of that name is no matter: the one that is open is still there
        if now and opened and now != opened and now[0] == opened[0]:
            if _probed(Path(self.path)) != self.probe:
                raise UserError(
                    f"{self.path}: it has been written to since it was opened; put back what was "
                    "there, and go on with --resume"
                )
            vars(self)["_written"] = now  # only its time is another
        return np.asarray(whole).take(places, axis=0)


def _state(path: str) -> tuple[int, int] | None:
    """Which file has that name, and when it was written last; None if there is none any more, of
    which an open one is left.
    """
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _probed(path: Path) -> str:
    """Digest of ``PROBES`` parts that are spread over a file, its head and its end among them: to
    read all of it on every node would take as long as a pass over the data.
    """
    sha = hashlib.sha256()
    with reading(path), path.open("rb") as f:
        last = max(0, path.stat().st_size - PROBE)
        for place in np.linspace(0, last, PROBES).astype(np.int64).tolist():
            f.seek(place)
            sha.update(f.read(PROBE))
    return sha.hexdigest()


@dataclass(frozen=True, eq=False)
class Mapped:
    """Inputs [n, ...] that lie in files, in any order. ``x[rows]`` is an array of some of them."""

    files: tuple[MappedFile, ...]
    form: Callable[[np.ndarray], np.ndarray]
    """Makes rows of the files inputs, as the rows of an array in memory are made; a function with a
    name, which can be sent. What it makes of a row does not depend on the others."""
    order: np.ndarray
    """Where each row is [n], counted through all files."""

    @classmethod
    def of(cls, files: tuple[MappedFile, ...], form: Callable[[np.ndarray], np.ndarray]) -> Mapped:
        """All rows as they lie."""
        return cls(files, form, np.arange(sum(len(file.array) for file in files)))

    def reordered(self, order: np.ndarray) -> Mapped:
        """Those at ``order`` [m]; none is read."""
        return replace(self, order=self.order[order])

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, rows: int | slice | np.ndarray) -> np.ndarray:
        places = self.order[rows]
        found = self.form(self._stored(np.atleast_1d(places)))
        return found if np.ndim(places) else found[0]

    @cached_property
    def _none(self) -> np.ndarray:
        """Inputs without a row [0, ...]."""
        return self[:0]

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self), *self._none.shape[1:])

    @property
    def ndim(self) -> int:
        return self._none.ndim

    @property
    def dtype(self) -> np.dtype:
        return self._none.dtype

    def _stored(self, places: np.ndarray) -> np.ndarray:
        """The files' rows at ``places`` [b]."""
        if len(self.files) == 1:
            return self.files[0].rows(places)
        arrays = [file.array for file in self.files]
        kind = np.result_type(*(one.dtype for one in arrays))
        found = np.empty((len(places), *arrays[0].shape[1:]), kind)
        start = 0
        for file in self.files:
            end = start + len(file.array)
            mine = (start <= places) & (places < end)
            found[mine] = file.rows(places[mine] - start)
            start = end
        return found


Inputs = np.ndarray | Mapped
"""In memory, or on the disk."""


def reordered(x: Inputs, order: np.ndarray) -> Inputs:
    """The rows of ``x`` at ``order`` [m]."""
    return x.reordered(order) if isinstance(x, Mapped) else x[order]


def pieces(x: Inputs, rows: int | None = None) -> Iterator[np.ndarray]:
    """The first ``rows`` of ``x`` (None: all), some MiB at a time."""
    end = len(x) if rows is None else rows
    step = max(1, PIECE // max(1, x[:1].nbytes))
    for start in range(0, end, step):
        yield x[start : min(end, start + step)]
