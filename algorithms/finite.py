"""Numbers that are none: NaN and infinity, looked for in whatever a run keeps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from torch import Tensor


class NotFinite(ValueError):
    """A step that cannot be done with NaN or infinity: what holds them, and what to do about it."""


def finite_rows(rows: Tensor) -> Tensor:
    """Whether all entries of each row are finite: mask [C] for ``rows`` [C, ...]."""
    flat = rows.reshape(len(rows), math.prod(rows.shape[1:]))
    if flat.is_cuda:
        # which would have to wait for the sums
        return flat.isfinite().all(1)
    # a sum is finite only if its terms are, and takes a tenth of the time of a look at each
    finite = flat.sum(1).isfinite()
    # but one of huge terms may overflow
    return finite if finite.all() else flat.isfinite().all(1)


def has_nan(value: object) -> bool:
    """Whether a tensor, an array or a number is, or holds, NaN."""
    if isinstance(value, torch.Tensor):
        return bool(value.isnan().any())
    return bool(np.isnan(value).any())  # type: ignore[call-overload]


def leaves(state: object, at: tuple[object, ...] = ()) -> Iterator[tuple[tuple[object, ...], Any]]:
    """What is in maps and lists, and where."""
    match state:
        case Mapping():
            for key, value in state.items():
                yield from leaves(value, (*at, key))
        case list() | tuple():
            for i, value in enumerate(state):
                yield from leaves(value, (*at, i))
        case _:
            yield at, state


def all_finite(state: object) -> bool:
    """Whether no number in ``state`` is NaN or infinite: a tensor, an array, a number, or maps and
    lists of them; what is no number is passed over.
    """
    return all(_is_finite(value) for _, value in leaves(state))


def _is_finite(value: object) -> bool:
    match value:
        case torch.Tensor():
            return bool(finite_rows(value.detach()[None]).all())
        case np.ndarray():
            return value.dtype.kind not in "fc" or bool(np.isfinite(value).all())
        case float() | np.floating():
            return math.isfinite(value)
    return True
