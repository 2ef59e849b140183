"""What stands for a value in which code of others may count."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import torch

MOST = 1000
"""Items of a collection, characters of a text, numbers of an array, that are looked at."""
IN_ALL = 5 * MOST
"""Items of collections within collections."""
DEPTH = 4
"""How far within."""


def note(value: object) -> object:
    """What stands for a value that may be counted in; its type alone for what is none."""
    return _note(value, DEPTH, iter(range(IN_ALL)))


def _note(value: object, depth: int, left: Iterator[int]) -> object:
    if isinstance(value, int):
        return type(value), f"{int(value):x}"[:MOST]  # Python writes no number of many digits
    if isinstance(value, float | complex | str | bytes | np.generic):
        return repr(value)[:MOST]
    if isinstance(value, torch.Tensor) and value.numel() <= MOST:
        with suppress(RuntimeError, NotImplementedError):  # of what is sparse or quantised, say
            return repr(value.detach().tolist())
    if isinstance(value, np.ndarray) and value.size <= MOST and value.dtype != object:
        return repr(value.tolist())
    if depth and isinstance(value, dict | list | tuple | set | frozenset | deque):
        items = value.items() if isinstance(value, dict) else value
        some = zip(itertools.islice(items, MOST), left, strict=False)  # as many as are left
        return type(value), len(value), tuple(_note(item, depth - 1, left) for item, _ in some)
    return type(value)
