"""The science of fedorch: pure torch, one paper a file. Knows nothing of Ray, files or clocks."""

from algorithms import (
    afl,
    clustered,
    drdm,
    drdsgd,
    drfa,
    fedavg,
    feddyn,
    fednova,
    fedopt,
    fedprox,
    local_only,
    qfedavg,
    scaffold,
    scaffpd,
    synchronous,
)
from algorithms.algorithm import Algorithm, AlgorithmOptions

__all__ = [
    "Algorithm",
    "AlgorithmOptions",
    "afl",
    "clustered",
    "drdm",
    "drdsgd",
    "drfa",
    "fedavg",
    "feddyn",
    "fednova",
    "fedopt",
    "fedprox",
    "local_only",
    "qfedavg",
    "scaffold",
    "scaffpd",
    "synchronous",
]
