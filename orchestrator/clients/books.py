"""What a run fixes for its sessions, writes down about them, and keeps for clients between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from algorithms.local import Tensors
from algorithms.local_config import LocalConfig
from algorithms.parts.compressors import Compressor
from orchestrator.clients.adversary import Adversary
from orchestrator.clients.ledger import Ledger
from orchestrator.clients.plane import abridged
from orchestrator.clients.round_log import RoundLog
from orchestrator.clients.watch import Watch
from orchestrator.training.messages import BufferPolicy

if TYPE_CHECKING:
    from torch import Tensor

NonFinite = Literal["fail", "drop", "keep"]


@dataclass(frozen=True)
class Terms:
    """On what terms sessions are held; fixed by the config."""

    local: LocalConfig
    samples: np.ndarray
    """Training rows of each client, then of the server, n_k [N + 1]."""
    block: int
    """Clients a block; of the config, so that sums do not depend on the machine."""
    vectorized: bool
    adversary: Adversary
    non_finite: NonFinite
    """What becomes of an update with NaN or infinity."""
    judge_local: bool
    """Whether local models are evaluated where the round is."""
    buffers: BufferPolicy
    initial_buffers: Tensor
    """The first model's batch-norm statistics [b], which all clients know."""
    uplink: Compressor
    """What malicious clients compress their forgeries with, like the others their updates."""
    seed: int
    minimum_cohort: int
    """The fewest clients that a session may end with, where slow ones are dropped."""

    @property
    def server(self) -> int:
        """The id under which the server itself trains."""
        return len(self.samples) - 1

    def named(self, ids: np.ndarray) -> str:
        """Some of a cohort, for people."""
        clients = ids[ids != self.server]
        who = [f"client {abridged(clients)}"] if len(clients) else []
        who += ["the server itself"] if self.server in ids else []
        return " and ".join(who)


@dataclass
class Books:
    """What is written down: the account since the start of the run, and the round under way."""

    ledger: Ledger
    t: int = 0
    evaluated: bool = False
    """Whether the round under way is evaluated."""
    log: RoundLog = field(default_factory=RoundLog)
    watch: Watch | None = None
    """What looks at the clients in mid-round, if anything does."""
    opened: int = 0
    """Sessions opened in the round."""
    asked: int = 0
    """Questions asked in the round."""

    def begin_round(self, t: int, evaluated: bool, watch: Watch | None = None) -> None:
        """Turn the page."""
        self.t, self.evaluated, self.watch = t, evaluated, watch
        self.log, self.opened, self.asked = RoundLog(), 0, 0

    def question(self) -> tuple[int, int]:
        """Round and number of a question that is asked now, which no other has."""
        self.asked += 1
        return self.t, self.asked - 1


@dataclass
class Store:
    """What the server keeps for the clients between sessions; a checkpoint holds all of it."""

    states: dict[int, Tensors] = field(default_factory=dict)
    """What each client that has taken part remembers."""
    optimizer: Tensors = field(default_factory=dict)
    """Averages of the clients' optimiser moments (``local.optimizer_state: average``)."""
