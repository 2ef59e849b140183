"""A training session: a cohort's local training, from broadcast to collection."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from algorithms.algorithm import Cohort, Updates
from algorithms.local import LocalRule, Probe, Tensors
from algorithms.parts.aggregators import weighted_sum
from orchestrator.clients.plane import Job
from orchestrator.errors import Diverged
from orchestrator.training.block import Advance, Ask, BlockSpec, Collect, Collected, Command, Evaluate
from orchestrator.training.lane import OPTIMIZER

if TYPE_CHECKING:
    from orchestrator.clients.federation import Federation


class Session:
    """Implements :class:`algorithms.algorithm.Training`.

    Commands are gathered and sent when an answer is needed, so that an ordinary round is one call per block. All
    commands are remembered: a block that was lost with its actor is recreated from the server's copy of its
    clients' state and replayed.
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
        self.federation, self.number, self.cohort, self.received = federation, number, cohort, received
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
        self.history: list[list[Command]] = [[] for _ in self.specs]
        self.waiting: list[list[Command]] = [[] for _ in self.specs]
        self.open = False

    def advance(self, steps: int | np.ndarray | None = None) -> None:
        self._add([Advance(steps[s] if isinstance(steps, np.ndarray) else steps) for s in self.slices])

    def query(self, probe: Probe, weights: np.ndarray | None = None, among: np.ndarray | None = None) -> Tensor:
        asked = np.arange(len(self.cohort)) if among is None else among
        self._add([Ask(probe, None if weights is None else weights[s]) for s in self.slices])
        answers = self._flush(keep=True)
        one = answers[0] if weights is not None else answers[0][0]
        if probe.transmitted:
            self.federation.ledger.received(self.cohort.ids[asked], one.numel() * one.element_size())
        return torch.cat(answers)[torch.from_numpy(asked)] if weights is None else _sum(answers)

    def evaluate(self) -> None:
        self._add([Evaluate()] * len(self.specs))
        for s, table in zip(self.slices, self._flush(keep=True), strict=True):
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
        self._add([Collect(weights[s] if weights is not None and summed else None, drop) for s in self.slices])
        blocks: list[Collected] = self._flush(keep=False)
        diagnostics = {n: torch.cat([b.diagnostics[n] for b in blocks]).numpy() for n in blocks[0].diagnostics}
        vectors = {n: [b.vectors[n] for b in blocks] for n in blocks[0].vectors}
        finite = diagnostics.pop("finite")
        if forged and vectors:
            vectors, finite = self._forge(vectors)
        kept = self._kept(finite)
        self._account(blocks, diagnostics, kept)
        scalars = {n: torch.cat([b.scalars[n] for b in blocks])[kept] for n in blocks[0].scalars}
        ids = self.cohort.ids[kept.numpy()]
        samples = federation.data.holdings.sizes[ids]
        if weights is None:
            rows = {n: torch.cat(pieces)[kept] for n, pieces in vectors.items()}
            self._keep_optimizer({n: rows.pop(n).mean(0) for n in list(rows) if n.startswith(OPTIMIZER)})
            return Updates(ids, samples, None, rows, scalars)
        if forged:
            counted = weights * kept.numpy()
            pairs = {n: zip(pieces, self.slices, strict=True) for n, pieces in vectors.items()}
            vectors = {n: [weighted_sum(p, counted[s]) for p, s in pair] for n, pair in pairs.items()}
        used = torch.from_numpy(weights)[kept]
        scale = 1.0 if kept.all() else float(weights.sum() / used.sum())
        sums = {n: _sum(pieces) * scale if scale != 1.0 else _sum(pieces) for n, pieces in vectors.items()}
        total = float((used * scale).sum())
        self._keep_optimizer({n: sums.pop(n) / total for n in list(sums) if n.startswith(OPTIMIZER)})
        return Updates(ids, samples, used * scale, sums, scalars)

    def close(self) -> None:
        """Forget blocks of a session that was abandoned before its collection."""
        if self.open:
            self.federation.plane.forget([(self.number, b) for b in range(len(self.specs))])

    def _keep_optimizer(self, mean: Tensors) -> None:
        if self.transmitted:
            self.federation.optimizer = mean

    def _forge(self, vectors: dict[str, list[Tensor]]) -> tuple[dict[str, list[Tensor]], np.ndarray]:
        """The blocks' rows as the server gets them from malicious clients too, and which rows are finite [m]."""
        federation, sizes = self.federation, [s.stop - s.start for s in self.slices]
        rows = {n: torch.cat(pieces) for n, pieces in vectors.items()}
        rows = federation.adversary.forge((federation.t, self.within), self.cohort.ids, rows, self.start)
        finite = torch.stack([v.flatten(1).isfinite().all(1) for v in rows.values()]).all(0)
        return {n: list(v.split(sizes)) for n, v in rows.items()}, finite.numpy()

    def _add(self, commands: list[Any]) -> None:
        for waiting, command in zip(self.waiting, commands, strict=True):
            waiting.append(command)

    def _flush(self, keep: bool) -> list[Any]:
        """Send what is waiting; returns each block's answer to the last command."""
        data, local = self.federation.data, self.federation.local
        jobs = [
            Job((self.number, b), spec, self.received, self.history[b], self.waiting[b], keep,
                sum(local.planned(int(n)) for n in data.holdings.sizes[spec.ids]))
            for b, spec in enumerate(self.specs)
        ]  # fmt: skip
        self.open = True
        begun = time.perf_counter()
        answers = self.federation.plane.run(jobs)
        busy = self.federation.plane.busy(answers)
        self.federation.log.train_seconds += busy
        self.federation.log.transfer_seconds += max(0.0, time.perf_counter() - begun - busy)
        self.open = keep
        for b, waiting in enumerate(self.waiting):
            self.history[b].extend(waiting)
            self.waiting[b] = []
        return [a.outputs[-1] for a in answers]

    def _kept(self, finite: np.ndarray) -> Tensor:
        """Which clients' updates count, by the policy for non-finite ones."""
        policy = self.federation.non_finite
        bad = self.cohort.ids[~finite].tolist()
        if not bad or policy == "keep":
            return torch.ones(len(self.cohort), dtype=torch.bool)
        if policy == "fail" or len(bad) == len(self.cohort):
            raise Diverged(
                f"round {self.federation.t}: the update of client {', '.join(map(str, bad[:5]))} holds NaN "
                "or infinity; lower local.lr, set local.clip, or set non_finite to drop"
            )
        self.federation.log.dropped += bad
        return torch.from_numpy(finite)

    def _account(self, blocks: list[Collected], diagnostics: dict[str, np.ndarray], kept: Tensor) -> None:
        """Book the upload, and take over the clients' new state."""
        federation = self.federation
        federation.ledger.received(self.cohort.ids, blocks[0].upload_bytes)
        federation.ledger.worked(self.cohort.ids, diagnostics["steps"])
        dropped = set(self.cohort.ids[~kept.numpy()].tolist())
        for block in blocks:
            federation.states |= {k: s for k, s in block.states.items() if s and k not in dropped}
        clients = self.cohort.ids != federation.data.server
        federation.log.add(self.cohort.ids[clients], {n: v[clients] for n, v in diagnostics.items()})


def _sum(parts: list[Tensor]) -> Tensor:
    """Sum in block order."""
    total = parts[0].clone()
    for part in parts[1:]:
        total.add_(part)
    return total
