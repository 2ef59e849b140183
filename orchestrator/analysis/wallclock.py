"""Steps, bytes and estimated time to a target over a chosen link (FDA thesis, section 3.4.3)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import pandas as pd
from rich.table import Table

from orchestrator.analysis.goals import hidden_said, looks_said
from orchestrator.analysis.judged import SOME, Judged
from orchestrator.analysis.left_out import gone_said, left_out_said
from orchestrator.analysis.names import require_reported, stopped_said, told_apart
from orchestrator.analysis.reached import Reached
from orchestrator.config.goal import Goal, steps_of, up_to
from orchestrator.errors import UserError
from orchestrator.results.provenance import seconds_said
from orchestrator.results.run_folder import RunFolder
from orchestrator.terminal import console

LINKS = {
    "shared": "(K − 1)/K of the bytes one after another over one channel",
    "hypercube": "⌈ln K⌉/K of the bytes, over K links at once",
}
ALIKE = 1.5
"""Up to this ratio, milliseconds a step are those of one machine at one time."""


def _require_link(link: str) -> None:
    """Raise UserError for a link that there is not."""
    if link not in LINKS:
        raise UserError(f"--link {link!r}: use one of {', '.join(LINKS)}")


def communication_seconds(nbytes: float, clients: int, link: str, gbps: float) -> float:
    """Seconds to move ``nbytes`` (both ways, all clients) over ``link``.

    shared: (K − 1)/K of the bytes one after the other over one channel; hypercube: ⌈ln K⌉/K of
    them, K links at once. Raises UserError for another link, or a speed that is not positive.
    """
    _require_link(link)
    if gbps <= 0:
        raise UserError(f"--gbps must be positive, not {gbps:g}")
    # the natural logarithm, as in the thesis' published notebook
    factor = (clients - 1) / clients if link == "shared" else math.ceil(math.log(clients)) / clients
    # bytes to gigabits
    return 8e-9 * nbytes * factor / gbps


def _seconds(value: float) -> str:
    """Of some seconds three digits, of many a tenth."""
    return f"{value:.3g}" if value < 10 else f"{value:.1f}"


def show_wallclock(
    folders: list[RunFolder],
    step_ms: float | None,
    link: str,
    gbps: float,
    metric: str,
    target: Goal | None,
) -> None:
    """Print a line for each run; a run that misses the target is printed, too. ``step_ms`` None: a
    step takes what it took each run's clients; raises UserError where that is not known.
    """
    _require_link(link)
    table = Table()
    table.add_column("run", overflow="fold")  # a name that is cut off is another's
    for column in ("syncs", "steps", "ms a\nstep", "GB", "compute\ns", "link\ns", "total\ns"):
        table.add_column(column, no_wrap=True)
    rounds = [folder.rounds() for folder in folders]
    if target is not None:
        require_reported(metric, folders, rounds, every=True)
    took: list[float] = []
    # whether those that missed ended before their last round
    never: dict[str, bool] = {}
    runs = dict(zip(told_apart(folders), zip(folders, rounds, strict=True), strict=True))
    for name, (folder, all_of_them) in runs.items():
        counted = up_to(all_of_them, metric, target)
        if counted is None:
            table.add_row(name, "never")
            never[name] = len(all_of_them) < folder.config().rounds
            continue
        nbytes = float((counted["bytes_up"] + counted["bytes_down"]).sum())
        steps = steps_of(counted)
        each = measured_step_ms(name, all_of_them) if step_ms is None else step_ms
        took.append(each)
        compute = steps * each / 1e3
        talking = max([folder.config().cohort_size, *_contacted(counted)])
        moving = communication_seconds(nbytes, talking, link, gbps)
        row = (
            f"{steps:.0f}",
            f"{each:.3g}",
            f"{nbytes / 1e9:.3f}",
            *[_seconds(s) for s in (compute, moving, compute + moving)],
        )
        table.add_row(name, str(len(counted)), *row)
    console.print(table)
    console.print("GB: up and down, of all clients", soft_wrap=True)
    console.print(f"link: {LINKS[link]} (K clients a round), at {gbps:g} Gbit/s", soft_wrap=True)
    if target is None:
        said = [*_ends_said(runs)]
    else:
        said = [*_target_said(runs, metric, target), *_missed_said(never, f"{metric} {target}")]
    groups = {name: [(folder.config(), table)] for name, (folder, table) in runs.items()}
    gone = gone_said({name: folder for name, (folder, _) in runs.items()})
    for sentence in filter(None, [*said, gone, *left_out_said(groups)]):
        console.print(sentence, soft_wrap=True)
    for sentence in _measured_said(folders, took) if step_ms is None else ():
        console.print(sentence, soft_wrap=True)


def _measured_said(folders: Sequence[RunFolder], took: Sequence[float]) -> Iterator[str]:
    """What must be known of milliseconds a step that are the runs' own (``took``)."""
    yield "ms a step: as each run's clients took; --step-ms for other hardware"
    yield from seconds_said([one.result() for one in folders if "rounds" in one.ending()])
    if took and max(took) > ALIKE * min(took):
        yield (
            "their steps took different times: where their work is the same (or the machine was "
            "busy), give all of them one --step-ms"
        )


def _contacted(rounds: pd.DataFrame) -> list[int]:
    """How many clients a round has sent something to or heard from, in the mean, where that is
    known: in some methods others than the cohort are asked, too.
    """
    known = rounds["contacted"].dropna() if "contacted" in rounds else pd.Series(dtype=float)
    return [round(known.mean())] if len(known) else []


def _ends_said(runs: Mapping[str, tuple[RunFolder, pd.DataFrame]]) -> Iterator[str]:
    """Which runs' totals are of no end that the others have come to."""
    first, reached = next(iter(runs)), _reached(runs)
    if lost := [name for name, gone in zip(runs, reached.missed, strict=True) if gone]:
        yield f"have missed what they were to reach (stop): {', '.join(lost[:SOME])}"
    if others := reached.other_goals(first):
        yield (
            f"end at other goals (stop) than {first}, or at one that is measured otherwise, or at "
            f"none: {', '.join(others[:SOME])}; what they spent is of other work"
        )
    yield reached.looks_said()
    yield stopped_said({name: folder for name, (folder, _) in runs.items()})


def _reached(runs: Mapping[str, tuple[RunFolder, pd.DataFrame]]) -> Reached:
    configs = [folder.config() for folder, _ in runs.values()]
    rounds = [table for _, table in runs.values()]
    ended = [folder.ending()["status"] == "finished" for folder, _ in runs.values()]
    early = [
        done and len(table) < config.rounds
        for done, table, config in zip(ended, rounds, configs, strict=True)
    ]
    columns = {name: [number] for number, name in enumerate(runs)}
    seeds = [config.seed for config in configs]
    return Reached(configs, rounds, early, seeds, columns, _judged(runs))


def _judged(runs: Mapping[str, tuple[RunFolder, pd.DataFrame]]) -> Judged:
    return Judged({name: {folder.config().seed: folder} for name, (folder, _) in runs.items()})


def _target_said(
    runs: Mapping[str, tuple[RunFolder, pd.DataFrame]], metric: str, target: Goal
) -> Iterator[str]:
    """How the runs (with their rounds) were looked at for the target, and by what yardstick."""
    looked = {name: (folder.config(), rounds) for name, (folder, rounds) in runs.items()}
    yield looks_said({name: [one] for name, one in looked.items()}, metric)
    yield hidden_said([*looked.values()], metric, target)
    yield _yardsticks_said(runs, metric)


def _yardsticks_said(runs: Mapping[str, tuple[RunFolder, pd.DataFrame]], metric: str) -> str:
    """In which runs the metric is measured otherwise than in the first; or ""."""
    first = next(iter(runs))
    if not (others := _judged(runs).others(metric, first)):
        return ""
    return (
        f"{metric} is by another formula, or of other rows, in {', '.join(others[:SOME])} than in "
        f"{first}: the same target is another goal there"
    )


def _missed_said(missed: Mapping[str, bool], target: str) -> Iterator[str]:
    """What "never" means, of runs that may have ended before their last round."""
    if missed:
        yield f"never: it never reached {target}"
    if any(missed.values()):
        yield "some of these ended before their last round, and might have"


def measured_step_ms(name: str, rounds: pd.DataFrame) -> float:
    """Milliseconds that a client of the run took for a local step, in the mean; raises UserError
    where the run does not say.
    """
    known = rounds.reindex(columns=["seconds_client", "steps"]).dropna()
    if not known["steps"].sum():
        raise UserError(f"{name}: it is not known what a local step took; give --step-ms")
    return 1e3 * float(known["seconds_client"].sum() / known["steps"].sum())
