"""Memory that tensors and arrays of a state have in common: what is written into one of them is in
the others, and is to be so again after they have been read from a file.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from algorithms.flat import reach

if TYPE_CHECKING:
    from torch import Tensor

Key = tuple[Any, ...]
"""Which elements of which memory, in which order."""
GAPS = 64
"""Memory for each of its numbers that views are given to keep their steps."""
SMALL = 16_384
"""Numbers of memory that any view is given."""
LOOKED = 4_000_000
"""Elements of views up to which it is looked whether they have one in common."""


def key_of(tensor: Tensor) -> Key:
    """What two views of the very same have in common."""
    place = tensor.device, tensor.dtype, tensor.data_ptr(), tensor.is_neg()
    return (*place, tensor.shape, tensor.stride())


def as_tensor(array: np.ndarray) -> Tensor | None:
    """Of an array the same memory; None where torch cannot look at it: its strides are whole
    numbers of elements, from 0.
    """
    if any(step < 0 or step % max(1, array.itemsize) for step in array.strides):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that an array may not be written into
        return torch.from_numpy(array)


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
        # of some types torch can do nothing but carry their bits
        bits = bits_of(one)
        found = torch.zeros((self.end - self.first) // one.element_size(), dtype=bits)
        for view in self.views.values():
            found[self._places(view)] = view.detach().cpu().contiguous().reshape(-1).view(bits)
        return found.view(one.dtype)

    def offset(self, view: Tensor) -> int:
        """Where the view begins in :attr:`flat`."""
        return (view.data_ptr() - self.first) // view.element_size()

    def _places(self, view: Tensor) -> Tensor:
        """Of its elements in :attr:`flat`."""
        places = torch.tensor(self.offset(view))
        for n, step in zip(view.shape, view.stride(), strict=True):
            places = places[..., None] + step * torch.arange(n)
        return places.reshape(-1)

    @cached_property
    def types(self) -> set[torch.dtype]:
        """Of its views; of several nobody can say what is in it."""
        return {view.dtype for view in self.views.values()}

    @cached_property
    def holds_together(self) -> bool:
        """Whether it is more than its views by themselves: they have elements in common, or one has
        some twice.
        """
        if len(self.types) > 1:
            return True
        views = [*self.views.values()]
        if len(views) == 1 and views[0].is_contiguous():
            return False
        numbers = sum(view.numel() for view in views)
        if numbers > LOOKED:
            return True
        if len(torch.cat([self._places(view) for view in views]).unique()) < numbers:
            return True
        # several that have nothing in common: columns, say, each of which would need it all
        size = (self.end - self.first) // views[0].element_size()
        return len(views) > 1 and size <= GAPS * numbers


def bits_of(tensor: Tensor) -> torch.dtype:
    """A type of that size of which torch can write into parts."""
    return {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]


def is_spread(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether a view is worth the memory that it lies in."""
    return reach(shape, strides) <= max(SMALL, GAPS * math.prod(shape))


def spread(numbers: Tensor, shape: Sequence[int], strides: Sequence[int]) -> np.ndarray | Tensor:
    """``numbers`` in memory of their own with these strides, of which an array's may be negative:
    sums over others may have other bits.
    """
    there = torch.zeros(reach(shape, strides), dtype=bits_of(numbers)).view(numbers.dtype)
    if all(step >= 0 for step in strides):
        view = there.as_strided(shape, strides)
        view.view(bits_of(numbers)).copy_(numbers.view(bits_of(numbers)).view(shape))
        return view
    array = there.numpy()
    first = -sum((n - 1) * min(step, 0) for n, step in zip(shape, strides, strict=True))
    steps = [step * array.itemsize for step in strides]
    turned = np.lib.stride_tricks.as_strided(array[first:], shape, steps)
    turned[...] = numbers.numpy().reshape(shape)
    return turned


def spans(tensors: Iterable[Tensor]) -> dict[Key, Span]:
    """The span of each that holds views together; of what lies apart there is none."""
    simple = (t for t in tensors if t.numel() and not t.is_neg())
    ordered = sorted(simple, key=lambda t: (_where(t), t.data_ptr()))
    found: dict[Key, Span] = {}
    for _, there in groupby(ordered, key=_where):
        span = Span(0, 0)
        for tensor in there:
            first = tensor.data_ptr()
            if first >= span.end:
                span = Span(first, first)
            span.end = max(
                span.end, first + reach(tensor.shape, tensor.stride()) * tensor.element_size()
            )
            span.views[key_of(tensor)] = tensor
            found[key_of(tensor)] = span
    return {key: span for key, span in found.items() if span.holds_together}


def _where(tensor: Tensor) -> str:
    return str(tensor.device)
