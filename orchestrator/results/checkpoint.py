"""Checkpoints: a folder a round with tensors (safetensors) and all else (JSON). Never pickle.

A folder appears under its final name only when it is complete, and a manifest says what its files
must be, so that a reader sees a whole checkpoint or none.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from orchestrator.errors import UserError
from orchestrator.files import said, sync
from orchestrator.results import manifest

if TYPE_CHECKING:
    from torch import Tensor

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
    rest, tensors = _parts(state)
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
    state: dict[str, Any] = _Whole(load_file(tensors)).join(document["state"])
    return state


def require_storable(state: Mapping[str, Any]) -> None:
    """Raise UserError for a state that no checkpoint can hold, before one is to be written."""
    _parts(state)


def _parts(state: Mapping[str, Any]) -> tuple[Any, dict[str, Tensor]]:
    """JSON form of a state, and its tensors and arrays by the names that they have there; raises
    UserError for what would come back as something else.
    """
    parts = _Parts()
    return parts.split(state, ""), parts.tensors


class _Parts:
    """Takes a state apart."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        """Of tensors and arrays, by their paths."""
        self.names: dict[tuple[Any, ...], str] = {}
        """Memory that has one: what is in two places is one again when it is read."""
        self.alive: list[np.ndarray] = []
        """Arrays of ``names``: what is gone could leave its memory to another."""

    def split(self, value: Any, path: str) -> Any:
        """JSON form of ``value``."""
        memory: tuple[Any, ...]
        if isinstance(value, torch.Tensor) and _is_dense(value):
            memory = (
                value.device,
                value.untyped_storage().data_ptr(),
                value.data_ptr(),
                value.stride(),
                value.is_neg(),
            )
            return {_kind_of(value): self._named(value, memory, path)}
        if isinstance(value, np.float64):
            # a float to Python, but not where arrays of fewer digits are multiplied by it
            return {"$float64": float.__repr__(value)}
        if isinstance(value, np.ndarray | np.generic) and _is_plain(value):
            # a step of torch's is never negative
            tensor = torch.from_numpy(np.array(value, order="C"))
            if isinstance(value, np.generic):
                # a number is nobody else's
                return {"$scalar": self._named(tensor, (len(self.tensors),), path)}
            self.alive.append(value)
            memory = (value.__array_interface__["data"][0], value.strides)
            return {"$array": self._named(tensor, memory, path)}
        if isinstance(value, float) and not math.isfinite(value):
            return {"$float": str(value)}  # JSON has no name for them
        if value is None or type(value) in (bool, int, float, str, np.str_):
            return value
        return self._split_apart(value, path)

    def _split_apart(self, value: Any, path: str) -> Any:
        """The same of what holds others; raises UserError for what is none of that."""
        if type(value) in (dict, OrderedDict):
            # pairs, because JSON's keys are text and clients have numbers
            items = [
                [self.split(k, f"{path}, a key"), self.split(v, f"{path}/{k}")]
                for k, v in value.items()
            ]
            return {"$map" if type(value) is dict else "$ordered": items}
        if type(value) in (list, tuple):
            found = [self.split(v, f"{path}/{i}") for i, v in enumerate(value)]
            return found if isinstance(value, list) else {"$tuple": found}
        raise UserError(
            f"no checkpoint can hold {path.strip('/')[:200]}, a {type(value).__name__}: state is "
            "made of dicts, lists, tuples, texts, numbers, dense tensors and arrays without a "
            "mask, and of no classes derived from these"
        )

    def _named(self, tensor: Tensor, memory: tuple[Any, ...], path: str) -> str:
        """Keep a tensor under the name that its ``memory`` has, or a new one: its path where no
        other has that.
        """
        key = (*memory, tensor.dtype, tensor.shape)
        if key not in self.names:
            name = path
            while name in self.tensors:
                name += "'"
            self.tensors[name], self.names[key] = tensor, name
        return self.names[key]


def _is_dense(value: Tensor) -> bool:
    """Whether safetensors can hold a tensor, and all there is of it."""
    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        return False
    return value.layout == torch.strided and not (value.is_complex() or value.is_quantized)


def _kind_of(value: Tensor) -> str:
    """Whether it is a parameter, or has gradients of its own."""
    if isinstance(value, torch.nn.Parameter):
        return "$parameter" if value.requires_grad else "$frozen"
    return "$leaf" if value.requires_grad and value.is_leaf else "$tensor"


def _is_plain(value: np.ndarray | np.generic) -> bool:
    """Whether a tensor can hold all there is of an array, or a number of NumPy's."""
    known = value.dtype.kind in "biuf" and value.dtype.itemsize <= 8 and value.dtype.isnative
    return known and not isinstance(value, np.ma.MaskedArray | np.matrix)


NUMBERS: Mapping[str, Callable[[str], Any]] = {"$float64": np.float64, "$float": float}
OF_TENSORS: Mapping[str, Callable[[Tensor], Any]] = {
    "$tensor": lambda its: its,
    "$leaf": lambda its: its.detach().requires_grad_(),
    "$parameter": torch.nn.Parameter,
    "$frozen": lambda its: torch.nn.Parameter(its, requires_grad=False),
    "$array": lambda its: its.numpy(),
    "$scalar": lambda its: its.numpy()[()],
}


class _Whole:
    """Puts a state together from its ``tensors``."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.tensors = tensors
        self.made: dict[tuple[str, str], Any] = {}
        """What is in two places is one thing there, too."""

    def join(self, value: Any) -> Any:
        """What ``split`` has made JSON of."""
        if isinstance(value, list):
            return [self.join(v) for v in value]
        if not isinstance(value, dict):
            return value
        ((kind, its),) = value.items()
        if kind in ("$map", "$ordered"):
            items = {self.join(k): self.join(v) for k, v in its}
            return items if kind == "$map" else OrderedDict(items)
        if kind == "$tuple":
            return tuple(self.join(its))
        if kind in NUMBERS:
            return NUMBERS[kind](its)
        if (kind, its) not in self.made:
            self.made[kind, its] = OF_TENSORS[kind](self.tensors[its])
        return self.made[kind, its]
