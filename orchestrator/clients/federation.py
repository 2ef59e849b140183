"""The clients of a run: implements the algorithms' ``Clients`` protocol on top of a plane."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from algorithms.contract import Cohort
from algorithms.draws import generator
from algorithms.local import LocalRule, Tensors
from orchestrator.clients.books import Books, Store, Terms
from orchestrator.clients.ledger import Ledger
from orchestrator.clients.mailroom import Mailroom
from orchestrator.clients.plane import Plane
from orchestrator.clients.round_log import RoundLog
from orchestrator.clients.session import Opening, Session
from orchestrator.clients.watch import Watch
from orchestrator.data.federated import FederatedData
from orchestrator.errors import Diverged
from orchestrator.training.evaluation import PerSample
from orchestrator.training.messages import BUFFERS, travelling, weight

if TYPE_CHECKING:
    from torch import Tensor

CHUNK = 1000
"""Rows of one evaluation job: a constant, so that no result depends on the number of actors."""
LOSS_BYTES = 4
"""A loss that a client reports, in float32."""


class Federation:
    """All clients of a run: what they are sent and send, and the plane that computes for them."""

    def __init__(
        self, plane: Plane, data: FederatedData, terms: Terms, books: Books, mailroom: Mailroom
    ) -> None:
        self.plane, self.data, self.terms = plane, data, terms
        self.books, self.mailroom, self.store = books, mailroom, Store()
        # blocks are known by these numbers, which never come again in this process; draws are keyed
        # by the number within the round, which is the same after a resume
        self._sessions = itertools.count()

    @property
    def ledger(self) -> Ledger:
        """The account of bytes and steps since the start of the run."""
        return self.books.ledger

    @property
    def log(self) -> RoundLog:
        """What has happened in the round under way."""
        return self.books.log

    def begin_round(self, t: int, evaluated: bool = True, watch: Watch | None = None) -> None:
        """Start a new round log; ``watch`` looks at the clients' models in mid-round."""
        self.books.begin_round(t, evaluated, watch)

    def state(self) -> dict[str, Any]:
        """What a checkpoint must hold of the clients."""
        return {
            "clients": self.store.states,
            "optimizer": self.store.optimizer,
            "replicas": self.mailroom.replicas,
            "heard": self.mailroom.heard,
            "ledger": self.ledger.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of :meth:`state`."""
        self.store.states = {int(k): v for k, v in state["clients"].items()}
        self.store.optimizer = state["optimizer"]
        self.mailroom.replicas, self.mailroom.heard = state["replicas"], state["heard"]
        self.ledger.restore(state["ledger"])

    @contextmanager
    def train(
        self,
        cohort: Cohort,
        rule: LocalRule,
        received: Tensors,
        known: Tensors | None = None,
        own: Tensors | None = None,
    ) -> Iterator[Session]:
        """Open a training session (see :class:`algorithms.contract.Clients`)."""
        # averaged moments go with every broadcast, and are paid for
        message = {**received, **(self.store.optimizer if rule.transmitted else {})}
        when = self.books.t, self.books.opened
        there = self.mailroom.post(cohort.ids, rule, message, known or {}, when)
        with self._session(cohort, rule, there, own or {}) as session:
            yield session

    @contextmanager
    def judging(
        self, ids: np.ndarray, rule: LocalRule, known: Tensors, own: Tensors
    ) -> Iterator[Session]:
        """Open a session in which clients ``ids`` only evaluate the models that ``rule`` begins
        with: nothing is sent, booked or compressed. ``known`` and ``own`` are those of
        :meth:`train`.
        """
        with self._session(Cohort.of(ids), rule, known, own, judging=True) as session:
            yield session

    @contextmanager
    def _session(
        self,
        cohort: Cohort,
        rule: LocalRule,
        there: Tensors,
        own: Tensors,
        judging: bool = False,
    ) -> Iterator[Session]:
        """A session of clients who have what is ``there``."""
        within = self.books.opened
        begun = time.perf_counter()
        handle = self.plane.share(there)
        self.log.transfer_seconds += time.perf_counter() - begun
        # only forged models are measured from it; a rule without w has none
        start = own.get("model", there.get("w", torch.zeros(0)))
        opening = Opening(next(self._sessions), within, cohort, rule, handle, start, own, judging)
        session = Session(self.plane, self.terms, self.books, self.store, opening)
        self.books.opened += 1
        try:
            yield session
        finally:
            session.close()

    def loss(
        self,
        ids: np.ndarray,
        w: Tensor,
        buffers: Tensor,
        batch_size: int | None = None,
        known: bool = False,
    ) -> Tensor:
        """Training losses [len(ids)] at ``w``; books the model (unless known) and a float each."""
        if known:
            # of a compressed broadcast clients have the replica
            w = self.mailroom.replicas.get("w", w)
        else:
            message = {"w": w, BUFFERS: buffers}
            leaving = travelling(message, LocalRule(), self.mailroom.buffers)
            self.ledger.sent(ids, weight(leaving))
        self.ledger.received(ids, LOSS_BYTES)
        rows = [self._loss_rows(int(k), batch_size) for k in ids]
        means = torch.stack([part.mean() for part in self._losses(ids, w, buffers, rows)])
        if not means.isfinite().all():
            bad = int(ids[int((~means.isfinite()).nonzero()[0])])
            raise Diverged(
                f"round {self.books.t}: the loss of client {bad} is not finite; lower local.lr or "
                "set local.clip"
            )
        return self.terms.adversary.answers(self.books.question(), ids, means[:, None])[:, 0]

    def _losses(
        self, ids: np.ndarray, w: Tensor, buffers: Tensor, rows: list[np.ndarray]
    ) -> Sequence[Tensor]:
        """Each client's losses on its ``rows``, with the labels and the batch-norm statistics that
        it has.
        """
        flips = np.isin(ids, self.terms.adversary.mislabelled)
        common = self.terms.buffers == "aggregate" or not buffers.numel()
        if common and not flips.any():
            # one evaluation for the rows of all clients, which fills its chunks
            losses = self.per_sample(w, buffers, np.concatenate(rows)).loss
            return losses.split([len(mine) for mine in rows])
        states, first = self.store.states, self.terms.initial_buffers
        own = [buffers if common else states.get(int(k), {}).get(BUFFERS, first) for k in ids]
        each = zip(own, rows, flips.tolist(), strict=True)
        return [self.per_sample(w, b, mine, flip).loss for b, mine, flip in each]

    def _loss_rows(self, k: int, batch_size: int | None) -> np.ndarray:
        rows = self.data.train[k]
        if batch_size is None or batch_size >= len(rows):
            return rows
        draw = generator(self.mailroom.seed, "loss", self.books.t, k)
        return draw.choice(rows, batch_size, replace=False)

    def heldout(self, w: Tensor, buffers: Tensor) -> Tensor:
        """Correct answers, rows and summed loss [classes, 3] on the held-out rows; transmits
        nothing.
        """
        rows, classes = self.data.heldout_rows, self.data.samples.classes
        loss, hit, _ = self.per_sample(w, buffers, rows)
        labels = torch.from_numpy(self.data.samples.y[rows])
        found = (hit.double(), torch.ones(len(rows)), loss.double())
        return torch.stack([torch.bincount(labels, one, classes) for one in found], 1)

    def exchange(self, ids: np.ndarray, nbytes: np.ndarray) -> None:
        """Book a message among clients."""
        self.ledger.sent(ids, nbytes)
        self.ledger.received(ids, nbytes)

    def per_sample(
        self, w: Tensor, buffers: Tensor, rows: np.ndarray, flip: bool = False
    ) -> PerSample:
        """What one model makes of ``rows``, by the labels, or by what a label-flipping client makes
        of them; transmits nothing.
        """
        begun = time.perf_counter()
        flipped = {"flipped": torch.ones(())} if flip else {}
        model = self.plane.share({"w": w, "buffers": buffers, **flipped})
        chunks = np.split(rows, range(CHUNK, len(rows), CHUNK))
        found = PerSample.joined(self.plane.evaluate(model, chunks), len(rows))
        self.log.evaluate_seconds += time.perf_counter() - begun
        return found
