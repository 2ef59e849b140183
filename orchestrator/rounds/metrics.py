"""Metrics of a round, from per-sample and per-client results, and what they are called."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from algorithms.contract import Influence
from algorithms.parts.metrics import BAD, GOOD
from orchestrator.config.goal import LEVELS, UNEVEN, measured_by

if TYPE_CHECKING:
    from algorithms.parts.metrics import Metric

Record = dict[str, float]
"""What a round reports: metric -> value."""
VALIDATED = {
    "test_": "validation_",
    "client_": "client_validation_",
    "personal_": "personal_validation_",
}
"""How names of metrics on test rows begin -> how those of the same on validation rows do."""


TAILS = ("worst", "worst10", "best10")
MORE = re.compile(rf"(\w*_)?{GOOD}({LEVELS}|_jain)|\w*{BAD}_jain")
LESS = re.compile(
    rf"\w*{BAD}({LEVELS}|{UNEVEN})|(\w*_)?{GOOD}{UNEVEN}"
    r"|upper_gap|(seconds|bytes|malicious)_?\w*|joules|dropped|unjudged"
)
"""Metrics of which more, or less, is better; of all others nobody can say it in general. So is less
of what runs spend (``is_cost``)."""
_OF_ITS_OWN = re.compile(
    rf"(?!(train|test|heldout|(client_|personal_)?validation|client|personal)_loss)\w*_loss{LEVELS}"
)
"""Losses that each run weighs in its own way, as F(w, λ) by its own λ: within a run less is better,
and one run's says nothing beside another's."""


def is_of_its_own(metric: str, declared: Iterable[Metric] = ()) -> bool:
    """Whether it is such a loss, and none of the ``declared`` metrics."""
    return _OF_ITS_OWN.fullmatch(metric) is not None and not measured_by(metric, declared, ".*")


def is_of_all(metric: str) -> bool:
    """Whether it judges the model that is for all clients."""
    return metric.startswith(("test_", "validation_", "heldout_", "client_"))


TOTALS = ("seconds", "bytes_up", "bytes_down")
"""Columns of a round by itself, of which a run's number is the sum."""
COUNTS = ("round", "steps_total", "epochs_total", "evaluated_steps", "virtual_time")
"""Columns that grow from round to round."""
OF_A_ROUND = re.compile(r"round_steps|round_time|lock_step_time|(bytes|seconds)_\w+")
"""Parts of what a round spends, of which a run's number is the mean."""


def is_cost(metric: str) -> bool:
    """Whether a metric counts what a run has spent until its end."""
    return metric in TOTALS or metric in COUNTS


def is_budget(metric: str) -> bool:
    """Whether a goal of it (``stop``) is about what a run may spend, and not what it is to be."""
    return is_cost(metric) or OF_A_ROUND.fullmatch(metric) is not None


def more_is_better(metric: str, declared: Iterable[Metric] = ()) -> bool | None:
    """Which way a metric is better: as those say that a run has ``declared`` beside the usual ones
    (``evaluation.metrics``), else by its name; None if neither is.
    """
    declared = list(declared)
    one = measured_by(metric, declared)
    if one is not None:
        return one.side
    if measured_by(metric, declared, f"({UNEVEN}|_jain)") is not None:
        return metric.endswith("_jain")
    if MORE.fullmatch(metric):
        return True
    return False if is_cost(metric) or LESS.fullmatch(metric) else None


def level_of(metric: str) -> str | None:
    """The mean of what ``metric`` says how evenly it is spread; None of all other metrics."""
    found = re.fullmatch(rf"(\w+?)({UNEVEN}|_jain)", metric)
    return f"{found[1]}_mean" if found else None


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


def over_clients(sums: np.ndarray, prefix: str) -> Record:
    """Accuracy and loss over clients from correct answers, summed loss and test rows [K, 3].

    ``mean``, ``worst``, ``std`` (population), ``var``, ``worst10`` and ``best10`` (means of the
    worst and the best tenth, of at least one client each) count every client once; ``weighted``
    counts every row once. ``loss_worst`` is the highest mean loss of a client. Clients without test
    rows are left out. See :func:`evenness` for the others.
    """
    correct, loss, rows = sums[sums[:, 2] > 0].T
    if not len(rows):
        return {}
    if np.isnan(correct).any():  # nobody can say what is right
        return spread(loss / rows, f"{prefix}_loss", more_is_better=False)
    accuracy = correct / rows
    ordered, tenth = np.sort(accuracy), _tenth(len(accuracy))
    return {
        f"{prefix}_accuracy_mean": float(accuracy.mean()),
        f"{prefix}_accuracy_worst": float(accuracy.min()),
        f"{prefix}_accuracy_std": float(accuracy.std()),
        f"{prefix}_accuracy_var": float(accuracy.var()),
        f"{prefix}_accuracy_worst10": float(ordered[:tenth].mean()),
        f"{prefix}_accuracy_best10": float(ordered[-tenth:].mean()),
        f"{prefix}_accuracy_weighted": float(correct.sum() / rows.sum()),
        f"{prefix}_loss_worst": float((loss / rows).max()),
        **{f"{prefix}_accuracy_{name}": value for name, value in evenness(accuracy).items()},
    }


def spread(values: np.ndarray, name: str, more_is_better: bool | None) -> Record:
    """``mean``, ``worst``, ``worst10``, ``best10`` and ``std`` of a number of each client [K], as
    :func:`over_clients` has them of accuracy, and its :func:`evenness` where none is negative; all
    NaN where one of them is, which none is better than. Where neither more nor less is better
    (None), no client is the worst, or the best.
    """
    if not len(values):
        return {}
    told = () if more_is_better is None else TAILS
    if np.isnan(values).any():
        return {f"{name}_{what}": math.nan for what in ("mean", *told, "std")}
    ordered, tenth = np.sort(values), _tenth(len(values))
    ordered = ordered if more_is_better else ordered[::-1]
    tails = ordered[0], ordered[:tenth].mean(), ordered[-tenth:].mean()
    return {
        f"{name}_mean": float(values.mean()),
        **{f"{name}_{what}": float(value) for what, value in zip(told, tails, strict=False)},
        f"{name}_std": float(values.std()),
        **{f"{name}_{what}": value for what, value in evenness(values).items()},
    }


def _tenth(clients: int) -> int:
    """The nearest number of clients, halves upwards, and one at least."""
    return max(1, (clients + 5) // 10)


def evenness(x: np.ndarray) -> Record:
    """How evenly x ≥ 0 [K] is spread; nothing where all of it is 0, or some
    is negative or infinite.

    ``jain``: Jain's index (Σ x)²/(K Σ x²), 1/K to 1. ``angle``: degrees between x and (1, …, 1);
    ``kl``: KL divergence, in nats, of x/Σ x from the uniform distribution (both as q-FFL prints
    them: Li et al. 2020, Appendix).
    """
    if not x.any() or not np.isfinite(x).all() or (x < 0).any():
        return {}
    # the mean and what is left of it do not cancel, as Σ x² − (Σ x)²/K would
    apart = float(np.linalg.norm(x - x.mean()) / (np.sqrt(len(x)) * x.mean()))
    ratio = x / x.mean()
    logs = np.log(np.where(ratio > 0, ratio, 1.0))
    return {
        "jain": 1 / (1 + apart**2),
        "angle": float(np.degrees(np.arctan(apart))),
        "kl": float(np.mean(ratio * logs - ratio + 1)),
    }


def over_rows(loss: np.ndarray, hit: np.ndarray, prefix: str) -> Record:
    """Accuracy, where there is such, and mean loss over rows [n]."""
    if not len(loss):
        return {}
    mean = {f"{prefix}_loss": float(loss.mean(dtype=np.float64))}
    if np.isnan(hit).any():
        return mean
    return {f"{prefix}_accuracy": float(hit.mean(dtype=np.float64)), **mean}


def over_cohort(diagnostics: dict[str, np.ndarray], counted: np.ndarray) -> Record:
    """Means of each client's numbers [m] over those that are ``counted`` (mask [m]); what is itself
    a mean over steps, over those of them that did any.
    """
    stepped = counted & (diagnostics["steps"] > 0) if diagnostics else counted
    means: Record = {}
    for name, values in diagnostics.items():
        of_steps = name == "train_loss" or name.startswith("gradient_norm/")
        whose = stepped if of_steps else counted
        if whose.any():
            means[name] = float(np.mean(values[whose]))
    return means


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
