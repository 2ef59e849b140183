"""Clients a second on one GPU, by how many client actors share it.

80 of 160 clients in blocks of ten, 10 steps of SGD on batches of 32 (Fashion-MNIST shapes).
``python -m benchmarks.shares [--repeat N]``, without and with NVIDIA's MPS
(``nvidia-cuda-mps-control -d`` starts it).
"""

from __future__ import annotations

import argparse
import statistics

from rich.console import Console
from rich.table import Table

from benchmarks.rounds import WORK, Contestant, measure
from orchestrator.cluster.connection import connected
from orchestrator.cluster.sharing import shared
from orchestrator.config import load
from orchestrator.rounds.experiment import Experiment
from orchestrator.rounds.server import ray_plane

MODELS = ("linear", "drdm_cnn")
ACTORS = (1, 2, 4, 8)
COHORT = 80
HERE = [*WORK, "data.clients=160", f"cohort={COHORT}"]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=10, help="counted rounds of each")
    repeat = parser.parse_args().repeat
    table = Table("model", "actors", "median ms", "clients a second", "of one", title=shared())
    with connected("local", num_cpus=max(ACTORS), num_gpus=1):
        for model in MODELS:
            times = {actors: _median(model, actors, repeat) for actors in ACTORS}
            for actors, ms in times.items():
                row = (f"{ms:.1f}", f"{1e3 * COHORT / ms:.0f}", f"{times[1] / ms:.2f}")
                table.add_row(model, str(actors), *row)
    Console().print(table)


def _median(model: str, actors: int, repeat: int) -> float:
    """Milliseconds a round."""
    share = [f"resources.actors={actors}", f"resources.gpus_per_actor={1 / actors}"]
    config = load(None, [*HERE, f"model={model}", *share])
    experiment = Experiment(config, lambda world: ray_plane(world, config))
    rounds = Contestant(model, experiment.step, [])
    measure([rounds], repeat)
    experiment.close()
    return statistics.median(rounds.times)


if __name__ == "__main__":
    main()
