"""Which rows each client is tested on."""

from __future__ import annotations

import numpy as np

from algorithms.draws import generator
from orchestrator.data.lists import by_owner
from orchestrator.data.samples import Samples
from orchestrator.errors import UserError


def natural(samples: Samples, pool: np.ndarray, clients: int) -> list[np.ndarray]:
    """Those of the rows ``pool`` [n] that are each natural client's own."""
    assert samples.owner is not None
    return [pool[places] for places in by_owner(samples.owner[pool], clients)]


def local(
    parts: list[np.ndarray], fraction: float, seed: int
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Each client's rows in ``parts``, of which no two clients share one, as its training rows and
    the ``fraction`` that it keeps for its test. Raises UserError for a client with a single row.
    """
    train, test = [], []
    for k, rows in enumerate(parts):
        if len(rows) < 2:
            raise UserError(
                f"data.client_test: client {k} has one row and cannot keep a part of it for its "
                "test"
            )
        rows = generator(seed, "client-test", k).permutation(rows)
        cut = _cut(len(rows), fraction)
        train.append(rows[:cut])
        test.append(rows[cut:])
    return train, test


def set_aside(
    samples: Samples, pool: np.ndarray, fraction: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """The rows ``pool`` [n] without the ``fraction`` of each class that is kept for tests, and
    these; a class with one row keeps none.
    """
    rng = generator(seed, "client-test")
    train, test = [], []
    for label in range(samples.classes):
        rows = rng.permutation(pool[samples.y[pool] == label])
        cut = _cut(len(rows), fraction)
        train.append(rows[:cut])
        test.append(rows[cut:])
    return np.sort(np.concatenate(train)), np.sort(np.concatenate(test))


def _cut(rows: int, fraction: float) -> int:
    """How many of ``rows`` are for training."""
    # 0.8 of ten rows are eight, whatever 1 - 0.8 is in floating point
    return max(1, int(rows - fraction * rows + 1e-9))


def mixed(
    samples: Samples, pool: np.ndarray, parts: list[np.ndarray], least: int, seed: int
) -> list[np.ndarray]:
    """Rows of ``pool`` in each client's class mix, about n_k |pool|/|training rows| but ``least``
    or more; clients may share them. Raises UserError where the pool has none of a client's classes.
    """
    by_class = [pool[samples.y[pool] == c] for c in range(samples.classes)]
    total = sum(len(p) for p in parts)
    tests = []
    for k, rows in enumerate(parts):
        rng = generator(seed, "client-test", k)
        share = np.bincount(samples.y[rows], minlength=samples.classes) / len(rows)
        size = max(least, round(len(rows) * len(pool) / total))
        # of a rare class there may be fewer test rows than its share
        counts = np.minimum(_apportion(share, size), [len(c) for c in by_class])
        pieces = [
            rng.choice(c, n, replace=False) for c, n in zip(by_class, counts, strict=True) if n
        ]
        if not pieces:
            raise UserError(
                f"data.client_test: among the rows for tests there is none of client {k}'s "
                "classes; use another source, or fewer clients"
            )
        tests.append(np.sort(np.concatenate(pieces)))
    return tests


def _apportion(share: np.ndarray, size: int) -> np.ndarray:
    """Whole numbers nearest to ``share * size`` that sum to ``size`` (largest remainders)."""
    exact = share * size
    counts = np.floor(exact).astype(np.int64)
    # ascending, so the largest remainders come first
    largest = np.argsort(counts - exact, kind="stable")[: size - counts.sum()]
    counts[largest] += 1
    return counts
