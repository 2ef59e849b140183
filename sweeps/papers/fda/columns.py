"""The columns of chapter 3: gigabytes and steps until a target, at points along K or Θ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from sweeps.entry import Column, Settings
from sweeps.papers.fda.tasks import EVEN, Task, Theta

GB, STEPS = "GB", "steps"
STAND_IN = "stand-in"
"""Group of the columns that ask a stand-in for its own target."""


class Point(NamedTuple):
    """Where on an axis (or, without ``x``, under which name) a cost is asked."""

    label: str
    settings: Settings = ()
    x: float | str | None = None


def cost(what: str, target: float, settings: Settings = ()) -> Column:
    """Gigabytes or steps of each client until the server's model has the target accuracy."""
    if what == GB:
        return Column(
            "test_accuracy", settings, "gigabytes_to", target=target, better="low", digits=3
        )
    return Column("test_accuracy", settings, "steps_to", target=target, better="low", digits=0)


def name_of(group: str, what: str, label: str) -> str:
    """What a column of costs is called."""
    return ", ".join(filter(None, (group, what, label)))


def costs(
    group: str, target: float, points: Iterable[Point], settings: Settings = ()
) -> dict[str, Column]:
    """Gigabytes at each of the points, then steps; ``settings`` are the group's."""
    return {
        name_of(group, what, label): replace(
            cost(what, target, (*settings, *own)), panel=f"{group}, {what}", x=x, group=group
        )
        for what in (GB, STEPS)
        for label, own, x in points
    }


def stand_in_costs(task: Task, points: Iterable[Point]) -> dict[str, Column]:
    """What the stand-in is asked, if there is one: its own target, at each of the ``points``."""
    return {} if task.stand_in is None else costs(STAND_IN, task.stand_in.target, points)


def cheap(task: Task) -> str:
    """The group of columns that two slow cores can fill."""
    return EVEN if task.stand_in is None else STAND_IN


def of_thesis(task: Task, columns: Mapping[str, Column]) -> tuple[str, ...]:
    """The full budget's columns: all but those that only the stand-in needs."""
    if task.stand_in is None:
        return ()
    return tuple(name for name, column in columns.items() if column.group != STAND_IN)


def at_workers(workers: Iterable[int]) -> tuple[Point, ...]:
    """Points on an axis of the number of workers K."""
    return tuple(Point(f"K={k}", (f"data.clients={k}",), k) for k in workers)


def at_thetas(thetas: Iterable[Theta]) -> tuple[Point, ...]:
    """Points on an axis of Θ; the named ones, which are d's multiples, stand beside each other."""
    return tuple(_at_theta(theta) for theta in thetas)


def _at_theta(theta: Theta) -> Point:
    settings = (f"round_end.theta={theta}",)
    if isinstance(theta, str):
        return Point(f"Θ={theta}", settings, f"Θ={theta}")
    return Point(f"Θ={theta:g}", settings, theta)


def of_group(columns: Mapping[str, Column], group: str) -> tuple[str, ...]:
    """Names of the columns of one group."""
    return tuple(name for name, column in columns.items() if column.group == group)


def bytes_of(columns: Mapping[str, Column]) -> tuple[str, ...]:
    """Names of the columns that say what was sent."""
    return tuple(name for name, column in columns.items() if column.statistic == "gigabytes_to")


def steps_of(columns: Mapping[str, Column]) -> tuple[str, ...]:
    """Names of the columns that say what was computed."""
    return tuple(name for name, column in columns.items() if column.statistic == "steps_to")
