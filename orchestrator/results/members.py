"""The runs that lie in a folder: of several seeds, of a sweep, or any others."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from orchestrator import files
from orchestrator.errors import UserError
from orchestrator.results import manifest
from orchestrator.results.contents import CONFIG, RESULT
from orchestrator.results.places import is_remote, join, parted
from orchestrator.results.result import ending
from orchestrator.results.trials import STATUS, ended_trials

PBT = (
    "pbt changes settings as trials run: {what} has those of its end, and where they were others "
    "before, a new run with them is another"
)
"""What is said of the settings of such trials."""
SEED = re.compile(r"seed-(\d{1,15})")
"""A folder of one of several seeds."""


def members(place: str) -> list[str]:
    """The runs in a folder that holds some with several seeds (``seed-N``), by seed, or a sweep's
    trials that have ended, or others and folders of seeds; of a run's own folder itself. In storage
    it knows runs and folders of seeds. Raises UserError for a sweep that has lost trials, and a
    folder of a seed that is no run.
    """
    if is_remote(place):
        return _members_there(place)
    folder = Path(place)
    if (folder / CONFIG).exists():
        return [place]
    if trials := sorted(str(one.parent) for one in folder.glob(f"trials/*/{RESULT}")):
        # trials that somebody has put together have no status of a sweep
        whole = (folder / STATUS).is_file()
        return _runs_of(folder) if whole else trials
    if seeds := _seeds(folder):
        return seeds
    # as the quick start leaves them, or an experiment's methods, each in a folder of seeds
    inside = {one.parent for one in folder.glob(f"*/{CONFIG}")}
    inside |= {one.parent.parent for one in folder.glob(f"*/seed-*/{CONFIG}")}
    return [run for one in sorted(inside) for run in members(str(one))] or [place]


def _runs_of(sweep: Path) -> list[str]:
    """The trials that have ended; of pbt's those that have finished, and no other's state has taken
    the place of theirs.
    """
    trials = ended_trials(sweep)
    if has_pbt(sweep):
        trials = [one for one in trials if ending(one)["status"] != "stopped"]
    return [str(one) for one in trials]


def failed_beside(runs: Collection[str]) -> list[str]:
    """The runs that failed on other seeds in the same folders of seeds as some of ``runs``."""
    folders = dict.fromkeys(
        above for run in runs for above, name in [parted(run)] if SEED.fullmatch(name)
    )
    return [
        place
        for folder in folders
        for place, here in _ended_in(folder, runs).items()
        if _failed(here)
    ]


def _ended_in(folder: str, known: Collection[str]) -> dict[str, Path]:
    """Of the seeds in their folder those that have ended and are not ``known``, by name: where
    their results can be read.
    """
    if not is_remote(folder):
        ended = sorted(Path(folder).glob(f"seed-*/{RESULT}"))
        return {str(one.parent): one.parent for one in ended if str(one.parent) not in known}
    from orchestrator.results.storage import Mirror, folders_in

    found: dict[str, Path] = {}
    names: list[str] = []
    # what was named may be all that one may look at there
    with suppress(UserError):
        names = _by_seed(folders_in(folder))
    for place in (join(folder, name) for name in names):
        if place not in known:
            with suppress(UserError):
                mirror = Mirror(place, viewed=True)
                mirror.fetch(*(mirror.there & {RESULT, manifest.NAME}))
                if RESULT in mirror.there:
                    found[place] = mirror.local
    return found


def _failed(run: Path) -> bool:
    try:
        return ending(run)["status"] == "failed"
    except UserError:  # damaged, and none of those that were named
        return False


def has_pbt(sweep: Path) -> bool:
    """Whether trials of a sweep's folder were given others' states, and went on with other settings
    than they had begun with; False of any other folder.
    """
    plan = sweep / "sweep.json"
    known = files.read_sealed(plan, dict[str, Any]) if plan.is_file() else {}
    return bool(known.get("scheduler", {}).get("name") == "pbt")


def _members_there(place: str) -> list[str]:
    """The same of a URI."""
    from orchestrator.results.storage import Mirror

    there = Mirror(place, viewed=True).there
    folders = {name.removesuffix(f"/{CONFIG}") for name in there}
    seeds = [join(place, one) for one in _by_seed(folders)]
    return [place] if CONFIG in there else seeds or [place]


def _by_seed(names: Iterable[str]) -> list[str]:
    """Those that are folders of seeds."""
    return sorted(filter(SEED.fullmatch, names), key=lambda one: int(one[5:]))


def _seeds(folder: Path) -> list[str]:
    """The runs in its folders of seeds; raises UserError for one that holds something else."""
    seeds = [one for one in folder.glob("seed-*") if SEED.fullmatch(one.name)]
    for one in seeds:
        if not (one / CONFIG).is_file() and any(one.iterdir()):
            raise UserError(f"{one} is no run (it has no {CONFIG}); put it back, or take it away")
    runs = [one for one in seeds if (one / CONFIG).is_file()]
    return [str(one) for one in sorted(runs, key=lambda one: (int(one.name[5:]), one))]
