"""A folder's manifest: the SHA-256 of each file, and its own, so that no damage goes unnoticed.

Its lines are those of ``sha256sum``, which can check them, too; the last one is of the lines above
it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from orchestrator.errors import UserError
from orchestrator.files import digest, read_bytes, said, write_text

NAME = "manifest.sha256"


def seal(folder: Path, names: Iterable[str]) -> None:
    """Write the manifest of these files: last of all, when they are complete.

    Raises UserError if the disk refuses.
    """
    _write(folder, {name: _digest(folder / name) for name in names})


def renew(folder: Path, name: str) -> None:
    """Know a file as it is now; all others are known as they were.

    Raises UserError if the manifest is damaged, or the disk refuses.
    """
    known = _read(folder) | {name: _digest(folder / name)}
    _write(folder, known)


def verify(folder: Path, name: str) -> Path:
    """The path of a file that is as it was when the folder was sealed; raises UserError if not."""
    if not (folder / NAME).exists():
        raise UserError(f"{folder} holds no {name} that can be trusted (no {NAME}); has it ended?")
    known = _read(folder)
    if name not in known:
        raise UserError(f"{folder} holds no {name} that a run has left there")
    if _digest(folder / name) != known[name]:
        raise UserError(f"{folder / name} is damaged: it is not what the run has left there")
    return folder / name


def require_whole(folder: Path) -> None:
    """Raise UserError unless all files that the folder was sealed with are as they were."""
    for name in _read(folder):
        verify(folder, name)


def holds(folder: Path, name: str) -> bool:
    """Whether a file is as it was when the folder was sealed, if it ever was; raises UserError if
    the manifest is damaged, or the file cannot be read.
    """
    if not ((folder / NAME).exists() and (folder / name).exists()):
        return False
    return _read(folder).get(name) == _digest(folder / name)


def _read(folder: Path) -> dict[str, str]:
    """File -> SHA-256; raises UserError if there is no manifest, or it is damaged."""
    lines, _, own = read_bytes(folder / NAME).rpartition(b"# ")
    if own != f"{_of(lines)}\n".encode():
        raise UserError(f"{folder / NAME} is damaged: its own checksum does not hold")
    pairs = (line.split("  ", 1) for line in lines.decode().splitlines())
    return {name: sha for sha, name in pairs}


def _write(folder: Path, known: Mapping[str, str]) -> None:
    lines = "".join(f"{sha}  {name}\n" for name, sha in sorted(known.items()))
    write_text(folder / NAME, f"{lines}# {_of(lines.encode())}\n")


def _digest(path: Path) -> str:
    with said(f"cannot read {path}"):
        return digest(path)


def _of(lines: bytes) -> str:
    return hashlib.sha256(lines).hexdigest()
