"""The science of fedorch: pure torch, one paper a file. Knows nothing of Ray, files or clocks."""

# a config can name an algorithm only once its class exists (see ``algorithms.part.variants``)
from algorithms import (
    afl,
    clustered,
    ditto,
    drdm,
    drdsgd,
    drfa,
    fda,
    fedaa,
    fedavg,
    fedbn,
    feddual,
    feddyn,
    fednova,
    fedopt,
    fedprox,
    fedpvr,
    local_only,
    lp_proj,
    moon,
    qfedavg,
    scaffold,
    scaffpd,
    scallion,
    server_only,
    synchronous,
)
from algorithms.algorithm import Algorithm, AlgorithmOptions

__all__ = [
    "Algorithm", "AlgorithmOptions", "afl", "clustered", "ditto", "drdm", "drdsgd", "drfa", "fda",
    "fedaa", "fedavg", "fedbn", "feddual", "feddyn", "fednova", "fedopt", "fedprox", "fedpvr",
    "local_only", "lp_proj", "moon", "qfedavg", "scaffold", "scaffpd", "scallion", "server_only",
    "synchronous",
]  # fmt: skip
