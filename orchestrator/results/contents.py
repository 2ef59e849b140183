"""What is in the folder of a run, by name."""

from __future__ import annotations

from pathlib import Path

from orchestrator import files
from orchestrator.plugins import plugin
from orchestrator.results import locks, manifest

LOCK, PLUGINS = locks.NAME, plugin.FOLDER
CONFIG, RESULT, MODEL = "config.yaml", "result.json", "model.safetensors"
INPUTS = "inputs.json"
"""What must be known to use the model."""
ROUNDS, CLIENTS, REPORT = "rounds.parquet", "clients.parquet", "report.html"
HOLDINGS = "holdings.parquet"
"""Who holds how many training rows of which label."""
TRIAL = "trial.json"
"""What a sweep says of a trial, in the trial's folder."""
SAID = (CONFIG, RESULT, TRIAL)
"""What the manifest of a run that failed holds."""
SEALED = (*SAID, MODEL, INPUTS, ROUNDS, CLIENTS, HOLDINGS, REPORT)
"""What that of any other run holds, too."""

WRITTEN = (
    *SEALED, manifest.NAME, LOCK, PLUGINS, "checkpoints", "tensorboard", "metrics.csv",
    "metrics.jsonl",
)  # fmt: skip
"""All that a run itself writes: files and folders."""


def run_that_writes(file: Path) -> Path | None:
    """The folder of the run, under way or ended, one of whose own files ``file`` is, or would be;
    None if there is no such run. A link is not followed: it is what would be replaced.
    """
    place = files.resolved(file.parent) / file.name
    for folder in place.parents:
        begun = any((folder / one).is_file() for one in (manifest.NAME, LOCK))
        if begun and (folder / CONFIG).is_file() and place.relative_to(folder).parts[0] in WRITTEN:
            return folder
    return None
