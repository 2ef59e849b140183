"""Runs of a config: in this process, interrupted and resumed, on client actors of their own."""

from collections.abc import Callable
from pathlib import Path

from orchestrator.clients.plane import InProcess, Plane
from orchestrator.config import Config
from orchestrator.results.checkpoint import load_latest, save
from orchestrator.results.run_folder import RunFolder
from orchestrator.rounds.drive import begin, drive, held
from orchestrator.rounds.experiment import Experiment
from orchestrator.rounds.metrics import Record
from orchestrator.rounds.server import ray_plane
from orchestrator.training.world import World

Where = Callable[[World], Plane]
"""Makes the plane of a run."""


def finish(config: Config, plane: Where = InProcess) -> Experiment:
    """Run a config to its end, in this process unless told where."""
    experiment = Experiment(config, plane)
    try:
        while not experiment.finished:
            experiment.step()
    finally:
        experiment.close()
    return experiment


def run_into(
    folder: RunFolder,
    config: Config | None = None,
    resuming: bool = False,
    stop_at: int | None = None,
    on_round: Callable[[Record], None] = lambda record: None,
) -> tuple[Experiment, list[str]]:
    """As ``fedorch run --in-process`` does it; without a ``config`` with what is in the folder.
    Returns the run, and what the user is told as it begins.
    """
    with held(folder, resuming):
        experiment = Experiment(config or folder.config())
        notes = begin(experiment, folder, resuming).notes
        drive(experiment, folder, on_round, lambda: experiment.t == stop_at)
    return experiment, notes


def on_ray(config: Config) -> Experiment:
    """A config on client actors that are started for it."""
    return Experiment(config, lambda world: ray_plane(world, config))


def finish_on_ray(config: Config) -> Experiment:
    """Run a config to its end on client actors that are started for it."""
    return finish(config, lambda world: ray_plane(world, config))


def resumed(config: Config, folder: Path, after: int, plane: Where = InProcess) -> Experiment:
    """Run ``after`` rounds, write a checkpoint, and run to the end from that file."""
    first = Experiment(config, plane)
    for _ in range(after):
        first.step()
    save(folder, after, first.state(), 1)
    first.close()
    second = Experiment(config, plane)
    second.restore(*load_latest(folder)[:2])
    while not second.finished:
        second.step()
    second.close()
    return second
