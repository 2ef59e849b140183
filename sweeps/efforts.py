"""What the methods of a table were given and spent: differences that a reader must know of."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from sweeps.reproduction import Reproduction
from sweeps.results import Result, by_trial

SAME = 0.005
"""Relative difference up to which two rows have spent the same."""


def sentences(one: Reproduction, folder: Path) -> list[str]:
    """A sentence for each kind of effort, mean over a row's trials in ``folder`` that finished:
    one number where all rows agree, else one each.
    """
    trials = by_trial(folder)
    rows = {
        row: [
            trial
            for label in dict.fromkeys(label for (of, _), label in one.labels.items() if of == row)
            for (name, _), trial in trials.items()
            if name == label and trial.status != "failed"
        ]
        for row in one.rows
    }
    known = {row: ended for row, ended in rows.items() if ended}
    return [
        _said(what, {row: float(np.mean([of(t) for t in ended])) for row, ended in known.items()})
        for what, of in MEASURES.items()
        if known
    ]


def _cohort(trial: Result) -> float:
    return float(trial.folder.rounds()["cohort"].mean())


def _contacted(trial: Result) -> float:
    rounds = trial.folder.rounds()
    return float(rounds["contacted"].mean()) if "contacted" in rounds else math.nan


def _rounds(trial: Result) -> float:
    return float(len(trial.folder.rounds()))


def _steps(trial: Result) -> float:
    clients = trial.folder.clients()
    return float(clients.loc[clients["round"] == clients["round"].max(), "steps"].sum())


def _megabytes(trial: Result) -> float:
    rounds = trial.folder.rounds()
    return float((rounds["bytes_up"] + rounds["bytes_down"]).sum() / 1e6)


MEASURES: Mapping[str, Callable[[Result], float]] = {
    "rounds a run": _rounds,
    "distinct clients that train a round": _cohort,
    "distinct clients that send or are sent anything a round": _contacted,
    "local steps of all clients a run": _steps,
    "MB a run, both ways": _megabytes,
}


def _said(what: str, values: Mapping[str, float]) -> str:
    first, *others = values.values()
    if all(abs(value - first) <= SAME * abs(first) for value in others):
        return f"{what}: {_number(first)} for all methods"
    groups: dict[str, list[str]] = {}
    for row, value in values.items():
        groups.setdefault(_number(value), []).append(row)
    return f"{what}: {_listed(groups)}"


def _listed(groups: Mapping[str, Sequence[str]]) -> str:
    return "; ".join(f"{number} {', '.join(rows)}" for number, rows in groups.items())


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
