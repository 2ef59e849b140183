"""Cohorts of 100 among ever more clients: ``python -m benchmarks.crowds [--most 1000000]``.

Four rows of 16 features a client, a linear model, two local steps; FedAvg, and SCAFFOLD, which
keeps a state for every client that has trained. In process, one core, a process each.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from orchestrator.config import load
from orchestrator.rounds.experiment import Experiment

EACH, ROUNDS = 4, 30


def write_data(clients: int, path: Path) -> None:
    """Random rows, client after client."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((EACH * clients, 16), np.float32)
    y = rng.integers(0, 10, EACH * clients)
    tested = {"x_test": x[:100], "y_test": y[:100], "client_test": np.arange(100) % clients}
    np.savez(path, x_train=x, y_train=y, client_train=np.arange(len(x)) // EACH, **tested)


def one(path: str, clients: int, algorithm: str) -> None:
    """Train, and print what it took: seconds of the set-up, of each round, and the peak in MB."""
    torch.set_num_threads(1)
    config = load(None, [
        f"data.dataset={{name: npz, path: {path}}}", "data.partition=natural", "cohort=100",
        f"data.clients={clients}", "model=linear", f"algorithm={algorithm}", "local.steps=2",
        "local.batch_size=4", "rounds=1000000", "evaluation.every=1000000",
        "evaluation.clients=false",
    ])  # fmt: skip
    begun = time.perf_counter()
    experiment = Experiment(config)
    ready = time.perf_counter() - begun
    seconds = []
    for _ in range(ROUNDS + 1):
        begun = time.perf_counter()
        experiment.step()
        seconds.append(time.perf_counter() - begun)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps([ready, statistics.median(seconds[1:]), peak]))


def main() -> None:
    """Print the table, or be one of its cells."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=1_000_000, help="clients")
    parser.add_argument("--cell", nargs=3, metavar=("FILE", "CLIENTS", "ALGORITHM"))
    options = parser.parse_args()
    if options.cell:
        path, clients, algorithm = options.cell
        one(path, int(clients), algorithm)
        return
    table = Table("clients", "algorithm", "set-up s", "ms a round", "peak MB")
    for clients in (n for n in (100, 10_000, 100_000, 1_000_000) if n <= options.most):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "data.npz"
            write_data(clients, path)
            for algorithm in ("fedavg", "scaffold"):
                command = [sys.executable, "-m", "benchmarks.crowds", "--cell", path, str(clients)]
                done = subprocess.run(
                    [*command, algorithm], capture_output=True, text=True, check=True
                )
                ready, each, peak = json.loads(done.stdout.strip().split("\n")[-1])
                cells = (f"{ready:.2f}", f"{1e3 * each:.1f}", f"{peak:,.0f}")
                table.add_row(f"{clients:,}", algorithm, *cells)
    Console().print(table)


if __name__ == "__main__":
    main()
