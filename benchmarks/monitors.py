"""What watching the variance costs: FDA's monitors beside LeNet-5 training, and the sketch alone by
model size.

``python -m benchmarks.monitors [--largest 7] [--repeat 15] [--gpu]`` (8: 10^8 parameters, 5 GB of
memory)
"""

from __future__ import annotations

import argparse
import random
import statistics
import time

import torch
from rich.console import Console
from rich.table import Table

from algorithms.parts.sketch import Sketch
from orchestrator.clients.plane import InProcess
from orchestrator.config import load
from orchestrator.rounds.experiment import Experiment

STEPS = 40
SETTING = [
    "model=lenet5", "data.clients=5", "cohort=1.0", "data.partition=iid", "local.batch_size=32",
    "rounds=100000",
    "local.sampling=independent", "local.optimizer=adam", "local.lr=0.001",
    "evaluation.every=100000",
    f"local.steps={STEPS}",
]  # fmt: skip
MONITORS = {
    "nothing": "fixed",
    "linear": "{name: fda, theta: 1e9, monitor: linear}",
    "sketch 5 x 250": "{name: fda, theta: 1e9, monitor: sketch}",
    "naive": "{name: fda, theta: 1e9, monitor: naive}",
    "exact": "{name: fda, theta: 1e9, monitor: exact}",
}


def monitored(repeats: int, gpu: bool) -> Table:
    """Milliseconds a lock-step of five clients, asked after every step; the overhead is the median
    over rounds.

    The five ways are measured in turn, in another order each time, and each round is compared with
    its neighbours', so that a machine whose speed drifts does not count as an overhead.
    """
    runs = {
        name: Experiment(
            load(None, [*SETTING, f"round_end={end}"]), lambda world: InProcess(world, float(gpu))
        )
        for name, end in MONITORS.items()
    }
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for repeat in range(repeats + 1):
        for name in random.Random(repeat).sample(list(runs), len(runs)):
            begun = time.perf_counter()
            runs[name].step()
            if repeat:
                seconds[name].append((time.perf_counter() - begun) / STEPS)
    table = Table("monitor, asked every step", "ms a step (LeNet-5, K = 5)", "overhead (quartiles)")
    for name, values in seconds.items():
        over = [
            100 * (ours / base - 1) for ours, base in zip(values, seconds["nothing"], strict=True)
        ]
        low, middle, high = statistics.quantiles(over, n=4)
        table.add_row(
            name,
            f"{1e3 * statistics.median(values):.2f}",
            f"{middle:+.1f} % ({low:+.1f}, {high:+.1f})",
        )
    return table


def sketches(largest: int, gpu: bool) -> Table:
    """Seconds to build the map, and milliseconds a vector, for 10^4 … 10^largest parameters."""
    table = Table("d", "build s", "ms a sketch (5 x 250)", "ns an entry")
    for power in range(4, largest + 1):
        d = 10**power
        begun = time.perf_counter()
        sketch = Sketch(d, 5, 250, 0)
        built = time.perf_counter() - begun
        v = torch.randn(1, d, device="cuda" if gpu else "cpu")
        sketch.apply(v).cpu()
        times = 20 if power < 7 else 2
        begun = time.perf_counter()
        for _ in range(times):
            sketch.apply(v).cpu()
        each = (time.perf_counter() - begun) / times
        table.add_row(f"10^{power}", f"{built:.2f}", f"{1e3 * each:.3f}", f"{1e9 * each / d:.1f}")
    return table


def main(arguments: list[str] | None = None) -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--largest", type=int, default=7)
    parser.add_argument("--repeat", type=int, default=15, help="counted rounds of each monitor")
    parser.add_argument("--gpu", action="store_true", help="train and sketch there")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    console = Console()
    console.print(monitored(options.repeat, options.gpu))
    console.print(sketches(options.largest, options.gpu))


if __name__ == "__main__":
    main()
