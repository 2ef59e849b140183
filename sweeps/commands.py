"""What ``fedorch sweep --list`` and ``fedorch sweep status`` print."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.padding import Padding
from rich.table import Table

from orchestrator.config.reading import YAML
from orchestrator.errors import UserError
from orchestrator.files import json_text
from orchestrator.results.trials import STATUS, ended_trials
from orchestrator.terminal import console, errors, headed
from sweeps import costs
from sweeps.choice import Choice
from sweeps.entry import Entry
from sweeps.papers import SOURCES, entry, of_paper
from sweeps.reproduction import Reproduction
from sweeps.spaces import KINDS, Axis
from sweeps.status import Status, is_driven, stage_of
from sweeps.targets import Running, Target, resolve

BUDGETS = ("smoke", "reduced", "full")


def show_list(name: str = "", settings: Sequence[str] = (), as_json: bool = False) -> None:
    """All tables and figures, or a paper's of that ``name``, with their trials, and what they cost
    where that has been measured on this machine; of one table or figure, or of a sweep's file, all
    that there is to it. Raises UserError for what there is not, and for a file with a mistake.
    """
    if name.endswith(YAML):
        _show_own(name, Running(settings=tuple(settings)), as_json)
        return
    known = costs.known()
    single = "/" in name
    chosen = {name: entry(name)} if single else of_paper(name)
    if as_json:
        told = [_told(name, one, known) for name, one in chosen.items()]
        console.print(json_text(told), soft_wrap=True)
        return
    if single:
        _show_entry(chosen[name], known)
        return
    if name in SOURCES:
        console.print(SOURCES[name], soft_wrap=True)
    console.print(f"trials at {', '.join(BUDGETS)} (with minutes where they are known here)")
    for name, one in chosen.items():
        costs_of = [_cost(one, budget, known) or "-" for budget in BUDGETS]
        console.print(headed(name, "bold", f"  {', '.join(costs_of)}"), soft_wrap=True)
        console.print(Padding(one.title, (0, 0, 0, 4)))


def _show_own(path: str, how: Running, as_json: bool) -> None:
    """What a sweep's file runs: each axis' values, each cell's settings, and what is compared."""
    file = resolve(path, "")
    file.check()
    (plan,) = file.plans(how)
    if as_json:
        said = plan.model_dump(mode="json", exclude={"base"}, exclude_defaults=True)
        told = {"id": plan.name, "trials": plan.trials, **said, "mode": plan.mode}
        console.print(json_text(told), soft_wrap=True)
        return
    seeds = ", ".join(map(str, plan.seeds))
    about = f": trials {plan.trials:,}, of seeds {seeds}"
    console.print(headed(plan.name, "bold", about), soft_wrap=True)
    keys = Table("key", "values")
    for name, axis in plan.axes.items():
        keys.add_row(name, _axis(axis))
    groups = Table("cell", "settings")
    for cell in plan.cells:
        groups.add_row(cell.label, "\n".join(cell.settings))
    for table in (keys, groups):
        if table.row_count:
            console.print(table)
    if common := (*plan.set, *plan.also):
        console.print(f"all of them: {', '.join(common)}", soft_wrap=True)
    better = "more" if plan.mode == "max" else "less"
    console.print(f"compared by {plan.metric}, {plan.how}: {better} is better")
    console.print(f"scheduler {plan.scheduler.name}, searcher {plan.searcher}")
    changed = "".join(f" --set {shlex.quote(one)}" for one in how.settings)
    console.print(f"to run it: fedorch sweep {shlex.quote(path)}{changed}", soft_wrap=True)


def _axis(axis: Axis) -> str:
    """Its values as a file has them."""
    if axis.grid is None:
        kind = next(kind for kind in KINDS if getattr(axis, kind) is not None)
        return f"{kind}: {_grid(getattr(axis, kind))}"
    where = " and ".join(f"{key} is {value}" for key, value in axis.when.items())
    return _grid(axis.grid) + (f" (where {where})" if where else "")


def _told(name: str, entry: Entry, known: Mapping[str, float]) -> dict[str, object]:
    """An entry for programs: for each budget its trials, hours (null: not known here), and
    whether the folder that it runs into here has all of its results.
    """
    budgets = {}
    for budget in (b for b in BUDGETS if b in entry.budgets):
        trials, hours = _effort(entry, budget, known)
        done = _is_done(Path(resolve(name, budget).place(None)))
        budgets[budget] = {"trials": trials, "hours": hours, "done": done}
    rows, columns = list(entry.rows), list(entry.columns)
    return {"id": name, "what": entry.title, "rows": rows, "columns": columns, "budgets": budgets}


def _show_entry(one: Entry, known: Mapping[str, float]) -> None:
    """What an entry runs: each budget, each row's and each column's settings, what is claimed."""
    console.print(headed(one.id, "bold", f": {one.title}"), soft_wrap=True)
    if one.unavailable:
        console.print(one.unavailable, soft_wrap=True)
    budgets = Table("budget", "trials", "seeds", "columns", "reduced")
    for name, budget in one.budgets.items():
        seeds = str(len(budget.seeds))
        at = Reproduction(one, name)
        some = f"{len(at.columns)} of {len(one.columns)}"
        same = "nothing" if name == "full" or budget != one.budgets.get("full") else "it is full"
        how = "; ".join(filter(None, [at.stand_in, budget.reduced])) or same
        budgets.add_row(name, _cost(one, name, known), seeds, some, how)
    rows = Table("row", "settings", "tuned")
    grids = one.tuning.grids if one.tuning else {}
    for name, settings in one.rows.items():
        tuned = [f"{key}: {_grid(grid)}" for key, grid in grids.get(name, {}).items()]
        rows.add_row(name, "\n".join(settings), "\n".join(tuned))
    columns = Table("column", "shows", "settings")
    for name, column in one.columns.items():
        columns.add_row(name, column.shows, "\n".join(column.settings))
    for table in (budgets, rows, columns, _published(one)):
        if table.row_count:
            console.print(table)
    console.print(f"all of them: {', '.join(one.base)}", soft_wrap=True)
    for claim in one.claims:
        worse = ", ".join(claim.worse)
        console.print(f"claim: {claim.text} ({claim.better} against {worse})", soft_wrap=True)
    first, *larger = one.budgets
    other = f"    (or {', '.join(larger)})" if larger else ""
    console.print(f"to run it: fedorch sweep {one.id} --budget {first}{other}", soft_wrap=True)


def _published(one: Entry) -> Table:
    """What the paper prints, a line a row."""
    table = Table("row", "published")
    for row in one.rows:
        cells = {name: one.published.get((row, name)) for name in one.columns}
        told = [
            f"{name}: {said.value:.{one.columns[name].digits}f}"
            for name, said in cells.items()
            if said is not None and said.value is not None
        ]
        if told:
            table.add_row(row, "; ".join(told))
    return table


MOST_VALUES = 12
"""Of a grid that are written out."""


def _grid(values: Sequence[object]) -> str:
    shown = [f"{value:.4g}" if isinstance(value, float) else str(value) for value in values]
    if len(shown) <= MOST_VALUES:
        return ", ".join(shown)
    return f"{len(shown)} values from {shown[0]} to {shown[-1]}"


def _is_done(folder: Path) -> bool:
    if not (folder / STATUS).is_file():
        return False
    status = Status.read(folder)
    return status.ended >= status.total


def _cost(entry: Entry, budget: str, known: Mapping[str, float]) -> str:
    if budget not in entry.budgets:
        return ""
    trials, hours = _effort(entry, budget, known)
    if hours is None:
        return str(trials)
    return f"{trials} ({_spoken(hours)})"


def _spoken(hours: float) -> str:
    minutes = 60 * hours
    return f"{minutes:,.0f} min" if minutes >= 0.5 else "seconds"


def _effort(entry: Entry, budget: str, known: Mapping[str, float]) -> tuple[int, float | None]:
    """Trials, and hours where it is known what one takes on this machine."""
    one = Reproduction(entry, budget)
    each = known.get(costs.key(one))
    return one.trials, None if each is None else one.trials * each / 3600


def show_time(target: Target, how: Running, as_json: bool = False) -> None:
    """What a sweep will take on this machine, by timing a round or two of each kind of trial;
    raises UserError for what cannot be run here.
    """
    say = errors.print if as_json else console.print
    # imported here: it trains, and who lists entries need not wait for torch
    from sweeps.forecast import TIMED, begun_with, forecast, kinds

    plans = target.plans(how)
    shelf, found = begun_with(plans), kinds(plans)
    say(f"timing a trial of each kind, for {TIMED} rounds; kinds: {len(found)}")
    trials, seconds, told = 0, 0.0, []
    for timed in forecast(found, shelf):
        kind = timed.kind
        trials, seconds = trials + kind.trials, seconds + timed.seconds
        told.append({
            "kind": kind.label, "trials": kind.trials, "rounds": timed.rounds,
            "seconds_a_round": timed.round_seconds, "seconds": timed.seconds,
        })  # fmt: skip
        say(
            f"  {kind.label}: trials {kind.trials:,} × rounds {timed.rounds:,} × "
            f"{timed.round_seconds:.3g} s: {_spoken(timed.seconds / 3600)}",
            soft_wrap=True,
        )
    if not how.settings:  # which may have made the trials other ones
        target.note(seconds / trials)
    if as_json:
        about = {"trials": trials, "seconds": seconds, "kinds": told}
        console.print(json_text(about), soft_wrap=True)
        return
    console.print(
        f"trials: {trials:,}; one after another, and if none ends early: {_spoken(seconds / 3600)}"
    )


def show_status(folder: Path, as_json: bool = False) -> None:
    """How a sweep is doing, from another shell; raises UserError if none has begun there, or what
    its trials have left is lost.
    """
    place = stage_of(folder)
    if place is None:
        raise UserError(f"no sweep has begun in {folder}")
    status = Status.read(place)
    ended_trials(place)
    stage = "trials" if place == folder else "tuning"
    driven = is_driven(place)
    if as_json:
        told = {"stage": stage, "driven": driven, "ended": status.ended, **asdict(status)}
        if status.best_folder:
            told["best_settings"] = Choice.read(place / "trials" / status.best_folder).as_trial()
        console.print(json_text(told), soft_wrap=True)
        return
    head = f"{stage} {status.ended}/{status.total}: {status.seen(driven, time.time())}"
    console.print(head, soft_wrap=True)
    if status.best_folder:
        first = " (its first seed)" if status.best_seeds > 1 else ""
        where = place / "trials" / status.best_folder
        console.print(f"  the best is in {where}{first}", soft_wrap=True)
    was = "was in " if driven is False else ""
    for trial, rounds in status.running.items():
        console.print(f"  {trial}: {was}round {rounds}")
