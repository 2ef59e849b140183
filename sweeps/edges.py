"""Methods whose best setting is at an end of what was tried: beyond it may be a better one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from orchestrator.errors import UserError
from sweeps.cells import Cells
from sweeps.choice import Choice
from sweeps.plan import Sweep
from sweeps.spaces import Axis, as_settings, numbers_of

NOTHING_TO_TUNE = ("evaluation.", "data.", "attack.", "stop.", "energy.", "resources.", "track.")
"""How axes begin that say how it is looked at, and what it is tried on."""


def said(cells: Cells) -> Iterator[str]:
    """A sentence for each axis at whose end the best setting of a method is; of several problems
    none, as settings of the easiest are the best, nor where goals have ended trials.
    """
    if len(cells.problems) > 1 or not cells.finished or cells.overshot:
        return
    for name, trials in cells.methods.items():
        folders = {one.folder.path for one in trials}
        lines = [
            line
            for line, its in cells.groups.items()
            if its[0].folder.path in folders and any(one.status != "failed" for one in its)
        ]
        if lines and cells.tied(lines) == 1:
            which = "the best" if len(cells.methods) == 1 else f"the best of {name}"
            for edge in _of(cells, lines[0]):
                yield f"{which} has {edge}: what lies beyond may be better"


def _of(cells: Cells, line: str) -> Iterator[str]:
    """The ends of axes of numbers at which a line's setting is, and beyond which there are
    others.
    """
    trial = next(one for one in cells.groups[line] if one.status != "failed")
    best = Choice.read(trial.folder.path)
    for path, axis in cells.plan.axes.items():
        if path.startswith(NOTHING_TO_TUNE) and not path.startswith("data.augment"):
            continue
        numbers = numbers_of(axis.grid or axis.choice or ())
        ends = zip(("smallest", "largest"), (numbers[:1] + numbers[-1:]), (-1, 1), strict=False)
        for which, end, way in ends if len(numbers) > 1 else ():
            if _is_at(best, path, end) and _goes_on(cells.plan, best, path, (end, way)):
                yield f"{path} = {end:g}, the {which} of its {_what(axis)}"


def _what(axis: Axis) -> str:
    return "grid" if axis.grid is not None else "values"


def _is_at(one: Choice, path: str, value: float) -> bool:
    """Whether a trial has a value of an axis, be it of its cell or drawn."""
    if path in one.drawn:
        return one.drawn[path] == value
    return as_settings({path: value})[0] in one.planned.settings


def _goes_on(plan: Sweep, best: Choice, path: str, where: tuple[float, int]) -> bool:
    """Whether a config may have a number beyond that end of an axis, to that side: a whole one, or
    one that is hardly another.
    """
    (end, way), base = where, plan.raw()
    for step in (1, 1e-6 * abs(end) or 1e-6):
        with contextlib.suppress(UserError):
            replace(best, drawn={**best.drawn, path: end + way * step}).config(base)
            return True
    return False
