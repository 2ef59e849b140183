"""The flat view of a model: one vector, and the names, shapes and places of its tensors.

Leading axes are allowed everywhere: a vector ``[d]``, a batch of clients ``[C, d]``, or more.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Segment:
    """One tensor's place in the vector."""

    name: str
    shape: tuple[int, ...]
    start: int
    stop: int
    dtype: torch.dtype
    """The tensor's own; the vector is float32."""
    nhwc: bool = False
    """Whether it is stored with channels last, as 4-D kernels are (faster on CPU)."""

    @property
    def layer(self) -> str:
        """The owning module's name ('' for parameters of the root module)."""
        return self.name.rpartition(".")[0]


@dataclass(frozen=True)
class ParamSpec:
    """Names, shapes and slices of the tensors that make up a flat vector in R^d."""

    segments: tuple[Segment, ...]

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> ParamSpec:
        """The layout of ``tensors``, in their order."""
        segments, start = [], 0
        for name, t in tensors.items():
            stop = start + t.numel()
            segments.append(Segment(name, tuple(t.shape), start, stop, t.dtype, t.dim() == 4))
            start = stop
        return cls(tuple(segments))

    @cached_property
    def size(self) -> int:
        """d, the length of the vector."""
        return self.segments[-1].stop if self.segments else 0

    @cached_property
    def _sizes(self) -> list[int]:
        return [e.stop - e.start for e in self.segments]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the tensors, in the vector's order."""
        return tuple(e.name for e in self.segments)

    @cached_property
    def layers(self) -> tuple[str, ...]:
        """Module names that own tensors, in order of first appearance."""
        return tuple(dict.fromkeys(e.layer for e in self.segments))

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """Each tensor as a view of ``flat`` [..., d]; writing to a view writes to the vector."""
        lead = flat.shape[:-1]
        out = {}
        for e, piece in zip(self.segments, flat.split(self._sizes, -1), strict=True):
            if e.nhwc:
                # (o, h, w, i) in memory; shown as (o, i, h, w) without a copy
                o, i, h, w = e.shape
                out[e.name] = piece.view((*lead, o, h, w, i)).movedim(-1, -3)
            else:
                # as a tuple, which a number ([] long) has, too
                out[e.name] = piece.view((*lead, *e.shape))
        return out

    def write(self, tensors: Sequence[Tensor], out: Tensor) -> Tensor:
        """Copy ``tensors`` (in this order, each [..., *shape]) into the vector ``out`` [..., d]."""
        lead = out.shape[:-1]
        for e, t in zip(self.segments, tensors, strict=True):
            source = t.movedim(-3, -1) if e.nhwc else t
            shape = (*lead, *source.shape[len(lead) :])
            out[..., e.start : e.stop].view(shape).copy_(source)
        return out

    def flatten(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """The float32 vector [d] that holds ``tensors``."""
        return self.write([tensors[n].detach() for n in self.names], torch.empty(self.size))

    def tensors(self, flat: Tensor) -> dict[str, Tensor]:
        """Contiguous copies by name, at each tensor's own dtype (what is saved to a file)."""
        # a clone, because contiguous() and to() may give back the view, and a file's tensors must
        # not share memory
        return {
            e.name: v.to(e.dtype).contiguous().clone()
            for e, v in zip(self.segments, self.views(flat).values(), strict=True)
        }

    def chosen(self, layers: int | str) -> tuple[Segment, ...]:
        """Tensors of the last k layers (a number), or those whose names match a regular expression.

        Raises ValueError if there are fewer layers, or if no name matches.
        """
        if isinstance(layers, str):
            hits = tuple(e for e in self.segments if re.search(layers, e.name))
            if not hits:
                raise ValueError(f"no tensor matches {layers!r}; there are {', '.join(self.names)}")
            return hits
        if not 1 <= layers <= len(self.layers):
            raise ValueError(
                f"the model has {len(self.layers)} layers, so the last {layers} cannot be taken"
            )
        last = set(self.layers[-layers:])
        return tuple(e for e in self.segments if e.layer in last)


def slices(segments: Iterable[Segment]) -> tuple[slice, ...]:
    """Slices of the vector that hold ``segments``; neighbours are joined."""
    merged: list[slice] = []
    for e in segments:
        if merged and merged[-1].stop == e.start:
            merged[-1] = slice(merged[-1].start, e.stop)
        else:
            merged.append(slice(e.start, e.stop))
    return tuple(merged)


def outside(parts: Iterable[slice], size: int) -> Tensor:
    """Mask [size] of the entries of a vector that are in none of its ``parts``."""
    mask = torch.ones(size, dtype=torch.bool)
    for part in parts:
        mask[part] = False
    return mask


def reach(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Elements of memory from the first to the last that a view of this shape looks at, which is
    not empty; strides may be negative, as NumPy's.
    """
    return 1 + sum((n - 1) * abs(step) for n, step in zip(shape, strides, strict=True))


def trainable(module: torch.nn.Module) -> dict[str, Tensor]:
    """The parameters that training changes."""
    return {n: p for n, p in module.named_parameters() if p.requires_grad}


def floating_buffers(module: torch.nn.Module) -> dict[str, Tensor]:
    """The buffers that carry learned statistics (running mean, variance; no integer counters)."""
    return {
        n: b for n, b in module.named_buffers() if b.is_floating_point() and math.prod(b.shape) > 0
    }
