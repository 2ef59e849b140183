"""``fedorch quickstart``: what this is for, in half a minute: two methods from the same start."""

from __future__ import annotations

import math
import shlex
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from rich.table import Table

from orchestrator.cli.run_shown import interrupted
from orchestrator.cli.running import Series, run_here, run_on_ray
from orchestrator.cluster.connection import connected
from orchestrator.config import load
from orchestrator.errors import UserError
from orchestrator.results.contents import REPORT
from orchestrator.results.places import is_remote
from orchestrator.results.run_folder import RunFolder
from orchestrator.terminal import console

ALIKE = ["rounds=30", "local.steps=8"]
METHODS = {
    "fedavg": "the mean of the clients' models",
    "drdm": "whom the model serves badly counts more",
}
"""Algorithm -> what it is, in a few words."""
SHOWN = {
    "client_accuracy_mean": "clients, average",
    "client_accuracy_worst10": "clients, worst tenth",
    "client_accuracy_worst": "clients, worst",
}
FAIR = "client_accuracy_worst10"
PAGE = "comparison.html"
LINES = 5
"""Rounds a line of a log."""
ABOUT = (
    "Two methods from one start, on the same data (drdm draws its own clients for a round): "
    + "; ".join(f"{name}, {meaning}" for name, meaning in METHODS.items())
    + f". One seed and untuned rates ({', '.join(ALIKE)}), so a first look and no result; they do "
    "not send the same: switch the axis to MB to see them at equal traffic."
)


def show_quickstart(out: str | None, in_process: bool) -> None:
    """Run both, print one table, and leave a page that compares them; raises UserError for a place
    in storage.
    """
    if out is not None and is_remote(out):
        raise UserError(f"--out {out}: the quick start runs into a folder on this machine")
    if out is not None and RunFolder.at(out).begun:
        raise UserError(f"--out {out}: a run is there; choose another folder")
    configs = {name: load(None, [*ALIKE, f"algorithm={name}", f"name={name}"]) for name in METHODS}
    series = Series(configs, out or RunFolder.dated("quickstart").place)
    with nullcontext() if in_process else connected("local"):
        finished = series.run(partial(run_here if in_process else run_on_ray, lines=LINES))
    try:
        series.require_whole(finished)
    except KeyboardInterrupt:
        interrupted(f"fedorch quickstart --out {shlex.quote(series.place)}")
    _compare(series, finished)


def _compare(series: Series, finished: list[RunFolder]) -> None:
    from orchestrator.analysis.comparison import show_comparison

    results = [RunFolder.viewed(folder.place).result() for folder in finished]
    table = Table("accuracy on their own test rows", *METHODS, title="30 clients, 10 in a round")
    for key, label in SHOWN.items():
        table.add_row(label, *(f"{result['metrics'][key]:.3f}" for result in results))
    sent = [(result["bytes_up"] + result["bytes_down"]) / 1e6 for result in results]
    table.add_row("MB transmitted", *(f"{mb:.0f}" for mb in sent))
    least = min(sent)
    table.add_row(
        f"{SHOWN[FAIR]}, at {least:.0f} MB",
        *(f"{_after(folder, least):.3f}" for folder in finished),
    )
    console.print(table)
    for name, meaning in METHODS.items():
        console.print(f"  {name}: {meaning} (fedorch describe {name})")
    console.print(
        f"  the last row: where each was when it had sent {least:.0f} MB; drdm sends twice as much "
        "a round",
        soft_wrap=True,
    )
    place = Path(series.place) / PAGE
    show_comparison(finished, None, [FAIR], form="json", report=place, about=ABOUT)
    pages = ", ".join(f"{folder.place}/{REPORT}" for folder in finished)
    console.print(f"each method's own page: {pages}", soft_wrap=True)
    alike = " --set ".join(("", *ALIKE)).strip()
    runs = "".join(
        f"  fedorch run --set algorithm={name} {alike} --seeds 0-4 --out runs/{name}\n"
        for name in METHODS
    )
    console.print(
        f"One seed is luck, too; next:\n{runs}"
        f"  fedorch compare {' '.join(f'runs/{name}' for name in METHODS)} --metric {FAIR}\n"
        "  fedorch describe csv      # data of your own: a table; folder and npz: images, arrays\n"
        "  fedorch new mine          # an algorithm of your own, which runs at once",
        soft_wrap=True,
    )


def _after(folder: RunFolder, megabytes: float) -> float:
    """What the clients served worst had when so much had been sent, at the last look until then;
    NaN before the first.
    """
    rounds = RunFolder.viewed(folder.place).rounds()
    sent = (rounds["bytes_up"] + rounds["bytes_down"]).cumsum() / 1e6
    seen = rounds.loc[sent <= megabytes * (1 + 1e-9), FAIR].dropna()
    return float(seen.iloc[-1]) if len(seen) else math.nan
