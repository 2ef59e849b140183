"""Aggregators on one thread, beside a copy of the rows that they read: ``python -m
benchmarks.aggregators [--rows 100] [--entries 10000000]``.

A row is a client's update; GB/s are of all rows, each read once.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from algorithms.part import variants
from algorithms.parts.aggregators import Aggregator, Rows, weighted_sum

METHODS = {
    "median": {}, "trimmed_mean": {"byzantine": 0.2}, "krum": {"byzantine": 0.2},
    "multi_krum": {"byzantine": 0.2}, "geometric_median": {}, "norm_clipping": {},
    "centered_clipping": {},
}  # fmt: skip


def seconds(work: Callable[[], object]) -> float:
    """The faster of two."""
    took = []
    for _ in range(2):
        begun = time.perf_counter()
        work()
        took.append(time.perf_counter() - begun)
    return min(took)


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--entries", type=int, default=10_000_000)
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    x = torch.randn(chosen.rows, chosen.entries, generator=torch.Generator().manual_seed(0))
    there, even = torch.empty_like(x), np.full(chosen.rows, 1 / chosen.rows)
    works: dict[str, Callable[[], object]] = {
        "a copy": lambda: there.copy_(x),
        "mean": lambda: weighted_sum(x, even),
    }
    for name, options in METHODS.items():
        part = variants(Aggregator)[name](**options)
        works[name] = lambda part=part: part.combine(Rows(x, even))
    table = Table("aggregator", "seconds", "GB/s", "times a copy")
    base = 0.0
    for name, work in works.items():
        took = seconds(work)
        base = base or took
        gigabytes = x.numel() * x.element_size() / 1e9
        table.add_row(name, f"{took:.2f}", f"{gigabytes / took:.2f}", f"{took / base:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
