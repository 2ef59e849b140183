"""What Ray Tune keeps of a sweep in its own files, which it does not write all at once: a process
that is killed, or a full disk, may leave one cut short.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ray import tune

from orchestrator.files import read_bytes, read_json
from orchestrator.results.places import is_remote

STATE = "experiment_state-*.json"
KEPT = ("tuner.pkl", "callback-states-*.pkl", STATE)
COMING = ("basic-variant-state-*.json", "search_gen_state-*.json")
"""Which trials are still to come, by Tune's own generator or by another searcher's: one of them."""


def goes_on(known: str) -> bool:
    """Whether Tune can go on from its files at ``known``: the newest of each kind is whole. Of
    storage only that there are any is known.
    """
    if is_remote(known):
        return bool(tune.Tuner.can_restore(known))
    folder = Path(known)
    kept = all(_newest_is_whole(folder, pattern) for pattern in KEPT)
    return kept and any(_newest_is_whole(folder, pattern) for pattern in COMING)


def known_trials(known: str) -> set[str]:
    """Names of the trials that Tune remembers; raises UserError if it cannot be read."""
    newest = max(Path(known).glob(STATE))
    said = read_json(newest, dict[str, Any])
    return {json.loads(trial)["trial_id"] for trial, _ in said["trial_data"]}


def _newest_is_whole(folder: Path, pattern: str) -> bool:
    """Whether there is a file of that kind, whose name tells when it was begun, with its end."""
    newest = max(folder.glob(pattern), default=None)
    return newest is not None and _is_whole(read_bytes(newest))


def _is_whole(content: bytes) -> bool:
    # Tune gives some of its pickles names of JSON
    if content.startswith(b"\x80"):
        return content.endswith(b".")  # the last word of a pickle
    try:
        json.loads(content)
    except ValueError:
        return False
    return True
