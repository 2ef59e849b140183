"""Fixtures: a Ray session for the whole suite, data that is at hand, and small configs."""

import os
from pathlib import Path

import hypothesis
import pytest
import torch
import yaml

from algorithms.algorithm import AlgorithmOptions
from algorithms.part import variants
from orchestrator.config import Config, load
from orchestrator.results.checkpoint import load_latest, save
from orchestrator.rounds.experiment import Experiment
from orchestrator.rounds.server import ray_plane

torch.set_num_threads(1)
hypothesis.settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    hypothesis.settings.load_profile("ci")


def data_folder() -> Path | None:
    named = os.environ.get("FEDORCH_DATA")
    return Path(named) if named and Path(named).is_dir() else None


needs_data = pytest.mark.skipif(
    data_folder() is None, reason="FEDORCH_DATA is not set: full datasets are not at hand"
)


@pytest.fixture(scope="session")
def ray_session():
    """Two logical CPUs and two logical GPUs on this machine."""
    import ray

    ray.init(
        num_cpus=8, num_gpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR"
    )
    yield ray
    ray.shutdown()


def small(*settings: str) -> Config:
    """A config that takes seconds: 400 images, 6 clients, a linear model."""
    base = ["data.limit=400", "data.clients=6", "model=linear", "rounds=3", "local.block=2"]
    named = [
        yaml.safe_load(s.removeprefix("algorithm=")) for s in settings if s.startswith("algorithm=")
    ]
    names = [n["name"] if isinstance(n, dict) else n for n in named]
    fixed = variants(AlgorithmOptions)[names[0]].defaults if names else {}
    work = [f"{k}={v}" for k, v in (("cohort", 4), ("local.steps", 3)) if k not in fixed]
    one_layer = ["aggregator.layers=1"] if "feddual" in names else []
    return load(None, [*base, *work, *one_layer, *settings])


def finish_on_ray(config: Config) -> Experiment:
    """Run a config on Ray to its end."""
    experiment = Experiment(config, lambda world: ray_plane(world, config))
    try:
        while not experiment.finished:
            experiment.step()
    finally:
        experiment.close()
    return experiment


def resumed(config: Config, folder: Path, after: int, **options) -> Experiment:
    """Run ``after`` rounds, write a checkpoint, and run to the end from that file."""
    first = Experiment(config, **options)
    for _ in range(after):
        first.step()
    save(folder, after, first.state(), 1)
    first.close()
    second = Experiment(config, **options)
    second.restore(*load_latest(folder)[:2])
    while not second.finished:
        second.step()
    second.close()
    return second


def finish(config: Config, **options) -> Experiment:
    """Run a config in this process to its end."""
    experiment = Experiment(config, **options)
    while not experiment.finished:
        experiment.step()
    return experiment
