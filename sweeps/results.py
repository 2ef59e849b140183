"""What a sweep has measured so far, read from its folder; works while it runs."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from orchestrator.errors import UserError
from orchestrator.results.run_folder import RunFolder
from sweeps.entry import Column
from sweeps.plan import Sweep
from sweeps.statistics import value


@dataclass(frozen=True)
class Result:
    """One trial that has ended."""

    label: str
    seed: int
    status: str
    """finished, stopped (by a scheduler) or failed."""
    error: str
    chosen: dict[str, Any]
    """Drawn axes, path -> value."""
    folder: RunFolder

    def value(self, column: Column) -> float:
        """A statistic of the trial; NaN for one that failed."""
        return math.nan if self.status == "failed" else value(self.folder.rounds(), column)


def no_sweep(folder: Path | str) -> UserError:
    """What is said of a folder that is not a sweep's."""
    return UserError(f"{folder} is not the folder of a sweep: it holds no sweep.json")


def plan_of(folder: Path) -> Sweep:
    """The sweep of a folder; raises UserError if it is not a sweep's folder."""
    file = folder / "sweep.json"
    if not file.is_file():
        raise no_sweep(folder)
    known = json.loads(file.read_text())
    known.pop("actors", None)  # of earlier versions, where resources.actors is now
    return Sweep.model_validate(known)


def stored(folder: Path) -> tuple[Sweep, list[Result]]:
    """The sweep of a folder, and its trials that have ended; raises UserError if it is not a
    sweep's folder.
    """
    found = [_result(path.parent) for path in sorted((folder / "trials").glob("*/result.json"))]
    return plan_of(folder), found


def by_trial(folder: Path) -> dict[tuple[str, int], Result]:
    """(label, seed) -> the trial that has ended, for a sweep without drawn axes."""
    return {(r.label, r.seed): r for r in stored(folder)[1]}


def _result(path: Path) -> Result:
    trial, result = (
        json.loads((path / name).read_text()) for name in ("trial.json", "result.json")
    )
    chosen = {k: v for k, v in trial.items() if k != "planned"}
    about = trial["planned"]
    return Result(
        about["label"],
        about["seed"],
        result["status"],
        result.get("error", ""),
        chosen,
        RunFolder(path),
    )


def table(folder: Path) -> pd.DataFrame:
    """One row a cell of the sweep: label, drawn values, seeds, mean and standard error of its
    metric.
    """
    sweep, results = stored(folder)
    rows = []
    for result in results:
        at = {"trial": result.label, **{k: str(v) for k, v in result.chosen.items()}}
        rows.append(
            {
                **at,
                "seed": result.seed,
                "status": result.status,
                "value": result.value(sweep.column),
            }
        )
    if not rows:
        return pd.DataFrame()
    data = pd.DataFrame(rows)
    keys = [c for c in data.columns if c not in ("seed", "status", "value")]
    grouped = data.groupby(keys, sort=False)
    cells = grouped["value"].agg(["count", "mean", "sem"]).reset_index()
    cells["stopped"] = grouped["status"].agg(lambda s: int((s == "stopped").sum())).to_numpy()
    cells["failed"] = grouped["status"].agg(lambda s: int((s == "failed").sum())).to_numpy()
    return cells.sort_values("mean", ascending=sweep.mode == "min", kind="stable").reset_index(
        drop=True
    )
