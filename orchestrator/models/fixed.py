"""What a network holds that no client trains, and that no checkpoint and no file of weights has."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch

from orchestrator.models.net import extent

if TYPE_CHECKING:
    from torch import Tensor

    from orchestrator.models.net import Net

    Numbers: TypeAlias = "Tensor | np.ndarray"

DEPTH = 4
"""How far within attributes tensors are looked for."""
OWN = ("_parameters", "_buffers", "_modules")
"""Attributes in which PyTorch keeps what is registered."""


def fixed(net: Net) -> dict[str, Numbers]:
    """Name -> frozen parameters (those of a checkpoint below adapters, say), buffers of whole
    numbers, and plain attributes that are tensors or arrays: all as the network was built.
    """
    trained = net.params | net.buffers
    registered = itertools.chain(net.module.named_parameters(), net.module.named_buffers())
    found: dict[str, Numbers] = {
        name: tensor.detach()
        for name, tensor in registered
        # how many batches were seen changes with each
        if name not in trained and not name.endswith("num_batches_tracked")
    }
    known = {
        id(tensor) for tensor in itertools.chain(net.module.parameters(), net.module.buffers())
    }
    places = [extent(tensor) for tensor in trained.values()]
    for part, key, value in plain(net.module):
        begin, end = extent(value) if isinstance(value, torch.Tensor) else (0, 0)
        # what lies in the memory of one that is trained is that
        if id(value) not in known and not any(begin < high and low < end for low, high in places):
            found[f"{part}.{key} {len(found)}"] = value
    return found


def plain(module: torch.nn.Module) -> Iterator[tuple[str, str, Numbers]]:
    """Module, attribute, and tensor or array in it, of those that are not registered."""
    for name, part in module.named_modules():
        for key, value in vars(part).items():
            if key not in OWN:
                yield from ((name, key, one) for one in _numbers_in(value, DEPTH))


def _numbers_in(value: object, depth: int) -> Iterator[Numbers]:
    """A tensor or array, or those in collections and in plain objects."""
    if isinstance(value, torch.Tensor | np.ndarray):
        yield value
    elif depth and isinstance(value, dict | list | tuple | SimpleNamespace):
        inside = vars(value) if isinstance(value, SimpleNamespace) else value
        for one in inside.values() if isinstance(inside, dict) else inside:
            yield from _numbers_in(one, depth - 1)
