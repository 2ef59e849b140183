"""AMS sketches (Alon, Matias, Szegedy 1996), in the form of Cormode & Garofalakis (2005).

Row r of the sketch of v ∈ R^d sums s_r(j) v_j over the coordinates j that fall into each of m
buckets; each coordinate is in one bucket of each row. Signs s_r are 4-wise and buckets 2-wise
independent: polynomials over the prime 2³¹ − 1. E ‖row‖² = ‖v‖², and the relative standard
deviation of one row's ‖·‖² is at most √(2/m); the median over l rows is the estimate. A sketch is
linear in v.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import torch

from algorithms.draws import generator

if TYPE_CHECKING:
    from torch import Tensor

PRIME = 2**31 - 1
CHUNK = 2**16
"""Coordinates that are added at a time."""
SMALL = 2**22
"""Entries of a map up to which it is kept as scatter_add wants it, in 8 bytes each."""


class Sketch:
    """The linear map R^d → R^{l × m}, computed once: O(l d) time a vector, 2 l d bytes (8 l d for
    small models, 4 l d for m of 2¹⁴ or more).

    Bucket and sign of a coordinate are one number, a place in 2m bins: the bins of the negative
    signs are subtracted in the end, which spares a product for each entry. On a GPU the map takes 4
    l d bytes more, there.
    """

    def __init__(self, d: int, rows: int, columns: int, seed: int) -> None:
        self.columns = columns
        kind = (
            torch.int64
            if rows * d <= SMALL
            else torch.int16
            if 2 * columns < 2**15
            else torch.int32
        )
        self.bins = torch.empty(rows, d, dtype=kind)
        for r in range(rows):
            buckets, signs = buckets_and_signs(d, columns, seed, r)
            self.bins[r] = buckets.add_(signs < 0, alpha=columns)
        self.members: list[Tensor] | None = None

    def apply(self, vectors: Tensor) -> Tensor:
        """Sketches [C, l, m] of ``vectors`` [C, d]."""
        out = self.gathered(vectors) if vectors.is_cuda else self.scattered(vectors)
        return out[..., : self.columns] - out[..., self.columns :]

    def scattered(self, vectors: Tensor) -> Tensor:
        """The bins [C, l, 2m]; piece by piece, which stays in a CPU's cache."""
        rows, d = self.bins.shape
        out = vectors.new_zeros(len(vectors), rows, 2 * self.columns)
        for begin in range(0, d, CHUNK):
            # once for all vectors: scatter_add takes no smaller integers
            bins = self.bins[:, begin : begin + CHUNK].long()
            for sketch, v in zip(out, vectors[:, begin : begin + CHUNK], strict=True):
                sketch.scatter_add_(1, bins, v.expand(rows, -1))
        return out

    def gathered(self, vectors: Tensor) -> Tensor:
        """The bins [C, l, 2m]: each fetches its own coordinates. A GPU scatters in no fixed order,
        or slowly.
        """
        if self.members is None:
            self.members = [self._members(row.to(vectors.device).long()) for row in self.bins]
        # entry d is the 0 that short bins are filled up with
        padded = torch.nn.functional.pad(vectors, (0, 1))
        sums = [
            [v.index_select(0, m.flatten()).view_as(m).sum(1) for m in self.members] for v in padded
        ]
        return torch.stack([torch.stack(each) for each in sums])

    def _members(self, bins: Tensor) -> Tensor:
        """The coordinates in each bin [2m, the most in one] int32, filled up with d."""
        counts = torch.bincount(bins, minlength=2 * self.columns)
        # stable: the members of a bin come in ascending order, in which they are then added
        order = bins.argsort(stable=True)
        ordered = bins[order]
        # a coordinate's number in its bin: its place in the order, less where the bin begins
        place = torch.arange(len(bins), device=bins.device) - (counts.cumsum(0) - counts)[ordered]
        members = bins.new_full((len(counts), int(counts.max())), len(bins), dtype=torch.int32)
        members[ordered, place] = order.int()
        return members


def squared_norm(sketch: Tensor) -> float:
    """M2: the median over rows of their squared norms, an estimate of ‖v‖² from a sketch [l, m]."""
    # quantile, because torch's median takes the lower of two middle values
    return float(sketch.double().square().sum(1).quantile(0.5))


@lru_cache(maxsize=4)
def shared(d: int, rows: int, columns: int, seed: int) -> Sketch:
    """The run's sketch, built once in each process."""
    return Sketch(d, rows, columns, seed)


def buckets_and_signs(d: int, columns: int, seed: int, row: int) -> tuple[Tensor, Tensor]:
    """Bucket [d] int64 in 0..m−1 and sign [d] float32 of every coordinate in one row."""
    rng = generator(seed, "sketch", row)
    # degree 3 makes signs 4-wise independent, degree 1 buckets 2-wise
    sign = [int(c) for c in rng.integers(0, PRIME, 4)]
    bucket = [int(rng.integers(1, PRIME)), int(rng.integers(0, PRIME))]
    where = torch.arange(d, dtype=torch.int64)
    return _polynomial(bucket, where).remainder_(columns), (
        _polynomial(sign, where) & 1
    ).float().mul_(2).sub_(1)


def _polynomial(coefficients: list[int], x: Tensor) -> Tensor:
    """Horner's rule modulo 2³¹ − 1; products of two residues fit int64."""
    value = torch.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        value.mul_(x).add_(c).remainder_(PRIME)
    return value
