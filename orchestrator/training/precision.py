"""What networks are multiplied in while they train (``local.precision``)."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import torch

from algorithms.local_config import Precision
from orchestrator.models.tried import unchanged
from orchestrator.plugins.blame import raised

if TYPE_CHECKING:
    from torch import Tensor


def multiplying(precision: Precision, device: str) -> AbstractContextManager[object]:
    """Where networks are called in training, on ``device`` ("cpu", "cuda")."""
    if precision != "bf16":
        return nullcontext()
    # no cache: the tensors of a client's model are other ones at each step, and of a computation
    # that is recorded the copies would be gone
    return torch.autocast(device, torch.bfloat16, cache_enabled=False)


def unfit(precision: Precision, gpus: float, module: torch.nn.Module, x: Tensor) -> str | None:
    """Why clients with so much of a GPU each cannot train ``module`` in it, tried on inputs ``x``
    on the CPU; or None.
    """
    if precision == "tf32" and not gpus:
        return "tf32 is of NVIDIA GPUs, and clients train on CPUs (resources.gpus_per_actor is 0)"
    if precision != "bf16":
        return None
    parameters = [p for p in module.parameters() if p.requires_grad]
    try:
        with torch.random.fork_rng(devices=[]), unchanged(module):
            with multiplying(precision, "cpu"):
                module.train()
                made = module(x).float().sum()
            torch.autograd.grad(made, parameters, allow_unused=True)
    except Exception as error:  # whatever libraries and code of others raise of a type
        return f"the network does not train in bfloat16: {raised(error)}"
    return None
