"""Runs a sweep with Ray Tune, or continues one that was interrupted."""

from __future__ import annotations

import json
import os
import random
from typing import Any, ClassVar

from ray.tune.search.basic_variant import BasicVariantGenerator

from orchestrator.config import Config
from orchestrator.errors import UserError
from orchestrator.results.storage import join
from orchestrator.rounds.drive import PATIENCE
from sweeps.data import Shelf
from sweeps.home import TUNE, TUNING, Home
from sweeps.plan import Sweep
from sweeps.results import no_sweep, plan_of
from sweeps.trainable import Job, Trial, bundles, check_room
from sweeps.watch import FILE, Watcher


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


def run_sweep(sweep: Sweep, home: Home, resume: bool) -> None:
    """Run all trials (Ray must be connected); their results are in ``home``'s ``trials``.

    Raises UserError if a trial's config is wrong, asks for more than the cluster has, or the folder
    is another sweep's or another process's.
    """
    os.environ.setdefault(
        "TUNE_GLOBAL_CHECKPOINT_S", "1"
    )  # a killed driver finds its trials where they were
    os.environ.setdefault(
        "TUNE_DISABLE_STRICT_METRIC_CHECKING", "1"
    )  # rounds that are not evaluated report no metric
    os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
    configs = list(sweep.configs())
    resources = configs[0].resources
    if any(bundles(config.resources) != bundles(resources) for config in configs):
        raise UserError(
            "all trials of a sweep ask the cluster for the same; resources.actors, cpus_per_actor, "
            "gpus_per_actor and "
            "strategy must not differ among them"
        )
    check_room(resources)
    shelf = Shelf.of(configs)
    searcher, loggers = (
        _searcher(sweep),
        _loggers(sweep, home),
    )  # a missing package is told before anything is written
    _own(home, sweep, resume)
    try:
        _fit(sweep, configs, shelf, home, resume, searcher, loggers)
        home.send()  # what a logger has left here
        home.collect()
        _require_all(home)
    finally:
        home.folder.release()


def _require_all(home: Home) -> None:
    """Raises UserError if trials have not ended: Tune returns from Ctrl-C as if they had."""
    status = json.loads((home.path / FILE).read_text())
    left = status["total"] - status["finished"] - status["stopped"] - status["failed"]
    if left > 0:
        raise UserError(
            f"{home.place}: interrupted with {left} of {status['total']} trials to go; add "
            "--resume to go on"
        )


def _fit(
    sweep: Sweep,
    configs: list[Config],
    shelf: Shelf,
    home: Home,
    resume: bool,
    searcher: Any,
    loggers: list[Any],
) -> None:
    from ray import tune

    Variants.at_once, Watcher.here = sweep.at_once or 0, home
    job = Job(home.place, sweep.raw(), sweep.metric, sweep.rounds_a_report)
    trainable: Any = tune.with_resources(
        tune.with_parameters(Trial, job=job, shelf=shelf), bundles(configs[0].resources)
    )
    storage = join(home.place, TUNE)
    if resume and tune.Tuner.can_restore(join(storage, "trials")):
        tuner = tune.Tuner.restore(
            join(storage, "trials"),
            trainable=trainable,
            resume_unfinished=True,
            resume_errored=True,
        )
    else:
        total = len(sweep.planned()) * sweep.samples
        rounds = max(config.rounds for config in configs)
        watcher = Watcher(home, total, sweep.metric, sweep.mode)
        tuner = _tuner(sweep, trainable, storage, rounds, searcher, [watcher, *loggers])
    tuner.fit()


def _tuner(
    sweep: Sweep, trainable: Any, storage: str, rounds: int, searcher: Any, callbacks: list[Any]
) -> Any:
    from ray import tune

    drawn, planned = sweep.drawn(), sweep.planned()
    if sweep.scheduler.name in (
        "asha",
        "median",
    ):  # a grid in its own order may show them ever better trials
        random.Random(sweep.seeds[0]).shuffle(planned)
    return tune.Tuner(
        trainable,
        param_space={
            "planned": planned[0] if sweep.searcher == "optuna" else tune.grid_search(planned),
            **drawn,
        },
        tune_config=tune.TuneConfig(
            metric=sweep.metric,
            mode=sweep.mode,
            num_samples=sweep.samples,
            scheduler=sweep.scheduler.start(rounds, drawn),
            search_alg=searcher,
            max_concurrent_trials=sweep.at_once if sweep.searcher == "optuna" else None,
            reuse_actors=True,
            trial_dirname_creator=lambda trial: trial.trial_id,
        ),
        run_config=tune.RunConfig(
            name="trials",
            storage_path=storage,
            callbacks=callbacks,
            verbose=0,
            failure_config=tune.FailureConfig(max_failures=sweep.retries),
            checkpoint_config=tune.CheckpointConfig(
                checkpoint_frequency=sweep.checkpoint_every,
                num_to_keep=KEPT_FOR_PBT if sweep.scheduler.name == "pbt" else KEPT,
                checkpoint_at_end=False,
            ),
        ),
    )


def _searcher(sweep: Sweep) -> Any:
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


def _loggers(sweep: Sweep, home: Home) -> list[Any]:
    """Tune's loggers that the sweep names; raises UserError for one whose package is missing."""
    from ray.tune.logger import TBXLoggerCallback

    made: list[Any] = []
    if "tensorboard" in sweep.loggers:
        made.append(TBXLoggerCallback())
    try:
        if "mlflow" in sweep.loggers:
            from ray.air.integrations.mlflow import MLflowLoggerCallback

            server = os.environ.get("MLFLOW_TRACKING_URI", f"sqlite:///{home.path / 'mlflow.db'}")
            made.append(MLflowLoggerCallback(experiment_name=sweep.name, tracking_uri=server))
        if "wandb" in sweep.loggers:
            from ray.air.integrations.wandb import WandbLoggerCallback

            made.append(WandbLoggerCallback(project=sweep.name))
    except (ImportError, RuntimeError) as error:
        raise UserError(f"loggers: {error}") from error
    return made


def _own(home: Home, sweep: Sweep, resume: bool) -> None:
    """Make the sweep's folder, or check that it is this sweep's; then keep other processes out of
    it.
    """
    mine = sweep.model_copy(update={"at_once": None})  # how fast it goes may change on --resume
    if resume:
        if not home.holds("sweep.json"):
            raise no_sweep(home.place)
        home.folder.make()
        home.folder.claim(
            PATIENCE
        )  # before the copy here is replaced, in which another process may work
        home.collect()
        if plan_of(home.path) != Sweep.model_validate_json(mine.model_dump_json()):
            home.folder.release()
            raise UserError(
                f"{home.place} holds another sweep (or another budget of it); choose another --out"
            )
        return
    home.folder.require_empty(besides=TUNING)
    home.folder.make()
    home.folder.claim()
    home.folder.refresh(resuming=False)
    home.folder.write_text("sweep.json", mine.model_dump_json(indent=2, exclude={"at_once"}))
    home.send()
