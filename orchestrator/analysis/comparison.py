"""Runs side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from orchestrator.analysis.compared import Runs
from orchestrator.analysis.comparison_page import comparison_of, reports_of
from orchestrator.analysis.goals import hidden_said, looks_said, sought
from orchestrator.analysis.left_out import failed_said
from orchestrator.analysis.names import (
    require_curve,
    require_reported,
)
from orchestrator.analysis.paired import is_tied
from orchestrator.analysis.tested import TOLD_APART, Measured, PairedTests
from orchestrator.analysis.written import Written, tell_beside
from orchestrator.config.goal import Goal, counts_of_the_diverged, steps_of, target_goal, up_to
from orchestrator.errors import UserError
from orchestrator.files import json_text, write_text
from orchestrator.pages.library import drawn
from orchestrator.results.pictures import write_beside, write_picture
from orchestrator.results.result import Result
from orchestrator.results.run_folder import RunFolder
from orchestrator.rounds.metrics import TOTALS, is_cost
from orchestrator.terminal import HEADLINES, decimals, errors, labels_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Form = Literal["terminal", "markdown", "latex", "html", "csv", "json"]
PLANE = (4.2, 2.6)
"""Inches of a picture's plane."""
MOST = 60
"""Columns of a table."""
ACROSS = 6
"""Columns of numbers that a page in print has room for."""


@dataclass(frozen=True)
class Line:
    """A row of the table: a number of each run."""

    label: str
    values: Sequence[float | None]
    """None where it was not reported; NaN where it is no number."""
    digits: int = 4
    none: str = "nan"
    """What is said of NaN."""
    better: bool | None = None
    """Whether more is better, where that is known."""

    def best(self, columns: Mapping[str, Sequence[int]]) -> str | None:
        """The column with the best mean, where all runs have one and none another's."""
        means: dict[str, float] = {}
        for name, runs in columns.items():
            given = [value for run in runs if (value := self.values[run]) is not None]
            means[name] = float(np.mean(given)) if len(given) == len(runs) else math.nan
        known = [*means.values()]
        if self.better is None or len(known) < 2 or not np.isfinite(known).all():
            return None
        end = max(known) if self.better else min(known)
        first = [name for name, mean in means.items() if is_tied(mean, end)]
        return first[0] if len(first) == 1 else None

    @cached_property
    def _digits(self) -> int:
        """More than usual where all would be 0 with them."""
        sizes = [abs(value) for value in self.values if value is not None]
        return decimals(max(filter(math.isfinite, sizes), default=0.0), self.digits)

    def cell(self, runs: Sequence[int]) -> str:
        """The number of one run, or mean ± standard error over several."""
        given = [value for run in runs if (value := self.values[run]) is not None]
        if not given:
            return ""
        known = np.array([value for value in given if not math.isnan(value)])
        lost = len(given) - len(known)
        if not len(known):
            return self.none
        # what is the same of all has no spread to tell of
        spread = len(set(known)) > 1
        # whole numbers have a mean that is none
        digits = max(self._digits, int(spread))
        text = f"{known.mean():.{digits}f}"
        if spread:
            text += f" ± {standard_error(known):.{digits}f}"
        if silent := len(runs) - len(given):
            text += f", {silent} without"
        return f"{text}, {lost} {self.none}" if lost else text


def show_comparison(
    folders: list[RunFolder],
    plot: Path | None,
    metrics: Sequence[str] = (),
    target: str | None = None,
    form: Form = "terminal",
    report: Path | None = None,
    about: str = "",
    only: Sequence[str] = (),
    labels: Sequence[str] = (),
    against: str | None = None,
) -> str:
    """A table of the runs' last metrics, mean ± standard error over those that differ in the seed
    alone, paired tests on ``metrics``, and (if asked for) the curves of one: a picture and its
    data. Returns its text; the terminal's is printed instead, and empty.

    ``report``: all of that also as a page there, which begins with ``about``. With ``target`` also
    the rounds and seconds until the one metric reached it; with ``only`` no other rows than those.
    ``labels`` ("NAME=TEXT") are what columns are called instead. The others are tested ``against``
    the column of that name, or the first. A metric that ends in "/" is all columns that begin so
    (``gradient_norm/``).
    """
    runs = Runs.read(folders, labels)
    asked = [*dict.fromkeys(map(column_of, metrics or [runs.usual()]))]
    metric = asked[0]
    if len(asked) > 1 and (plot is not None or target is not None):
        raise UserError("--plot and --target are of one metric: give one --metric")
    goal, first = target_goal(target, metric, runs.declared), runs.called(against)
    for one in asked:
        require_reported(one, folders, runs.rounds, every=goal is not None or plot is not None)
    lines = [
        *_metrics(runs.results, runs.diverged, partial(_better, runs, first)),
        *_efforts(runs.results, runs.rounds),
        *_times(runs.rounds),
        *_attacked(runs.rounds, False if runs.on_the_same else None),
    ]
    lines += _to_target(runs.rounds, metric, goal) if goal is not None else []
    lines += _reached(runs)
    lines, columns = _chosen(lines, only), runs.columns
    if len(columns) > MOST:
        raise UserError(f"{len(columns)} groups of runs are more than a table holds ({MOST})")
    groups = runs.groups()
    if plot is not None:
        require_curve(metric, folders, runs.rounds)
        _draw(runs, metric, plot)
    tests = tests_of(runs, asked, first)
    notes = notes_of(runs, lines, asked, first, goal)
    written = _written(lines, columns, notes, tests, [*runs.survivors], whole=bool(only))
    if report is not None:
        links = reports_of(runs.folders, runs.seeds, columns, report)
        write_text(report, comparison_of(about, written, groups, asked, links))
        errors.print(f"wrote {report}", soft_wrap=True)
    if form == "csv":
        tell_beside(notes)
        return pd.DataFrame(_cells(lines, columns)).to_csv(index=False)
    if form == "json":
        told = {"runs": _told(runs, columns), "notes": notes}
        told |= {"cells": [*_cells(lines, columns)]}
        return json_text(told | {"tests": tests.records()})
    if form == "latex":
        written = _for_print(written, tests, lines)
    return written.as_(form)


def column_of(asked: str) -> str:
    """The column that is meant: "accuracy" and "loss" are those on the test set."""
    return f"test_{asked}" if asked in ("accuracy", "loss") else asked


def _chosen(lines: list[Line], only: Sequence[str]) -> list[Line]:
    """Those that are called so, or are of the column that is called so, in that order, or all;
    raises UserError for one that is not.
    """
    known = {line.label: line for line in lines}
    asked = [_called(column_of(label)) if label not in known else label for label in only]
    for label, row in zip(only, asked, strict=True):
        if row not in known:
            rows = "; ".join(known)
            raise UserError(f"--row {label!r}: the table has no such row, but: {rows}")
    return [known[row] for row in asked] or lines


def _written(
    lines: Sequence[Line],
    columns: Mapping[str, Sequence[int]],
    notes: Sequence[str],
    tests: PairedTests,
    survivors: Sequence[str],
    whole: bool,
) -> Written:
    """The table: a row for each line and a column for each group of runs; or, of many groups, a row
    for each of them. What is the same of all is a note then, where no ``whole`` was asked for. None
    but ``survivors`` is the best.
    """
    rows = {line.label: [line.cell(some) for some in columns.values()] for line in lines}
    many = len(columns) > ACROSS
    same = [name for name, row in rows.items() if len({*row}) == 1 and many and not whole]
    if same:
        notes = (*notes, "; ".join(f"{name} {rows.pop(name)[0]}" for name in same) + " of each")
    table = pd.DataFrame(rows.values(), index=pd.Index([*rows], name="metric"), columns=[*columns])
    alive = {name: columns[name] for name in survivors}
    best = frozenset((line.label, name) for line in lines if (name := line.best(alive)))
    written = Written(
        "", table, tuple(notes), best=best, further=tests.table(),
        about_further=tests.about, listed=True,
    )  # fmt: skip
    return written.turned() if many else written


def _for_print(written: Written, tests: PairedTests, lines: Sequence[Line]) -> Written:
    """With a head, the best means in bold and a star at what the tests tell apart; a row for each
    group, where a page is wide enough: papers' tables have a line a method.
    """
    turned = not {line.label for line in lines} & {*written.table.index}
    shown = {*(written.table.columns if turned else written.table.index)}
    starred = frozenset(
        (_called(one.metric), one.group)
        for one in tests.each
        if one.told_apart and _called(one.metric) in shown
    )
    apart = " or ".join(dict.fromkeys(row for row, _ in sorted(starred)))
    notes = [
        "best means in bold" if written.best else "",
        f"*: {apart} differs from that of {tests.against}, p < {TOLD_APART}" if starred else "",
    ]
    written = replace(
        written, head="Comparison", notes=(*written.notes, *filter(None, notes)),
        starred=frozenset((group, row) for row, group in starred) if turned else starred,
    )  # fmt: skip
    return written.turned() if len(lines) <= ACROSS and not turned else written


def _cells(lines: Sequence[Line], columns: Mapping[str, Sequence[int]]) -> Iterator[dict[str, Any]]:
    """One for each number of the table: what it is, whose, mean, standard error, number of runs
    that have one, and of those that have none.
    """
    for line in lines:
        for name, some in columns.items():
            given = [value for run in some if (value := line.values[run]) is not None]
            known = np.array([value for value in given if math.isfinite(value)])
            if given:
                yield {
                    "metric": line.label,
                    "group": name,
                    "mean": float(known.mean()) if len(known) else math.nan,
                    "sem": standard_error(known),
                    "n": len(known),
                    "missed": len(given) - len(known),
                }


def _told(runs: Runs, columns: Mapping[str, Sequence[int]]) -> list[dict[str, Any]]:
    """Where the numbers are from."""
    return [
        {"group": name, "place": runs.folders[run].place, "seed": runs.seeds[run]}
        for name, some in columns.items()
        for run in some
    ]


def standard_error(values: np.ndarray) -> float:
    """Of their mean; NaN of fewer than two."""
    return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan


def _metrics(
    results: list[Result], diverged: Sequence[bool], better: Callable[[str], bool | None]
) -> list[Line]:
    """The headlines that any of the runs reports, and which of the runs diverged; ``better``:
    whether more of a metric is.
    """
    every = dict.fromkeys(key for r in results for key in r["metrics"])

    def number(run: int, key: str) -> float | None:
        found = _number(results[run]["metrics"], key)
        none = found is not None and diverged[run] and not counts_of_the_diverged(key)
        return math.nan if none else found

    return [
        Line(label, [number(run, key) for run in range(len(results))], better=better(key))
        for key, label in labels_of(every).items()
    ] + ([Line("diverged", [*map(float, diverged)], 0)] if any(diverged) else [])


def _called(metric: str) -> str:
    return HEADLINES.get(metric, metric.replace("_", " "))


def _number(metrics: Mapping[str, float | None], key: str) -> float | None:
    """A metric; None where it was not reported, NaN where it is no number (null in JSON)."""
    if key not in metrics:
        return None
    value = metrics[key]
    return math.nan if value is None else value


def _efforts(results: list[Result], rounds: list[pd.DataFrame]) -> list[Line]:
    """What the runs did and sent; how far apart they synchronised, where any of them decides it."""
    many = [r["rounds"] for r in results]
    steps = [_number(r["metrics"], "steps_total") for r in results]
    each = [math.nan if s is None or not t else s / t for s, t in zip(steps, many, strict=True)]
    decides = any("round_steps" in one for one in rounds)
    clients = {
        f"clients {what} a round": [_mean(one, column) for one in rounds]
        for what, column in (("trained", "cohort"), ("contacted", "contacted"))
    }
    return [
        # as a rule all algorithms have as many
        *(Line(name, many, 1) for name, many in clients.items() if max(many) - min(many) > 1e-9),
        Line("rounds", many, 0),
        Line("local steps", steps, 0),
        *([Line("local steps a synchronisation", each, 1)] if decides else []),
        _megabytes("MB up", [r["bytes_up"] for r in results]),
        _megabytes("MB down", [r["bytes_down"] for r in results]),
        Line("seconds", [r["seconds"] for r in results], 1),
    ]


def _mean(rounds: pd.DataFrame, column: str) -> float:
    return float(rounds[column].mean()) if column in rounds else math.nan


def _megabytes(label: str, sent: Sequence[float]) -> Line:
    """Three digits and more of the least."""
    least = min((b / 1e6 for b in sent if b and math.isfinite(b)), default=1.0)
    return Line(label, [b / 1e6 for b in sent], max(1, 2 - math.floor(math.log10(least))))


def _times(rounds: list[pd.DataFrame]) -> list[Line]:
    """Seconds on both sides."""
    return [
        Line("seconds of a client a round", [_of_a_client(r) for r in rounds], 3),
        Line("seconds at the server a round", [r["seconds_aggregate"].mean() for r in rounds], 3),
    ]


def _attacked(rounds: Sequence[pd.DataFrame], less: bool | None) -> list[Line]:
    """What the attackers had of the aggregates, where there are any; ``less``: as ``Line.better``,
    None where the columns' runs are not alike.
    """
    if not any("malicious_weight" in one for one in rounds):
        return []
    means = [one.get("malicious_weight", pd.Series(dtype=float)).mean() for one in rounds]
    # coordinates that are chosen one by one give nobody a weight
    return [Line("attackers' weight, mean over rounds", means, 3, none="–", better=less)]


def _reached(runs: Runs) -> list[Line]:
    """Of runs that were to reach a goal (``stop``) the part that has, where not all have."""
    missed = runs.reached.missed
    wanted = [bool(sought(*one)) for one in zip(runs.configs, runs.rounds, strict=True)]
    if not any(one and gone for one, gone in zip(wanted, missed, strict=True)):
        return []
    reached = [
        float(not gone) if meant else None for gone, meant in zip(missed, wanted, strict=True)
    ]
    return [Line("part that reached its goal", reached, 2)]


def _of_a_client(rounds: pd.DataFrame) -> float | None:
    """Seconds that a client computed in a round; None where none took part (server_only)."""
    return float(rounds["seconds_client"].mean()) if "seconds_client" in rounds else None


def _to_target(rounds: list[pd.DataFrame], metric: str, target: Goal) -> list[Line]:
    """What it took until the metric reached the target."""
    reached = [up_to(r, metric, target) for r in rounds]

    def spent(what: Callable[[pd.DataFrame], float]) -> list[float]:
        return [math.nan if r is None else float(what(r)) for r in reached]

    sent = spent(lambda r: r["bytes_up"].sum() + r["bytes_down"].sum())
    megabytes = _megabytes(f"MB to {target}, both ways", sent)
    return [
        Line(f"rounds to {target}", spent(len), 0, "never"),
        Line(f"local steps to {target}", spent(steps_of), 0, "never"),
        replace(megabytes, none="never"),
        Line(f"seconds to {target}", spent(lambda r: r["seconds"].sum()), 1, "never"),
    ]


def _of_targets(runs: Runs, metric: str, goal: Goal) -> list[str]:
    looked = runs.reached.looked
    hidden = hidden_said([one for some in looked.values() for one in some], metric, goal)
    return [looks_said(looked, metric), hidden, _cut_off(runs, metric)]


def _cut_off(runs: Runs, metric: str) -> str:
    """How many runs ``stop`` ended, which might have reached the target later; or ""."""
    if not any(runs.early):
        return ""
    return (
        f"stop ended {sum(runs.early)} of {len(runs.early)} runs: of one that had not reached the "
        f"target of {metric} by then, never means not until then"
    )


def notes_of(
    runs: Runs, lines: Sequence[Line], metrics: Sequence[str], first: str, goal: Goal | None = None
) -> list[str]:
    """What must be known to read the table, and the tests of the ``metrics`` against the
    ``first``; with a ``goal`` the table has what the one metric took to it.
    """
    reported = [key for result in runs.results for key in result["metrics"]]
    notes = [
        runs.seeds_said, runs.diverged_said, failed_said(runs.folders), runs.stopped_said,
        runs.pbt_said,
        "; ".join(runs.reached.said()),
        *runs.reached.untested_said(first, {one: _ends(runs, one) for one in metrics}),
        runs.unmeasured_said({one: _numbers(runs, one) for one in _single(metrics)}),
        runs.no_pairs_said(first), runs.own_said(metrics), runs.judged.said(reported, first),
        runs.data_said,
        *(_of_targets(runs, metrics[0], goal) if goal else [runs.reached.looks_said()]),
        *runs.unequal_said(reported, (line.label for line in lines)), runs.apart_said,
        runs.common_said,
    ]  # fmt: skip
    return [*filter(None, notes)]


def _better(runs: Runs, first: str, metric: str) -> bool | None:
    """Whether more of it is; None where that is not known, or the columns' are not of the same
    seeds, the same data, the same rows, or by one formula; or it is what has ended some of them.
    """
    if runs.reached.ended_by or not runs.on_the_same or runs.judged.others(metric, first):
        return None
    return runs.more_is_better(metric)


def tests_of(runs: Runs, metrics: Sequence[str], first: str) -> PairedTests:
    """Each column's last ``metrics`` against those of the ``first``, of the runs that report them,
    of the same rows.
    """
    theirs, asked = runs.columns[first][0], _single(metrics)
    numbers = {one: _numbers(runs, one) for one in asked}
    alike = [name for name, some in runs.columns.items() if runs.same_data(theirs, some[0])]
    unlike = set(runs.reached.other_goals(first))

    def tested(metric: str) -> list[str]:
        """The columns that are, if the first is one of them."""
        others = {
            *runs.judged.others(metric, first),
            *runs.reached.cut_short(metric, first, _ends(runs, metric)),
        }
        found = [
            name
            for name in alike
            if name not in others
            # which of a group's runs report it may hang on what it would be
            and not any(numbers[metric][run] is None for run in runs.columns[name])
            and not (is_cost(metric) and name in unlike)
            and not any(runs.reached.ended(metric, run) for run in runs.columns[name])
        ]
        return found if first in found else []

    each = [
        Measured(
            one,
            {name: _by_seed(runs, numbers[one], runs.columns[name]) for name in names},
            runs.more_is_better(one),
            runs.reached.counts(one),
        )
        for one in asked
        if (names := tested(one))
    ]
    return PairedTests.of(each, first)


def _single(metrics: Sequence[str]) -> list[str]:
    """Without families of columns, which are many a run, none of which is asked for."""
    return [metric for metric in metrics if not metric.endswith("/")]


def _by_seed(runs: Runs, numbers: Sequence[float | None], some: Sequence[int]) -> dict[int, float]:
    return {runs.seeds[run]: end for run in some if (end := numbers[run]) is not None}


def _numbers(runs: Runs, metric: str) -> list[float | None]:
    """What each run has of a metric that counts, as ``_end`` has it: NaN of one that has not
    reached the goal that it would be the cost of, and where it says nothing of a model that has
    diverged.
    """
    lost = runs.reached.missed if is_cost(metric) else [False] * len(runs.rounds)
    if not counts_of_the_diverged(metric):
        lost = [one or other for one, other in zip(lost, runs.diverged, strict=True)]
    return [
        math.nan if none and metric in rounds else end
        for end, none, rounds in zip(_ends(runs, metric), lost, runs.rounds, strict=True)
    ]


def _ends(runs: Runs, metric: str) -> list[float | None]:
    return [_end(*one, metric) for one in zip(runs.rounds, runs.results, strict=True)]


def _end(rounds: pd.DataFrame, result: Result, metric: str) -> float | None:
    """What a run reported of the metric after its last round, NaN if that was no number; of seconds
    and bytes what the table has of them, all or the mean of a round. None if it does not report it,
    or did not then.
    """
    if metric not in rounds:
        return None
    if metric in TOTALS:
        return float(result[metric])  # type: ignore[literal-required]
    if metric.startswith(("seconds", "bytes")):
        return float(rounds[metric].mean())
    last = float(rounds[metric].iloc[-1])
    return None if math.isnan(last) and metric not in result["metrics"] else last


def _draw(runs: Runs, metric: str, plot: Path) -> None:
    """Write the curves of ``metric`` as a picture, and their data beside it as CSV: of runs that
    differ in their seeds alone the mean with a band, of a family of columns a panel for each run.
    """
    columns = _columns(runs.rounds, metric)
    tables = [
        runs.rounds[i][["round", *columns]].dropna().assign(run=name, seed=runs.seeds[i])
        for name, some in runs.columns.items()
        for i in some
    ]
    if metric.endswith("/"):
        write_picture(_panels(runs, metric, columns), plot, pd.concat(tables))
    else:
        picture = drawn(runs.band(metric).still(), plot, PLANE)
        write_beside(lambda partial: partial.write_bytes(picture), plot, pd.concat(tables))


def _panels(runs: Runs, metric: str, columns: Sequence[str]) -> Figure:
    """A panel for each run, with a curve for each of a family's columns."""
    from orchestrator.results import plots

    each = {
        name if len(some) == 1 else f"{name}, seed {runs.seeds[i]}": runs.rounds[i]
        for name, some in runs.columns.items()
        for i in some
    }
    labels = {c: c.removeprefix(metric) for c in columns}
    return plots.panels(each, labels, metric.strip("/").replace("_", " "))


def _columns(runs: Sequence[pd.DataFrame], metric: str) -> list[str]:
    """The columns that ``metric`` names, as far as all runs have them."""
    first, *others = runs
    # gradient_norm/ is one column for each layer
    family = metric.endswith("/")
    named = [str(c) for c in first if c == metric or (family and str(c).startswith(metric))]
    return [c for c in named if all(c in t for t in others)]
