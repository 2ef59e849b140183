"""Runs a sweep with Ray Tune, or continues one that was interrupted."""

from __future__ import annotations

import os
import re
import shutil
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from ray import tune
from ray.tune.search import SearchAlgorithm, Searcher
from ray.tune.search.basic_variant import BasicVariantGenerator

from orchestrator.cli.run_shown import INTERRUPTED
from orchestrator.cluster.outliving import outlived
from orchestrator.config import Config
from orchestrator.credentials import has_credentials
from orchestrator.errors import Interrupted, UserError
from orchestrator.files import said
from orchestrator.plugins.sources import publish
from orchestrator.results.places import is_remote, join
from orchestrator.results.run_folder import RunFolder
from orchestrator.results.trials import ended_trials
from orchestrator.rounds.drive import PATIENCE
from orchestrator.terminal import sweep_again, told
from sweeps import tune_state
from sweeps.data import FILE as DATA
from sweeps.data import Shelf
from sweeps.draws import space
from sweeps.home import TUNE, TUNING, Home
from sweeps.plan import Sweep
from sweeps.results import no_sweep, require_plan
from sweeps.reuse import NOTHING, Finished, tell
from sweeps.schedulers import Memory
from sweeps.status import Status
from sweeps.trainable import SweepFacts, Trial, bundles, check_room
from sweeps.watch import Watcher


class Variants(BasicVariantGenerator):
    """Tune's generator of grids and samples, which limits the trials at the same time itself.

    Tune pickles it with its limit; ours is this process's, so that a resumed sweep may have
    another.
    """

    at_once: ClassVar[int] = 0
    """0: as many as there is room for."""

    @property
    def max_concurrent(self) -> int:
        """What Tune asks for."""
        return self.at_once

    @max_concurrent.setter
    def max_concurrent(self, limit: int) -> None:
        """Tune's own limit, which is not looked at."""


KEPT, KEPT_FOR_PBT = 3, 10
"""Checkpoints kept of a trial; under pbt others go on from one of them, which may be some time in
coming."""


ENVIRONMENT = {
    # a killed driver finds its trials where they were
    "TUNE_GLOBAL_CHECKPOINT_S": "1",
    # rounds that are not evaluated report no metric
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    # a bar of our own shows what goes on
    "RAY_AIR_NEW_OUTPUT": "0",
}
"""What we need of Tune otherwise than it is by default."""
SHUFFLED = ("asha", "median")
"""Schedulers that compare a trial with earlier ones: a grid in its own order may show them ever
better trials."""
Loggers = list[tune.Callback]


@dataclass(frozen=True)
class Prepared:
    """A sweep that can be run: what was found while that was made sure of."""

    sweep: Sweep
    configs: Sequence[Config]
    """At least one, and all of the same resources."""
    shelf: Shelf
    searcher: Searcher | SearchAlgorithm
    loggers: Loggers


def run_sweep(sweep: Sweep, home: Home, resume: bool, finished: Finished = NOTHING) -> None:
    """Run all trials (Ray must be connected), but for those that have ``finished`` elsewhere; their
    results are in ``home``'s ``trials``.

    Raises UserError if a trial's config is wrong, asks for more than the cluster has, or the folder
    is another sweep's or another process's; or if somebody looks at trials round by round, and some
    are not to be run.
    """
    if finished.folders and sweep.scheduler.name != "fifo":
        raise UserError(
            f"--reuse: {sweep.scheduler.name} compares trials by their rounds, and trials of other "
            "sweeps have none to come; take the scheduler fifo"
        )
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    prepared = _prepared(sweep, home)
    publish()
    _own(home, prepared, resume)
    try:
        _fit(prepared, home, resume, finished)
        home.send()  # what a logger has left here
        home.collect()
        _count(home)
        _require_all(home)
        if finished.folders:
            tell(home.path)
    finally:
        home.folder.release()


def _prepared(sweep: Sweep, home: Home) -> Prepared:
    """Everything that may be wrong with a sweep is told before anything is written."""
    configs = list(sweep.configs())
    resources = configs[0].resources
    if any(bundles(config.resources) != bundles(resources) for config in configs):
        raise UserError(
            "all trials of a sweep ask the cluster for the same; resources.actors, cpus_per_actor, "
            "gpus_per_actor and strategy must not differ among them"
        )
    check_room(resources)
    return Prepared(sweep, configs, Shelf.of(configs), _searcher(sweep), _loggers(sweep, home))


def _count(home: Home) -> None:
    """Say in the status whose results are there, those of trials that a scheduler has stopped among
    them; raises UserError where some are lost.
    """
    found, status = tuple(path.name for path in ended_trials(home.path)), Status.read(home.path)
    replace(status, trials=found).write(home.folder)
    if len(found) < status.ended:
        told(
            "note",
            f"{status.ended - len(found)} trial(s) that were stopped have left no results, as the "
            "sweep was ended at that moment; no table has them",
        )
    home.send()


def _require_all(home: Home) -> None:
    """Raises UserError if trials have not ended: Tune returns from Ctrl-C as if they had."""
    status = Status.read(home.path)
    left = status.total - status.ended
    if left > 0 and Watcher.ends:
        raise UserError(
            f"{Watcher.ends}; {left} of {status.total} trials are to go: {sweep_again(home.place)}"
        )
    if left > 0:
        raise Interrupted(
            f"{home.place}: interrupted with {left} of {status.total} trials to go; to go on: "
            f"{sweep_again(home.place)}"
        )


def _fit(prepared: Prepared, home: Home, resume: bool, finished: Finished) -> None:
    sweep = prepared.sweep
    storage = join(home.place, TUNE)
    known = join(storage, "trials")
    goes_on = resume and tune_state.goes_on(known)
    if resume and not goes_on:
        finished = _kept(sweep, home, finished)
    if goes_on and not is_remote(home.place):
        _forget_unknown(home, tune_state.known_trials(known))
    Variants.at_once, Watcher.here, Watcher.ends = sweep.at_once or 0, home, ""
    report_every = sweep.rounds_a_report
    facts = SweepFacts(home.place, sweep.raw(), sweep.column, report_every, finished)
    trainable = tune.with_resources(
        tune.with_parameters(Trial, facts=facts, shelf=prepared.shelf),
        bundles(prepared.configs[0].resources),
    )
    if goes_on:
        tuner = tune.Tuner.restore(
            known, trainable=trainable, resume_unfinished=True, resume_errored=True
        )
    else:
        total = sweep.trials
        watcher = Watcher(
            home, total, f"{sweep.metric} ({sweep.how})", sweep.direction,
            sweep.chooses, sweep.scheduler.name == "pbt",
        )  # fmt: skip
        tuner = _tuner(prepared, trainable, storage, watcher)
    with (
        outlived(sweep_again(home.place), INTERRUPTED) as stopping,
        _terminated_as_interrupted(stopping),
        _standing_in(home.path),
    ):
        tuner.fit()


@contextmanager
def _signals_given_back() -> Iterator[None]:
    """Tune leaves its own handlers behind, to which the next Ctrl-C would be lost. In the main
    thread alone.
    """
    signs = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    before = {sign: signal.getsignal(sign) for sign in signs}
    try:
        yield
    finally:
        for sign, handler in before.items():
            if handler is not None:  # not of Python's making: it cannot be put back
                signal.signal(sign, handler)


@contextmanager
def _terminated_as_interrupted(stopping: threading.Event) -> Iterator[None]:
    """SIGTERM, which clusters send, is what Ctrl-C is to Tune: it saves what there is. Ray's own
    handler would print the stacks of its threads. It is told by ``stopping``.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        stopping.set()
        signal.raise_signal(signal.SIGINT)

    with _signals_given_back():
        signal.signal(signal.SIGTERM, interrupt)
        yield


@contextmanager
def _standing_in(folder: Path) -> Iterator[None]:
    """Tune asks where the process stands, at the end, too; a job's folder may be gone by then:
    another node on the same machine has unpacked its package anew.
    """
    before = None
    with suppress(FileNotFoundError):
        before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        if before is not None and before.is_dir():
            os.chdir(before)


def _forget_unknown(home: Home, known: set[str]) -> None:
    """Remove what trials of drawn values have left that Tune, which was killed after they began,
    does not remember: it makes others in their place, whose names and values may be others.
    """
    for path in (home.path / "trials").glob("*"):
        drawn = re.fullmatch(r".*-[0-9a-f]{12}-(\w+)", path.name)
        if drawn and drawn[1] not in known:
            with said(f"cannot remove {path}"):
                shutil.rmtree(path)


def _kept(sweep: Sweep, home: Home, finished: Finished) -> Finished:
    """What need not be run again in a sweep whose files of Tune's are gone, or were cut short as it
    was killed: trials of a grid that have finished, beside what has ``finished`` elsewhere.

    Raises UserError where the values of trials to come would be drawn anew, beside those there.
    """
    ended = len(ended_trials(home.path))
    if not ended:
        return finished
    lost = f"{home.place}: what Ray Tune keeps in {TUNE}/ is gone, or was cut short"
    if sweep.drawn():
        way = f", with --reuse {home.place}" if sweep.scheduler.name == "fifo" else ""
        raise UserError(
            f"{lost}, and with it what it has drawn; run the sweep anew in another folder{way}"
        )
    if sweep.scheduler.name != "fifo" or is_remote(home.place):
        told("note", f"{lost}; all trials are run again")
        return finished
    told("note", f"{lost}; trials that have finished are kept, others begin anew")
    return finished | Finished.at(home.path)


def _tuner(
    prepared: Prepared, trainable: type[tune.Trainable], storage: str, watcher: Watcher
) -> tune.Tuner:
    sweep = prepared.sweep
    rounds = max(config.rounds for config in prepared.configs)
    scheduler = sweep.scheduler.start(rounds, sweep.drawn())
    memory = [Memory(scheduler, sweep.metric)] if scheduler is not None else []
    return tune.Tuner(
        trainable,
        param_space=space(sweep, shuffled=sweep.scheduler.name in SHUFFLED),
        tune_config=tune.TuneConfig(
            metric=sweep.metric,
            mode=sweep.direction,
            num_samples=sweep.samples if sweep.searcher == "optuna" else 1,
            scheduler=scheduler,
            search_alg=prepared.searcher,
            max_concurrent_trials=sweep.at_once if sweep.searcher == "optuna" else None,
            reuse_actors=True,
            trial_dirname_creator=lambda trial: trial.trial_id,
        ),
        run_config=tune.RunConfig(
            name="trials",
            storage_path=storage,
            callbacks=[watcher, *memory, *prepared.loggers],
            verbose=0,
            failure_config=tune.FailureConfig(max_failures=sweep.retries),
            checkpoint_config=tune.CheckpointConfig(
                checkpoint_frequency=sweep.checkpoint_every,
                num_to_keep=KEPT_FOR_PBT if sweep.scheduler.name == "pbt" else KEPT,
                checkpoint_at_end=False,
            ),
        ),
    )


def _searcher(sweep: Sweep) -> Searcher | SearchAlgorithm:
    """Tune's searcher for the drawn axes, keyed by the first seed."""
    if sweep.searcher == "optuna":
        try:
            from ray.tune.search.optuna import OptunaSearch

            return OptunaSearch(seed=sweep.seeds[0])
        except (ImportError, AssertionError) as error:
            raise UserError(
                "searcher optuna needs the package optuna: pip install 'fedorch[optuna]'"
            ) from error
    return Variants(random_state=sweep.seeds[0])


def _loggers(sweep: Sweep, home: Home) -> Loggers:
    """Tune's loggers that the sweep names; raises UserError for one whose package is missing."""
    makers = {"tensorboard": _tensorboard, "mlflow": _mlflow, "wandb": _wandb}
    try:
        return [make(sweep, home) for name, make in makers.items() if name in sweep.loggers]
    except (ImportError, RuntimeError) as error:
        raise UserError(f"loggers: {error}") from error


def _tensorboard(sweep: Sweep, home: Home) -> tune.Callback:
    from ray.tune.logger import TBXLoggerCallback

    return TBXLoggerCallback()


def _mlflow(sweep: Sweep, home: Home) -> tune.Callback:
    from ray.air.integrations.mlflow import MLflowLoggerCallback

    class Discreet(MLflowLoggerCallback):
        """Tune keeps its loggers in the sweep's folder: there, an address with a password is left
        out, and the one who resumes finds it in the environment again.
        """

        def __getstate__(self) -> dict[str, Any]:
            secret = has_credentials(self.tracking_uri or "")
            return {**vars(self), "tracking_uri": None if secret else self.tracking_uri}

    server = os.environ.get("MLFLOW_TRACKING_URI", f"sqlite:///{home.path / 'mlflow.db'}")
    return Discreet(experiment_name=sweep.name, tracking_uri=server)


def _wandb(sweep: Sweep, home: Home) -> tune.Callback:
    from ray.air.integrations.wandb import WandbLoggerCallback

    return WandbLoggerCallback(project=sweep.name)


def _own(home: Home, prepared: Prepared, resume: bool) -> None:
    """Make the sweep's folder, or check that it is this sweep's; then keep other processes out of
    it.
    """
    # how fast it goes may change on --resume
    mine = prepared.sweep.model_copy(update={"at_once": None})
    if resume:
        _own_again(home, mine, prepared.shelf)
        return
    home.folder.require_empty(besides=TUNING)
    home.folder.make()
    home.folder.claim()
    home.folder.refresh(resuming=False)
    if home.stage().holds(DATA):
        prepared.shelf.require_unchanged(home.stage().folder)
    prepared.shelf.leave(home.folder)
    home.folder.write_sealed("sweep.json", mine.model_dump(mode="json", exclude={"at_once"}))
    home.send()


def _own_again(home: Home, mine: Sweep, shelf: Shelf) -> None:
    """Raises UserError if the folder is not ``mine``'s, has lost what trials have left, or would
    have them write elsewhere; or if the data are others.
    """
    if not home.holds("sweep.json"):
        raise no_sweep(home.place)
    home.folder.make()
    # before the copy here is replaced, in which another process may work
    home.folder.claim(PATIENCE)
    try:
        for inside in ("trials", TUNE, f"{TUNE}/trials"):
            RunFolder(home.path / inside).require_no_links()
        home.collect()
        require_plan(home.path, mine, home.place)
        shelf.require_known(home.folder)
        ended_trials(home.path)
    except UserError:
        home.folder.release()
        raise
