"""The experiment of ``fedorch run`` as a Tune trainable, with exact checkpoints and results on disk
as it ends.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from ray import tune
from ray.util.placement_group import get_current_placement_group

from algorithms.part import nearest
from orchestrator.analysis.goals import missed
from orchestrator.clients.plane import InProcess, Plane
from orchestrator.clients.pool import RayPool
from orchestrator.cluster.connection import room
from orchestrator.cluster.reservation import Reservation, bundle, capacity
from orchestrator.config import Config
from orchestrator.config.goal import counts_of_the_diverged
from orchestrator.config.schema import ResourcesConfig
from orchestrator.errors import Diverged, OtherCode, UserError
from orchestrator.monitoring.exporter import Exporter
from orchestrator.results import checkpoint
from orchestrator.results.run_folder import RunFolder
from orchestrator.rounds.drive import write_results
from orchestrator.rounds.experiment import Experiment
from orchestrator.rounds.metrics import is_cost
from orchestrator.terminal import console
from orchestrator.training.world import World
from sweeps.choice import Choice
from sweeps.data import Shelf
from sweeps.entry import Column
from sweeps.results import SILENT
from sweeps.reuse import NOTHING, Finished, take_over
from sweeps.spaces import Yaml
from sweeps.statistics import value

REPORT_SECONDS = 2.0
"""Between reports where only the clock asks for them."""


COMPARED = "compared"
"""In a report: the number that the trial has in the sweep's table, as of now."""


PART = "part_done"
"""In a report: the part of the trial's rounds that it has done."""
POSTPONED = "postponed"
"""In a report: why no trial can run as things are."""
WRITTEN = "written"
"""In a report: whether the trial has ended by itself, and left its results. Tune's own ``done`` is
also that of one that a scheduler stops."""


@dataclass(frozen=True)
class SweepFacts:
    """What all trials of a sweep share."""

    folder: str
    """Folder of the sweep, a path or a URI; each trial's results go to ``trials/KEY``."""
    base: dict[str, Yaml]
    """Raw config before a trial's own settings."""
    column: Column
    """What is compared, and of which rounds."""
    report_every: int
    """Rounds between reports; 0: ``REPORT_SECONDS``."""
    finished: Finished = NOTHING
    """Trials of other sweeps, which need not be run again."""


class Trial(tune.Trainable):
    """Steps an experiment; one process may run many trials after one another."""

    def setup(
        self, config: dict[str, Yaml], facts: SweepFacts | None = None, shelf: Shelf | None = None
    ) -> None:
        assert facts is not None
        self.facts, self.shelf = facts, shelf or Shelf({})
        self._open(config)

    def _open(self, config: dict[str, Yaml]) -> None:
        self.choice = Choice.of(config)
        self.folder = self.choice.folder(self.facts.folder, self.trial_id)
        self.written, self.problem, self.diverged, self.unreported = False, "", False, False
        self.postponed = ""
        """Why it cannot run as things are, and can when the sweep goes on."""
        self.latest: dict[str, object] = {}
        self.compared = math.nan
        self.experiment: Experiment | None = None
        self.exporter: Exporter | None = None
        self.twin: RunFolder | None = None
        try:
            self.experiment = self._experiment(self.choice.config(self.facts.base))
            self.exporter = self._exporter(self.experiment)
            self.twin = self.facts.finished.twin(self.experiment)
        except OtherCode as error:
            self.postponed = str(error)
        except UserError as error:
            self.problem = str(error)  # told by the first step: Tune would try a setup again

    def _experiment(self, config: Config) -> Experiment:
        self.shelf.require_code(config)
        return Experiment(config, lambda world: self._plane(world, config), self.shelf.data(config))

    def _exporter(self, experiment: Experiment) -> Exporter:
        """The trial's folder, made anew, and who tells Ray's metrics of its rounds."""
        self.folder.refresh(resuming=False)
        self.folder.open(experiment.config)
        self.choice.write(self.folder)
        plane = experiment.federation.plane
        key = self.choice.key(self.trial_id)
        return Exporter(experiment.config, self.folder.place, plane, trial=key)

    def _plane(self, world: World, config: Config) -> Plane:
        actors = config.resources.actors
        if not actors:
            return InProcess(world, config.resources.gpus_per_actor)
        group = get_current_placement_group()
        assert group is not None
        # the first bundle is this trial's own
        reserved = Reservation(group, actors, first=1, owned=False)
        return RayPool(world, config.name, config.resources, reserved)

    def step(self) -> dict[str, object]:
        """Some rounds; the record of the last, with the latest value of every metric."""
        if self.postponed:
            return self._wait()
        if self.experiment is None:
            return self._failed()
        try:
            if self.twin is not None:
                return self._take_over(self.twin)
            self._advance(self.experiment)
            self.diverged = self.experiment.diverged
        except UserError as error:
            self.problem = str(error)
            self.diverged = isinstance(error, Diverged) or self.experiment.diverged
            return self._failed()
        except Exception:
            # the sweep's driver says what became of it, once it is not tried again
            self.written = True
            raise
        done = self.experiment.finished
        metric = self.facts.column.metric
        if metric not in self.latest and done:
            close = nearest(metric, sorted(self.latest)).partition("valid:")[0]
            hint = f"{close}all: fedorch describe columns"
            self.problem = f"{SILENT} {metric!r}; {hint}"
            self.unreported = True
            return self._failed()
        if done:
            self._write("finished")
        return self._report(self.experiment.t, done=done)

    def _take_over(self, twin: RunFolder) -> dict[str, object]:
        result = take_over(twin, self.folder)
        self.written = True
        self.latest, self.diverged = dict(result["metrics"]), result.get("diverged", False)
        self._compare(twin.config(), twin.rounds(), ended=True)
        return self._report(result["rounds"], done=True)

    def _advance(self, experiment: Experiment) -> None:
        """Rounds up to the next report, which tells the metric: schedulers and searchers go by
        it.
        """
        begun, done = time.monotonic(), 0
        while not experiment.finished:
            record = experiment.step()
            self.latest |= record
            if self.exporter is not None:
                self.exporter.tell(record)
            for note in experiment.federation.plane.events() + experiment.alarm.news():
                console.print(f"note: {note}")  # to the log of the trial's process
            done += 1
            if self.facts.column.metric in self.latest and self._is_due(done, begun):
                break
        if self.facts.column.metric in self.latest:
            rounds = pd.DataFrame(experiment.records)
            self._compare(experiment.config, rounds, experiment.finished)

    def _is_due(self, done: int, begun: float) -> bool:
        """Whether a report is, so many rounds after the last one, which was at ``begun``."""
        if self.facts.report_every:
            return done >= self.facts.report_every
        return time.monotonic() - begun >= REPORT_SECONDS

    def _wait(self) -> dict[str, object]:
        """The driver ends the sweep when it hears of it."""
        time.sleep(REPORT_SECONDS)
        at = {"round": 0, self.facts.column.metric: math.nan}
        return self._report(0, done=False) | at | {POSTPONED: self.postponed}

    def _failed(self) -> dict[str, object]:
        """A trial that cannot go on by its own fault is reported, and not tried again."""
        self._write("failed")
        at = self.experiment.t if self.experiment else 0
        return {**self._report(at, done=True), "problem": self.problem}

    def _report(self, t: int, done: bool) -> dict[str, object]:
        """What Tune and the watcher hear after round ``t``."""
        ends = {"done": done, WRITTEN: done}
        told = {**self.latest, "round": t, "diverged": self.diverged, **ends}
        metric = self.facts.column.metric
        if self.diverged and not counts_of_the_diverged(metric):
            told[metric] = math.nan  # schedulers and searchers go by it
        of = self.experiment.config.rounds if self.experiment else max(1, t)
        return told | {COMPARED: self.compared, PART: t / of}

    def _compare(self, config: Config, rounds: pd.DataFrame, ended: bool) -> None:
        """Note the trial's number after these rounds; NaN where it counts what it takes to reach a
        goal, which the trial has not when it ``ended``.
        """
        lost = ended and is_cost(self.facts.column.metric) and missed(config, rounds)
        self.compared = math.nan if lost else value(rounds, self.facts.column)

    def _write(self, status: str) -> None:
        self.written = True
        if self.experiment is None or status == "failed":
            problem, diverged = self.problem, self.diverged
            self.choice.leave_failed(self.folder, problem, diverged, self.unreported)
        else:
            write_results(self.experiment, self.folder, report=False)
            self.folder.publish()

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """The whole state of the run: a restored trial continues with the same bits."""
        if self.experiment is not None:
            checkpoint.save(Path(checkpoint_dir), self.experiment.t, self.experiment.state(), 1)

    def load_checkpoint(self, checkpoint_dir: Any) -> None:
        if self.experiment is not None:
            t, state, _ = checkpoint.load_latest(Path(checkpoint_dir))
            try:
                go_on(self.experiment, t, state, self.folder.place)
            except UserError as error:
                self._give_up(str(error))
                return
            if state["science"] != self.experiment.science():
                self.experiment.alarm.note(
                    f"rounds up to {t} are of a trial with other settings, whose state was put in "
                    "the place of this one's: a run with these alone is another"
                )
            for record in self.experiment.records:
                self.latest |= record

    def _give_up(self, problem: str) -> None:
        """Have the next step tell the problem."""
        if self.experiment is not None:
            self.experiment.close()
        self.experiment, self.problem = None, problem

    def reset_config(self, new_config: dict[str, Yaml]) -> bool:
        """Take on another trial in this process."""
        self._close()
        self._open(new_config)
        return True

    def cleanup(self) -> None:
        self._close()

    def _close(self) -> None:
        """Results of a trial that a scheduler ended early are written, too."""
        if self.exporter is not None:
            self.exporter.close()
        if self.experiment is not None:
            if not self.written and self.experiment.records:
                self._write("stopped")
            self.experiment.close()
        self.folder.discard()


def go_on(experiment: Experiment, t: int, state: Mapping[str, Any], place: str) -> None:
    """Put a checkpoint's state into a trial at ``place``; raises UserError for one that is not its
    to go on with: under pbt it may be another trial's.
    """
    if state["science"] == experiment.science():
        experiment.require_origin(state["origin"], place)
        experiment.restore(t, state)
        return
    if state["origin"]["data_sha256"] != experiment.origin["data_sha256"]:
        raise UserError("the state that it was to take over is of other data")
    try:
        experiment.restore(t, state)
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise UserError(
            "the state that it was to take over is none of its settings; draw nothing that "
            f"decides what a state holds ({str(error)[:100]})"
        ) from error


def bundles(r: ResourcesConfig) -> tune.PlacementGroupFactory:
    """A trial's resources as one placement group: the server, then the client actors.

    Unless ``actors`` says how many, there are none: a trial's clients run in its own process, with
    one actor's share.
    """
    each = bundle(r)
    server: dict[str, float] = {"CPU": 0.1}
    return tune.PlacementGroupFactory(
        [server, *[each] * r.actors] if r.actors else [each], strategy=r.strategy
    )


def check_room(r: ResourcesConfig) -> None:
    """Raise UserError if a trial asks for more than the cluster has, or could grow to."""
    wanted: dict[str, float] = {}
    for one in bundles(r).bundles:
        for kind, amount in one.items():
            wanted[kind] = wanted.get(kind, 0.0) + amount
    total = room()
    for kind, amount in wanted.items():
        if amount > total.get(kind, 0.0) + 1e-9:
            raise UserError(
                f"a trial needs {amount:g} {kind}, and the whole cluster has "
                f"{total.get(kind, 0.0):g}; "
                "lower resources.cpus_per_actor, resources.gpus_per_actor or resources.actors"
            )
    actors, share, gpus = r.actors or 1, r.gpus_per_actor, total.get("GPU", 0.0)
    if share and actors > capacity("GPU", gpus, share):
        raise UserError(
            f"a trial needs {actors} x {share:g} GPU, of which {gpus:g} GPUs hold "
            f"{capacity('GPU', gpus, share)}"
        )
