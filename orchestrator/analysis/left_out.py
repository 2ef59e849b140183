"""Which runs have ended in no model, or failed, and without which clients rounds have gone on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

import pandas as pd

from orchestrator.analysis.judged import SOME
from orchestrator.config import Config
from orchestrator.results.members import failed_beside
from orchestrator.results.run_folder import RunFolder

DIVERGED = "diverged (a model, or a loss, that is no number)"
LATE = "clients' own models were not judged, which were too late (client_timeout)"
Run: TypeAlias = "tuple[Config, pd.DataFrame]"
"""Its config, and its rounds."""


def gone_said(runs: Mapping[str, RunFolder]) -> str:
    """Which of some runs have diverged; or ""."""
    gone = [name for name, folder in runs.items() if folder.ending().get("diverged")]
    more = " ..." * (len(gone) > SOME)
    return f"{DIVERGED}: {', '.join(gone[:SOME])}{more}" if gone else ""


def failed_said(folders: Iterable[RunFolder]) -> str:
    """Which runs beside these, on other seeds, have failed, and can be in no mean; or ""."""
    failed = failed_beside([one.place for one in folders])
    more = f" and {len(failed) - SOME} more" if failed[SOME:] else ""
    named = ", ".join(failed[:SOME])
    return f"failed, and in no mean: {named}{more}" if failed else ""


def left_out_said(groups: Mapping[str, Iterable[Run]]) -> list[str]:
    """A sentence for each reason why groups of runs have left clients out of training, or of what
    their own models are judged by, with how many a round (mean over a group's runs) that were.
    """
    found: dict[str, list[str]] = {}
    for name, runs in groups.items():
        once = [*runs]
        whys = {_why(config) for config, rounds in once if _many(rounds, "dropped") > 0}
        late = _over(once, "unjudged")
        if whys:
            why = f"clients were left out, which {', or '.join(sorted(whys))}"
            found.setdefault(why, []).append(f"{_over(once, 'dropped'):.3g} a round in {name}")
        if late:
            found.setdefault(LATE, []).append(f"{late:.3g} a round in {name}")
    return [
        f"{why}: {', '.join(each[:SOME])}{' ...' * (len(each) > SOME)}"
        for why, each in found.items()
    ]


def _over(runs: Collection[Run], column: str) -> float:
    """Mean over runs of how many a round."""
    return sum(_many(rounds, column) for _, rounds in runs) / max(len(runs), 1)


def _many(rounds: pd.DataFrame, column: str) -> float:
    # runs of before, and those of which none could be, do not tell; nor do rounds without any
    told = rounds.get(column, pd.Series(0.0, rounds.index)).fillna(0.0)
    return float(told.mean()) if len(told) else 0.0


def _why(config: Config) -> str:
    """What may have made a run leave clients out."""
    nan = "came to NaN or infinity (non_finite: drop)" if config.non_finite == "drop" else ""
    late = (
        "were too late, or lost (client_timeout)" if config.resources.on_timeout == "drop" else ""
    )
    return ", or ".join(filter(None, [nan, late])) or "were lost"
