"""Metrics of a round, from per-sample and per-client results, and what they are called."""

from __future__ import annotations

import numpy as np

from algorithms.contract import Influence

Record = dict[str, float]
"""What a round reports: metric -> value."""
VALIDATED = {
    "test_": "validation_",
    "client_": "client_validation_",
    "personal_": "personal_validation_",
}
"""How names of metrics on test rows begin -> how those of the same on validation rows do."""


def on_validation(metric: str) -> str | None:
    """The name of a metric of test rows where it is of validation rows; None if it is of neither,
    or of these already.
    """
    for test, validation in VALIDATED.items():
        if metric.startswith(test) and not metric.startswith(validation):
            return validation + metric.removeprefix(test)
    return None


def on_test(metric: str) -> str | None:
    """The inverse of :func:`on_validation`."""
    for test, validation in VALIDATED.items():
        if metric.startswith(validation):
            return test + metric.removeprefix(validation)
    return None


def over_clients(correct: np.ndarray, rows: np.ndarray, prefix: str) -> Record:
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


def over_rows(loss: np.ndarray, hit: np.ndarray, prefix: str) -> Record:
    """Accuracy and mean cross-entropy over test rows [n]."""
    if not len(loss):
        return {}
    return {
        f"{prefix}_accuracy": float(hit.mean()),
        f"{prefix}_loss": float(loss.mean(dtype=np.float64)),
    }


def over_cohort(diagnostics: dict[str, np.ndarray], counted: np.ndarray) -> Record:
    """Means of each client's numbers [m] over those that are ``counted`` (mask [m])."""
    return {n: float(np.mean(v[counted])) for n, v in diagnostics.items() if counted.any()}


def influence(who: Influence | None, malicious: np.ndarray) -> Record:
    """Effective number of clients 1/Σp² in the last aggregate, and the part that the clients
    ``malicious`` (ids) had in it.
    """
    if who is None or not who.weights.any():
        return {}
    # shares by magnitude: nothing makes weights positive, or their sum 1
    p = np.abs(who.weights) / np.abs(who.weights).sum()
    record = {"effective_clients": float(1 / np.square(p).sum())}
    if len(malicious):
        bad = np.isin(who.clients, malicious)
        record["malicious_selected"] = float((p[bad] > 0).sum() / (p > 0).sum())
        record["malicious_weight"] = float(p[bad].sum())
    return record
