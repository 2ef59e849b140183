"""What each client actor adds to a round in which nobody trains: ``python -m benchmarks.actors
[--most 16]``. Actors of 0.05 CPU each, a cohort of 64 clients; an actor holds some 350 MB.
"""

from __future__ import annotations

import argparse
import statistics
import time

from rich.console import Console
from rich.table import Table

from benchmarks.rounds import EmptyRound
from orchestrator.cluster.connection import connected
from orchestrator.config import load
from orchestrator.rounds.experiment import Experiment
from orchestrator.rounds.server import ray_plane

ROUNDS = 100


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=16, help="actors")
    options = parser.parse_args()
    table = Table("client actors", "s until all are there", "ms a round", "fastest")
    with connected("local", num_cpus=4):
        for actors in (n for n in (1, 2, 4, 8, 16, 32, 64) if n <= options.most):
            config = load(None, [
                "model=linear", "data.clients=64", "cohort=64", f"resources.actors={actors}",
                "resources.cpus_per_actor=0.05", "local.block=1",
            ])  # fmt: skip
            begun = time.perf_counter()
            experiment = Experiment(config, lambda world, config=config: ray_plane(world, config))
            rounds = EmptyRound(experiment)
            rounds.step()
            ready, seconds = time.perf_counter() - begun, []
            for _ in range(ROUNDS):
                begun = time.perf_counter()
                rounds.step()
                seconds.append(1e3 * (time.perf_counter() - begun))
            experiment.close()
            cells = (f"{statistics.median(seconds):.1f}", f"{min(seconds):.1f}")
            table.add_row(str(actors), f"{ready:.1f}", *cells)
    Console().print(table)


if __name__ == "__main__":
    main()
