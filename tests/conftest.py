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
from orchestrator.experiment import Experiment

torch.set_num_threads(1)
hypothesis.settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    hypothesis.settings.load_profile("ci")


def data_folder() -> Path | None:
    named = os.environ.get("FEDORCH_DATA")
    return Path(named) if named and Path(named).is_dir() else None


needs_data = pytest.mark.skipif(data_folder() is None, reason="FEDORCH_DATA is not set: full datasets are not at hand")


@pytest.fixture(scope="session")
def ray_session():
    """Two logical CPUs and two logical GPUs on this machine."""
    import ray

    ray.init(num_cpus=8, num_gpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield ray
    ray.shutdown()


def small(*settings: str) -> Config:
    """A config that takes seconds: 400 images, 6 clients, a linear model."""
    base = ["data.limit=400", "data.clients=6", "model=linear", "rounds=3", "local.block=2"]
    named = [yaml.safe_load(s.removeprefix("algorithm=")) for s in settings if s.startswith("algorithm=")]
    names = [n["name"] if isinstance(n, dict) else n for n in named]
    fixed = variants(AlgorithmOptions)[names[0]].defaults if names else {}
    work = [f"{k}={v}" for k, v in (("cohort", 4), ("local.steps", 3)) if k not in fixed]
    return load(None, [*base, *work, *settings])


def finish(config: Config, **options) -> Experiment:
    """Run a config in this process to its end."""
    experiment = Experiment(config, **options)
    while not experiment.finished:
        experiment.step()
    return experiment
