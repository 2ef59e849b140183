"""Watching a sweep: a bar on a terminal, plain lines elsewhere, and a file for other shells."""

from __future__ import annotations

import math
import signal
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from ray import tune
from ray.tune.experiment import Trial

from orchestrator.analysis.names import naturally
from orchestrator.terminal import bar, console
from sweeps.choice import Choice
from sweeps.home import TUNE, Home
from sweeps.results import numbered
from sweeps.status import Status
from sweeps.trainable import COMPARED, PART, POSTPONED, WRITTEN

SENT_EVERY = 10.0
"""Seconds between copies of the file to storage, while no trial ends."""
Ended = Literal["finished", "stopped", "failed"]


@dataclass(frozen=True)
class Best:
    """The best setting so far; of none the mean is NaN."""

    value: float = math.nan
    """Mean over its seeds."""
    setting: str = ""
    folder: str = ""
    """Of its first seed."""
    seeds: int = 0


class Watcher(tune.Callback):
    """Counts trials as they start, report and end."""

    here: ClassVar[Home | None] = None
    """The home of the sweep that this process runs: a watcher that Tune restores goes on in it."""
    ends: ClassVar[str] = ""
    """Why the sweep that this process runs cannot go on as things are."""

    def __init__(
        self,
        home: Home,
        total: int,
        metric: str,
        mode: str,
        chooses: bool = True,
        apart: bool = False,
    ) -> None:
        self.home, self.total, self.metric, self.mode = home, total, metric, mode
        self.chooses = chooses
        """Whether one of its settings is the best, and not all are what is shown."""
        self.apart = apart
        """Whether each trial is a setting of its own, as under pbt."""
        self.begun = time.time()
        self.running: dict[str, int] = {}
        """Trial -> its rounds so far."""
        self.parts: dict[str, float] = {}
        """Running trial -> the part of its rounds that it has done."""
        self.ended: dict[str, Ended] = {}
        self.diverged: set[str] = set()
        """Trials whose model, or loss, is NaN or infinite."""
        self.left: dict[str, str] = {}
        """Trials that have ended and left their results -> name of their folder."""
        self.settings: dict[str, dict[int, tuple[float, str]]] = {}
        """Setting -> seed -> the number of its trial that has ended, as the table has it, and its
        folder."""
        self._prepare()

    def _prepare(self) -> None:
        self.sent = -math.inf
        self.names: dict[str, str] = {}
        """Running trial -> what it is called: its settings, seed and folder."""
        self.bar = bar()
        self.task = self.bar.add_task("trials", total=self.total, note="")

    def __getstate__(self) -> dict[str, Any]:
        """Tune pickles its callbacks; a bar on a terminal stays here, and of a folder only its
        place goes along.
        """
        here = ("bar", "task", "home", "sent", "names")
        kept = {k: v for k, v in vars(self).items() if k not in here}
        return {**kept, "place": self.home.place}

    def __setstate__(self, state: dict[str, Any]) -> None:
        place = state.pop("place")
        self.home = Watcher.here or Home(place)
        vars(self).update(state)
        self._prepare()

    def get_state(self) -> dict[str, Any]:
        """What a resumed sweep must know of the trials that have ended."""
        return {
            "ended": dict(self.ended),
            "diverged": sorted(self.diverged),
            "left": dict(self.left),
            "settings": {setting: dict(seeds) for setting, seeds in self.settings.items()},
            "seconds": time.time() - self.begun,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        self.ended, self.settings = dict(state["ended"]), dict(state["settings"])
        self.diverged, self.left = set(state["diverged"]), dict(state["left"])
        self.begun = time.time() - state["seconds"]

    def setup(self, *about: Any, **info: Any) -> None:
        self.running.clear()
        self.parts.clear()
        self.bar.start()
        self._tell()

    def on_trial_start(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        self.running[trial.trial_id] = 0
        choice = Choice.of(trial.config)
        self.names[trial.trial_id] = f"{choice} ({choice.key(trial.trial_id)})"
        # it ended in the sweep that this one continues
        self.ended.pop(trial.trial_id, None)
        self.left.pop(trial.trial_id, None)
        self.diverged.discard(trial.trial_id)
        self._tell()

    def on_trial_result(
        self,
        iteration: int,
        trials: list[Trial],
        trial: Trial,
        result: dict[str, Any],
        **info: Any,
    ) -> None:
        self.running[trial.trial_id] = int(result.get("round", 0))
        self.parts[trial.trial_id] = float(result.get(PART, 0.0))
        change = self.diverged.add if result.get("diverged") else self.diverged.discard
        change(trial.trial_id)
        if result.get(POSTPONED) and not Watcher.ends:
            Watcher.ends = str(result[POSTPONED])
            signal.raise_signal(signal.SIGINT)  # Tune saves what there is
        if result.get("problem"):
            self.ended[trial.trial_id] = "failed"
            console.print(f"failed: {Choice.of(trial.config)}: {result['problem']}")
        self._tell()

    def _best(self) -> Best:
        """The setting with the best mean over seeds, among those of which most seeds have ended: a
        lucky one of a setting that has just begun is not it, nor one that some did not survive.
        """
        most = max(map(len, self.settings.values()), default=0)
        sign = 1 if self.mode == "max" else -1
        best = Best()
        for setting in sorted(self.settings, key=naturally):
            seeds = self.settings[setting]
            mean = sum(value for value, _ in seeds.values()) / len(seeds)
            if len(seeds) == most and math.isfinite(mean) and not sign * best.value >= sign * mean:
                best = Best(mean, setting, seeds[min(seeds)][1], len(seeds))
        return best

    def on_trial_complete(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        self.running.pop(trial.trial_id, None)
        self.parts.pop(trial.trial_id, None)
        last = trial.last_result or {}
        done = bool(last.get(WRITTEN))
        if not last.get("problem"):
            choice = Choice.of(trial.config)
            name = choice.name(trial.trial_id)
            number = trial.trial_id if self.apart else ""
            setting = numbered(choice.setting, number)
            seeds = self.settings.setdefault(setting, {})
            # what a scheduler has stopped has a number of fewer rounds than others
            survived = done and not last.get("diverged")
            compared = float(last.get(COMPARED, math.nan)) if survived else math.nan
            known = seeds.get(choice.planned.seed)
            # one that was drawn twice is one run, be the other stopped or not
            if known is None or math.isnan(known[0]) or not math.isnan(compared):
                seeds[choice.planned.seed] = compared, name
        # one that has reported a problem is done, too, and stays failed
        self.ended.setdefault(trial.trial_id, "finished" if done else "stopped")
        if done:  # one that a scheduler has stopped writes its results later
            self.left[trial.trial_id] = Choice.of(trial.config).name(trial.trial_id)
        self._tell(line=True)

    def on_trial_error(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """A trial whose process died, after the retries that it has."""
        self.running.pop(trial.trial_id, None)
        self.parts.pop(trial.trial_id, None)
        self.ended[trial.trial_id] = "failed"
        problem = f"its process ended with an error; see the files of {trial.trial_id} in {TUNE}/"
        choice = Choice.of(trial.config)
        folder = choice.folder(self.home.place, trial.trial_id)
        choice.leave_failed(folder, problem, trial.trial_id in self.diverged)
        folder.discard()
        self.left[trial.trial_id] = choice.name(trial.trial_id)
        self._tell(line=True)

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        self._tell(last=True)
        self.bar.stop()

    def status(self) -> Status:
        """What there is to say, for a terminal and for status.json."""
        ended = Counter(self.ended.values())
        elapsed = time.time() - self.begun
        # those under way count by the rounds that they have done
        done = ended.total() + sum(self.parts.values())
        best = self._best() if self.chooses else Best()
        return Status(
            total=self.total,
            finished=ended["finished"],
            stopped=ended["stopped"],
            failed=ended["failed"],
            diverged=len(self.diverged),
            running={self.names[trial]: rounds for trial, rounds in self.running.items()},
            metric=self.metric,
            best=None if math.isnan(best.value) else best.value,
            best_trial=best.setting,
            best_folder=best.folder,
            best_seeds=best.seeds,
            seconds=elapsed,
            seconds_left=elapsed / done * (self.total - done) if done else None,
            trials=tuple(sorted(self.left.values())),
            written=time.time(),
        )

    def _tell(self, line: bool = False, last: bool = False) -> None:
        status = self.status()
        status.write(self.home.folder)
        if line or last or time.monotonic() - self.sent > SENT_EVERY:
            self.sent = time.monotonic()
            self.home.send()
        self.bar.update(self.task, completed=len(self.ended), note=str(status))
        if line and not console.is_terminal:
            console.print(f"trial {len(self.ended)}/{self.total}: {status}")
