"""The downlink: what each broadcast is on the wire, what clients make of it, and who heard it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from algorithms.draws import torch_generator
from algorithms.local import LocalRule, Tensors
from algorithms.parts.compressors import Compressor, NoCompression
from orchestrator.clients.ledger import Ledger
from orchestrator.training.messages import LOSSY, BufferPolicy, leaving, role, travelling, weight

if TYPE_CHECKING:
    from torch import Tensor


@dataclass
class Mailroom:
    """Sends vectors to clients, compressed where the config says so.

    The server then sends C(v − v̂) for the replica v̂ that it knows the clients to have, so what is
    lost once is sent later; a client that did not hear the last broadcast gets the new v̂ itself.
    """

    ledger: Ledger
    compressor: Compressor
    buffers: BufferPolicy
    seed: int
    replicas: Tensors = field(default_factory=dict)
    """What the clients know of each broadcast vector, where the downlink is compressed."""
    heard: dict[str, np.ndarray] = field(default_factory=dict)
    """The clients that heard the last broadcast of each of those vectors."""

    def post(
        self,
        ids: np.ndarray,
        rule: LocalRule,
        message: Tensors,
        known: Tensors,
        when: tuple[int, int],
    ) -> Tensors:
        """Send ``message`` to clients ``ids``, book it, and return what they then have: what they
        made of it, and what they had already (``known``).

        ``when`` is (round, session within it), of which every draw is a function.
        """
        sent = travelling(message, rule, self.buffers)
        # what does not leave goes along all the same: a simulated client has it from here, unpaid
        arrived = dict(message)
        for name, shared in sent.items():
            self.ledger.sent(ids, self._weight(name, shared, ids))
            arrived[name] = self._received(name, message[name], rule, ids, when)
        # of a compressed vector clients know the replica, and not the server's own
        return {**{name: self.replicas.get(name, v) for name, v in known.items()}, **arrived}

    def _weight(self, name: str, vector: Tensor, ids: np.ndarray) -> int | np.ndarray:
        """Bytes of a vector to each client: a change, if it knows of what, or the whole."""
        whole = weight({name: vector})
        if name not in self.replicas:
            return whole
        change = weight({name: vector}, self.compressor)
        return np.where(np.isin(ids, self.heard[name]), change, whole)

    def _received(
        self, name: str, vector: Tensor, rule: LocalRule, ids: np.ndarray, when: tuple[int, int]
    ) -> Tensor:
        """What clients make of a vector, of which they do not get the rule's private entries."""
        if isinstance(self.compressor, NoCompression) or role(name, vector) not in LOSSY:
            return vector
        before, after = self.replicas.get(name), vector.clone()
        # nobody has a replica before the first broadcast, which goes out whole
        if before is not None:
            mask = leaving(name, vector, rule)
            leaves = torch.ones_like(vector, dtype=torch.bool) if mask is None else mask
            change = (vector - before)[leaves]
            t, session = when
            # the first session of a round has no number in the key, as in those of mini-batches
            draw = torch_generator(self.seed, f"broadcast {name}", t, *[session] * bool(session))
            after[leaves] = before[leaves] + self.compressor.compress(change[None], [draw])[0]
        self.replicas[name], self.heard[name] = after, ids
        return after
