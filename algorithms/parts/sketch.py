"""AMS sketches (Alon, Matias, Szegedy 1996), one bucket per row and coordinate (Cormode & Garofalakis 2005).

Row r of the sketch of v ∈ R^d sums s_r(j) v_j over the coordinates j that fall into each of m buckets. Signs s_r are
4-wise and buckets 2-wise independent: polynomials over the prime 2³¹ − 1. E ‖row‖² = ‖v‖², and the relative standard
deviation of one row's ‖·‖² is at most √(2/m); the median over l rows is the estimate. A sketch is linear in v.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from algorithms.draws import generator

PRIME = 2**31 - 1


class Sketch:
    """The linear map R^d → R^{l × m}, with buckets and signs computed once: O(l d) time a vector, 12 l d bytes."""

    def __init__(self, d: int, rows: int, columns: int, seed: int) -> None:
        self.columns = columns
        self.buckets, self.signs = torch.empty(rows, d, dtype=torch.int64), torch.empty(rows, d)
        for r in range(rows):
            self.buckets[r], self.signs[r] = buckets_and_signs(d, columns, seed, r)

    def apply(self, vectors: Tensor) -> Tensor:
        """Sketches [C, l, m] of ``vectors`` [C, d]; one by one, which keeps a vector in the cache."""
        if self.signs.device != vectors.device:
            self.buckets, self.signs = self.buckets.to(vectors.device), self.signs.to(vectors.device)
        out = vectors.new_zeros(len(vectors), len(self.buckets), self.columns)
        for sketch, v in zip(out, vectors, strict=True):
            sketch.scatter_add_(1, self.buckets, self.signs.to(v) * v)
        return out


def squared_norm(sketch: Tensor) -> float:
    """M2: the median over rows of their squared norms, an estimate of ‖v‖² from its sketch [l, m]."""
    return float(sketch.double().square().sum(1).quantile(0.5))


@lru_cache(maxsize=4)
def shared(d: int, rows: int, columns: int, seed: int) -> Sketch:
    """The run's sketch, built once in each process."""
    return Sketch(d, rows, columns, seed)


def buckets_and_signs(d: int, columns: int, seed: int, row: int) -> tuple[Tensor, Tensor]:
    """Bucket [d] int64 in 0..m−1 and sign [d] float32 of every coordinate in one row."""
    rng = generator(seed, "sketch", row)
    sign = [int(c) for c in rng.integers(0, PRIME, 4)]
    bucket = [int(rng.integers(1, PRIME)), int(rng.integers(0, PRIME))]
    where = torch.arange(d, dtype=torch.int64)
    return _polynomial(bucket, where).remainder_(columns), (_polynomial(sign, where) & 1).float().mul_(2).sub_(1)


def _polynomial(coefficients: list[int], x: Tensor) -> Tensor:
    """Horner's rule modulo 2³¹ − 1; products of two residues fit int64."""
    value = torch.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        value.mul_(x).add_(c).remainder_(PRIME)
    return value
