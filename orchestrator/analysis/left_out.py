"""Which runs have ended in no model, or failed, and without which clients rounds have gone on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import pandas as pd

from orchestrator.analysis.judged import SOME
from orchestrator.config import Config
from orchestrator.results.members import failed_beside
from orchestrator.results.run_folder import RunFolder

DIVERGED = "diverged (a model, or a loss, that is no number)"
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
    """A sentence for each reason why groups of runs have left clients out, with how many a round
    (mean over a group's runs) that were.
    """
    found: dict[str, list[str]] = {}
    for name, runs in groups.items():
        lost = [(config, float(_dropped(rounds).mean())) for config, rounds in runs]
        whys = {_why(config) for config, many in lost if many > 0}
        if whys:
            mean = sum(many for _, many in lost) / len(lost)
            found.setdefault(", or ".join(sorted(whys)), []).append(f"{mean:.3g} a round in {name}")
    return [
        f"clients were left out, which {why}: {', '.join(each[:SOME])}{' ...' * (len(each) > SOME)}"
        for why, each in found.items()
    ]


def _dropped(rounds: pd.DataFrame) -> pd.Series[float]:
    # runs of before, and those of which none could be, do not tell
    return rounds.get("dropped", pd.Series(0.0, rounds.index))


def _why(config: Config) -> str:
    """What may have made a run leave clients out."""
    nan = "came to NaN or infinity (non_finite: drop)" if config.non_finite == "drop" else ""
    late = (
        "were too late, or lost (client_timeout)" if config.resources.on_timeout == "drop" else ""
    )
    return ", or ".join(filter(None, [nan, late])) or "were lost"
