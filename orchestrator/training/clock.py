"""Seconds that clients compute, measured where they do."""

from __future__ import annotations

import time

import numpy as np
import torch


def now(device: str) -> float:
    """Seconds on a clock that never goes back, once the device has done all that it was given."""
    if device == "cuda":
        # kernels are queued: without this, a step's time would be found with whoever waits first
        torch.cuda.synchronize()
    return time.perf_counter()


def shares(seconds: float, steps: np.ndarray) -> np.ndarray:
    """What each client [C] has of the ``seconds`` of its block, in which it did ``steps`` [C]: by
    its steps, or as much as the others where nobody did one.
    """
    done = steps.sum()
    return seconds * (steps / done if done else np.full(len(steps), 1 / len(steps)))
