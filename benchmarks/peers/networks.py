"""The networks, of torch alone."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.peers.work import Work, read_work


def network(work: Work) -> nn.Module:
    """That of the work; raises ValueError unless it has as many parameters as fedorch's."""
    inputs = int(np.prod(work.shape))
    module = {
        "linear": lambda: [nn.Flatten(), nn.Linear(inputs, 10)],
        "mlp": lambda: [nn.Flatten(), nn.Linear(inputs, 100), nn.ReLU(), nn.Linear(100, 10)],
        "drdm_cnn": _drdm_cnn,
        "fedaa_cnn": _fedaa_cnn,
    }[work.model]()
    found = nn.Sequential(*module)
    size = sum(p.numel() for p in found.parameters())
    if size != work.parameters:
        raise ValueError(f"{work.model} has {size} parameters, and not {work.parameters}")
    return found


def _drdm_cnn() -> list[nn.Module]:
    return [
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(1568, 500), nn.ReLU(), nn.Linear(500, 10),
    ]  # fmt: skip


def _fedaa_cnn() -> list[nn.Module]:
    """That of PyTorch's tutorial on CIFAR-10."""
    return [
        nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
        nn.Linear(84, 10),
    ]  # fmt: skip


def tensors(folder: Path) -> tuple[Tensor, Tensor]:
    """All inputs as float32, standardised, and their labels."""
    with np.load(folder / "data.npz") as data:
        x, y = data["x_train"], data["y_train"]
    pixels = torch.from_numpy(x)
    pixels = pixels.unsqueeze(1) if pixels.dim() == 3 else pixels.movedim(-1, 1)
    return (pixels.float().contiguous() / 255 - 0.5) / 0.29, torch.from_numpy(y)


@functools.cache
def held(folder: Path) -> tuple[Work, nn.Module, Tensor, Tensor]:
    """The work, a network for it and :func:`tensors`: made once by a process, however often it is
    sent a function that asks for them.
    """
    torch.set_num_threads(1)
    work = read_work(folder)
    return work, network(work), *tensors(folder)


def train(
    module: nn.Module, x: Tensor, y: Tensor, work: Work, generator: torch.Generator | None = None
) -> None:
    """A client's epochs on its rows."""
    optimizer = torch.optim.SGD(module.parameters(), lr=work.lr)
    for _ in range(work.epochs):
        for batch in torch.randperm(len(x), generator=generator).split(work.batch):
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(x[batch]), y[batch]).backward()
            optimizer.step()
