"""What ``fedorch sweep`` and ``fedorch table`` do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from orchestrator.config import load
from orchestrator.errors import UserError
from orchestrator.results.storage import is_remote
from orchestrator.terminal import console
from sweeps import costs, figures, tables
from sweeps.entry import Entry
from sweeps.home import TUNING, Home
from sweeps.papers import entries, entry
from sweeps.plan import Sweep, read_sweep
from sweeps.reproduction import choose, chosen_budget, final_sweep, measured, narrowed, tuning_sweep
from sweeps.results import no_sweep, plan_of, stored
from sweeps.results import table as cells_of
from sweeps.runner import run_sweep
from sweeps.watch import FILE, describe


def place_of(target: str, budget: str, out: str | None) -> str:
    """Where the results of a sweep are: ``out``, a path or a URI, or a folder here with the sweep's
    name.
    """
    if out is not None and is_remote(out):
        return out
    name = (
        read_sweep(Path(target)).name
        if _is_file(target)
        else f"{target.replace('/', '-')}-{budget}"
    )
    return str(Path(out or Path("runs") / "sweeps" / name).resolve())


def check(target: str, budget: str, columns: Sequence[str] = ()) -> None:
    """Raise UserError if there is no such entry, budget, column or file, before Ray is started."""
    if not _is_file(target):
        narrowed(entry(target), budget, columns)
        return
    if columns:
        raise UserError("--column chooses among a paper's columns; a sweep's file has none")
    list(read_sweep(Path(target)).configs())


def _is_file(target: str) -> bool:
    return target.endswith((".yaml", ".yml"))


def sweep(
    target: str,
    budget: str,
    place: str,
    resume: bool,
    settings: Sequence[str] = (),
    at_once: int | None = None,
    columns: Sequence[str] = (),
) -> None:
    """Run a sweep file or a paper's entry (Ray must be connected), and print its table."""
    home = Home(place)
    if _is_file(target):
        run_sweep(read_sweep(Path(target)).changed(list(settings), at_once), home, resume)
        show_cells(home.path)
        return
    chosen = narrowed(entry(target), budget, columns)
    first, tuned = tuning_sweep(chosen, budget), {}
    if not resume:
        home.folder.require_empty()
    elif not (home.holds("sweep.json") or home.stage().holds("sweep.json")):
        raise no_sweep(home.place)
    if first is not None:
        tuned = _tune(chosen, budget, first.changed(list(settings), at_once), home.stage(), resume)
    plan = final_sweep(chosen, budget, tuned).changed(list(settings), at_once)
    run_sweep(plan, home, resume and home.holds("sweep.json"))
    costs.note(target, budget, home.path)
    show_table(target, budget, home.path, "terminal", None, columns)
    home.send()


def _tune(
    chosen: Entry, budget: str, plan: Sweep, home: Home, resume: bool
) -> dict[str, list[str]]:
    """The first stage of two: every method's grid; returns the settings that it chose."""
    if resume and home.holds("tuned.json"):
        home.collect()
    else:
        run_sweep(plan, home, resume and home.holds("sweep.json"))
        choose(chosen, budget, home.path)
        home.send()
    tuned: dict[str, list[str]] = json.loads((home.path / "tuned.json").read_text())
    for row, best in tuned.items():
        console.print(f"tuned {row}: {', '.join(best) or 'nothing to tune'}", highlight=False)
    return tuned


def show_list() -> None:
    """All tables and figures with their trials, and what they cost where that has been measured on
    this machine.
    """
    known = costs.known()
    shown_list = Table(
        "id",
        "what",
        "rows x columns",
        *[f"{b}: trials (estimate)" for b in ("smoke", "reduced", "full")],
    )
    for name, one in entries().items():
        size = f"{len(one.rows)} x {len(one.columns)}"
        shown_list.add_row(
            name, one.title, size, *[_cost(name, b, known) for b in ("smoke", "reduced", "full")]
        )
    console.print(shown_list)


def _cost(name: str, budget: str, known: dict[str, float]) -> str:
    one = entry(name)
    if budget not in one.budgets:
        return ""
    plans = [p for p in (tuning_sweep(one, budget), final_sweep(one, budget, {})) if p is not None]
    trials = sum(len(p.planned()) for p in plans)
    per_round = known.get(f"{name} {budget}")
    if per_round is None:
        return str(trials)
    rounds = load(None, [*one.base, *chosen_budget(one, budget).settings]).rounds
    return f"{trials} ({trials * rounds * per_round / 60:.0f} min)"


def show_table(
    target: str,
    budget: str,
    folder: Path,
    form: tables.Format,
    file: Path | None,
    columns: Sequence[str] = (),
) -> None:
    """Print or write the table (or figure) of an entry, or of a sweep's file, from what has been
    measured so far.
    """
    if _is_file(target):
        if form != "terminal" or file is not None or columns:
            raise UserError(
                "a sweep's file has no published table: --format, --file and --column are for a "
                "paper's"
            )
        show_cells(folder)
        return
    chosen = narrowed(entry(target), budget, columns)
    if not (folder / "sweep.json").is_file():
        raise UserError(
            f"{folder} holds no results of {target}; run `fedorch sweep {target} --budget "
            f"{budget}` first"
        )
    values = measured(chosen, budget, folder)
    also = plan_of(folder).also
    text = tables.render(chosen, budget, values, form, also)
    if text and file is None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)
    elif file is not None:
        file.write_text(
            text or tables.render(chosen, budget, values, "markdown", also), encoding="utf-8"
        )
        console.print(f"wrote {file}", highlight=False, soft_wrap=True)
    if chosen.figure:
        figure, data = figures.draw(chosen, budget, values, folder)
        plot = (file or folder / "figure.png").with_suffix(".png")
        figure.savefig(plot, dpi=130)
        data.to_csv(plot.with_suffix(".csv"), index=False)
        console.print(
            f"wrote {plot} and {plot.with_suffix('.csv')}", highlight=False, soft_wrap=True
        )


def show_cells(folder: Path) -> None:
    """The cells of a sweep file, best first."""
    plan, results = stored(folder)
    data = cells_of(folder)
    title = f"{plan.name}: {plan.metric}, {plan.statistic} value, {len(results)} trials ended"
    drawn = Table(*[str(c) for c in data.columns], title=title, title_justify="left")
    for _, line in data.iterrows():
        drawn.add_row(*[f"{v:.4g}" if isinstance(v, float) else str(v) for v in line])
    console.print(drawn)


def show_status(folder: Path) -> None:
    """How a sweep is doing, from another shell."""
    file = folder / FILE
    if not file.is_file():
        file = folder / TUNING / FILE
    if not file.is_file():
        raise UserError(f"no sweep has begun in {folder}")
    status = json.loads(file.read_text())
    done = status["finished"] + status["stopped"] + status["failed"]
    stage = "tuning" if file.parent.name == TUNING else "trials"
    console.print(
        f"{stage} {done}/{status['total']}: {describe(status)}", highlight=False, soft_wrap=True
    )
    for trial, rounds in status["running"].items():
        console.print(f"  {trial}: round {rounds}", highlight=False)
