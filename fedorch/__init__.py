"""fedorch from Python: run, open and compare experiments, step them, and write parts of one's own.

Everything that others may rely on has its name here, and nothing else has. What takes seconds to
import is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from algorithms.algorithm import Algorithm, AlgorithmOptions
    from algorithms.contract import Clients, Cohort, Training, Updates
    from algorithms.draws import generator, torch_generator
    from algorithms.fedavg import FedAvg
    from algorithms.figure import Figure
    from algorithms.local import LocalRule, Work
    from algorithms.part import Part, option
    from algorithms.parts.aggregators import Aggregator, Combined, Rows
    from algorithms.parts.attacks import Attack, Byzantine, Forging
    from algorithms.parts.compressors import Compressor
    from algorithms.parts.losses import Loss
    from algorithms.parts.metrics import Metric
    from algorithms.parts.monitors import Monitor
    from algorithms.parts.optimizers import Optimizer
    from algorithms.parts.round_ends import RoundEnd
    from algorithms.parts.samplers import Draw, Sampler
    from algorithms.parts.server_optimizers import ServerOptimizer
    from algorithms.parts.simplex import project
    from algorithms.parts.uncertainty import Uncertainty
    from algorithms.parts.weighers import Weigher
    from fedorch.experiment import Experiment
    from fedorch.runs import Run, Runs, compare, open, run
    from fedorch.sweeps import Sweep, open_sweep, sweep
    from orchestrator.config import Config
    from orchestrator.data.augment import Augmentation
    from orchestrator.data.partitioners import Partitioner, Pool
    from orchestrator.data.samples import Dataset, Request, Samples
    from orchestrator.errors import Diverged, UserError
    from orchestrator.models.base import Model
    from orchestrator.tracking.tracker import Log, Tracked, Tracker

NAMES = {
    "fedorch.runs": ("Run", "Runs", "compare", "open", "run"),
    "fedorch.sweeps": ("Sweep", "open_sweep", "sweep"),
    "fedorch.experiment": ("Experiment",),
    "orchestrator.config": ("Config",),
    "orchestrator.errors": ("Diverged", "UserError"),
    "algorithms.algorithm": ("Algorithm", "AlgorithmOptions"),
    "algorithms.contract": ("Clients", "Cohort", "Training", "Updates"),
    "algorithms.draws": ("generator", "torch_generator"),
    "algorithms.fedavg": ("FedAvg",),
    "algorithms.figure": ("Figure",),
    "algorithms.local": ("LocalRule", "Work"),
    "algorithms.part": ("Part", "option"),
    "algorithms.parts.aggregators": ("Aggregator", "Combined", "Rows"),
    "algorithms.parts.attacks": ("Attack", "Byzantine", "Forging"),
    "algorithms.parts.compressors": ("Compressor",),
    "algorithms.parts.losses": ("Loss",),
    "algorithms.parts.metrics": ("Metric",),
    "algorithms.parts.monitors": ("Monitor",),
    "algorithms.parts.optimizers": ("Optimizer",),
    "algorithms.parts.round_ends": ("RoundEnd",),
    "algorithms.parts.samplers": ("Draw", "Sampler"),
    "algorithms.parts.server_optimizers": ("ServerOptimizer",),
    "algorithms.parts.simplex": ("project",),
    "algorithms.parts.uncertainty": ("Uncertainty",),
    "algorithms.parts.weighers": ("Weigher",),
    "orchestrator.data.augment": ("Augmentation",),
    "orchestrator.data.partitioners": ("Partitioner", "Pool"),
    "orchestrator.data.samples": ("Dataset", "Request", "Samples"),
    "orchestrator.models.base": ("Model",),
    "orchestrator.tracking.tracker": ("Log", "Tracked", "Tracker"),
}
"""Module -> what of it is here."""
_PLACES = {name: module for module, names in NAMES.items() for name in names}

__all__ = [
    "Aggregator", "Algorithm", "AlgorithmOptions", "Attack", "Augmentation", "Byzantine", "Clients",
    "Cohort", "Combined", "Compressor", "Config", "Dataset", "Diverged", "Draw", "Experiment",
    "FedAvg", "Figure", "Forging", "LocalRule", "Log", "Loss", "Metric", "Model", "Monitor",
    "Optimizer", "Part", "Partitioner", "Pool", "Request", "RoundEnd", "Rows", "Run", "Runs",
    "Sampler", "Samples", "ServerOptimizer", "Sweep", "Tracked", "Tracker", "Training",
    "Uncertainty", "Updates", "UserError", "Weigher", "Work", "compare", "generator", "open",
    "open_sweep", "option", "project", "run", "sweep", "torch_generator",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import what is asked for; raises AttributeError for what is not here."""
    if name not in _PLACES:
        raise AttributeError(f"module 'fedorch' has no attribute {name!r}")
    module = import_module(_PLACES[name])
    if not hasattr(module, name):
        # other distributions have packages of names as general as algorithms and rl
        raise ImportError(
            f"{module.__name__} is not fedorch's: {module.__file__} hides it; take its folder off "
            "sys.path"
        )
    found = globals()[name] = getattr(module, name)
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
