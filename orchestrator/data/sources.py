"""Where data files come from, in order: FEDORCH_DATA, user's cache, system's folder, download."""

from __future__ import annotations

import csv
import gzip
import lzma
import os
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

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
    """The first existing ``folder / name`` over folders, then names."""
    for folder in folders():
        for name in relative:
            if (folder / name).exists():
                return folder / name
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


def _open(path: Path) -> Any:
    if path.suffix == ".gz":
        return gzip.open(path, "rb")
    return lzma.open(path, "rb") if path.suffix == ".xz" else path.open("rb")


def read_idx(path: Path) -> np.ndarray:
    """An IDX file of unsigned bytes (plain, .gz or .xz); raises UserError if it is not one."""
    try:
        with _open(path) as f:
            raw = f.read()
        # the fourth byte says how many dimensions, then comes a big-endian int for each
        dims = raw[3]
        shape = np.frombuffer(raw, ">i4", dims, 4)
        if raw[:3] != b"\0\0\x08":
            raise ValueError("not an IDX file of unsigned bytes")
        return np.frombuffer(raw, np.uint8, offset=4 + 4 * dims).reshape(shape)
    except (OSError, EOFError, ValueError, IndexError, lzma.LZMAError) as error:
        raise UserError(f"cannot read {path}: {error}") from error


def read_npz(path: Path, *names: str) -> list[np.ndarray]:
    """Arrays of an .npz file (never pickled ones); raises UserError if one cannot be read."""
    try:
        with np.load(path, allow_pickle=False) as z:
            return [z[n] for n in names]
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise UserError(f"cannot read {path}: {error}") from error


def read_rows(path: Path, delimiter: str, quoting: Literal[0, 3]) -> list[dict[str, str]]:
    """Rows of a delimited text file with a header; raises UserError if it cannot be read."""
    try:
        with path.open(encoding="utf-8", newline="") as f:
            return list(csv.DictReader(f, delimiter=delimiter, quoting=quoting))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"cannot read {path}: {error}") from error
