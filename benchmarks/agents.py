"""Milliseconds that FedAA adds to a round: the agent (acting, storing, learning), and the
selection.

``python -m benchmarks.agents``
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from algorithms.parts.selection import nearest
from rl.weighers import Ddpg, Ppo, Td3

ROUNDS, WARM_UP, SLOTS = 200, 60, 30


def median_ms(work: Callable[[], object], times: int, warm_up: int) -> float:
    """Median wall-clock time of ``work``."""
    seconds = []
    for i in range(times + warm_up):
        begun = time.perf_counter()
        work()
        if i >= warm_up:
            seconds.append(time.perf_counter() - begun)
    return 1e3 * statistics.median(seconds)


def driven(weigher: Ddpg | Ppo) -> Callable[[], object]:
    """One round of an agent in a federation that costs nothing."""
    agent, rng = weigher.start(SLOTS, SLOTS, 0), np.random.default_rng(0)
    state = np.sort(rng.random(SLOTS)).astype(np.float32)

    def step() -> object:
        action = agent.choose(state)  # type: ignore[attr-defined]
        return agent.observe(float(action[0]), state)

    return step


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    table = Table("part", "median ms a round")
    agents = {
        "ddpg (paper, batch 16)": Ddpg(),
        "td3 (paper, batch 16)": Td3(),
        "ppo (an update every 32 rounds)": Ppo(),
    }
    for name, weigher in agents.items():
        table.add_row(name, f"{median_ms(driven(weigher), ROUNDS, WARM_UP):.1f}")
    for m, d in ((100, 79_510), (100, 678_794), (300, 94_862)):
        rows = torch.randn(m, d)
        table.add_row(
            f"selection, {m} models of {d:,}",
            f"{median_ms(lambda rows=rows: nearest(rows, 30), 3, 1):.0f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
