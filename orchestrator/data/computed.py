"""Arrays that take long to make: made once, kept in the cache, read memory-mapped from there."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

from orchestrator.data.sources import reading
from orchestrator.errors import UserError
from orchestrator.files import cache, digest


def computed_once(
    folder: str,
    key: str,
    shape: tuple[int | None, ...],
    dtype: type[np.generic],
    compute: Callable[[], np.ndarray],
) -> np.ndarray:
    """What ``compute`` makes, or made when it was asked for under this ``key`` before.

    ``shape`` has None where any length will do. Raises UserError if the file that holds it is
    damaged.
    """
    kept = sorted((cache() / folder).glob(f"{key}-*.npy"))
    if not kept:
        made = compute()
        _write(cache() / folder, key, made)
        return made
    return np.asarray(_read(kept[0], shape, dtype))


def _read(stored: Path, shape: tuple[int | None, ...], dtype: type[np.generic]) -> np.ndarray:
    with reading(stored):
        # its name ends in what it held when it was written
        if digest(stored) != stored.stem.rpartition("-")[2]:
            raise ValueError("it is damaged; remove it to have it computed again")
        x: np.ndarray = np.load(stored, mmap_mode="r", allow_pickle=False)
    if x.dtype != dtype or not _fits(x.shape, shape):
        wanted = ", ".join("any" if n is None else str(n) for n in shape)
        raise UserError(
            f"{stored} holds {x.dtype} of shape {x.shape}, and not {np.dtype(dtype)} of shape "
            f"({wanted}); remove it to have it computed again"
        )
    return x


def _fits(found: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    return len(found) == len(wanted) and all(
        b is None or a == b for a, b in zip(found, wanted, strict=True)
    )


def _write(folder: Path, key: str, x: np.ndarray) -> None:
    """Write ``KEY-DIGEST.npy``, whole or not at all; raises UserError if that fails."""
    # another process may compute the same at this moment; np.save adds .npy to any other ending
    partial = folder / f".{key}.{os.getpid()}.npy"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        np.save(partial, x)
        partial.replace(folder / f"{key}-{digest(partial)}.npy")
    except OSError as error:
        with suppress(OSError):
            partial.unlink()
        raise UserError(f"cannot write {partial}: {error.strerror or error}") from error
