"""Memory that tensors and arrays of a state have in common: what is written into one of them is in
the others, and is to be so again after they have been read from a file.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from torch import Tensor

Key = tuple[Any, ...]
"""Which elements of which memory, in which order."""


def key_of(tensor: Tensor) -> Key:
    """What two views of the very same have in common."""
    place = tensor.device, tensor.dtype, tensor.data_ptr(), tensor.is_neg()
    return (*place, tensor.shape, tensor.stride())


def as_tensor(array: np.ndarray) -> Tensor:
    """Of an array the same memory, where torch can look at it; else a copy."""
    # torch's strides are whole numbers of elements, from 0
    looks = all(step >= 0 and step % max(1, array.itemsize) == 0 for step in array.strides)
    return torch.from_numpy(
        array if looks and array.flags.writeable else np.array(array, order="C")
    )


@dataclass
class Span:
    """Memory from one address to another, of which there are views."""

    first: int
    end: int
    views: dict[Key, Tensor] = field(default_factory=dict)

    @cached_property
    def flat(self) -> Tensor:
        """All of it [n] in other memory; 0 where no view looks."""
        one = next(iter(self.views.values()))
        found = torch.zeros((self.end - self.first) // one.element_size(), dtype=one.dtype)
        for view in self.views.values():
            # of what is repeated (expanded) once
            once = [
                n if step else min(n, 1) for n, step in zip(view.shape, view.stride(), strict=True)
            ]
            there = found.as_strided(once, view.stride(), self.offset(view))
            there.copy_(view.detach().as_strided(once, view.stride()))
        return found

    def offset(self, view: Tensor) -> int:
        """Where the view begins in :attr:`flat`."""
        return (view.data_ptr() - self.first) // view.element_size()

    @property
    def is_one(self) -> bool:
        """Whether there is one view, whose elements lie one after the other."""
        return len(self.views) == 1 and next(iter(self.views.values())).is_contiguous()


def spans(tensors: Iterable[Tensor]) -> dict[Key, Span]:
    """The span of each; of what lies apart, or looks at elements twice in its own way (windows),
    there is none.
    """
    ordered = sorted(filter(_is_simple, tensors), key=lambda t: (*_kind(t), t.data_ptr()))
    found: dict[Key, Span] = {}
    for _, alike in groupby(ordered, key=_kind):
        span = Span(0, 0)
        for tensor in alike:
            first, size = tensor.data_ptr(), tensor.element_size()
            if first >= span.end or (first - span.first) % size:
                span = Span(first, first)
            span.end = max(span.end, first + _reach(tensor) * size)
            span.views[key_of(tensor)] = tensor
            found[key_of(tensor)] = span
    return {key: span for key, span in found.items() if not span.is_one}


def _kind(tensor: Tensor) -> tuple[str, str]:
    return str(tensor.device), str(tensor.dtype)


def _reach(tensor: Tensor) -> int:
    """Elements from the first to the last."""
    return 1 + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))


def _is_simple(tensor: Tensor) -> bool:
    """Whether no element is looked at twice, but by being repeated."""
    if not tensor.numel() or tensor.is_neg():
        return False
    beyond = 1
    steps = zip(tensor.stride(), tensor.shape, strict=True)
    for step, n in sorted((step, n) for step, n in steps if step and n > 1):
        if step < beyond:
            return False
        beyond += (n - 1) * step
    return True
