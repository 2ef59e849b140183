"""Sweeps from Python: grids on Ray Tune, and papers' tables."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import yaml
from yaml.representer import RepresenterError

from fedorch.runs import Run, Runs, _ray, plain
from orchestrator.config.reading import placed
from orchestrator.errors import UserError
from orchestrator.plugins.raw import beside

if TYPE_CHECKING:
    from sweeps.targets import Target

Place = str | PathLike[str]


class Sweep:
    """A sweep of one's own, by its folder."""

    def __init__(self, place: Place) -> None:
        """Raises UserError if there is none in the folder (or at the URI) ``place``."""
        from sweeps.home import local_copy
        from sweeps.results import plan_of

        self.path = Path(local_copy(str(place)))
        self.plan = plan_of(self.path)

    def __repr__(self) -> str:
        return f"<Sweep {self.plan.name}: {self.path}>"

    def table(self) -> pd.DataFrame:
        """A row a setting: seeds, mean and standard error of the sweep's metric, the best first."""
        from sweeps.results import table

        return table(self.path)

    @property
    def notes(self) -> list[str]:
        """What must be known to read the table, as ``fedorch table`` has it above and below."""
        from sweeps.cells import Cells
        from sweeps.own_table import sentences

        cells = Cells.read(self.path)
        return [cells.title, *sentences(cells)]

    def best(self) -> Runs:
        """The finished runs of the best setting, one for each seed: the first row of the table.

        Raises UserError for a sweep that compares and chooses nothing, where a goal (``stop``) has
        ended trials, whose order says nothing of who is better, before any has finished, and where
        all have diverged.
        """
        from sweeps.cells import Cells

        cells = Cells.read(self.path)
        plan, results = cells.plan, cells.results
        if plan.choose_on == "nothing":
            raise UserError(f"{self.path}: the sweep compares, and chooses nothing (choose_on)")
        if cells.overshot:
            raise UserError(
                f"{self.path}: a goal (stop) has ended trials, and how good their models are says "
                "how far each overshot it, and not which setting is the best; compare what they "
                "took"
            )
        first = next(iter(cells.data.to_dict("records")), {})
        if first and not first["count"]:
            raise UserError(f"{self.path}: no trial has a number by which one could be the best")
        # what was drawn twice is one run
        chosen = {
            r.seed: Run(r.folder.place)
            for r in results
            if r.status == "finished" and not r.diverged and r.setting.items() <= first.items()
        }
        if not chosen:
            raise UserError(f"{self.path}: no trial of the first setting has ended in a model")
        return Runs(list(chosen.values()))

    def runs(self) -> Runs:
        """The trials that have finished."""
        from sweeps.results import stored

        return Runs([Run(r.folder.place) for r in stored(self.path)[1] if r.status == "finished"])


def sweep(
    plan: Place | Mapping[str, Any],
    *,
    out: Place | None = None,
    budget: str = "reduced",
    settings: Sequence[str] = (),
    resume: bool = False,
    at_once: int | None = None,
    address: str = "local",
) -> Any:
    """Run a sweep as ``fedorch sweep`` does: a YAML file, a mapping with its keys, or a paper's
    table (``drdm/table3``) at a ``budget``. Returns a :class:`Sweep`; of a paper's table None
    (``fedorch table`` writes it). ``address``: a Ray cluster; "local" starts one for the sweep.
    Raises UserError for whatever a user can mend.
    """
    from sweeps.targets import Running

    with tempfile.TemporaryDirectory() as folder:
        target = _target(plan, budget, Path(folder))
        target.check()
        place = target.place(None if out is None else str(out))
        with _connection(address):
            target.run(place, Running(resume, tuple(settings), at_once))
    return Sweep(place) if not isinstance(plan, str) or plan.endswith((".yaml", ".yml")) else None


def _connection(address: str) -> Any:
    import ray

    return _ray(None if ray.is_initialized() else address)


def _target(plan: Place | Mapping[str, Any], budget: str, folder: Path) -> Target:
    from sweeps.targets import SweepFile, resolve

    if not isinstance(plan, Mapping):
        return resolve(str(plan), budget)
    file = folder / "sweep.yaml"
    try:
        file.write_text(yaml.safe_dump(_from_here(plan), sort_keys=False))
    except RepresenterError as error:
        what = type(error.args[-1]).__name__
        raise UserError(f"sweep: it holds a {what}, which is no setting") from error
    target = SweepFile(file, called="sweep")
    target.check()  # the file is read here, and goes with its folder
    return target


def _from_here(plan: Mapping[str, Any]) -> dict[str, Any]:
    """A sweep as YAML has it, whose files are found from this process's folder, wherever it is
    read.
    """
    from sweeps.plan import place_settings

    raw = placed(plain(plan), Path())
    base = raw.get("base")
    if isinstance(base, str):
        raw["base"] = str(Path(base).resolve())
    elif isinstance(base, dict):
        raw["base"] = beside(base, Path())
    place_settings(raw, Path())
    return dict(raw)


def open_sweep(place: Place) -> Sweep:
    """The folder of a sweep of one's own, also while it runs."""
    return Sweep(place)
