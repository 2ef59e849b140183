"""``fedorch doctor``: is this machine ready?"""

from __future__ import annotations

from pathlib import Path

import torch
from rich.table import Table

from orchestrator.cluster.connection import connected
from orchestrator.cluster.sharing import shared
from orchestrator.data.datasets import FashionMnist10k
from orchestrator.data.samples import Request
from orchestrator.data.sources import folders
from orchestrator.errors import UserError
from orchestrator.results.provenance import git_commit, versions
from orchestrator.terminal import console, headed

LOCAL_FILES = {
    "mnist": ("MNIST", "mnist.npz"),
    "fashion_mnist": ("FashionMNIST", "fashion_mnist.npz"),
    "kmnist": ("KMNIST", "kmnist.npz"),
    "emnist": ("EMNIST", "emnist.npz"),
    "cifar10": ("cifar10.npz", "cifar-10-batches-py"),
    "cifar100": ("cifar100.npz", "cifar-100-python"),
    "tiny_imagenet": ("tiny_imagenet.npz", "tiny-imagenet-200"),
    "femnist": ("femnist.npz",),
    "ag_news": ("ag_news",),
    "glue": ("glue",),
}


def examine(address: str) -> bool:
    """Print the findings; True if a run could start."""
    table = Table("check", "finding")
    for package, number in versions().items():
        table.add_row(package, number)
    table.add_row("git commit", git_commit() or "not a checkout")
    table.add_row("GPUs (torch)", _gpus())
    for folder in folders():
        table.add_row(f"data in {folder}", _data(folder))
    healthy = True
    # without these no run starts; GPUs and other data are a matter of the config
    for name, check in (
        ("embedded dataset", _embedded),
        (f"Ray ({address})", lambda: _ray(address)),
    ):
        try:
            table.add_row(name, check())
        except UserError as error:
            healthy = False
            table.add_row(name, headed(str(error), "red", ""))
    console.print(table)
    return healthy


def _gpus() -> str:
    if not torch.cuda.is_available():
        return "none"
    names = ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
    return f"{names}; processes that share one compute {shared()}"


def _data(folder: Path) -> str:
    if not folder.exists():
        return "no such folder"
    there = [
        name
        for name, files in LOCAL_FILES.items()
        if any(_holds_something(folder / file) for file in files)
    ]
    return ", ".join(there) or "nothing that fedorch reads"


def _holds_something(path: Path) -> bool:
    """Whether it is a file, or a folder with one in it: a download that failed leaves it empty."""
    return path.is_file() or any(one.is_file() for one in path.rglob("*"))


def _embedded() -> str:
    samples = FashionMnist10k().load(Request(0, 1))
    return f"{len(samples.y):,} images"


def _ray(address: str) -> str:
    with connected(address):
        import ray

        resources = ray.cluster_resources()
        return (
            f"{resources.get('CPU', 0):g} CPUs, {resources.get('GPU', 0):g} GPUs, "
            f"{len(ray.nodes())} node(s)"
        )
