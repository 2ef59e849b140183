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
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any, Generic, Literal, TypeVar

import numpy as np

from orchestrator.data.room import need
from orchestrator.errors import UserError
from orchestrator.files import cache, require_file, said

T = TypeVar("T")
SYSTEM = Path("/usr/share/fedorch")


def folders() -> list[Path]:
    """The data folders in order of preference; raises UserError for a FEDORCH_DATA that is none,
    with which data of another folder would be read.
    """
    named = os.environ.get("FEDORCH_DATA")
    if named:
        with said(f"FEDORCH_DATA: {named[:200]} cannot be read"):
            if not Path(named).is_dir():
                raise UserError(f"FEDORCH_DATA: {named[:200]} is no folder")
    return [*([Path(named)] if named else []), cache(), SYSTEM]


def located(name: str) -> Path | None:
    """The file or folder that an option names: a path, or the name of an .npz in a data folder."""
    names = [name, f"{name}.npz"]
    places = [Path(name), *(folder / one for folder in folders() for one in names)]
    return next((place for place in places if place.exists()), None)


@dataclass(frozen=True)
class Form(Generic[T]):
    """A form in which data may lie in a folder: all of ``files``, and what reads them."""

    files: tuple[str, ...]
    read: Callable[..., T]
    """Of the path of each file."""
    endings: tuple[str, ...] = ("",)
    """What a file's name may end in, best first."""

    def __str__(self) -> str:
        first, *others = self.files
        optional = "|".join(end for end in self.endings if end)
        ending = f"[{optional}]" if optional else ""
        return f"{first}{ending}" + (f" and {len(others)} more" if others else "")

    def places(self, folder: Path) -> list[Path | None]:
        """Where each file is in ``folder``; raises UserError as :func:`_is_there`."""
        names = [[folder / f"{name}{end}" for end in self.endings] for name in self.files]
        return [next(filter(_is_there, each), None) for each in names]


def _is_there(place: Path) -> bool:
    """Whether something has that name, be it a link that leads nowhere; raises UserError for a name
    that no file can have, and a folder that may not be looked into.
    """
    try:
        place.lstat()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    except OSError as error:
        raise UserError(f"cannot look for {str(place)[:200]}: {error.strerror}") from error
    return True


def stored(what: str, *forms: Form[T]) -> T | None:
    """The data ``what`` from the first folder that holds any of their files, in the first form of
    which it holds all; None where no folder holds any.

    Raises UserError for a folder that holds a part of them: with the rest from another folder they
    would be no data that anybody has made.
    """
    found = _located(what, forms)
    return found and found[0].read(*found[1])


def _located(
    what: str, forms: Sequence[Form[T]], unfinished: Path | None = None
) -> tuple[Form[T], list[Path]] | None:
    """The form and the files that :func:`stored` reads; parts in the folder ``unfinished`` are
    passed over.
    """
    for folder in folders():
        for form in forms:
            files = [place for place in form.places(folder) if place]
            if len(files) == len(form.files):
                return form, files
        if folder != unfinished:
            _require_no_part(what, forms, folder)
    return None


def _require_no_part(what: str, forms: Sequence[Form[T]], folder: Path) -> None:
    for form in forms:
        places = form.places(folder)
        there = [place for place in places if place]
        if there:
            lost = form.files[places.index(None)]
            raise UserError(
                f"dataset {what!r}: {there[0]} is there, but no {lost} in {folder}; all files are "
                "taken from one folder"
            )


def missing(what: str, forms: Sequence[Form[T]], reason: object = "") -> UserError:
    """The error for data that is nowhere."""
    names, places = (" or ".join(map(str, forms)), ", ".join(str(f) for f in folders()))
    why = f" (download: {shorten(str(reason), 160, placeholder=' ...')})" if reason else ""
    return UserError(
        f"dataset {what!r}: no {names} under {places}{why}; set FEDORCH_DATA to its folder "
        "(fashion_mnist_10k comes with fedorch and needs none)"
    )


def stored_or_downloaded(
    what: str, forms: Sequence[Form[T]], download: Callable[[Path], object]
) -> T:
    """As :func:`stored`, after ``download(cache())`` if the data are nowhere yet."""
    # a part in the cache is a download that was interrupted
    found = _located(what, forms, unfinished=cache())
    if found is None:
        try:
            cache().mkdir(parents=True, exist_ok=True)
            download(cache())
        # whatever a download can raise
        except Exception as error:
            raise missing(what, forms, error) from error
        found = _located(what, forms)
    if found is None:
        raise missing(what, forms)
    form, files = found
    return form.read(*files)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Whatever goes wrong with the file ``path`` in here is one UserError that names it."""
    try:
        # one would wait for ever at a pipe that nobody writes to
        require_file(path)
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
        # np.load leaves a file that it has opened itself open if it is damaged
        with path.open("rb") as f, np.load(f, allow_pickle=False) as z:
            members = [(i.filename.removesuffix(".npy"), i.file_size) for i in z.zip.infolist()]
            there = dict(members)
            if len(there) < len(members):
                raise ValueError(f"it holds {_repeated([n for n, _ in members])} twice")
            absent = [n for n in names if n not in there]
            if absent:
                raise ValueError(f"it holds no {absent[0]}, but {', '.join(there) or 'nothing'}")
            # a small archive can hold an array without end
            need(sum(there[n] for n in names), path)
            return [z[n] for n in names]


def read_text(path: Path) -> str:
    """A file of text; raises UserError if it cannot be read."""
    with reading(path):
        return path.read_text(encoding="utf-8")


def read_rows(path: Path, delimiter: str, quoting: Literal[0, 3]) -> list[dict[str, str]]:
    """Rows of a delimited text file with a header, each on a line of its own.

    Raises UserError if it cannot be read, has no row, one with more or fewer fields than its
    header, a quotation mark that is not closed on its line, or two columns of one name.
    """
    with reading(path), path.open(encoding="utf-8", newline="") as f:
        # otherwise a quotation mark that nobody closes takes all that follows for its text
        reader = csv.DictReader(f, delimiter=delimiter, quoting=quoting, strict=True)
        columns = list(reader.fieldnames or ())
        if len(set(columns)) < len(columns):
            raise ValueError(f"two of its columns are named {_repeated(columns)}")
        rows: list[dict[str, str]] = []
        try:
            for row in reader:
                _require_fields(row, len(columns))
                rows.append(row)
        except (ValueError, csv.Error) as error:
            raise ValueError(f"line {reader.reader.line_num}: {error}") from error
        if not rows:
            raise ValueError("it holds no rows")
        return rows


def _require_fields(row: dict[str, str], columns: int) -> None:
    # with one field too many or too few, all that follow it stand under a wrong name
    if None in row or None in row.values():
        raise ValueError(f"it has not the header's {columns} fields")
    # closed by the quotation mark of a later row, one takes the rows between for its text
    if any("\n" in field or "\r" in field for field in row.values()):
        raise ValueError("a quoted text that began above ends here; a row is one line")


def _repeated(names: Sequence[str]) -> str:
    return repr(next(name for name in names if names.count(name) > 1))[:100]
