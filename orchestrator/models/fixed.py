"""What a network holds that no client trains, and that no file of weights has."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from orchestrator.models.net import Net


def fixed(net: Net) -> dict[str, Tensor]:
    """Name -> frozen parameters (those of a checkpoint below adapters, say) and buffers of whole
    numbers, all as the network was built.

    Attributes that are in no register are not among them: nobody can tell a table from a scratch
    pad, whose bytes are whatever was there.
    """
    registered = itertools.chain(net.module.named_parameters(), net.module.named_buffers())
    trained = net.params | net.buffers
    return {
        name: tensor.detach()
        for name, tensor in registered
        if name not in trained
        and tensor.layout == torch.strided
        and not tensor.is_meta
        # how many batches were seen changes with each; peft keeps the head that it replaces
        and not name.endswith("num_batches_tracked")
        and "original_module." not in name
    }
