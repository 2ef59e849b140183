"""Watching a sweep: a bar on a terminal, plain lines elsewhere, and a file for other shells."""

from __future__ import annotations

import json
import math
import time
from typing import Any, ClassVar

from ray import tune
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from orchestrator.terminal import console
from sweeps.home import TUNE, Home
from sweeps.trainable import folder_of, leave_failed

FILE = "status.json"
SENT_EVERY = 10.0
"""Seconds between copies of it to storage, while no trial ends."""


class Watcher(tune.Callback):
    """Counts trials as they start, report and end."""

    here: ClassVar[Home | None] = None
    """The home of the sweep that this process runs: a watcher that Tune restores goes on in it."""

    def __init__(self, home: Home, total: int, metric: str, mode: str) -> None:
        self.home, self.total, self.metric, self.mode = home, total, metric, mode
        self.begun = time.time()
        self.running: dict[str, int] = {}
        """Trial -> its rounds so far."""
        self.ended: dict[str, str] = {}
        """Trial -> finished, stopped or failed."""
        self.best: tuple[float, str] = (math.nan, "")
        self._prepare()

    def _prepare(self) -> None:
        self.sent = -math.inf
        self.bar = Progress(
            TextColumn("trials"),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self.task = self.bar.add_task("", total=self.total, note="")

    def __getstate__(self) -> dict[str, Any]:
        """Tune pickles its callbacks; a bar on a terminal stays here, and of a folder only its
        place goes along.
        """
        kept = {k: v for k, v in vars(self).items() if k not in ("bar", "task", "home", "sent")}
        return {**kept, "place": self.home.place}

    def __setstate__(self, state: dict[str, Any]) -> None:
        place = state.pop("place")
        self.home = Watcher.here or Home(place)
        vars(self).update(state)
        self._prepare()

    def get_state(self) -> dict[str, Any]:
        """What a resumed sweep must know of the trials that have ended."""
        return {"ended": dict(self.ended), "best": self.best, "seconds": time.time() - self.begun}

    def set_state(self, state: dict[str, Any]) -> None:
        self.ended, self.best = dict(state["ended"]), tuple(state["best"])
        self.begun = time.time() - state["seconds"]

    def setup(self, *about: Any, **info: Any) -> None:
        self.running.clear()
        self.bar.start()
        self._tell()

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self.running[trial.trial_id] = 0
        self.ended.pop(trial.trial_id, None)
        self._tell()

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        self.running[trial.trial_id] = int(result.get("round", 0))
        value = result.get(self.metric, math.nan)
        sign = 1 if self.mode == "max" else -1
        if math.isfinite(value) and not sign * self.best[0] >= sign * value:
            self.best = (value, trial.config["planned"]["label"])
        if result.get("problem"):
            self.ended[trial.trial_id] = "failed"
            console.print(
                f"failed: {trial.config['planned']['label']}: {result['problem']}", highlight=False
            )
        self._tell()

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self.running.pop(trial.trial_id, None)
        done = bool((trial.last_result or {}).get("done"))
        self.ended.setdefault(trial.trial_id, "finished" if done else "stopped")
        self._tell(line=True)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """A trial whose process died, after the retries that it has."""
        self.running.pop(trial.trial_id, None)
        self.ended[trial.trial_id] = "failed"
        problem = f"its process ended with an error; see the files of {trial.trial_id} in {TUNE}/"
        folder = folder_of(self.home.place, trial.config, trial.trial_id)
        leave_failed(folder, trial.config, problem)
        folder.discard()
        self._tell(line=True)

    def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
        self._tell(last=True)
        self.bar.stop()

    def status(self) -> dict[str, Any]:
        """What there is to say, for a terminal and for status.json."""
        kinds = list(self.ended.values())
        elapsed = time.time() - self.begun
        left = self.total - len(kinds)
        return {
            "total": self.total,
            "finished": kinds.count("finished"),
            "stopped": kinds.count("stopped"),
            "failed": kinds.count("failed"),
            "running": self.running,
            "metric": self.metric,
            "best": None if math.isnan(self.best[0]) else self.best[0],
            "best_trial": self.best[1],
            "seconds": elapsed,
            "seconds_left": elapsed / len(kinds) * left if kinds else None,
        }

    def _tell(self, line: bool = False, last: bool = False) -> None:
        status = self.status()
        self.home.folder.write_text(FILE, json.dumps(status))
        if line or last or time.monotonic() - self.sent > SENT_EVERY:
            self.sent = time.monotonic()
            self.home.send()
        note = describe(status)
        self.bar.update(self.task, completed=len(self.ended), note=note)
        if line and not console.is_terminal:
            console.print(f"trial {len(self.ended)}/{self.total}: {note}", highlight=False)


def describe(status: dict[str, Any]) -> str:
    """One line: running, failed, best, time left."""
    parts = [f"{len(status['running'])} running"]
    for kind in ("stopped", "failed"):
        if status[kind]:
            parts.append(f"{status[kind]} {kind}")
    if status["best"] is not None:
        parts.append(f"best {status['metric']} {status['best']:.4g} ({status['best_trial']})")
    if status["seconds_left"] is not None and status["seconds_left"] > 0:
        parts.append(f"about {status['seconds_left'] / 60:.0f} min left")
    return ", ".join(parts)
