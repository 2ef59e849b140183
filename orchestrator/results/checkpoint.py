"""Checkpoints: a folder a round with tensors (safetensors) and all else (JSON). Never pickle.

A folder appears under its final name only when it is complete, and carries a checksum, so that a
reader sees a whole checkpoint or none.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from orchestrator.errors import UserError

TENSORS, REST = "tensors.safetensors", "state.json"


def save(folder: Path, t: int, state: Mapping[str, Any], keep: int) -> Path:
    """Write ``state`` (nested dicts of tensors, arrays, JSON values) as round ``t``'s checkpoint.

    Checkpoints of later rounds, which are damaged ones that were passed over, go. Raises OSError if
    the disk refuses; what was there before is then still there, and nothing else.
    """
    final = folder / f"round-{t:06d}"
    partial = folder / f".partial-{t:06d}"
    try:
        _write(partial, t, state)
        # no folder can be renamed onto one that holds something
        shutil.rmtree(final, ignore_errors=True)
        partial.rename(final)
        # the new name must be on the disk, too, not only what it names
        _sync(folder)
    # a full disk is a SafetensorError when save_file meets it
    except (OSError, SafetensorError) as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise OSError(*error.args) from error
    kept = sorted(folder.glob("round-*"))
    newest = kept.index(final) + 1
    for other in [*kept[: max(0, newest - keep)], *kept[newest:]]:
        shutil.rmtree(other)
    return final


def _write(partial: Path, t: int, state: Mapping[str, Any]) -> None:
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    tensors: dict[str, Tensor] = {}
    rest = _split(state, "", tensors)
    save_file(tensors, partial / TENSORS)
    document = {"round": t, "sha256": _digest(partial / TENSORS), "state": rest}
    (partial / REST).write_text(json.dumps(document))
    for path in (partial / TENSORS, partial / REST, partial):
        _sync(path)


def load_latest(folder: Path) -> tuple[int, dict[str, Any], list[str]]:
    """(round, state, notes on damaged checkpoints passed over).

    Raises UserError if none can be read.
    """
    found = sorted(folder.glob("round-*"), reverse=True)
    if not found:
        raise UserError(f"there is no checkpoint to resume from in {folder}")
    notes: list[str] = []
    for path in found:
        try:
            t, state = _load(path)
            return t, state, notes
        except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
            notes.append(f"checkpoint {path} is damaged: {' '.join(str(error).split())[:120]}")
    raise UserError(notes[0])


def _load(path: Path) -> tuple[int, dict[str, Any]]:
    document = json.loads((path / REST).read_text())
    if _digest(path / TENSORS) != document["sha256"]:
        raise ValueError("its tensors do not match their checksum")
    return document["round"], _join(document["state"], load_file(path / TENSORS))


def _split(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """JSON form of ``value``; tensors and arrays go to ``tensors`` under their path."""
    if isinstance(value, Tensor | np.ndarray):
        tensor = torch.from_numpy(value) if isinstance(value, np.ndarray) else value
        # safetensors refuses tensors that share memory
        tensors[path] = tensor.detach().cpu().contiguous().clone()
        return {"$tensor" if tensor is value else "$array": path}
    if isinstance(value, Mapping):
        # pairs, because JSON's keys are text and clients have numbers
        items = [[k, _split(v, f"{path}/{k}", tensors)] for k, v in value.items()]
        return {"$map": items}
    if isinstance(value, list | tuple):
        return [_split(v, f"{path}/{i}", tensors) for i, v in enumerate(value)]
    return value


def _join(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(value, list):
        return [_join(v, tensors) for v in value]
    if not isinstance(value, dict):
        return value
    if "$tensor" in value:
        return tensors[value["$tensor"]]
    if "$array" in value:
        return tensors[value["$array"]].numpy()
    return {k: _join(v, tensors) for k, v in value["$map"]}


def _digest(path: Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
