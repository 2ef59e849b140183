"""A training session: a cohort's local training, from broadcast to collection."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from algorithms.contract import Cohort, Updates
from algorithms.local import LocalRule, Probe, Tensors
from algorithms.parts.aggregators import weighted_sum
from orchestrator.clients.plane import Job, listed
from orchestrator.errors import Diverged, UserError
from orchestrator.training.block import (
    Advance,
    Ask,
    BlockSpec,
    Collect,
    Collected,
    Command,
    Evaluate,
)
from orchestrator.training.lane import OPTIMIZER

if TYPE_CHECKING:
    from orchestrator.clients.federation import Federation


class Session:
    """Implements :class:`algorithms.algorithm.Training`.

    Commands are gathered and sent when an answer is needed, so that an ordinary round is one call
    per block. All commands are remembered: a block that was lost with its actor is recreated from
    the server's copy of its clients' state and replayed. Blocks that took too long, where the
    config says to drop them, are out of the session.
    """

    def __init__(
        self,
        federation: Federation,
        number: int,
        within: int,
        cohort: Cohort,
        rule: LocalRule,
        received: Any,
        start: Tensor,
        own: Tensors,
    ) -> None:
        self.federation, self.number, self.cohort, self.received = (
            federation,
            number,
            cohort,
            received,
        )
        self.within, self.start, self.transmitted = within, start, rule.transmitted
        size = federation.block
        self.slices = [slice(i, min(i + size, len(cohort))) for i in range(0, len(cohort), size)]
        states = federation.states
        self.specs = [
            BlockSpec(
                ids=cohort.ids[s],
                rule=rule,
                states={int(k): states[k] for k in cohort.ids[s] if k in states},
                own={name: rows[s] for name, rows in own.items()},
                t=federation.t,
                session=within,
                vectorized=federation.vectorized,
            )
            for s in self.slices
        ]
        sizes, local = federation.data.holdings.sizes, federation.local
        self.costs = [sum(local.planned(int(n)) for n in sizes[spec.ids]) for spec in self.specs]
        self.history: list[list[Command]] = [[] for _ in self.specs]
        self.waiting: list[list[Command]] = [[] for _ in self.specs]
        self.open = False
        self.present = list(range(len(self.specs)))
        """Blocks that still take part."""

    def advance(self, steps: int | np.ndarray | None = None) -> None:
        for waiting, s in zip(self.waiting, self.slices, strict=True):
            if not isinstance(steps, np.ndarray):
                waiting.append(Advance(steps))
            elif steps[s].any():
                waiting.append(Advance(steps[s]))

    def query(
        self, probe: Probe, weights: np.ndarray | None = None, among: np.ndarray | None = None
    ) -> Tensor:
        places = np.arange(len(self.cohort))
        asked, blocks = places, self.present
        if among is not None:
            asked = among
            blocks = [b for b in self.present if np.isin(places[self.slices[b]], asked).any()]
        for b in blocks:
            self.waiting[b].append(Ask(probe, None if weights is None else weights[self.slices[b]]))
        answers = self._flush(keep=True, blocks=blocks)
        there = self._there()
        if weights is None and not there.all():
            raise UserError(
                f"round {self.federation.t}: clients {listed(self.cohort.ids[~there])} were left "
                "out in mid-round, and "
                "this algorithm asks for all of them; set resources.on_timeout to redo"
            )
        if probe.transmitted:
            one = answers[0] if weights is not None else answers[0][0]
            senders, nbytes = self.cohort.ids[asked[there[asked]]], one.numel() * one.element_size()
            senders = senders[senders != self.federation.data.server]
            self.federation.ledger.received(senders, nbytes)
            self.federation.log.question_bytes += nbytes * len(senders)
        if weights is not None:
            return _sum(answers) * _scale(weights, there)
        answered = np.concatenate([places[self.slices[b]] for b in blocks])
        return torch.cat(answers)[torch.from_numpy(np.searchsorted(answered, asked))]

    def evaluate(self) -> None:
        self._add([Evaluate()] * len(self.specs))
        answers = self._flush(keep=True)
        for s, table in zip([self.slices[b] for b in self.present], answers, strict=True):
            columns = (table[name].tolist() for name in ("correct", "loss", "rows"))
            self.federation.log.personal |= dict(
                zip(self.cohort.ids[s].tolist(), zip(*columns, strict=True), strict=True)
            )

    def collect(self, weights: np.ndarray | None = None) -> Updates:
        federation = self.federation
        if federation.judge_local and federation.evaluated and self.transmitted:
            self.evaluate()
        drop = federation.non_finite == "drop"
        forged = federation.adversary.forges(self.cohort.ids)
        summed = weights is not None and not forged
        self._add(
            [
                Collect(weights[s] if weights is not None and summed else None, drop)
                for s in self.slices
            ]
        )
        blocks: list[Collected] = self._flush(keep=False)
        there = self._there()
        cohort, sizes = self.cohort.ids[there], [len(self.specs[b].ids) for b in self.present]
        diagnostics = {
            n: torch.cat([b.diagnostics[n] for b in blocks]).numpy() for n in blocks[0].diagnostics
        }
        vectors = {n: [b.vectors[n] for b in blocks] for n in blocks[0].vectors}
        finite = diagnostics.pop("finite")
        if forged and vectors:
            vectors, finite = self._forge(cohort, sizes, vectors)
        kept = self._kept(cohort, finite)
        self._account(cohort, blocks, diagnostics, kept)
        scalars = {n: torch.cat([b.scalars[n] for b in blocks])[kept] for n in blocks[0].scalars}
        ids = cohort[kept.numpy()]
        samples = federation.data.holdings.sizes[ids]
        if weights is None:
            rows = {n: torch.cat(pieces)[kept] for n, pieces in vectors.items()}
            self._keep_optimizer(
                {n: rows.pop(n).mean(0) for n in list(rows) if n.startswith(OPTIMIZER)}
            )
            return Updates(ids, samples, None, rows, scalars)
        if forged:
            counted = np.split(weights[there] * kept.numpy(), np.cumsum(sizes)[:-1])
            vectors = {
                n: [weighted_sum(*pair) for pair in zip(v, counted, strict=True)]
                for n, v in vectors.items()
            }
        used = torch.from_numpy(weights[there])[kept]
        scale = 1.0 if there.all() and kept.all() else float(weights.sum() / used.sum())
        sums = {
            n: _sum(pieces) * scale if scale != 1.0 else _sum(pieces)
            for n, pieces in vectors.items()
        }
        total = float((used * scale).sum())
        self._keep_optimizer(
            {n: sums.pop(n) / total for n in list(sums) if n.startswith(OPTIMIZER)}
        )
        return Updates(ids, samples, used * scale, sums, scalars)

    def close(self) -> None:
        """Forget blocks of a session that was abandoned before its collection."""
        if self.open:
            self.federation.plane.forget([(self.number, b) for b in range(len(self.specs))])

    def _keep_optimizer(self, mean: Tensors) -> None:
        if self.transmitted:
            self.federation.optimizer = mean

    def _forge(
        self, cohort: np.ndarray, sizes: list[int], vectors: dict[str, list[Tensor]]
    ) -> tuple[dict[str, list[Tensor]], np.ndarray]:
        """The blocks' rows as the server gets them from malicious clients too, and which rows are
        finite [m].
        """
        federation = self.federation
        rows = {n: torch.cat(pieces) for n, pieces in vectors.items()}
        rows = federation.adversary.forge((federation.t, self.within), cohort, rows, self.start)
        finite = torch.stack([v.flatten(1).isfinite().all(1) for v in rows.values()]).all(0)
        return {n: list(v.split(sizes)) for n, v in rows.items()}, finite.numpy()

    def _add(self, commands: list[Any]) -> None:
        for waiting, command in zip(self.waiting, commands, strict=True):
            waiting.append(command)

    def _flush(self, keep: bool, blocks: Sequence[int] | None = None) -> list[Any]:
        """Send what is waiting; returns the answer of each block to its last command.

        ``blocks`` are those that are sent to (None: all that are present); what waits for the
        others goes on waiting.
        """
        blocks = self.present if blocks is None else blocks
        jobs = [
            Job(
                (self.number, b),
                self.specs[b],
                self.received,
                self.history[b],
                self.waiting[b],
                keep,
                self.costs[b],
            )
            for b in blocks
        ]
        self.open = True
        begun = time.perf_counter()
        answers = self.federation.plane.run(jobs)
        busy = self.federation.plane.busy(answers)
        self.federation.log.train_seconds += busy
        self.federation.log.transfer_seconds += max(0.0, time.perf_counter() - begun - busy)
        self.open = keep
        for b in blocks:
            self.history[b].extend(self.waiting[b])
            self.waiting[b] = []
        lost = [b for b, a in zip(blocks, answers, strict=True) if a is None]
        if lost:
            self._leave_out(lost)
        return [a.outputs[-1] for a in answers if a is not None]

    def _leave_out(self, lost: list[int]) -> None:
        """Go on without blocks that took too long; raises UserError if too few clients are left."""
        federation = self.federation
        self.present = [b for b in self.present if b not in lost]
        federation.log.dropped += [int(k) for b in lost for k in self.specs[b].ids]
        left = int(self._there().sum())
        if left < federation.minimum_cohort:
            raise UserError(
                f"round {federation.t}: {left} clients are left without "
                f"{listed(self.cohort.ids[~self._there()])}, who "
                f"took too long; resources.minimum_cohort is {federation.minimum_cohort}"
            )

    def _there(self) -> np.ndarray:
        """Whether each client of the cohort still takes part [m]."""
        mask = np.zeros(len(self.cohort), bool)
        for b in self.present:
            mask[self.slices[b]] = True
        return mask

    def _kept(self, cohort: np.ndarray, finite: np.ndarray) -> Tensor:
        """Which clients' updates count, by the policy for non-finite ones."""
        policy = self.federation.non_finite
        bad = cohort[~finite].tolist()
        if not bad or policy == "keep":
            return torch.ones(len(cohort), dtype=torch.bool)
        if policy == "fail" or len(bad) == len(cohort):
            raise Diverged(
                f"round {self.federation.t}: the update of client {listed(bad)} holds NaN "
                "or infinity; lower local.lr, set local.clip, or set non_finite to drop"
            )
        self.federation.log.dropped += bad
        return torch.from_numpy(finite)

    def _account(
        self,
        cohort: np.ndarray,
        blocks: list[Collected],
        diagnostics: dict[str, np.ndarray],
        kept: Tensor,
    ) -> None:
        """Book the upload, and take over the clients' new state."""
        federation = self.federation
        federation.ledger.received(cohort, blocks[0].upload_bytes)
        federation.ledger.worked(cohort, diagnostics["steps"])
        dropped = set(cohort[~kept.numpy()].tolist())
        for block in blocks:
            federation.states |= {k: s for k, s in block.states.items() if s and k not in dropped}
        clients = cohort != federation.data.server
        federation.log.add(cohort[clients], {n: v[clients] for n, v in diagnostics.items()})


def _scale(weights: np.ndarray, there: np.ndarray) -> float:
    """What the sum over those that are there is multiplied by to stand for all."""
    return 1.0 if there.all() else float(weights.sum() / weights[there].sum())


def _sum(parts: list[Tensor]) -> Tensor:
    """Sum in block order."""
    total = parts[0].clone()
    for part in parts[1:]:
        total.add_(part)
    return total
