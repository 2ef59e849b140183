"""Arrays in one .npz file, or a folder of .npy files: images, numbers, or token ids."""

from __future__ import annotations

import zipfile
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from algorithms.part import option
from algorithms.parts.losses import IGNORED
from orchestrator.data.mapped import Inputs, Mapped, MappedFile, mapped
from orchestrator.data.own.splitting import (
    Part,
    Wanted,
    assembled,
    drawn,
    numbered,
    place_of,
    require_other_rows,
)
from orchestrator.data.samples import Dataset, Request, Samples
from orchestrator.data.sources import read_npz, reading
from orchestrator.errors import UserError
from orchestrator.files import said

MOST_TAGS = 10_000
"""Classes of tokens."""
PAIRS = ("x_train", "y_train", "x_test", "y_test")


class NpzArrays(Dataset):
    """``x`` [n, ...] and ``y`` [n] of an .npz file, or ``x_train``, ``y_train``, ``x_test``,
    ``y_test``; ``client`` [n] (``client_train``, ``client_test``) says whose rows are, where it is
    there.

    uint8 x are images [n, H, W] or [n, H, W, C]; other whole numbers are token ids [n, L]; other
    numbers are inputs as they are. Labels are whole numbers or texts: classes; y of other numbers,
    or [n, o], are numbers to be predicted, or with ``task`` the class of each token [n, L].

    A folder holds each array in a file of its own (``x.npy``; as ``unzip a.npz`` makes them). Its
    inputs stay on the disk, memory-mapped, and become what they are in training batch by batch.
    """

    name: str = "npz"
    path: str = option(
        "",
        "the file, or a folder of .npy files: its path (./ is the config's folder), or its name in "
        "a data folder",
        file=True,
    )
    task: Literal["auto", "tokens"] = option(
        "auto", "tokens: y [n, L] are classes of the L tokens of each row, -100 for none"
    )
    test: Part = option(
        0.2,
        "without x_test: part of each client's rows (without client: of each class's) for the test",
    )

    def read(self, request: Request) -> Samples:
        path = place_of(self.path, f"dataset {self.name!r}: path")
        there = _members(path)
        split = all(name in there for name in PAIRS)
        if not split and not {"x", "y"} <= there:
            raise UserError(
                f"{path}: it holds {', '.join(sorted(there)) or 'nothing'}, and neither x and y "
                f"nor {', '.join(PAIRS)}"[:500]
            )
        _require_one_set(path, split, there)
        ends = ("_train", "_test") if split else ("",)
        _require_whose(path, ends, there)
        x, y, owner = (_parts(path, what, ends, there) for what in ("x", "y", "client"))
        for what, parts in (("y", y), ("client", owner)):
            for end, inputs, part in zip(ends, x, parts, strict=False):
                _require_as_many(inputs, part, f"{what}{end}", path)
        if self.task == "tokens" and split:  # whose rows have other numbers once they are joined
            for end, part in zip(ends, y, strict=True):
                _require_tags(part, f"y{end}", path)
        test = np.arange(sum(map(len, y))) >= len(y[0]) if split else self.test
        whose = _joined(owner) if owner else None
        found = _on_disk(path, x, ends) if path.is_dir() else _joined(x)
        made = samples_of(found, _joined(y), whose, test, path, self.task == "tokens")
        return require_other_rows(made, request, path)


def _require_one_set(path: Path, split: bool, there: set[str]) -> None:
    """Raise UserError for a file with x and y and with rows for the test beside them, say: only one
    of both would be read.
    """
    read, other = ({*PAIRS}, {"x", "y"}) if split else ({"x", "y"}, {*PAIRS})
    if unread := sorted(other & there):
        raise UserError(
            f"{path}: it holds {', '.join(sorted(read))} and, beside them, {', '.join(unread)}, "
            f"which would not be read; take these out, or name all as {', '.join(PAIRS)}"
        )


def _members(path: Path) -> set[str]:
    """Names of the arrays in an .npz file, or a folder of .npy files."""
    if path.is_dir():
        with said(f"cannot read {path}"):
            return {file.stem for file in path.iterdir() if file.suffix == ".npy"}
    with reading(path):
        if not zipfile.is_zipfile(path):
            raise ValueError("not an .npz archive")
        with zipfile.ZipFile(path) as archive:
            return {name.removesuffix(".npy") for name in archive.namelist()}


def _require_whose(path: Path, ends: tuple[str, ...], there: set[str]) -> None:
    """Raise UserError if clients are named that not all rows have, or under another name."""
    wanted = [f"client{end}" for end in ends]
    if "clients" in there and "client" not in there:
        raise UserError(f"{path}: its array clients is called client here; rename it")
    found = [name for name in ("client", "client_train", "client_test") if name in there]
    if found and found != wanted:
        beside = " and ".join(f"x{end}" for end in ends)
        raise UserError(
            f"{path}: it holds {', '.join(found)}, and beside {beside} clients are named by "
            f"{' and '.join(wanted)}"
        )


def _parts(path: Path, what: str, ends: tuple[str, ...], there: set[str]) -> list[np.ndarray]:
    """The arrays of ``what``, for training and test; none where one is not there."""
    names = [f"{what}{end}" for end in ends]
    if not there.issuperset(names):
        return []
    if path.is_dir():
        found: list[np.ndarray] = [mapped(path / f"{name}.npy") for name in names]
    else:
        found = [read_npz(path, name)[0] for name in names]
    if any(one.ndim < 1 for one in found):
        raise UserError(f"{path}: {what} is a single number")
    if len({(one.shape[1:], one.dtype.kind) for one in found}) > 1:
        raise UserError(f"{path}: {what} for training and test differ in shape or type")
    return found


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    """One after the other, in memory."""
    return np.concatenate([np.asarray(part) for part in parts])


def _on_disk(path: Path, x: list[np.ndarray], ends: tuple[str, ...]) -> Mapped:
    """The inputs in a folder's files ``x`` [n, ...], which stay there."""
    kind = np.result_type(*(one.dtype for one in x))
    _kind_of(kind, (sum(map(len, x)), *x[0].shape[1:]), path)
    files = tuple(MappedFile.of(path / f"x{end}.npy") for end in ends)
    return Mapped.of(files, partial(_inputs, where=str(path)))


def samples_of(
    x: Inputs,
    y: np.ndarray,
    client: np.ndarray | None,
    test: float | np.ndarray,
    where: object,
    tokens: bool = False,
) -> Samples:
    """Samples of arrays in any of the types that :class:`NpzArrays` says; ``test``: the part of
    each client's rows (without ``client``: of each class's) that is for the test, or which are
    (mask [n]); ``tokens``: whether y are classes of tokens. Raises UserError, which names
    ``where``, for other arrays.
    """
    inputs = x if isinstance(x, Mapped) else _inputs(x, where)
    for name, one in (("y", y), ("client", client)):
        if one is not None:
            _require_as_many(inputs, one, name, where)
    if tokens:
        _require_tags(y, "y", where)
    wanted = _tags(y, where) if tokens else _wanted(y, where)
    owner = None if client is None else numbered(_names(client, f"{where}: client"))[0]
    if isinstance(test, float):
        test = drawn(wanted.y if owner is None else owner, test)
    return assembled(inputs, wanted, test, owner, where)


def _require_as_many(x: Inputs, entries: np.ndarray, name: str, where: object) -> None:
    if len(entries) != len(x):
        raise UserError(f"{where}: there are {len(x)} inputs, and {len(entries)} entries in {name}")


def _wanted(y: np.ndarray, where: object) -> Wanted:
    """Classes, or numbers where ``y`` are such (or has two dimensions)."""
    if y.dtype.kind == "f" or (y.ndim == 2 and y.dtype.kind in "iub"):
        if y.ndim > 2 or 0 in y.shape:
            raise UserError(f"{where}: y of shape {y.shape} are no numbers [n, o]")
        with np.errstate(over="ignore"):
            return Wanted.numbers(y.reshape(len(y), -1))
    return Wanted.named(_names(y, f"{where}: y"))


def _require_tags(y: np.ndarray, name: str, where: object) -> None:
    """Raise UserError unless the array of that ``name`` holds classes of tokens."""
    if y.ndim != 2 or y.dtype.kind not in "iu" or 0 in y.shape:
        raise UserError(
            f"{where}: {name} is {y.dtype} of shape {y.shape}; classes of tokens are whole numbers "
            "[n, L]"
        )
    strange, bare = (y < 0) & (y != IGNORED), (y == IGNORED).all(1)
    if strange.any():
        row, place = np.argwhere(strange)[0]
        raise UserError(
            f"{where}: row {row + 1} of {name} has the class {y[row, place]}; they are from 0 on, "
            f"and {IGNORED} is none"
        )
    if bare.any():
        raise UserError(
            f"{where}: no token of row {int(np.argmax(bare)) + 1} has a class in {name} (whole "
            "numbers from 0 on)"
        )


def _tags(y: np.ndarray, where: object) -> Wanted:
    """Classes of tokens, such as they must be."""
    most = int(y.max())
    if most >= MOST_TAGS:
        raise UserError(f"{where}: a token has the class {most}, and there are {MOST_TAGS} at most")
    return Wanted.tokens(y.astype(np.int64), [str(tag) for tag in range(most + 1)])


def _names(values: np.ndarray, where: str) -> np.ndarray:
    """Names [n], whole numbers or texts; raises UserError for anything else."""
    if values.dtype == object and all(isinstance(value, str) for value in values.flat):
        values = values.astype(str)  # as pandas has texts
    if values.ndim != 1 or values.dtype.kind not in "iubU":
        raise UserError(
            f"{where} is {values.dtype} of shape {values.shape}; it must be one whole number or "
            "text for each row"
        )
    return values


def _kind_of(dtype: np.dtype, shape: tuple[int, ...], where: object) -> str:
    """Whether inputs are images, tokens or numbers; raises UserError for anything else."""
    if dtype == np.uint8 and len(shape) == 4 and shape[1] in (1, 3) and shape[3] not in (1, 3):
        raise UserError(
            f"{where}: x is of shape {shape}, and images are [n, H, W, C]; these seem to have "
            "their channels first, which x.transpose(0, 2, 3, 1) mends"
        )
    if dtype == np.uint8 and len(shape) in (3, 4):
        return "images"
    if dtype.kind in "iu" and len(shape) == 2:
        return "tokens"
    if dtype.kind == "f" and len(shape) >= 2:
        return "numbers"
    raise UserError(
        f"{where}: x is {dtype} of shape {shape}; it must be images uint8 [n, H, W] or "
        "[n, H, W, C], token ids [n, L], or numbers [n, ...]"
    )


def _inputs(x: np.ndarray, where: object) -> np.ndarray:
    """Inputs in one of the types that samples have; raises UserError for what is none of them."""
    kind = _kind_of(x.dtype, x.shape, where)
    if kind == "images":
        return x[:, None] if x.ndim == 3 else np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    if kind == "tokens":
        if len(x) and not 0 <= x.min() <= x.max() < 2**31:
            raise UserError(f"{where}: x holds whole numbers that are no token ids (0 or more)")
        return x.astype(np.int32)
    with np.errstate(over="ignore"):
        return x.astype(np.float32)
