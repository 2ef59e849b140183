"""The account of bytes and steps: what a deployment would transmit and do, per client."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class Ledger:
    """Bytes to (down) and from (up) each of N clients and its local steps, since the run began."""

    clients: int
    steps: np.ndarray = field(init=False)
    down: np.ndarray = field(init=False)
    up: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.down = np.zeros(self.clients, np.int64)
        self.up = np.zeros(self.clients, np.int64)
        self.steps = np.zeros(self.clients, np.int64)

    def sent(self, ids: np.ndarray, nbytes: int | np.ndarray) -> None:
        """The server sent ``nbytes`` to each of ``ids``."""
        self._book(self.down, ids, nbytes)

    def received(self, ids: np.ndarray, nbytes: int | np.ndarray) -> None:
        """The server received ``nbytes`` from each of ``ids``."""
        self._book(self.up, ids, nbytes)

    def worked(self, ids: np.ndarray, steps: np.ndarray) -> None:
        """Clients ``ids`` did ``steps`` local steps."""
        self._book(self.steps, ids, steps.astype(np.int64))

    def _book(self, column: np.ndarray, ids: np.ndarray, amount: int | np.ndarray) -> None:
        """Add ``amount`` (one, or one each) to the clients of ``ids``; the server has no row."""
        clients = ids < self.clients
        # ids are distinct: an indexed sum would book a client named twice only once
        column[ids[clients]] += np.broadcast_to(amount, ids.shape)[clients]

    def state(self) -> dict[str, Any]:
        return {"down": self.down, "up": self.up, "steps": self.steps}

    def restore(self, state: dict[str, Any]) -> None:
        self.down, self.up, self.steps = (
            np.asarray(state[k]).astype(np.int64).reshape(self.clients)
            for k in ("down", "up", "steps")
        )
