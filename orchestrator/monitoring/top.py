"""``fedorch top``: the runs and trials under way on a cluster, and how they are doing."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TypeVar

import ray
from rich.live import Live
from rich.table import Table

from orchestrator.cluster.connection import nodes
from orchestrator.cluster.jobs import STARTS
from orchestrator.cluster.waiting import patience
from orchestrator.config import UNNAMED
from orchestrator.monitoring.exporter import Note, forget, notes
from orchestrator.terminal import console

if TYPE_CHECKING:
    from ray.util.state.common import ActorState, JobState

T = TypeVar("T")
PERIOD = 2.0
"""Seconds between looks."""
SILENT = 30.0
"""Seconds without a sign of life after which a run is marked."""
BARS = "▁▂▃▄▅▆▇█"
WIDTH = 10
"""Rounds of an accuracy curve."""


def show_top(once: bool) -> None:
    """Print the table once, or keep it up to date until Ctrl-C (Ray must be connected)."""
    if once or not console.is_terminal:
        console.print(table())
        return
    with Live(table(), console=console, auto_refresh=False) as live:
        while True:
            time.sleep(PERIOD)
            live.update(table(), refresh=True)


def table() -> Table:
    """One line for each run and trial that is alive, and for each job that has none yet; the notes
    of dead ones are removed.
    """
    actors, rows = _actors(), []
    for note in notes():
        # a killed run could not remove its note; without a dashboard nobody knows who is dead
        if note.actor in actors and actors[note.actor].state == "DEAD":
            forget(note)
        else:
            rows.append(note)
    states = {name: actor.state for name, actor in actors.items()}
    drawn = Table(title=f"{len(rows)} under way; cluster: {_cluster()}", title_justify="left")
    for name in ("experiment", "round", "left", "accuracy", "actors", "GPUs", "MB", "state"):
        # on a narrow terminal a cell, not a head, takes more lines, and loses nothing
        drawn.add_column(
            name,
            justify="right" if name in ("left", "actors", "GPUs", "MB") else "left",
            overflow="fold",
            min_width=len(name),
        )
    for note in rows:
        drawn.add_row(*line(note, states.get(note.actor, "ALIVE"), time.time()))
    at_work = {actors[note.actor].job_id for note in rows if note.actor in actors}
    for name, state in starting(_jobs(), at_work):
        drawn.add_row(name, *[""] * 6, state)
    return drawn


def starting(jobs: Iterable[JobState], at_work: Collection[str]) -> Iterator[tuple[str, str]]:
    """Of our jobs that have not ended those without a run or trial, which those ``at_work`` have:
    its name, and how it is.
    """
    for job in jobs:
        waits = {"PENDING": "job waits", "RUNNING": "job starts"}.get(str(job.status))
        if waits and job.entrypoint.startswith(STARTS) and job.job_id not in at_work:
            yield job.submission_id or "", waits


def line(note: Note, state: str, now: float) -> list[str]:
    """The cells of one run."""
    # of several that nobody has named each would be "run"
    called = PurePath(note.folder).name if note.experiment == UNNAMED else note.experiment
    name = f"{called} {note.trial}".strip()
    left = note.seconds * (note.rounds - note.round)
    actors = f"{note.working}/{note.client_actors}" + (
        f" ({note.replaced} replaced)" if note.replaced else ""
    )
    return [
        name,
        f"{note.round}/{note.rounds}",
        _duration(left) if note.seconds else "?",
        f"{note.accuracy[-1]:.4f} {sparkline(note.accuracy)}" if note.accuracy else "",
        actors,
        f"{note.gpus:g}",
        f"{note.bytes / 1e6:.1f}",
        _said(note, state, now - note.updated),
    ]


def _said(note: Note, state: str, quiet: float) -> str:
    """How it is, after ``quiet`` seconds without a sign of life."""
    if state != "ALIVE":
        return state.lower()
    if quiet > SILENT:
        return f"silent for {quiet:.0f} s"
    return "running" if note.seconds else "first round"


def sparkline(values: list[float]) -> str:
    """A curve in one line of text, from its lowest value to its highest."""
    shown = values[-WIDTH:]
    if not shown:
        return ""
    low, high = min(shown), max(shown)
    # a flat curve lies at the bottom
    span = (high - low) or 1.0
    return "".join(BARS[round((v - low) / span * (len(BARS) - 1))] for v in shown)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _actors() -> dict[str, ActorState]:
    """By their ids."""
    from ray.util.state import list_actors

    return {actor.actor_id: actor for actor in _listed(list_actors)}


def _jobs() -> list[JobState]:
    from ray.util.state import list_jobs

    return _listed(list_jobs)


def _listed(ask: Callable[..., list[T]]) -> list[T]:
    """From Ray's state API, which the dashboard serves; empty without one."""
    from ray.util.state.exception import RayStateApiException

    # by itself it would look for a cluster, and may find the trace of one that is gone
    here = None if ray.util.client.ray.is_connected() else ray.get_runtime_context().gcs_address
    try:
        return ask(
            address=here, limit=10_000, timeout=max(1, round(patience())),
            raise_on_missing_output=False,
        )  # fmt: skip
    except (RayStateApiException, OSError, RuntimeError):
        return []


def _cluster() -> str:
    total: dict[str, Any] = ray.cluster_resources()
    free: dict[str, Any] = ray.available_resources()
    parts = [f"{nodes()} nodes"]
    for kind in ("CPU", "GPU"):
        if total.get(kind):
            parts.append(f"{total[kind] - free.get(kind, 0.0):g}/{total[kind]:g} {kind} in use")
    return ", ".join(parts)
