"""What stands for a value in which code of others may count."""

from __future__ import annotations

import itertools
from collections import deque

import numpy as np
import torch

MOST = 1000
"""Items of a collection, characters of a text, numbers of an array, that are looked at."""


def note(value: object, depth: int = 4) -> object:
    """What stands for a value that may be counted in; its type alone for what is none."""
    if isinstance(value, bool | int | float | complex | str | bytes | np.generic):
        return repr(value)[:MOST]
    if isinstance(value, torch.Tensor) and value.numel() <= MOST:
        return repr(value.detach().tolist())
    if isinstance(value, np.ndarray) and value.size <= MOST:
        return repr(value.tolist())
    if depth and isinstance(value, dict | list | tuple | set | frozenset | deque):
        items = value.items() if isinstance(value, dict) else value
        some = itertools.islice(items, MOST)
        return type(value), len(value), tuple(note(item, depth - 1) for item in some)
    return type(value)
