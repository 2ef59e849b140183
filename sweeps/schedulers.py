"""Tune's schedulers, which know again after ``--resume`` what trials had reported before: Tune
saves trials, searchers and callbacks, and makes its scheduler anew.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ray import tune
from ray.tune import schedulers
from ray.tune.experiment import Trial

ROUND = "round"
"""In a report: what all of them count by."""
Heard = tuple[int, float]
"""A report: the round, and the number that trials are compared by."""


class Halving(schedulers.ASHAScheduler):
    """ASHA: one trial in so many goes on at each rung (Li et al., 2020, algorithm 2)."""

    def remember(self, trial: Trial, heard: Sequence[Heard]) -> None:
        """Take in a trial's reports of before, in their order, without those that are to come
        again.
        """
        sign = self._metric_op
        assert sign is not None
        for at, number in heard:
            # the verdict was carried out then
            self._trial_info[trial.trial_id].on_result(trial, at, sign * number)


class Median(schedulers.MedianStoppingRule):
    """A trial stops whose best is worse than the median of others' means (Golovin et al., 2017)."""

    def remember(self, trial: Trial, heard: Sequence[Heard]) -> None:
        """As ``Halving`` does."""
        if heard:
            self._results[trial] = [{ROUND: at, self._metric: number} for at, number in heard]


class Population(schedulers.PopulationBasedTraining):
    """PBT: the worst take over the state of the best, and change its settings (Jaderberg et al.,
    2017).
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._turns: dict[str, int] = {}
        """Trial -> when it has reported last, counted in reports of all."""

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        self._turns[trial.trial_id] = 1 + max(self._turns.values(), default=0)
        return super().on_trial_result(tune_controller, trial, result)

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """Of those that have trained least the one that has waited longest. Tune takes the first of
        its list: where a trial has just taken over another's state, both stand at one round, and
        with few places it could do so again and again before that other one goes on.
        """
        waiting = [
            trial
            for trial in tune_controller.get_trials()
            if trial.status in (Trial.PENDING, Trial.PAUSED)
        ]
        return min(
            waiting,
            key=lambda trial: (
                self._trial_state[trial].last_train_time,
                self._turns.get(trial.trial_id, 0),
            ),
            default=None,
        )

    def remember(self, trial: Trial, heard: Sequence[Heard]) -> None:
        """As ``Halving`` does; and where a trial goes on is what others can take over."""
        kept = goes_on_at(trial)
        if not heard or kept is None:
            return
        at, number = heard[-1]
        state = self._trial_state[trial]
        self._save_trial_state(state, at, {ROUND: at, self._metric: number}, trial)
        state.last_perturbation_time = int(at - at % self._perturbation_interval)
        state.last_checkpoint, state.last_result = kept.checkpoint, kept.metrics


Remembering = Halving | Median | Population


class Memory(tune.Callback):
    """Keeps what a scheduler hears in Tune's files, and tells it after a resume."""

    def __init__(self, scheduler: Remembering, metric: str) -> None:
        self.scheduler, self.metric = scheduler, metric
        self.heard: dict[str, list[Heard]] = {}
        """Trial -> its reports."""
        self.untold = False
        """Whether the scheduler is a new one, that has heard nothing yet."""

    def get_state(self) -> dict[str, Any]:
        return {"heard": {trial: list(heard) for trial, heard in self.heard.items()}}

    def set_state(self, state: dict[str, Any]) -> None:
        self.heard, self.untold = dict(state["heard"]), True

    def on_trial_result(
        self,
        iteration: int,
        trials: list[Trial],
        trial: Trial,
        result: dict[str, Any],
        **info: Any,
    ) -> None:
        if self.metric in result:
            at, heard = int(result[ROUND]), self.heard.setdefault(trial.trial_id, [])
            # a trial that begins again at a checkpoint, its own or another's, tells later ones anew
            while heard and heard[-1][0] >= at:
                heard.pop()
            heard.append((at, float(result[self.metric])))

    def on_step_begin(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Before anything is reported to a scheduler that is new."""
        if not self.untold:
            return
        self.untold = False
        for trial in trials:
            kept = goes_on_at(trial)
            begins = math.inf if trial.is_finished() else kept.metrics[ROUND] if kept else 0
            heard = [report for report in self.heard.get(trial.trial_id, []) if report[0] <= begins]
            self.scheduler.remember(trial, heard)


def goes_on_at(trial: Trial) -> Any:
    """A trial's last checkpoint, with the report that it belongs to; None if there is none."""
    manager = trial.run_metadata.checkpoint_manager
    return None if manager is None else manager.latest_checkpoint_result
