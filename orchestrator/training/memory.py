"""What clients remember from round to round: the algorithm's state, their optimiser's, their
batch-norm statistics, and what compression has left out of their messages.

The server holds it as one dict of tensors for each client, under the names of ``messages``; a lane
works on rows [C, ...] of it, sorted by who uses them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from algorithms.local import Tensors
from orchestrator.training.messages import BUFFERS, ERROR, OPTIMIZER


@dataclass
class Memory:
    """Rows of several clients' memories."""

    rule: Tensors
    """The algorithm's own, which its rule's hooks see as ``work.state``."""
    optimizer: Tensors
    """Moments of the local optimiser by their own names, where clients keep them."""
    buffers: Tensor | None
    """Batch-norm statistics [C, b], where they stay with the clients."""
    errors: Tensors
    """Left out of earlier messages, by upload; 0 for a client that has sent none."""

    @classmethod
    def of(cls, clients: list[Tensors], device: torch.device) -> Memory:
        """The memories of the ``clients`` of a lane, in its order, on ``device``."""
        rows = _stack([_without_errors(one) for one in clients], device)
        optimizer = {n: rows.pop(n) for n in list(rows) if n.startswith(OPTIMIZER)}
        return cls(
            buffers=rows.pop(BUFFERS, None),
            rule=rows,
            optimizer={n.removeprefix(OPTIMIZER): v for n, v in optimizer.items()},
            errors=_errors(clients, device),
        )

    def of_client(self, row: int) -> Tensors:
        """The memory of the client in that row, as the server holds it."""
        kept = self.rule | {ERROR + n: v for n, v in self.errors.items()}
        kept |= {OPTIMIZER + n: v for n, v in self.optimizer.items()}
        if self.buffers is not None:
            kept[BUFFERS] = self.buffers
        # a view would keep all rows of the lane in memory as long as this one
        return {name: rows[row].clone() for name, rows in kept.items()}


def _without_errors(client: Tensors) -> Tensors:
    """Compression's memory begins with a client's first message, so not all clients have one."""
    return {n: v for n, v in client.items() if not n.startswith(ERROR)}


def _stack(rows: list[Tensors], device: torch.device) -> Tensors:
    """Row-wise stack of equally named tensors."""
    return {name: torch.stack([r[name].to(device) for r in rows]) for name in rows[0]}


def _errors(clients: list[Tensors], device: torch.device) -> Tensors:
    # of any client that has one: its shape is that of the others
    like = {n: v for one in clients for n, v in one.items() if n.startswith(ERROR)}
    return {
        name.removeprefix(ERROR): torch.stack(
            [one.get(name, torch.zeros_like(v)).to(device) for one in clients]
        )
        for name, v in like.items()
    }
