"""What clients remember from round to round: the algorithm's state, their optimiser's, their
batch-norm statistics, and what compression has left out of their messages.

The server holds it as one dict of tensors for each client, under the names of ``messages``; a lane
works on rows [C, ...] of it, sorted by who uses them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from algorithms.local import Tensors
from orchestrator.training.messages import BUFFERS, ERROR, OPTIMIZER, PERSONAL


@dataclass
class Memory:
    """Rows of several clients' memories."""

    rule: Tensors
    """The algorithm's own, which its rule's hooks see as ``work.state``."""
    optimizer: Tensors
    """Moments of the local optimiser by their own names, where clients keep them."""
    statistics: Tensors
    """Batch-norm statistics [C, b], where they stay with the clients, under the name that says of
    which model they are."""
    errors: Tensors
    """Left out of earlier messages, by upload; 0 for a client that has sent none."""
    others: list[Tensors]
    """What each client remembers for other sessions than this one; untouched."""

    @classmethod
    def of(cls, clients: list[Tensors], fresh: Tensors, device: torch.device) -> Memory:
        """The memories of the ``clients`` of a lane, in its order, on ``device``; where one has no
        part of that name yet, it is as in ``fresh``, which has all that this session asks for.
        """
        rows = _stack(
            [{**fresh, **{n: v for n, v in one.items() if n in fresh}} for one in clients], device
        )
        optimizer = {n: rows.pop(n) for n in list(rows) if n.startswith(OPTIMIZER)}
        statistics = {n: rows.pop(n) for n in (BUFFERS, PERSONAL) if n in rows}
        return cls(
            rule=rows,
            optimizer={n.removeprefix(OPTIMIZER): v for n, v in optimizer.items()},
            statistics=statistics,
            errors=errors_of(clients, device),
            others=[_others(one, fresh) for one in clients],
        )

    def of_client(self, row: int) -> Tensors:
        """The memory of the client in that row, as the server holds it."""
        kept = self.rule | {ERROR + n: v for n, v in self.errors.items()}
        kept |= {OPTIMIZER + n: v for n, v in self.optimizer.items()} | self.statistics
        # a view would keep all rows of the lane in memory as long as this one
        return self.others[row] | {name: rows[row].clone() for name, rows in kept.items()}


def _others(client: Tensors, fresh: Tensors) -> Tensors:
    """Compression's memory begins with a client's first message, so no session asks for it."""
    return {n: v for n, v in client.items() if n not in fresh and not n.startswith(ERROR)}


def _stack(rows: list[Tensors], device: torch.device) -> Tensors:
    """Row-wise stack of equally named tensors."""
    return {name: torch.stack([r[name].to(device) for r in rows]) for name in rows[0]}


def errors_of(clients: list[Tensors], device: torch.device) -> Tensors:
    """What compression has left out of the messages of each client, by upload [C, ...]."""
    # of any client that has one: its shape is that of the others
    like = {n: v for one in clients for n, v in one.items() if n.startswith(ERROR)}
    return {
        name.removeprefix(ERROR): torch.stack(
            [one.get(name, torch.zeros_like(v)).to(device) for one in clients]
        )
        for name, v in like.items()
    }
