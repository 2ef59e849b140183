"""What a run looks like on a terminal, and in a log: its plan, its rounds, its result."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

import typer
from rich.progress import TimeRemainingColumn
from rich.table import Table

from algorithms.part import Part
from orchestrator.config import Config
from orchestrator.config.goal import Goal
from orchestrator.pages.sentence import conditions, goals_met, named
from orchestrator.results.contents import REPORT
from orchestrator.results.places import is_remote, join
from orchestrator.results.result import Result
from orchestrator.results.run_folder import RunFolder
from orchestrator.terminal import bar, console, further, headed, labels_of, told

if TYPE_CHECKING:
    from orchestrator.rounds.drive import Prepared
    from orchestrator.rounds.metrics import Record

INTERRUPTED = 130
"""Exit code of a command that Ctrl-C (or SIGTERM) has ended: what a shell has for it."""


class RoundProgress:
    """A progress bar on a terminal; elsewhere a plain line for ``every`` so many rounds.

    Beside what every round has, it shows the columns that the config's parts name (``headline``).
    """

    def __init__(self, config: Config, done: int, every: int = 1) -> None:
        total = config.rounds
        self.total, self.every = total, every
        self.also = {
            column: label
            for part in config.sections()
            if isinstance(part, Part)
            for column, label in part.headline.items()
        }
        self.goals = {metric: Goal.read(goal) for metric, goal in config.stop.items()}
        self.bar = bar(TimeRemainingColumn())
        self.task = self.bar.add_task("round", total=total, completed=done, note="")

    def __enter__(self) -> RoundProgress:
        self.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.stop()

    def show(self, record: Record) -> None:
        """Show one more round."""
        number = int(record["round"])
        shown = [headline(record, self.also), *_nearer(record, self.goals)]
        note = "  ".join(filter(None, shown))
        # a log would keep every redrawing of a bar
        if console.is_terminal:
            self.bar.update(self.task, completed=number, note=note)
        elif number % self.every == 0 or number == self.total:
            console.print(f"round {number}/{self.total}: {note} ({record['seconds']:.2f} s)")


@contextmanager
def quiet() -> Iterator[None]:
    """Print nothing of this thread's run but notes."""
    before = console.silent.set(True)
    try:
        yield
    finally:
        console.silent.reset(before)


def headline(record: Record, also: Mapping[str, str]) -> str:
    """The few numbers of a round that one looks at first, and ``also`` these (column -> label)."""
    names = {
        "test_accuracy": "test",
        "client_accuracy_worst": "worst client",
        "personal_accuracy_mean": "personal",
    }
    shown = [f"{label} {record[key]:.3f}" for key, label in names.items() if key in record]
    if "test_loss" in record and "test_accuracy" not in record:
        shown.append(f"test loss {record['test_loss']:.4g}")
    shown += [f"{_words(n)} {record[f'test_{n}']:.3f}" for n in further(record)[:3]]
    loss = [f"training loss {record['train_loss']:.3f}"] if "train_loss" in record else []
    parts = [f"{label} {record[key]:.3g}" for key, label in also.items() if key in record]
    return "  ".join(shown + loss + parts)


def _nearer(record: Record, goals: Mapping[str, Goal]) -> Iterator[str]:
    """How far what ends the run has come."""
    for metric, goal in goals.items():
        if metric in record:
            yield f"{_words(metric)} {record[metric]:.4g} of {goal}"


def _words(metric: str) -> str:
    return metric.replace("_", " ")


def show_plan(about: Prepared) -> None:
    """Print what is about to run."""
    c = about.config
    low, high = about.samples
    what = (
        f": {c.algorithm.name} on {c.data.dataset.name}, {c.model.name} "
        f"({about.parameters:,} parameters), {c.data.clients} clients "
        f"({low}-{high} samples, {c.data.partition.name}), cohort {c.cohort_size}, "
        f"{c.rounds} rounds, seed {c.seed}"
    )
    console.print(
        headed(c.name, "bold", what + "".join(f", {' '.join(pair)}" for pair in conditions(c)))
    )
    console.print(
        f"{about.actors} client actor(s), {c.local.execution} training in blocks of {c.local.block}"
    )
    if about.done:
        all_done = about.done >= about.config.rounds
        more = ", the last one (--set rounds=... goes further)" if all_done else ""
        console.print(f"continuing after round {about.done}{more}")
    show_notes(about.notes)


def tell_where(folder: RunFolder) -> None:
    """Say how to look at a run that has begun."""
    if not is_remote(folder.place):
        where = shlex.quote(folder.place)
        console.print(f"to watch it in a browser: fedorch report {where} --live", soft_wrap=True)


def interrupted(how: str) -> NoReturn:
    """Say how to go on with what was stopped, and leave with the exit code of an interrupt."""
    console.print(f"stopped; to go on: {how}", soft_wrap=True)
    raise typer.Exit(INTERRUPTED)


def show_notes(notes: Iterable[str]) -> None:
    """Print what the user should know, a line each."""
    for note in notes:
        told("note", note)


def show_result(result: Result, place: str, config: Config) -> None:
    """Print the final table."""
    rounds = result["rounds"]
    of = "" if rounds == config.rounds else f" of {config.rounds}"
    title = f"{result['name']}: {result['status']} after {rounds}{of} rounds"
    title += goals_met(config, result)
    title += ", diverged" if result.get("diverged") else ""
    table = Table(title=title, title_justify="left")
    table.add_column("metric")
    table.add_column("value", justify="right")
    table.add_row("algorithm", named(config.algorithm))
    for pair in conditions(config):
        table.add_row(*pair)
    for key, label in labels_of(result["metrics"]).items():
        table.add_row(label, f"{result['metrics'][key]:.4f}")
    sent = (f"{result[way] / 1e6:.4g}" for way in ("bytes_up", "bytes_down"))
    table.add_row("MB up / down", " / ".join(sent))
    table.add_row("seconds", f"{result['seconds']:.1f}")
    table.add_row("weights sha256", result["weights_sha256"][:16])
    console.print(table)
    for sentence in result.get("account", []):
        console.print(sentence)
    console.print(f"results: {place}  (open {join(place, REPORT)})", soft_wrap=True)
