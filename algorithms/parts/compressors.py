"""Compressors: what is sent in place of a vector, and how many bytes it takes.

Each works row by row on [C, d]. Unbiased ones keep the expectation; biased ones are made up for by
error feedback (Karimireddy et al. 2019): what was not sent is added to the next message.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from algorithms.part import Part, option

if TYPE_CHECKING:
    from torch import Tensor


class Compressor(Part):
    """A lossy message."""

    @property
    def feeds_back(self) -> bool:
        """Whether what was left out is added to the next message."""
        return False

    @abstractmethod
    def compress(self, rows: Tensor, draws: Sequence[torch.Generator]) -> Tensor:
        """What the receiver makes of ``rows`` [C, d]; ``draws`` are one generator for each row."""

    @property
    def contracts(self) -> bool:
        """Whether a message's error is on average smaller than the message, at any size of vector.

        Only then may errors be fed back: what is left out is otherwise more than what was sent, and
        grows.
        """
        return True

    @abstractmethod
    def nbytes(self, size: int) -> int:
        """Bytes on the wire for a float32 vector of ``size`` entries."""


class NoCompression(Compressor):
    """The vector itself, in float32."""

    name: str = "none"

    def compress(self, rows: Tensor, draws: Sequence[torch.Generator]) -> Tensor:
        return rows

    def nbytes(self, size: int) -> int:
        return 4 * size


class _Lossy(Compressor):
    error_feedback: bool = option(True, "add what was left out to the next message")

    @property
    def feeds_back(self) -> bool:
        return self.error_feedback


class _Sparse(_Lossy):
    fraction: float = option(0.1, "part of the entries that is sent", "k/d", gt=0, le=1)

    def kept(self, size: int) -> int:
        """k, the number of entries sent."""
        return max(1, round(self.fraction * size))


class TopK(_Sparse):
    """The k largest entries in size, each with a 32-bit index (Aji & Heafield 2017; Stich et al.
    2018).
    """

    name: str = "top_k"

    def compress(self, rows: Tensor, draws: Sequence[torch.Generator]) -> Tensor:
        places = rows.abs().topk(self.kept(rows.shape[1]), dim=1).indices
        return torch.zeros_like(rows).scatter_(1, places, rows.gather(1, places))

    def nbytes(self, size: int) -> int:
        return 8 * self.kept(size)


class RandomK(_Sparse):
    """k entries at random places that the receiver knows from the shared seed; ``scale`` makes it
    unbiased.
    """

    name: str = "random_k"
    scale: bool = option(False, "multiply by d/k (unbiased; error feedback must then be off)")

    @property
    def contracts(self) -> bool:
        return not self.scale

    def compress(self, rows: Tensor, draws: Sequence[torch.Generator]) -> Tensor:
        d = rows.shape[1]
        k = self.kept(d)
        # made on the CPU, where the generators are, so that a GPU keeps the same entries
        mask = torch.zeros(rows.shape, dtype=torch.bool)
        for row, g in zip(mask, draws, strict=True):
            row[torch.randperm(d, generator=g)[:k]] = True
        return torch.where(mask.to(rows.device), rows * (d / k) if self.scale else rows, 0.0)

    def nbytes(self, size: int) -> int:
        return 4 * self.kept(size)


class Quantized(_Lossy):
    """QSGD (Alistarh et al. 2017, Eq. 4): ‖v‖ sign(v_j) ξ_j/s with ξ_j rounded at random to a
    neighbouring level.

    Unbiased. Counted at 1 bit for the sign and ⌈log2(s + 1)⌉ for the level of each entry, and 4
    bytes for the norm.
    """

    name: str = "qsgd"
    levels: int = option(255, "levels s above zero", "s", ge=1, le=1_000_000)
    bucket: int | None = option(512, "entries that share a norm; null: the whole vector", ge=1)
    error_feedback: bool = option(False, "add what was left out to the next message")

    @property
    def contracts(self) -> bool:
        """By the variance bound min(b/s², √b/s) ‖v‖² of a bucket of b entries (Lemma 3.1)."""
        b, s = self.bucket, self.levels
        return b is not None and min(b / s**2, math.sqrt(b) / s) < 1

    def compress(self, rows: Tensor, draws: Sequence[torch.Generator]) -> Tensor:
        return torch.stack([self._one(row, g) for row, g in zip(rows, draws, strict=True)])

    def _one(self, row: Tensor, draw: torch.Generator) -> Tensor:
        dither = torch.rand(len(row), generator=draw).to(row)
        each = max(1, min(self.bucket or len(row), len(row)))
        return self._quantize(_buckets(row, each), _buckets(dither, each)).flatten()[: len(row)]

    def _quantize(self, v: Tensor, u: Tensor) -> Tensor:
        """Buckets [n, b], by dither of the same shape."""
        norm = torch.linalg.vector_norm(v, dim=1, keepdim=True)
        if norm.isinf().any():  # the squares of what float32 can hold it may not
            wide = torch.linalg.vector_norm(v, dim=1, keepdim=True, dtype=torch.float64)
            norm = torch.where(norm.isinf(), wide.to(v), norm)
        # ⌊x + u⌋ rounds x up with the probability of its fraction; the clamp is for sums that
        # float32 rounds up to s + 1
        level = (v.abs() / norm * self.levels + u).floor().clamp_max(self.levels)
        sent = norm * v.sign() * level / self.levels
        # the product of the three may be more than float32 holds, though what is sent is not
        sent = torch.where(sent.isfinite(), sent, norm * (v.sign() * level / self.levels))
        return torch.where(norm == 0, v, sent)

    def nbytes(self, size: int) -> int:
        bits = 1 + math.ceil(math.log2(self.levels + 1))
        return math.ceil(size * bits / 8) + 4 * math.ceil(size / (self.bucket or size))


def _buckets(row: Tensor, each: int) -> Tensor:
    """A vector cut into buckets [n, each], the last one filled up with zeros."""
    return torch.nn.functional.pad(row, (0, -len(row) % each)).view(-1, each)


class _Rounded(_Lossy):
    error_feedback: bool = option(False, "add what was left out to the next message")

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """The type that is sent."""

    def compress(self, rows: Tensor, draws: Sequence[torch.Generator]) -> Tensor:
        return rows.to(self.dtype).to(rows.dtype)

    def nbytes(self, size: int) -> int:
        return 2 * size


class BFloat16(_Rounded):
    """Rounded to bfloat16: float32's range, 8 bits of precision."""

    name: str = "bf16"

    @property
    def dtype(self) -> torch.dtype:
        return torch.bfloat16


class Float16(_Rounded):
    """Rounded to float16: values above 65504 become infinite."""

    name: str = "fp16"

    @property
    def dtype(self) -> torch.dtype:
        return torch.float16
