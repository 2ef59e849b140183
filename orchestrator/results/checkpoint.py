"""Checkpoints: a folder a round with tensors (safetensors) and all else (JSON). Never pickle.

A folder appears under its final name only when it is complete, and a manifest says what its files
must be, so that a reader sees a whole checkpoint or none.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.errors import UserError
from orchestrator.files import said, sync
from orchestrator.results import manifest
from orchestrator.results.state import apart, together

TENSORS, REST = "tensors.safetensors", "state.json"


def save(folder: Path, t: int, state: Mapping[str, Any], keep: int) -> Path:
    """Write ``state`` (nested dicts of tensors, arrays, JSON values) as round ``t``'s checkpoint.

    Checkpoints of later rounds, which are damaged ones that were passed over, go. Raises UserError
    if the disk refuses, or something that is no checkpoint has its name; what was there before is
    then still there, and nothing else.
    """
    final = folder / f"round-{t:06d}"
    partial = folder / f".partial-{t:06d}"
    if os.path.lexists(final) and final not in found(folder):
        raise UserError(
            f"cannot write the checkpoint of round {t}: {final} is none, and is not removed; move "
            "it away, and go on with --resume"
        )
    with said(f"cannot write the checkpoint of round {t} to {folder}"):
        try:
            _write(partial, t, state)
            # no folder can be renamed onto one that holds something
            _remove(final)
            partial.rename(final)
            # the new name must be on the disk, too, not only what it names
            sync(folder)
        except BaseException:
            with contextlib.suppress(OSError):
                _remove(partial)
            raise
        present = found(folder)
        newest = present.index(final) + 1
        for other in [*present[: max(0, newest - keep)], *present[newest:]]:
            _remove(other)
    return final


def newest(folder: Path) -> int:
    """The round of the newest checkpoint there, damaged or not; 0 without one."""
    return max(map(_round, found(folder)), default=0)


def _remove(path: Path) -> None:
    """Remove a file or a folder; of a link, nothing but the link. Raises OSError."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)


def found(folder: Path) -> list[Path]:
    """The checkpoints in ``folder``, the oldest first; anything else there is left alone."""
    names = re.compile(r"round-\d{6,}")
    return sorted(
        (p for p in folder.glob("round-*") if names.fullmatch(p.name) and _may_be_one(p)),
        key=_round,
    )


def _may_be_one(path: Path) -> bool:
    """Whether it is a folder in which nothing is that no checkpoint holds: of one that is damaged,
    files may be missing.
    """
    if not path.is_dir():
        return False
    return {p.name for p in path.glob("[!.]*")} <= {TENSORS, REST, manifest.NAME}


def _round(path: Path) -> int:
    return int(path.name.removeprefix("round-"))


def _write(partial: Path, t: int, state: Mapping[str, Any]) -> None:
    from safetensors.torch import save_file

    _remove(partial)
    partial.mkdir(parents=True)
    rest, tensors = apart(state)
    # safetensors refuses tensors that share memory
    save_file(
        {k: v.detach().cpu().contiguous().clone() for k, v in tensors.items()}, partial / TENSORS
    )
    (partial / REST).write_text(json.dumps({"round": t, "state": rest}, allow_nan=False))
    for path in (partial / TENSORS, partial / REST):
        sync(path)
    manifest.seal(partial, (TENSORS, REST))
    sync(partial)


def load_latest(folder: Path) -> tuple[int, dict[str, Any], list[str]]:
    """(round, state, notes on damaged checkpoints passed over).

    Raises UserError if none can be read.
    """
    present = found(folder)
    if not present:
        raise UserError(f"there is no checkpoint to resume from in {folder}")
    notes: list[str] = []
    for path in reversed(present):
        try:
            return _round(path), _load(path), notes
        except (UserError, OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
            notes.append(f"checkpoint {path} is damaged: {' '.join(str(error).split())[:200]}")
    raise UserError(notes[0])


def _load(path: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    tensors, rest = (manifest.verify(path, name) for name in (TENSORS, REST))
    document = json.loads(rest.read_text())
    if document["round"] != _round(path):
        raise ValueError(f"it is of round {document['round']}")
    state: dict[str, Any] = together(document["state"], load_file(tensors))
    return state
