"""The science of fedorch: pure torch, one paper a file. Knows nothing of Ray, files or clocks."""

from algorithms import fedavg, fedopt, fedprox, local_only, scaffold, synchronous
from algorithms.algorithm import Algorithm, AlgorithmOptions

__all__ = [
    "Algorithm",
    "AlgorithmOptions",
    "fedavg",
    "fedopt",
    "fedprox",
    "local_only",
    "scaffold",
    "synchronous",
]
