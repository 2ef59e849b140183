"""What the methods of a table were given and spent: differences that a reader must know of."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from orchestrator.analysis.compared import Runs
from orchestrator.analysis.goals import looks_said
from orchestrator.config import Config
from sweeps.apart import is_lost, key_of
from sweeps.entry import Column
from sweeps.reproduction import Reproduction
from sweeps.results import Result, broken_said, by_trial

MOST = 12
"""Rows that a sentence names, each with its number."""
OF_A_METHOD = (
    "algorithm", "model", "loss", "aggregator", "server_optimizer", "sampler", "round_end",
    "output", "compression", "local",
)  # fmt: skip
"""Sections of a config whose parts make a method; others say what it is tried on."""
SAME = 0.005
"""Relative difference up to which two rows have spent the same."""


def sentences(one: Reproduction, folder: Path) -> list[str]:
    """A sentence for each kind of effort, mean over a row's trials in ``folder`` that finished, in
    the columns in which all rows have some: one number where all rows agree, else one each.
    """
    trials = by_trial(folder)
    ended = {
        row: {
            column: [
                trial
                for (name, _), trial in trials.items()
                if name == label and trial.status != "failed"
            ]
            for (of, column), label in one.labels.items()
            if of == row
        }
        for row in one.rows
    }
    rows = {row: _distinct(columns, _common(ended)) for row, columns in ended.items()}
    said = [_said(what, each) for what, each in _measured(rows).items()]
    conditions = _conditions([one.entry.columns[name] for name in one.columns], ended)
    looks = _looks(one, ended)
    return [*said, *_mixtures(rows), *looks, *broken_said(trials.values()), *conditions]


def given(one: Reproduction) -> list[str]:
    """A sentence for each of a few rows, with the settings of its own that are in effect (those of
    ``--set`` win over them, as columns do), of which a claim may be more than of its method; many
    are called by them.
    """
    winning = [
        {*map(key_of, (*one.entry.columns[column].settings, *one.also))} for column in one.columns
    ]
    effective = {
        row: [own for own in one.entry.rows[row] if not all(is_lost(own, keys) for keys in winning)]
        for row in one.rows
    }
    if len(effective) > MOST:
        return []
    return [f"{row}: {', '.join(own)}" for row, own in effective.items() if own]


def unequal(groups: Mapping[str, Sequence[Result]]) -> list[str]:
    """A sentence for each kind of effort in which settings differ (name -> trials of it)."""
    # a name may be several settings, and names are listed
    ended = {
        name.replace(", ", " "): [one for one in some if one.status != "failed"]
        for name, some in groups.items()
    }
    return [_said(what, each) for what, each in _measured(ended).items() if not _same(each)]


def tries(methods: Mapping[str, Sequence[Result]]) -> list[str]:
    """How many settings each method has had, be they diverged or stopped, where several have not
    had as many: who has more tries has a better best one, by luck alone.
    """
    settings = {
        name: {tuple(one.setting.values()) for one in its if not one.broken or one.unreported}
        for name, its in methods.items()
    }
    if len({len(tried) for tried in settings.values()}) < 2:
        return []
    listed = "; ".join(f"{len(tried)} of {name}" for name, tried in settings.items())
    return [f"settings tried: {listed}; who has more of them has a better best one by luck alone"]


def methods(
    results: Sequence[Result], config_of: Callable[[Result], Config]
) -> dict[str, list[Result]]:
    """The trials of each method, which is what its parts are called: by what tells it from the
    others.
    """
    each = []
    for one in results:
        said = config_of(one).model_dump(include={*OF_A_METHOD})
        each.append((one, dict(_parts({key: said[key] for key in OF_A_METHOD}))))
    places = dict.fromkeys(place for _, its in each for place in its)
    varies = [place for place in places if len({its.get(place) for _, its in each}) > 1]
    found: dict[tuple[str, ...], list[Result]] = {}
    for one, its in each:
        found.setdefault(tuple(its.get(place, "none") for place in varies), []).append(one)
    return dict(zip(_called(varies, [*found]), found.values(), strict=True))


def _called(places: Sequence[str], methods: Sequence[tuple[str, ...]]) -> list[str]:
    """Names of methods that have other parts in some places."""
    if not places:
        return ["it" for _ in methods]
    short = [", ".join(part for part in parts if part != "none") or "none" for parts in methods]
    if len({*short}) == len(short):
        return short
    # one part in two places makes two methods
    return [", ".join(map(" ".join, zip(places, parts, strict=True))) for parts in methods]


def _parts(within: Mapping[str, Any], place: str = "") -> Iterator[tuple[str, str]]:
    """(Place, name) of each part in a config."""
    if isinstance(name := within.get("name"), str):
        yield place, name
    for key, value in within.items():
        if isinstance(value, Mapping):
            yield from _parts(value, f"{place}.{key}".strip("."))


def _measured(rows: Mapping[str, Sequence[Result]]) -> dict[str, dict[str, float]]:
    """Kind of effort -> row -> the mean over its trials; of rows that have some, on the seeds that
    all of them have, where there are such: clients of other seeds do other work.
    """
    found = {row: ended for row, ended in rows.items() if ended}
    seeds = [{trial.seed for trial in ended} for ended in found.values()]
    common = set.intersection(*seeds) if seeds else set()
    spent = {
        row: pd.DataFrame(
            [_spent(trial) for trial in ended if trial.seed in common or not common]
        ).mean(skipna=False)
        for row, ended in found.items()
    }
    measures = next(iter(spent.values())).index if spent else ()
    return {what: {row: float(mean[what]) for row, mean in spent.items()} for what in measures}


Cells = Mapping[str, Sequence[Result]]
"""Column -> a row's trials that it is of; several may be of the same ones."""


def _conditions(columns: Sequence[Column], ended: Mapping[str, Cells]) -> Iterator[str]:
    """What some rows of a table with such columns had that others had not, and where their numbers
    are from.
    """
    runs = _as_runs({row: _distinct(cells, set()) for row, cells in ended.items()})
    metrics = [column.metric for column in columns]
    measured = [*metrics, *(column.statistic for column in columns)]
    yield from runs.unequal_said(metrics, measured)


def _as_runs(rows: Mapping[str, Sequence[Result]]) -> Runs:
    """The rows' trials as runs of any kind, a column a row that has some."""
    trials = [one for its in rows.values() for one in its]
    numbers = iter(range(len(trials)))
    grouped = {row: [next(numbers) for _ in its] for row, its in rows.items() if its}
    folders = [one.folder for one in trials]
    results = [folder.result() for folder in folders]
    return Runs(folders, results, [one.rounds for one in trials], grouped=grouped)


def _looks(one: Reproduction, ended: Mapping[str, Cells]) -> list[str]:
    """How often rows were looked at, in columns of what it took to a target, where that is not the
    same.
    """
    said = []
    for name in one.columns:
        column = one.entry.columns[name]
        if column.target is not None:
            looked = {
                row: [(trial.folder.config(), trial.rounds) for trial in cells[name]]
                for row, cells in ended.items()
                if cells[name]
            }
            said.append(looks_said(looked, column.metric))
    return [*dict.fromkeys(filter(None, said))]


def _common(ended: Mapping[str, Cells]) -> set[str]:
    """The columns that all rows have which have any: clients of other partitions do other work."""
    known = [{c for c, found in cells.items() if found} for cells in ended.values()]
    known = [columns for columns in known if columns]
    return set.intersection(*known) if known else set()


def _distinct(cells: Cells, columns: set[str]) -> list[Result]:
    """The trials in these columns, or in all where there is none, each once."""
    chosen = [found for column, found in cells.items() if column in columns or not columns]
    return list({(one.label, one.seed): one for found in chosen for one in found}.values())


def _mixtures(rows: Mapping[str, Sequence[Result]]) -> list[str]:
    """How far the methods' λ went, where some have one: beside the cohort's size it shows how much
    of it was executed, for of distinct clients that count alike each has one part of the cohort.
    """
    largest = {
        row: float(pd.Series([trial.rounds["dual_max"].mean() for trial in ended]).mean())
        for row, ended in rows.items()
        if ended and all("dual_max" in trial.rounds for trial in ended)
    }
    what = "largest λ of a client where there is a λ, mean over rounds"
    return [_said(what, largest)] if largest else []


def _spent(trial: Result) -> dict[str, float]:
    """What a trial was given and has spent."""
    rounds, clients = trial.rounds, trial.folder.clients()
    last = clients[clients["round"] == clients["round"].max()]
    contacted = rounds["contacted"].mean() if "contacted" in rounds else math.nan
    return {
        "rounds a run": len(rounds),
        "distinct clients that train a round": rounds["cohort"].mean(),
        "distinct clients that send or are sent anything a round": contacted,
        "local steps of all clients a run": last["steps"].sum(),
        "MB a run, both ways": (rounds["bytes_up"] + rounds["bytes_down"]).sum() / 1e6,
    }


def _same(values: Mapping[str, float]) -> bool:
    """Whether all rows have as much; what is known of none is the same."""
    first, *others = values.values()
    if all(math.isnan(value) for value in (first, *others)):
        return True
    return all(abs(value - first) <= SAME * abs(first) for value in others)


def _said(what: str, values: Mapping[str, float]) -> str:
    if _same(values):
        return f"{what}: {_number(next(iter(values.values())))} for all methods"
    groups: dict[str, list[str]] = {}
    for row, value in values.items():
        groups.setdefault(_number(value), []).append(row)
    if len(values) > MOST:
        least, most = (end(values, key=values.__getitem__) for end in (min, max))
        ends = " to ".join(f"{_number(values[row])} ({row})" for row in (least, most))
        return f"{what}: {ends}"
    return f"{what}: {_listed(groups)}"


def _listed(groups: Mapping[str, Sequence[str]]) -> str:
    return "; ".join(f"{number} {', '.join(rows)}" for number, rows in groups.items())


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
