"""The clients of a run: implements the algorithms' ``Clients`` protocol on top of a plane."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from algorithms.contract import Cohort
from algorithms.draws import generator, torch_generator
from algorithms.local import LocalRule, Tensors
from algorithms.local_config import LocalConfig
from algorithms.parts.compressors import Compressor, NoCompression
from algorithms.parts.monitors import XI
from orchestrator.clients.adversary import Adversary
from orchestrator.clients.ledger import Ledger, payload, size
from orchestrator.clients.plane import Plane
from orchestrator.clients.session import Session
from orchestrator.data.federated import FederatedData
from orchestrator.errors import Diverged
from orchestrator.training.lane import BUFFERS, OPTIMIZER
from orchestrator.training.world import BufferPolicy

CHUNK = 1000
"""Rows of one evaluation job: a constant, so that no result depends on the number of actors."""

NonFinite = Literal["fail", "drop", "keep"]


@dataclass
class RoundLog:
    """What happened to the clients in one round."""

    cohort: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    diagnostics: dict[str, np.ndarray] = field(default_factory=dict)
    """train_loss (a mean over all local steps), update_norm (of the last session), steps of each
    client."""
    dropped: list[int] = field(default_factory=list)
    personal: dict[int, tuple[float, float, float]] = field(default_factory=dict)
    """client -> correct, summed loss, rows of its local model on its own test data."""
    question_bytes: int = 0
    """Bytes of the answers that clients gave in mid-round (states of a variance monitor,
    snapshots); also uploads."""
    train_seconds: float = 0.0
    transfer_seconds: float = 0.0
    evaluate_seconds: float = 0.0

    def add(self, ids: np.ndarray, diagnostics: dict[str, np.ndarray]) -> None:
        """Note a session: what the same clients did in several adds up; others stand beside them
        (clusters).
        """
        if not len(self.cohort):
            self.cohort, self.diagnostics = ids, diagnostics
            return
        self.cohort, place = np.unique(np.concatenate([self.cohort, ids]), return_inverse=True)
        both = {
            n: np.concatenate([self.diagnostics[n], v]).astype(float)
            for n, v in diagnostics.items()
        }
        steps = np.bincount(place, both["steps"])
        for name, values in both.items():
            self.diagnostics[name] = np.zeros(len(self.cohort))
            self.diagnostics[name][place] = values  # the last one of a client stays
        self.diagnostics["steps"] = steps
        self.diagnostics["train_loss"] = np.bincount(
            place, both["steps"] * both["train_loss"]
        ) / np.maximum(steps, 1)


class Federation:
    """All clients of a run: their state, their messages, and the plane that computes for them."""

    def __init__(
        self, plane: Plane, data: FederatedData, local: LocalConfig, *, block: int,
        vectorized: bool,
        buffers: BufferPolicy, non_finite: NonFinite, adversary: Adversary, judge_local: bool,
        downlink: Compressor,
        seed: int, minimum_cohort: int = 1,
    ) -> None:  # fmt: skip
        self.plane, self.data, self.local = plane, data, local
        self.block, self.vectorized = block, vectorized
        self.buffers, self.non_finite, self.seed = buffers, non_finite, seed
        self.adversary, self.judge_local, self.downlink = adversary, judge_local, downlink
        self.minimum_cohort = minimum_cohort
        self.ledger = Ledger(data.clients)
        self.states: dict[int, Tensors] = {}
        self.optimizer: Tensors = {}
        """Averages of the clients' optimiser states (``local.optimizer_state: average``)."""
        self.replicas: Tensors = {}
        """What the clients know of each broadcast vector, where the downlink is compressed."""
        self.heard: dict[str, np.ndarray] = {}
        """The clients that heard the last broadcast of each of those vectors."""
        self.t = 0
        self.evaluated = False
        """Whether the round under way is evaluated."""
        self.log = RoundLog()
        self._sessions = itertools.count()
        self._opened = 0

    def begin_round(self, t: int, evaluated: bool = True) -> None:
        """Start a new round log."""
        self.t, self.evaluated = t, evaluated
        self.log = RoundLog()
        self._opened = 0

    @contextmanager
    def train(
        self,
        cohort: Cohort,
        rule: LocalRule,
        received: Tensors,
        known: Tensors | None = None,
        own: Tensors | None = None,
    ) -> Iterator[Session]:
        """Open a training session (see :class:`algorithms.algorithm.Clients`)."""
        known = dict(known or {})
        if self.buffers != "aggregate" and BUFFERS in received:
            known[BUFFERS] = received[BUFFERS]
            received = {k: v for k, v in received.items() if k != BUFFERS}
        received = {**received, **(self.optimizer if rule.transmitted else {})}
        for name, vector in received.items():
            private = rule.private if name == "w" else 0
            self.ledger.sent(cohort.ids, self._wire(name, vector[private:], cohort.ids))
            received[name] = self._broadcast(name, vector, private, cohort.ids)
        known = {n: self.replicas.get(n, v) for n, v in known.items()}
        begun = time.perf_counter()
        handle = self.plane.share({**known, **received})
        self.log.transfer_seconds += time.perf_counter() - begun
        own = own or {}
        start = own.get("model", received.get("w", known.get("w", torch.zeros(0))))
        session = Session(
            self, next(self._sessions), self._opened, cohort, rule, handle, start, own
        )
        self._opened += 1
        try:
            yield session
        finally:
            session.close()

    def _wire(self, name: str, vector: Tensor, ids: np.ndarray) -> int | np.ndarray:
        """Bytes of one broadcast vector to each client: a compressed change, if it knows what
        changes, or the whole.
        """
        if not self._compresses(name) or name not in self.replicas:
            return size(vector)
        return np.where(
            np.isin(ids, self.heard[name]), self.downlink.nbytes(vector.numel()), size(vector)
        )

    def _broadcast(self, name: str, vector: Tensor, private: int, ids: np.ndarray) -> Tensor:
        """What clients ``ids`` make of a broadcast, whose first ``private`` entries they do not
        get.

        The server sends C(v − v̂) for the replica v̂ that it knows them to have, so what is lost
        once is sent later; a client that did not hear the last broadcast gets the new v̂ itself.
        """
        if not self._compresses(name):
            return vector
        before = self.replicas.get(name)
        after = vector.clone()
        if before is not None:
            draw = torch_generator(
                self.seed, f"broadcast {name}", self.t, *[self._opened] * bool(self._opened)
            )
            change = (vector - before)[private:]
            after[private:] = before[private:] + self.downlink.compress(change[None], [draw])[0]
        self.replicas[name], self.heard[name] = after, ids
        return after

    def _compresses(self, name: str) -> bool:
        lossy = not isinstance(self.downlink, NoCompression)
        return lossy and name not in (BUFFERS, XI) and not name.startswith(OPTIMIZER)

    def loss(
        self,
        ids: np.ndarray,
        w: Tensor,
        buffers: Tensor,
        batch_size: int | None = None,
        known: bool = False,
    ) -> Tensor:
        """Training losses at ``w``; transmits the model down (unless known) and one float up per
        client.
        """
        if not known:
            self.ledger.sent(
                ids,
                payload({"w": w, BUFFERS: buffers} if self.buffers == "aggregate" else {"w": w}),
            )
        self.ledger.received(ids, 4)
        rows = [self._loss_rows(int(k), batch_size) for k in ids]
        losses, _ = self.per_sample(w, buffers, np.concatenate(rows))
        means = torch.stack([part.mean() for part in losses.split([len(r) for r in rows])])
        if not means.isfinite().all():
            bad = int(ids[int((~means.isfinite()).nonzero()[0])])
            raise Diverged(
                f"round {self.t}: the loss of client {bad} is not finite; lower local.lr or set "
                "local.clip"
            )
        return means

    def heldout(self, w: Tensor, buffers: Tensor) -> Tensor:
        """Correct answers and rows of each class [classes, 2] on the held-out rows; transmits
        nothing.
        """
        rows = self.data.heldout_rows
        _, hit = self.per_sample(w, buffers, rows)
        labels = torch.from_numpy(self.data.samples.y[rows])
        hits = torch.bincount(labels[hit], minlength=self.data.samples.classes)
        return torch.stack(
            [hits, torch.bincount(labels, minlength=self.data.samples.classes)], 1
        ).double()

    def exchange(self, ids: np.ndarray, nbytes: np.ndarray) -> None:
        """Book a message among clients."""
        self.ledger.sent(ids, nbytes)
        self.ledger.received(ids, nbytes)

    def _loss_rows(self, k: int, batch_size: int | None) -> np.ndarray:
        rows = self.data.train[k]
        if batch_size is None or batch_size >= len(rows):
            return rows
        return generator(self.seed, "loss", self.t, k).choice(rows, batch_size, replace=False)

    def per_sample(self, w: Tensor, buffers: Tensor, rows: np.ndarray) -> tuple[Tensor, Tensor]:
        """Cross-entropy [n] and correctness [n] of one model on ``rows``; not transmitted by
        anyone.
        """
        begun = time.perf_counter()
        model = self.plane.share({"w": w, "buffers": buffers})
        chunks = np.split(rows, range(CHUNK, len(rows), CHUNK))
        losses, hits = zip(*self.plane.evaluate(model, chunks), strict=True)
        self.log.evaluate_seconds += time.perf_counter() - begun
        return torch.cat(losses), torch.cat(hits)
