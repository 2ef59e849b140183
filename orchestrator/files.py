"""Files: written whole or not at all; read with one sentence for whatever is wrong with them."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from orchestrator.errors import UserError

Shape = TypeVar("Shape")

_LIBRARIES = {"safetensors": "SafetensorError", "pyarrow": "ArrowException"}


def broken() -> tuple[type[Exception], ...]:
    """What libraries raise where a disk, a folder or a file's bytes are not as they must be; of a
    library that nobody has imported there can be no error.
    """
    there = [(sys.modules[name], kind) for name, kind in _LIBRARIES.items() if name in sys.modules]
    return (OSError, UnicodeError, *(getattr(module, kind) for module, kind in there))


@contextlib.contextmanager
def said(problem: str) -> Iterator[None]:
    """Say in one sentence, a UserError, what a disk or a file has against something."""
    try:
        yield
    except broken() as error:
        raise UserError(f"{problem}: {_reason(error)}") from error


def home() -> Path:
    """The user's home folder; raises UserError where the system knows none (a container's user that
    is in no list, without HOME).
    """
    try:
        return Path.home()
    except RuntimeError as error:
        raise UserError("this user has no home folder; set HOME") from error


def require_working_folder() -> None:
    """Raise UserError where the folder in which the process works is gone."""
    try:
        Path.cwd()
    except OSError as error:
        raise UserError(
            "the folder in which this was started is gone; change to another"
        ) from error


def cache() -> Path:
    """The user's cache: downloads, faults, plugins that have been run. Raises UserError as
    :func:`home`.
    """
    named = os.environ.get("XDG_CACHE_HOME")
    return (Path(named) if named else home() / ".cache") / "fedorch"


def resolved(place: str | Path) -> Path:
    """The absolute path of a place, there or not; raises UserError where none can be: a name that
    is too long, a link to itself.
    """
    try:
        path = Path(place).resolve()
        path.exists()
    except (OSError, RuntimeError, ValueError) as error:
        raise UserError(f"{place}: there can be no such path: {_reason(error)}") from error
    return path


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Have ``write`` fill a hidden file, then give it its name, on the disk and not only in memory.

    Raises UserError if that fails; what was there before is then still there, and nothing else.
    """
    if _passes_on(path):
        _pass_on(path, write)
        return
    # hidden, so that no mirror copies it while it is written
    partial = path.with_name(f".{path.name}.partial")
    with said(f"cannot write {path}"):
        try:
            # what a killed process has left; or a link, through which nothing is to be written
            partial.unlink(missing_ok=True)
            partial.touch(exist_ok=False)
            # some writers make files that nobody else may read
            mode = stat.S_IMODE(partial.stat().st_mode)
            write(partial)
            partial.chmod(mode)
            sync(partial)
            partial.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
            raise


def _passes_on(path: Path) -> bool:
    """Whether what is written there goes on to somebody: a device, a pipe, what the process has
    open (``/dev/stdout``). No other file may take its place.
    """
    named = os.readlink(path) if path.is_symlink() else str(path.absolute())
    return named.startswith(("/dev/", "/proc/")) or (
        path.exists() and not path.is_file() and not path.is_dir()
    )


def _pass_on(path: Path, write: Callable[[Path], object]) -> None:
    with said(f"cannot write {path}"), tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / path.name
        write(whole)
        # a pipe that nobody reads is an error, and no wait
        to = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_APPEND)
        os.set_blocking(to, True)
        with open(to, "wb") as opened:
            opened.write(whole.read_bytes())


def write_text(path: Path, text: str) -> None:
    """Write a file of text; raises UserError as :func:`write_whole` does."""
    write_whole(path, lambda partial: partial.write_text(text, encoding="utf-8"))


def json_text(value: object) -> str:
    """A document of JSON, which knows no NaN and no infinity: they become null."""
    return json.dumps(_finite(value), indent=2, allow_nan=False, default=str)


def write_json(path: Path, value: object) -> None:
    """Write :func:`json_text`."""
    write_text(path, json_text(value))


def write_sealed(path: Path, value: object) -> None:
    """Write a document of JSON with its own SHA-256, for :func:`read_sealed`."""
    text = _canonical(value)
    write_text(path, f'{{"sha256": "{_sha256(text)}", "content": {text}}}')


def read_bytes(path: Path) -> bytes:
    """All that is in a file; raises UserError if it cannot be read."""
    with said(f"cannot read {path}"):
        require_file(path)
        return path.read_bytes()


def read_json(path: Path, shape: type[Shape]) -> Shape:
    """What a file of JSON says; raises UserError if it cannot be read, or is not of that shape."""
    return _shaped(path, shape, read_bytes(path))


def read_sealed(path: Path, shape: type[Shape]) -> Shape:
    """What :func:`write_sealed` wrote; raises UserError also if it is no longer that."""
    document = read_json(path, dict[str, Any])
    text = _canonical(document.get("content"))
    if document.get("sha256") != _sha256(text):
        raise UserError(f"cannot read {path}: it is damaged: its own checksum does not hold")
    return _shaped(path, shape, text)


def _shaped(path: Path, shape: type[Shape], text: str | bytes) -> Shape:
    try:
        return TypeAdapter(shape).validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = "".join(f"{part}: " for part in first["loc"])
        raise UserError(f"cannot read {path}: {where}{first['msg']}") from error


def require_file(path: Path) -> None:
    """Raises OSError unless there is a file, and no folder or pipe, from which one might read for
    ever.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "it is no file")


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal; raises OSError if it cannot be read."""
    require_file(path)
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def digest_of_all(path: Path) -> str:
    """SHA-256 of a file, or of all in a folder; raises OSError as :func:`digest`."""
    if not path.is_dir():
        return digest(path)
    sha = hashlib.sha256()
    # what Python compiles as it imports a package says nothing of the package
    files = (p for p in path.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    for one in sorted(files):
        sha.update(f"{one.relative_to(path)} {digest(one)}\n".encode())
    return sha.hexdigest()


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk; raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _canonical(value: object) -> str:
    # in the order that it has, which may say something (the axes of a sweep)
    return json.dumps(_finite(value), allow_nan=False, default=str)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _reason(error: Exception) -> str:
    """What the system says, without the path, which the sentence has already."""
    text = (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
    return " ".join(text.split())[:200]
