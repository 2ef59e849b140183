"""What stands for a value in which code of others may count."""

from __future__ import annotations

import hashlib
import itertools
import random
from collections import deque
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import torch

MOST = 1000
"""Items of a collection, characters of a text, that are looked at."""
IN_ALL = 5 * MOST
"""Items of collections within collections."""
DEPTH = 4
"""How far within."""
LARGEST = 40_000_000
"""Bytes of arrays that are looked at, in all: a tenth of a second at most."""


def nowhere(value: object) -> bool:
    """No object is looked into."""
    return False


def note(value: object, inside: Callable[[object], bool] = nowhere) -> object:
    """What stands for a value that may be counted in; its type alone for what is none. Of what is
    ``inside``, its attributes.
    """
    return _Note(inside).of(value, DEPTH)


class _Note:
    def __init__(self, inside: Callable[[object], bool]) -> None:
        self.inside, self.left, self.bytes = inside, iter(range(IN_ALL)), LARGEST

    def of(self, value: Any, depth: int) -> object:
        try:
            return self._of(value, depth)
        except Exception:  # of what is sparse, quantised, lazy; of code of others
            return type(value)

    def _of(self, value: Any, depth: int) -> object:
        if isinstance(value, int):
            return type(value), f"{int(value):x}"[:MOST]  # Python writes no number of many digits
        if isinstance(value, float | complex | str | bytes | np.generic):
            return repr(value)[:MOST]
        if isinstance(value, itertools.count):
            return repr(value)
        if isinstance(value, torch.Tensor | np.ndarray):
            return self._of_array(value)
        if isinstance(value, torch.nn.Module | torch.optim.Optimizer):
            return self.of(value.state_dict(), DEPTH)
        if (found := _of_generator(value)) is not None:
            return found
        return self._of_items(value, depth) if depth else type(value)

    def _of_array(self, value: torch.Tensor | np.ndarray) -> object:
        if isinstance(value, torch.Tensor):
            shape: object = value.shape
            value = bytes_of(value)
        else:
            shape = value.shape
        size = value.nbytes
        if value.dtype == object or size > self.bytes:
            return shape
        self.bytes -= size
        return shape, hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()

    def _of_items(self, value: Any, depth: int) -> object:
        if isinstance(value, dict):
            items: Iterator[object] = iter(value.items())
        elif isinstance(value, list | tuple | set | frozenset | deque):
            items = iter(value)
        elif self.inside(value):
            # what is worked out when it is first asked for is none that counts
            kind, its = type(value), vars(value)
            lazily = {n for n in its if isinstance(getattr(kind, n, None), cached_property)}
            items = iter([(name, one) for name, one in its.items() if name not in lazily])
        else:
            return type(value)
        # as many as are left
        some = zip(itertools.islice(items, MOST), self.left, strict=False)
        many = 0 if self.inside(value) else len(value)
        return type(value), many, tuple(self.of(item, depth - 1) for item, _ in some)


def bytes_of(tensor: torch.Tensor) -> np.ndarray:
    """Its numbers, in their order: NumPy does not have all types."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    if flat.stride() != (1,):  # of one number, it may be any
        flat = flat.clone(memory_format=torch.contiguous_format)
    return flat.view(torch.uint8).numpy()


def _of_generator(value: object) -> str | None:
    if isinstance(value, torch.Generator):
        return hashlib.sha256(value.get_state().numpy().tobytes()).hexdigest()
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, np.random.RandomState):
        return repr(value.get_state(legacy=False))
    return repr(value.getstate()) if isinstance(value, random.Random) else None
