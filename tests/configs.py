"""Small configs: what a test means to say, and the least of everything else."""

import yaml

from algorithms.algorithm import AlgorithmOptions
from algorithms.part import variants
from orchestrator.config import Config, load


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
