"""RLlib draws from the global random generators, and reseeds them; a run must not notice."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def isolated(seed: int | None = None) -> Iterator[None]:
    """Put the global generators of Python, NumPy and torch back afterwards.

    With ``seed`` ≥ 0, start from it inside.
    """
    kept = random.getstate(), np.random.get_state(), torch.get_rng_state()
    if seed is not None:
        random.seed(seed)
        np.random.seed(seed % 2**32)
        torch.manual_seed(seed)
    try:
        yield
    finally:
        random.setstate(kept[0])
        np.random.set_state(kept[1])
        torch.set_rng_state(kept[2])
