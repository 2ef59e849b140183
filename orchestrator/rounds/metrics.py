"""Metrics of a round, from per-sample and per-client results."""

from __future__ import annotations

import numpy as np


def over_clients(correct: np.ndarray, rows: np.ndarray, prefix: str) -> dict[str, float]:
    """Accuracy over clients from correct answers [K] and test rows [K].

    ``mean``, ``worst``, ``std`` (population), ``var`` and ``worst10`` (mean of the worst tenth, at
    least one client) count every client once; ``weighted`` counts every row once. Clients without
    test rows are left out.
    """
    tested = rows > 0
    if not tested.any():
        return {}
    accuracy = correct[tested] / rows[tested]
    tail = np.sort(accuracy)[: max(1, round(0.1 * len(accuracy)))]
    return {
        f"{prefix}_accuracy_mean": float(accuracy.mean()),
        f"{prefix}_accuracy_worst": float(accuracy.min()),
        f"{prefix}_accuracy_std": float(accuracy.std()),
        f"{prefix}_accuracy_var": float(accuracy.var()),
        f"{prefix}_accuracy_worst10": float(tail.mean()),
        f"{prefix}_accuracy_weighted": float(correct[tested].sum() / rows[tested].sum()),
    }


def over_rows(loss: np.ndarray, hit: np.ndarray, prefix: str) -> dict[str, float]:
    """Accuracy and mean cross-entropy over test rows [n]."""
    if not len(loss):
        return {}
    return {
        f"{prefix}_accuracy": float(hit.mean()),
        f"{prefix}_loss": float(loss.mean(dtype=np.float64)),
    }
