"""Where data files come from, in order: FEDORCH_DATA, user's cache, system's folder, download."""

from __future__ import annotations

import csv
import gzip
import lzma
import math
import os
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np

from orchestrator.data.room import need
from orchestrator.errors import UserError

SYSTEM = Path("/usr/share/fedorch")


def cache() -> Path:
    """The user's data cache, where downloads go."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedorch"


def folders() -> list[Path]:
    """The data folders in order of preference."""
    named = os.environ.get("FEDORCH_DATA")
    return [*([Path(named)] if named else []), cache(), SYSTEM]


def find(*relative: str) -> Path | None:
    """The first existing ``folder / name`` over folders, then names; raises UserError for a name
    that no file can have, and a folder that may not be looked into.
    """
    for place in [folder / name for folder in folders() for name in relative]:
        try:
            if place.exists():
                return place
        except OSError as error:
            raise UserError(f"cannot look for {str(place)[:200]}: {error.strerror}") from error
    return None


def missing(what: str, relative: Sequence[str], reason: object = "") -> UserError:
    """The error for data that is nowhere."""
    places = ", ".join(str(f) for f in folders())
    why = f" (download: {' '.join(str(reason).split())[:160]})" if reason else ""
    return UserError(
        f"dataset {what!r}: no {' or '.join(relative)} under {places}{why}; set FEDORCH_DATA to "
        "its folder"
    )


def found_or_downloaded(
    what: str, relative: Sequence[str], download: Callable[[Path], Any]
) -> Path:
    """The file or folder ``relative[i]``, after ``download(cache())`` if it is nowhere yet."""
    path = find(*relative)
    if path is None:
        try:
            cache().mkdir(parents=True, exist_ok=True)
            download(cache())
        # whatever a download can raise
        except Exception as error:
            raise missing(what, relative, error) from error
        path = find(*relative)
    if path is None:
        raise missing(what, relative)
    return path


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Whatever goes wrong with the file ``path`` in here is one UserError that names it."""
    try:
        if path.exists() and not path.is_file():
            # one would wait for ever at a pipe that nobody writes to
            raise OSError("it is no regular file")
        yield
    except UserError:
        raise
    # damaged archives raise what zipfile, zlib, lzma, numpy or Pillow happen to stumble over
    except Exception as error:
        why = " ".join(str(error).split())[:200] or type(error).__name__
        raise UserError(f"cannot read {path}: {why}") from error


def _open(path: Path) -> Any:
    if path.suffix == ".gz":
        return gzip.open(path, "rb")
    return lzma.open(path, "rb") if path.suffix == ".xz" else path.open("rb")


def read_idx(path: Path) -> np.ndarray:
    """An IDX file of unsigned bytes (plain, .gz or .xz).

    Raises UserError if it is none, or holds more or fewer bytes than its header says.
    """
    with reading(path), _open(path) as f:
        magic = f.read(4)
        if len(magic) < 4 or magic[:3] != b"\0\0\x08":
            raise ValueError("not an IDX file of unsigned bytes")
        # the fourth byte says how many dimensions, then comes a big-endian int for each
        shape = tuple(np.frombuffer(f.read(4 * magic[3]), ">i4", magic[3]).tolist())
        if not shape or min(shape) < 1:
            raise ValueError(f"its header says that it has the shape {shape}")
        size = math.prod(shape)
        need(size, path)
        raw = f.read(size + 1)
        if len(raw) != size:
            there = "more" if len(raw) > size else f"only {len(raw)}"
            raise ValueError(f"its header promises {size} bytes, and it holds {there}")
        return np.frombuffer(raw, np.uint8).reshape(shape)


def read_npz(path: Path, *names: str) -> list[np.ndarray]:
    """Arrays of an .npz file (never pickled ones); raises UserError if one cannot be read."""
    with reading(path):
        if not zipfile.is_zipfile(path):
            raise ValueError("not an .npz archive")
        with np.load(path, allow_pickle=False) as z:
            there = {i.filename.removesuffix(".npy"): i.file_size for i in z.zip.infolist()}
            absent = [n for n in names if n not in there]
            if absent:
                raise KeyError(f"it holds no {absent[0]}, but {', '.join(there) or 'nothing'}")
            # a small archive can hold an array without end
            need(sum(there[n] for n in names), path)
            return [z[n] for n in names]


def read_rows(path: Path, delimiter: str, quoting: Literal[0, 3]) -> list[dict[str, str]]:
    """Rows of a delimited text file with a header.

    Raises UserError if it cannot be read, has no row, or one with more or fewer fields than its
    header.
    """
    with reading(path), path.open(encoding="utf-8", newline="") as f:
        reader = csv.DictReader(f, delimiter=delimiter, quoting=quoting)
        rows = []
        for row in reader:
            # with one field too many or too few, all that follow it stand under a wrong name
            if None in row or None in row.values():
                raise ValueError(
                    f"line {reader.line_num} has not the header's {len(reader.fieldnames or ())} "
                    "fields"
                )
            rows.append(row)
        if not rows:
            raise ValueError("it holds no rows")
        return rows
