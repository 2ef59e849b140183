"""A training session: a cohort's local training, from broadcast to collection."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from algorithms.contract import Cohort, Updates
from algorithms.local import LocalRule, Probe, Tensors
from orchestrator.clients import inbox
from orchestrator.clients.books import Books, Store, Terms
from orchestrator.clients.plane import Assignment, Plane, abridged
from orchestrator.errors import UserError
from orchestrator.training.messages import (
    ANSWER,
    Advance,
    Ask,
    BlockSpec,
    Collect,
    Collected,
    Command,
    Evaluate,
    Look,
    Part,
    weight,
)

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Opening:
    """What a session begins with."""

    number: int
    """Among all sessions of the run."""
    within: int
    """Among those of the round, from 0."""
    cohort: Cohort
    rule: LocalRule
    received: Any
    """What the clients have been sent: a handle of the plane's."""
    start: Tensor
    """Models [d] or [m, d] that the cohort starts from."""
    own: Tensors
    """What each client has of its own, [m, ...]."""
    judging: bool = False
    """Whether nobody trains in it."""


class Session:
    """Implements :class:`algorithms.contract.Training`.

    Commands are gathered and sent when an answer is needed, so that an ordinary round is one call
    per block. All commands are remembered: a block that was lost with its actor is recreated from
    the server's copy of its clients' state and replayed. Blocks that took too long, where the
    config says to drop them, are out of the session.
    """

    def __init__(
        self, plane: Plane, terms: Terms, books: Books, store: Store, opening: Opening
    ) -> None:
        self.plane, self.terms, self.books, self.store = plane, terms, books, store
        self.opening, self.cohort = opening, opening.cohort
        size, m = terms.block, len(self.cohort)
        self.slices = [slice(i, min(i + size, m)) for i in range(0, m, size)]
        self.specs = [self._spec(s) for s in self.slices]
        self.costs = [
            sum(terms.local.planned(int(n)) for n in terms.samples[spec.ids]) for spec in self.specs
        ]
        self.history: list[list[Command]] = [[] for _ in self.specs]
        """Commands that each block has executed."""
        self.waiting: list[list[Command]] = [[] for _ in self.specs]
        """Commands that it is to execute when an answer is needed."""
        self.done = 0
        """Local steps that all clients have done together, while a clock watches."""
        self.open = False
        """Whether actors may keep blocks of this session."""
        self.present = list(range(len(self.specs)))
        """Blocks that still take part."""

    def _spec(self, s: slice) -> BlockSpec:
        ids, states = self.cohort.ids[s], self.store.states
        return BlockSpec(
            ids=ids,
            rule=self.opening.rule,
            # as they are now: a block that is lost begins again from these
            states={int(k): states[k] for k in ids if k in states},
            own={name: rows[s] for name, rows in self.opening.own.items()},
            t=self.books.t,
            session=self.opening.within,
            vectorized=self.terms.vectorized,
        )

    @property
    def start(self) -> Tensor:
        return self.opening.start

    @property
    def _drops(self) -> bool:
        """Whether clients are left out of sums whose numbers are none."""
        return self.terms.non_finite == "drop"

    def advance(self, steps: int | np.ndarray | None = None) -> None:
        watch = self.books.watch
        if watch is not None and steps is None and not any(self.waiting + self.history):
            # the whole of the planned work, where that is the same of all
            steps = self.terms.local.steps
        if watch is None or not isinstance(steps, int):
            self._advance(steps)
            return
        # cut at the ticks of the clock, which makes no difference to the clients
        for piece in watch.pieces(self.done, steps):
            self._advance(piece)
            self.done += piece
            if watch.due(self.done):
                watch.look(self.done, self._look(watch.weights(self.cohort)))

    def _advance(self, steps: int | np.ndarray | None) -> None:
        for waiting, s in zip(self.waiting, self.slices, strict=True):
            if not isinstance(steps, np.ndarray):
                waiting.append(Advance(steps))
            # a block that has nothing to do is not called
            elif steps[s].any():
                waiting.append(Advance(steps[s]))

    def _look(self, weights: np.ndarray) -> Tensors:
        """The mean of what the clients have, with ``weights`` [m]; nothing is sent."""
        self._add([Look(weights[s], self._drops) for s in self.slices])
        return self._summed(self._flush(keep=True), self.present, weights)

    def _summed(self, parts: Sequence[Part], blocks: Sequence[int], weights: np.ndarray) -> Tensors:
        """The sums of which ``blocks`` have sent ``parts``, scaled to be over the whole cohort,
        whose ``weights`` [m] they are with, whoever is left out.
        """
        there = np.zeros(len(self.cohort), bool)
        for b, part in zip(blocks, parts, strict=True):
            there[self.slices[b]] = part.counted
        scale = inbox.scaling(weights, there)
        return {n: inbox.in_order([p.sums[n] for p in parts]) * scale for n in parts[0].sums}

    def combine(self, rows: Tensor, weights: np.ndarray) -> Tensor:
        part = Part.of_answers(rows, weights, self._drops)
        return part.sums[ANSWER] * inbox.scaling(weights, part.counted)

    def query(
        self, probe: Probe, weights: np.ndarray | None = None, among: np.ndarray | None = None
    ) -> Tensor:
        rows = np.arange(len(self.cohort))
        wanted, blocks = (rows, self.present) if among is None else (among, self._with(among))
        # a sum cannot be forged any more, so liars' blocks answer with their rows
        lying = probe.transmitted and self.terms.adversary.lies(self.cohort.ids)
        for b in blocks:
            mine = None if weights is None or lying else weights[self.slices[b]]
            self.waiting[b].append(Ask(probe, mine, self._drops))
        answers = self._flush(keep=True, blocks=blocks)
        there = self._there()
        if weights is None:
            self._require_all(there)
        if probe.transmitted:
            # what one client sends has the shape of the sum, and of each row
            one = answers[0].sums[ANSWER] if isinstance(answers[0], Part) else answers[0][0]
            self._book_answers(self.cohort.ids[wanted[there[wanted]]], one)
        blocks = [b for b in blocks if b in self.present]
        if weights is not None:
            if lying:
                answers = self._forged_parts(answers, blocks, weights)
            return self._summed(answers, blocks, weights)[ANSWER]
        # blocks answer for all their clients; of these the wanted ones are picked, before those
        # that lie learn what the others say
        answered = np.concatenate([rows[self.slices[b]] for b in blocks])
        told = torch.cat(answers)[torch.from_numpy(np.searchsorted(answered, wanted))]
        return self._forged(told, self.cohort.ids[wanted]) if lying else told

    def _require_all(self, there: np.ndarray) -> None:
        """Raise UserError if not all of the cohort (mask [m]) are still in the session."""
        if not there.all():
            raise UserError(
                f"round {self.books.t}: clients {abridged(self.cohort.ids[~there])} were left out "
                "in mid-round, and "
                "this algorithm asks for all of them; set resources.on_timeout to redo"
            )

    def _forged(self, told: Tensor, ids: np.ndarray) -> Tensor:
        """The answers [m, k] of clients ``ids`` to one question, with the liars' replaced."""
        return self.terms.adversary.answers(self.books.question(), ids, told)

    def _forged_parts(
        self, answers: list[Tensor], blocks: Sequence[int], weights: np.ndarray
    ) -> list[Part]:
        """The parts of the sum of ``blocks``, of their rows with the liars' replaced."""
        ids = np.concatenate([self.specs[b].ids for b in blocks])
        pieces = self._forged(torch.cat(answers), ids).split([len(rows) for rows in answers])
        return [
            Part.of_answers(rows, weights[self.slices[b]], self._drops)
            for rows, b in zip(pieces, blocks, strict=True)
        ]

    def _with(self, among: np.ndarray) -> list[int]:
        """The blocks that have one of these places of the cohort."""
        rows = np.arange(len(self.cohort))
        return [b for b in self.present if np.isin(rows[self.slices[b]], among).any()]

    def _book_answers(self, ids: np.ndarray, one: Tensor) -> None:
        """Each of ``ids`` has answered a question with a message like ``one``."""
        senders, nbytes = ids[ids != self.terms.server], weight({ANSWER: one})
        self.books.ledger.received(senders, nbytes)
        self.books.log.question_bytes += nbytes * len(senders)

    def evaluate(self) -> None:
        self._add([Evaluate()] * len(self.specs))
        answers = self._flush(keep=True)
        for s, tables in zip([self.slices[b] for b in self.present], answers, strict=True):
            for split, table in tables.items():
                found = dict(zip(self.cohort.ids[s].tolist(), table.tolist(), strict=True))
                self.books.log.personal.setdefault(split, {}).update(found)

    def collect(self, weights: np.ndarray | None = None) -> Updates:
        terms, books, opening = self.terms, self.books, self.opening
        if terms.judge_local and books.evaluated and opening.rule.transmitted:
            self.evaluate()
        # a sum cannot be forged any more, so malicious clients' blocks send their rows
        forging = terms.adversary.forges(self.cohort.ids)
        blocks = self._collected(None if forging else weights)
        there = self._there()
        here = inbox.Arrived.of(self.cohort.ids[there], blocks)
        if forging:
            # one model for all, or one for each, of which some have gone with their clients
            start = opening.start if opening.start.dim() == 1 else opening.start[there]
            here = inbox.forged(here, terms, opening.rule, (books.t, opening.within), start)
        here = inbox.judged(here, opening.rule, terms, books)
        here = inbox.booked(here, opening.rule, terms, books, self.store)
        if weights is None:
            updates, moments = inbox.rows(here, terms)
        else:
            here = inbox.summed(here, weights[there]) if forging else here
            updates, moments = inbox.sums(here, terms, weights, there)
        if opening.rule.transmitted:
            self.store.optimizer = moments
        return updates

    def _collected(self, weights: np.ndarray | None) -> list[Collected]:
        """The blocks' answers: their parts of the weighted sums, or their rows."""
        parts = [None if weights is None else weights[s] for s in self.slices]
        self._add([Collect(part, self._drops) for part in parts])
        return self._flush(keep=False)

    def close(self) -> None:
        """Forget blocks of a session that was abandoned before its collection."""
        if self.open:
            self.plane.forget([(self.opening.number, b) for b in range(len(self.specs))])

    def _add(self, commands: Sequence[Command]) -> None:
        for waiting, command in zip(self.waiting, commands, strict=True):
            waiting.append(command)

    def _flush(self, keep: bool, blocks: Sequence[int] | None = None) -> list[Any]:
        """Send what is waiting; returns the answer of each block to its last command.

        ``blocks`` are those that are sent to (None: all that are present); what waits for the
        others goes on waiting.
        """
        blocks = self.present if blocks is None else blocks
        # noted first: a call that fails may leave blocks on the actors
        self.open = True
        begun, log = time.perf_counter(), self.books.log
        answers = self.plane.run([self._assignment(b, keep) for b in blocks])
        training, judging = self.plane.busy(answers)
        log.train_seconds += training
        log.evaluate_seconds += judging
        # all that was not computing: calls, transfers, waiting
        log.transfer_seconds += max(0.0, time.perf_counter() - begun - training - judging)
        for b, answer in zip(blocks, answers, strict=True):
            if answer is not None and not self.opening.judging:
                log.computed(self.specs[b].ids, answer.clients)
        self.open = keep
        for b in blocks:
            # only now: what is under way must not be in the replay, too
            self.history[b].extend(self.waiting[b])
            self.waiting[b] = []
        lost = [b for b, a in zip(blocks, answers, strict=True) if a is None]
        if lost:
            self._leave_out(lost)
        return [a.outputs[-1] for a in answers if a is not None]

    def _assignment(self, b: int, keep: bool) -> Assignment:
        return Assignment(
            key=(self.opening.number, b),
            spec=self.specs[b],
            received=self.opening.received,
            replay=self.history[b],
            commands=self.waiting[b],
            keep=keep,
            cost=self.costs[b],
        )

    def _leave_out(self, lost: list[int]) -> None:
        """Go on without blocks that took too long; raises UserError if too few clients are left."""
        self.present = [b for b in self.present if b not in lost]
        log = self.books.log
        late = [int(k) for b in lost for k in self.specs[b].ids]
        if self.opening.judging:
            log.unjudged += late
            return
        log.dropped += late
        log.uncounted += late if self.opening.rule.transmitted else []
        there, least = self._there(), self.terms.minimum_cohort
        remote = self.cohort.ids != self.terms.server
        # a model of its own is nothing to a server that trains beside clients
        needed = self.opening.rule.transmitted or not remote.any()
        if needed and not there[~remote].all():
            raise UserError(
                f"round {self.books.t}: the server's own training took too long, and nobody else "
                "can do it; raise resources.client_timeout, or set resources.on_timeout to redo"
            )
        left = int((there & remote).sum())
        if left < least:
            raise UserError(
                f"round {self.books.t}: {left} clients are left without "
                f"{abridged(self.cohort.ids[~there])}, who took too long; "
                f"resources.minimum_cohort is {least}"
            )

    def _there(self) -> np.ndarray:
        """Whether each client of the cohort still takes part [m]."""
        mask = np.zeros(len(self.cohort), bool)
        for b in self.present:
            mask[self.slices[b]] = True
        return mask
