"""Methods whose best setting is at an end of what was tried: beyond it may be a better one."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from orchestrator.errors import UserError
from sweeps.cells import Cells
from sweeps.choice import Choice
from sweeps.plan import Sweep
from sweeps.results import Result
from sweeps.spaces import Axis, Yaml, as_number, as_settings, numbers_of

NOTHING_TO_TUNE = ("evaluation.", "data.", "attack.", "stop.", "energy.", "resources.", "track.")
"""How axes begin that say how it is looked at, and what it is tried on."""

OUTER = 0.1
"""Part of a range that is near its end."""


def said(cells: Cells) -> Iterator[str]:
    """A sentence for each axis at whose end the best setting of a method is; of several problems
    none, as settings of the easiest are the best, nor where goals have ended trials.
    """
    if len(cells.problems) > 1 or not cells.finished or cells.overshot:
        return
    for name, trials in cells.methods.items():
        if not (tied := _tied(cells, trials)):
            continue
        settings = {tuple(one.setting.values()): one for one in trials if not one.broken}
        ran = [Choice.read(one.folder.path) for one in settings.values()]
        which = f"the best{f' {len(tied)} (tied)' * (len(tied) > 1)}"
        which += f" of {name}" * (len(cells.methods) > 1)
        has = "has" if len(tied) == 1 else "have"
        each = [[*_of(cells.plan, best, ran)] for best in tied]
        for edge in each[0]:
            # one that is not at the end says that nothing is better beyond
            if all(edge in others for others in each):
                yield f"{which} {has} {edge}: what lies beyond may be better"


def _of(plan: Sweep, best: Choice, ran: Sequence[Choice]) -> Iterator[str]:
    """The ends of axes of numbers at which the ``best`` is of the trials that ``ran`` of a method,
    and beyond which there are others.
    """
    for path, axis in plan.axes.items():
        if path.startswith(NOTHING_TO_TUNE) and not path.startswith("data.augment"):
            continue
        # of pbt's, what was drawn is not what they ended with
        if axis.range is not None and plan.scheduler.name != "pbt":
            yield from _of_range(path, axis, best, ran)
        else:
            yield from _of_grid(plan, path, best, ran)


def _of_grid(plan: Sweep, path: str, best: Choice, ran: Sequence[Choice]) -> Iterator[str]:
    """Whether the best is at an end of the values that ran: what could not be run is beyond it."""
    axis = plan.axes[path]
    every = axis.grid or axis.choice or ()
    values = [value for value in every if any(_is_at(one, path, value) for one in ran)]
    read = [as_number(value) for value in values]
    numbers, whole = numbers_of(read), numbers_of([as_number(value) for value in every])
    ends = zip(("smallest", "largest"), (numbers[:1] + numbers[-1:]), (-1, 1), strict=False)
    for which, end, way in ends if len(numbers) > 1 else ():
        at_it = _is_at(best, path, values[read.index(end)])
        if at_it and _goes_on(plan, best, path, (end, way)):
            some = "" if end in whole[:1] + whole[-1:] else " that ran"
            yield f"{path} = {end:g}, the {which} of its {_what(axis)}{some}"


def _tied(cells: Cells, trials: Sequence[Result]) -> list[Choice]:
    """The best settings of a method that has these ``trials``, which are as good as one another:
    none, where it has no number.
    """
    folders = {one.folder.path for one in trials}
    lines = [
        line
        for line, its in cells.groups.items()
        if its[0].folder.path in folders and not all(one.broken for one in its)
    ]
    return [_chosen(cells, line) for line in lines[: cells.tied(lines)]] if lines else []


def _chosen(cells: Cells, line: str) -> Choice:
    trial = next(one for one in cells.groups[line] if not one.broken)
    return Choice.read(trial.folder.path)


def _of_range(path: str, axis: Axis, best: Choice, ran: Sequence[Choice]) -> Iterator[str]:
    """Whether the best has the outermost of the numbers that were drawn from a range, near its end:
    in the outer tenth (of logarithms, where these were drawn from).
    """
    drawn = sorted({value for one in ran if isinstance(value := one.drawn.get(path), float)})
    value = best.drawn.get(path)
    if len(drawn) < 2 or not isinstance(value, float) or axis.range is None:
        return
    of = math.log if axis.loguniform is not None else float
    low, high, at = (of(one) for one in (*axis.range, value))
    part = (at - low) / (high - low)
    for which, end, near in (("smallest", drawn[0], part), ("largest", drawn[-1], 1 - part)):
        if value == end and near <= OUTER:
            yield (
                f"{path} = {value:.4g}, the {which} that was drawn from {axis.range[0]:g} to "
                f"{axis.range[1]:g}"
            )


def _what(axis: Axis) -> str:
    return "grid" if axis.grid is not None else "values"


def _is_at(one: Choice, path: str, value: Yaml) -> bool:
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
