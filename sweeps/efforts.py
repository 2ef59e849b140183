"""What the methods of a table were given and spent: differences that a reader must know of."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

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
    spent = {
        row: pd.DataFrame([_spent(trial) for trial in ended]).mean(skipna=False)
        for row, ended in rows.items()
        if ended
    }
    measures = next(iter(spent.values())).index if spent else ()
    return [
        _said(what, {row: float(mean[what]) for row, mean in spent.items()}) for what in measures
    ]


def _spent(trial: Result) -> dict[str, float]:
    """What a trial was given and has spent."""
    rounds, clients = trial.folder.rounds(), trial.folder.clients()
    last = clients[clients["round"] == clients["round"].max()]
    contacted = rounds["contacted"].mean() if "contacted" in rounds else math.nan
    return {
        "rounds a run": len(rounds),
        "distinct clients that train a round": rounds["cohort"].mean(),
        "distinct clients that send or are sent anything a round": contacted,
        "local steps of all clients a run": last["steps"].sum(),
        "MB a run, both ways": (rounds["bytes_up"] + rounds["bytes_down"]).sum() / 1e6,
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
