"""Seconds to aggregate 10 clients' updates of two layers by each barycenter, on one thread.

``python -m benchmarks.barycenters [--largest 4000000] [--only exact]``
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from algorithms.part import variants
from algorithms.parts.barycenters import Barycenter

CLIENTS, CLASSES = 10, 10
METHODS = ("linear", "exact", "sinkhorn", "iterated", "authors", "class_rows")


def seconds(name: str, entries: int) -> float:
    """The faster of two aggregations of two layers of ``entries``/2 entries each."""
    wide = entries // 2 // CLASSES
    draws = torch.Generator().manual_seed(0)
    layers = [1e-2 * torch.randn(CLIENTS, CLASSES, wide, generator=draws) for _ in range(2)]
    method, weights = variants(Barycenter)[name](), np.full(CLIENTS, 1 / CLIENTS)
    took = []
    for _ in range(2):
        begun = time.perf_counter()
        for layer in layers:
            method.layer([layer], weights)
        took.append(time.perf_counter() - begun)
    return min(took)


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--largest", type=int, default=4_000_000)
    parser.add_argument("--only", choices=METHODS)
    chosen = parser.parse_args(arguments)
    sizes = [n for n in (33_000, 330_000, 4_000_000) if n <= chosen.largest]
    torch.set_num_threads(1)
    table = Table(
        "barycenter", *[f"{n:,} entries" for n in sizes], title=f"seconds, {CLIENTS} clients"
    )
    for name in [chosen.only] if chosen.only else METHODS:
        table.add_row(name, *[f"{seconds(name, n):.3f}" for n in sizes])
    Console().print(table)


if __name__ == "__main__":
    main()
