"""Sweeps whose trials run in this process, one after another: the runner, the trainable and the
watcher are the real ones, only Ray Tune between them is not.
"""

import copy
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest
from ray import tune
from ray.tune.result import TRIAL_INFO
from ray.tune.trainable import trainable

from sweeps import runner
from sweeps.home import Home
from sweeps.plan import Sweep
from sweeps.reuse import NOTHING, Finished
from sweeps.watch import Watcher


def run_sweep(plan: Sweep, folder: Path, resume: bool = False) -> None:
    """A sweep as Ray Tune runs it (Ray must be connected)."""
    runner.run_sweep(plan, Home(folder), resume)


def run_here(plan: Sweep, folder: Path, finished: Finished = NOTHING, resume: bool = False) -> None:
    """A sweep whose trials run in this process: a grid in its order, of drawn axes any values."""
    with trials_here():
        runner.run_sweep(plan, Home(folder), resume, finished)


@contextmanager
def trials_here() -> Iterator[None]:
    """Have all sweeps' trials run in this process."""
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as spare:
        patch.setattr(tune, "Tuner", Here)
        patch.setattr(trainable, "DEFAULT_STORAGE_PATH", spare)  # for what it logs, which is none
        yield


@contextmanager
def _heard() -> Iterator[None]:
    """Ctrl-C is heard, as Tune does it, also where pytest-xdist ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


EITHER = [run_here, pytest.param(run_sweep, marks=pytest.mark.long)]
"""Ways to run a sweep, for tests to which Ray Tune matters little."""


class Here:
    """Takes what the runner hands to ``tune.Tuner``, and does as Tune does with one trial at a
    time, without schedulers, searchers, loggers, checkpoints and retries.
    """

    def __init__(self, kind: Any, *, param_space: Any, tune_config: Any, run_config: Any):
        self.kind = kind
        self.callbacks = [c for c in run_config.callbacks if isinstance(c, Watcher)]
        self.space, self.samples = dict(param_space), tune_config.num_samples

    most = 10**9
    """Reports after which a trial is stopped."""
    can_restore = staticmethod(lambda path: False)

    def fit(self) -> None:
        """Run every trial to its end, or until a signal asks for an end of all."""
        trials: list[Any] = []
        self._tell("setup")
        with _heard(), suppress(KeyboardInterrupt):
            for number, config in enumerate(self.configs()):
                trial = SimpleNamespace(trial_id=f"here{number}", config=config, last_result=None)
                trials.append(trial)
                self._run(trial, trials)
        self._tell("on_experiment_end", trials)

    def configs(self) -> Iterator[dict[str, Any]]:
        grid = self.space.pop("planned")["grid_search"]
        assert self.samples == 1  # which optuna alone has more of
        for one in grid:
            trial = {"planned": one}
            yield trial | {path: axis.sample(trial) for path, axis in self.space.items()}

    def _run(self, trial: Any, trials: list[Any]) -> None:
        about = {TRIAL_INFO: SimpleNamespace(trial_id=trial.trial_id)}
        worker = self.kind(copy.deepcopy(trial.config) | about)
        self._tell("on_trial_start", len(trials), trials, trial)
        for _ in range(self.most):
            trial.last_result = worker.train()
            self._tell("on_trial_result", len(trials), trials, trial, trial.last_result)
            if trial.last_result.get("done"):
                break
        worker.stop()
        self._tell("on_trial_complete", len(trials), trials, trial)

    def _tell(self, what: str, *about: Any) -> None:
        for callback in self.callbacks:
            getattr(callback, what)(*about)
