"""Random numbers keyed by (seed, purpose, round, client): no draw depends on who ran before it."""

from __future__ import annotations

import zlib

import numpy as np
import torch


def _entropy(seed: int, purpose: str, keys: tuple[int, ...]) -> list[int]:
    # not hash(), which differs from process to process; SeedSequence reads up to four numbers as if
    # zeros followed, so one purpose must not be keyed both by (t,) and by (t, 0)
    return [seed, zlib.crc32(purpose.encode()), *(int(k) for k in keys)]


def generator(seed: int, purpose: str, *keys: int) -> np.random.Generator:
    """A NumPy generator that is a pure function of its arguments (non-negative integers)."""
    return np.random.Generator(
        np.random.Philox(np.random.SeedSequence(_entropy(seed, purpose, keys)))
    )


def torch_seed(seed: int, purpose: str, *keys: int) -> int:
    """A 63-bit seed for ``torch.manual_seed``, a pure function of its arguments."""
    state = np.random.SeedSequence(_entropy(seed, purpose, keys)).generate_state(1, np.uint64)
    return int(state[0] >> np.uint64(1))


def torch_generator(seed: int, purpose: str, *keys: int) -> torch.Generator:
    """A CPU torch generator that is a pure function of its arguments."""
    return torch.Generator().manual_seed(torch_seed(seed, purpose, *keys))
