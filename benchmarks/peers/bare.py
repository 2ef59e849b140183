"""One module, one client after the other, a running mean: ``bare.py FOLDER``, one core."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from benchmarks.peers.networks import network, tensors, train
from benchmarks.peers.work import read_work, tell, timed


def main(folder: Path) -> None:
    """Train, and print the seconds of each round."""
    torch.set_num_threads(1)
    work = read_work(folder)
    module, (x, y) = network(work), tensors(folder)
    model = {name: value.clone() for name, value in module.state_dict().items()}

    def step() -> None:
        nonlocal model
        total = {name: torch.zeros_like(value) for name, value in model.items()}
        for k in torch.randperm(work.clients)[: work.cohort].tolist():
            module.load_state_dict(model)
            rows = slice(k * work.rows, (k + 1) * work.rows)
            train(module, x[rows], y[rows], work)
            for name, value in module.state_dict().items():
                total[name] += value / work.cohort
        model = total

    tell(list(timed(step, work)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
