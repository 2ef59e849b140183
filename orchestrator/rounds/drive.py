"""The round loop: steps an experiment to its end, with checkpoints, and writes the results."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from orchestrator.config import Config
from orchestrator.credentials import discreet
from orchestrator.data.federated import called
from orchestrator.errors import Diverged, UserError
from orchestrator.pages.report import report_of
from orchestrator.results.contents import CLIENTS, HOLDINGS, INPUTS, RESULT, ROUNDS
from orchestrator.results.provenance import git_commit, versions
from orchestrator.results.result import Result
from orchestrator.results.run_folder import RunFolder
from orchestrator.results.state import require_storable
from orchestrator.results.usage import inputs_of
from orchestrator.rounds.account import account_of
from orchestrator.rounds.experiment import Experiment
from orchestrator.rounds.metrics import Record
from orchestrator.rounds.resuming import exchange, resume
from orchestrator.rounds.tracks import Tracks
from orchestrator.tracking.tracker import Tracked

PATIENCE = 10.0
"""Seconds that a resumed run waits for the process that it continues to be gone."""


@contextlib.contextmanager
def held(folder: RunFolder, resuming: bool, patience: float = PATIENCE) -> Iterator[None]:
    """The run's folder, new or with what is there, and this process's until the block ends: before
    any work, so that no two runs can come to write into it.

    Raises UserError if it is another's: of a process that does not end within ``patience`` s, or,
    for one that begins anew, of a run that has been there.
    """
    folder.make()
    # who begins anew has no predecessor that could still be ending
    folder.claim(patience if resuming else 0.0)
    try:
        if not resuming:
            folder.require_empty()
        folder.refresh(resuming)
        yield
    finally:
        folder.release()


@dataclass(frozen=True)
class Prepared:
    """What is about to run, for the terminal."""

    config: Config
    """With everything settled that the given one left open."""
    parameters: int
    samples: tuple[int, int]
    """Training rows of the clients that have least and most."""
    actors: int
    done: int
    """Rounds that were done before."""
    notes: list[str]
    """What the user should know of how the run was continued."""


def begin(experiment: Experiment, folder: RunFolder, resuming: bool) -> Prepared:
    """Open the run's folder, or continue from its checkpoint; returns what is about to run.

    The folder is :func:`held`. Raises UserError if it cannot be written, or the checkpoints are
    damaged or belong to another config.
    """
    if not resuming or not folder.begun:
        folder.open(experiment.config)
        folder.publish()
    notes = resume(experiment, folder) if resuming else []
    if resuming and experiment.config.plugins:
        exchange(experiment, folder)
    if resuming and not folder.says(experiment.config):  # more rounds, say, or other plugins
        folder.open(experiment.config)
        folder.publish()
    sizes = experiment.data.train.sizes
    return Prepared(
        config=experiment.config,
        parameters=experiment.net.spec.size,
        samples=(int(sizes.min()), int(sizes.max())),
        actors=experiment.federation.plane.actors,
        done=experiment.t,
        notes=notes,
    )


def drive(
    experiment: Experiment,
    folder: RunFolder,
    on_round: Callable[[Record], None] = lambda record: None,
    stopping: Callable[[], bool] = lambda: False,
) -> Result:
    """Run to the last round (or until ``stopping()``), then write and return the result.

    Raises UserError if the run cannot go on; result.json then says ``failed`` and why, as it does
    after a fault.
    """
    tracks = _tracks(experiment, folder)
    try:
        _rounds(experiment, folder, tracks, on_round, stopping)
        # one that was stopped is to go on from here
        if not experiment.finished:
            folder.save(experiment.t, experiment.state(), experiment.config.checkpoint.keep)
        tracks.flush()  # what is wrong with them is in the result
        result = write_results(experiment, folder)
        tracks.end(result)
        folder.publish()
        return result
    except Exception as error:
        about = _summary(experiment, "failed")
        leave_failure(folder, about, error)
        tracks.end(about)
        raise


def _tracks(experiment: Experiment, folder: RunFolder) -> Tracks:
    """What the config asks for; rounds after the checkpoint, which are done again, are taken out of
    it where it can be.
    """
    config = experiment.config
    # a last round that is judged only now, or no longer, is passed on once more
    again = experiment.t and (experiment.finished or experiment.went_further)
    done = experiment.t - 1 if again else experiment.t
    run = Tracked(config.name, config.model_dump(mode="json"), folder.path, done)
    return Tracks(config.track, run, folder, experiment.alarm.note)


def leave_failure(folder: RunFolder, about: Mapping[str, object], error: Exception) -> None:
    """Say in the run's folder why it cannot go on, where that can be written."""
    said = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
    said = discreet(said)  # what a library says may repeat an address as it was given
    diverged = {"diverged": True} if isinstance(error, Diverged) else {}
    folder.leave_failure({**about, **diverged, "error": said})
    with contextlib.suppress(UserError):  # the sentence still reaches the terminal
        folder.publish()


def _rounds(
    experiment: Experiment,
    folder: RunFolder,
    tracks: Tracks,
    on_round: Callable[[Record], None],
    stopping: Callable[[], bool],
) -> None:
    """The round loop, with a checkpoint every so often."""
    plan, begun = experiment.config.checkpoint, experiment.t
    if experiment.finished and experiment.records:
        experiment.judge_last()
        tracks.add(experiment.records[-1])
    elif experiment.went_further:
        tracks.add(experiment.records[-1])
    while not experiment.finished and not stopping():
        record = experiment.step()
        if experiment.t == begun + 1:
            # not after hours, when the first checkpoint is due
            require_storable(experiment.algorithm.state())
        folder.require_mine()
        tracks.add(record)
        on_round(record)
        # after the last one, too: whoever wants more rounds goes on from there
        if plan.every and (experiment.t % plan.every == 0 or experiment.finished):
            tracks.flush()
            folder.save(experiment.t, experiment.state(), plan.keep)


def _summary(experiment: Experiment, status: Literal["finished", "stopped", "failed"]) -> Result:
    ledger, records = experiment.federation.ledger, experiment.records
    last = records[-1] if records else {}
    result: Result = {
        "name": experiment.config.name,
        "status": status,
        "rounds": experiment.t,
        "metrics": {
            k: v for k, v in last.items() if not k.startswith(("seconds", "bytes")) and k != "round"
        },
        "bytes_up": int(ledger.up.sum()),
        "bytes_down": int(ledger.down.sum()),
        "joules": float(experiment.config.energy.joules(ledger.steps, ledger.up).sum()),
        "seconds": sum(r["seconds"] for r in records),
        "seed": experiment.config.seed,
        "rows_sha256": experiment.data.rows_sha256(),
        "weights_sha256": experiment.weights_sha256(),
        "state_sha256": experiment.state_sha256(),
        "parameters": experiment.net.spec.size,
        "actors": experiment.federation.plane.actors,
        "actors_replaced": experiment.federation.plane.replaced,
        "versions": versions(),
        "plugins": {plugin.name: plugin.sha256 for plugin in experiment.config.plugins},
        "git_commit": git_commit(),
        "diverged": experiment.diverged,
        "notes": list(dict.fromkeys(experiment.notes)),
    }
    # what it has begun with, as far as there is such
    result |= experiment.origin  # type: ignore[typeddict-item]
    if not experiment.config.data.dataset.generated:
        result["samples_sha256"] = experiment.data.samples_sha256
    return result


def write_results(experiment: Experiment, folder: RunFolder, report: bool = True) -> Result:
    """Write model, tables, result.json and (if wanted) the report of a run; returns the result."""
    result = _summary(experiment, "finished" if experiment.finished else "stopped")
    net = experiment.net
    algorithm = experiment.algorithm
    model = net.spec.tensors(algorithm.model()) | net.buffer_spec.tensors(algorithm.statistics())
    folder.write_model(model)
    clients = called(experiment.config.data, experiment.data)
    folder.write_json(
        INPUTS, inputs_of(experiment.data, experiment.origin.get("frozen_sha256", ""), clients)
    )
    if experiment.records:
        rounds = pd.DataFrame(experiment.records).astype({"round": int})
        folder.write_table(ROUNDS, rounds)
        folder.write_table(CLIENTS, client_table(experiment))
        folder.write_table(HOLDINGS, experiment.data.held_rows())
        result["account"], notes = account_of(experiment.config, experiment.records)
        result["notes"] += notes
    if folder.keep_config(experiment.config):
        result["notes"].append(
            "config.yaml was changed while the run went; it is again what the run was begun with"
        )
    folder.write_json(RESULT, result)
    folder.seal()
    if report and experiment.records:
        # from the files, which others will read, and not from memory
        folder.write_report(report_of(folder, experiment.config))
    return result


def client_table(experiment: Experiment) -> pd.DataFrame:
    """A row a client and evaluated round: what it was worth, and what it has spent so far."""
    energy = experiment.config.energy
    # of all rounds by the energy that the config says now, which may be another after --resume
    tables = [
        pd.DataFrame({k: np.asarray(v) for k, v in rows.items()}).assign(
            joules=energy.joules(rows["steps"], rows["bytes_up"])
        )
        for rows in experiment.client_rows
    ]
    return pd.concat(tables) if tables else pd.DataFrame()
