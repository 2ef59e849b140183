"""Arrays in one .npz file: images, numbers, or token ids."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from algorithms.part import option
from orchestrator.data.own.splitting import Part, Wanted, assembled, drawn, numbered, place_of
from orchestrator.data.samples import Dataset, Request, Samples
from orchestrator.data.sources import read_npz, reading
from orchestrator.errors import UserError

PAIRS = ("x_train", "y_train", "x_test", "y_test")


class NpzArrays(Dataset):
    """``x`` [n, ...] and ``y`` [n] of an .npz file, or ``x_train``, ``y_train``, ``x_test``,
    ``y_test``; ``client`` [n] (``client_train``, ``client_test``) says whose rows are, where it is
    there.

    uint8 x are images [n, H, W] or [n, H, W, C]; other whole numbers are token ids [n, L]; other
    numbers are inputs as they are. Labels are whole numbers or texts: classes; y of other numbers,
    or [n, o], are numbers to be predicted.
    """

    name: str = "npz"
    path: str = option(
        "",
        "the file: its path (./ is the config's folder), or its name in a data folder",
        file=True,
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
        ends = ("_train", "_test") if split else ("",)
        x = _inputs([read_npz(path, f"x{end}")[0] for end in ends], path)
        wanted = _wanted(path, ends, len(x))
        owner = None
        if all(f"client{end}" in there for end in ends):
            owner = numbered(_names(path, "client", ends, len(x)))[0]
        if split:
            test = np.arange(len(x)) >= len(read_npz(path, "y_train")[0])
        else:
            test = drawn(wanted.y if owner is None else owner, self.test)
        return assembled(x, wanted, test, owner, path)


def _members(path: Path) -> set[str]:
    """Names of the arrays in an .npz file."""
    with reading(path):
        if not zipfile.is_zipfile(path):
            raise ValueError("not an .npz archive")
        with zipfile.ZipFile(path) as archive:
            return {name.removesuffix(".npy") for name in archive.namelist()}


def _wanted(path: Path, ends: tuple[str, ...], rows: int) -> Wanted:
    """Classes, or numbers where ``y`` are such (or has two dimensions)."""
    found = [read_npz(path, f"y{end}")[0] for end in ends]
    if all(one.dtype.kind == "f" or (one.ndim == 2 and one.dtype.kind in "iub") for one in found):
        joined = np.concatenate([one.reshape(len(one), -1) for one in found])
        if len(joined) != rows or not joined.shape[1]:
            raise UserError(f"{path}: there are {rows} inputs, and {len(joined)} entries in y")
        with np.errstate(over="ignore"):
            return Wanted.numbers(joined)
    return Wanted.named(_names(path, "y", ends, rows))


def _names(path: Path, what: str, ends: tuple[str, ...], rows: int) -> np.ndarray:
    """The arrays of labels or clients, one after the other: one whole number or text a row."""
    found = [read_npz(path, f"{what}{end}")[0] for end in ends]
    for end, one in zip(ends, found, strict=True):
        if one.ndim != 1 or one.dtype.kind not in "iubU":
            raise UserError(
                f"{path}: {what}{end} is {one.dtype} of shape {one.shape}; it must be one whole "
                "number or text for each row"
            )
    joined = np.concatenate(found)
    if len(joined) != rows:
        raise UserError(f"{path}: there are {rows} inputs, and {len(joined)} entries in {what}")
    return joined


def _inputs(arrays: list[np.ndarray], path: Path) -> np.ndarray:
    """Inputs in one of the types that samples have; raises UserError for what is none of them."""
    if len({(one.shape[1:], one.dtype.kind) for one in arrays}) > 1:
        raise UserError(f"{path}: inputs for training and test differ in shape or type")
    x = np.concatenate(arrays)
    if x.dtype == np.uint8 and x.ndim in (3, 4):
        return x[:, None] if x.ndim == 3 else np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    if x.dtype.kind in "iu" and x.ndim == 2:
        if len(x) and not 0 <= x.min() <= x.max() < 2**31:
            raise UserError(f"{path}: x holds whole numbers that are no token ids (0 or more)")
        return x.astype(np.int32)
    if x.dtype.kind == "f" and x.ndim >= 2:
        with np.errstate(over="ignore"):
            return x.astype(np.float32)
    raise UserError(
        f"{path}: x is {x.dtype} of shape {x.shape}; it must be images uint8 [n, H, W] or "
        "[n, H, W, C], token ids [n, L], or numbers [n, ...]"
    )
