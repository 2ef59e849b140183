"""A block: the unit of work and of summation. Its clients are fixed by the config, never by the
machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from algorithms.local import LocalRule, Probe, Tensors
from algorithms.parts.aggregators import weighted_sum
from algorithms.parts.compressors import NoCompression
from orchestrator.training.engines import Engine, Sequential, Vectorized
from orchestrator.training.evaluation import per_client, per_sample
from orchestrator.training.lane import BUFFERS, OPTIMIZER, Lane
from orchestrator.training.recording import Recorded
from orchestrator.training.world import World


@dataclass(frozen=True)
class BlockSpec:
    """Which clients train together in a round, under which rule, from which state."""

    ids: np.ndarray
    """Client ids [C], ascending."""
    rule: LocalRule
    states: dict[int, Tensors]
    """State of the clients that have one."""
    own: Tensors
    """What each client has of its own, [C, ...]."""
    t: int
    session: int
    """Number of the session within round ``t``, from 0."""
    vectorized: bool


@dataclass(frozen=True)
class Advance:
    """Local steps, the same for all or of each client [C]; None means what is left of the config's
    local work.
    """

    steps: int | np.ndarray | None


@dataclass(frozen=True)
class Ask:
    """A probe; ``weights`` [C] for this block's part of the weighted sum, or None for the rows."""

    probe: Probe
    weights: np.ndarray | None


@dataclass(frozen=True)
class Evaluate:
    """Accuracy and loss of each local model on its client's test rows."""


@dataclass(frozen=True)
class Collect:
    """The uploads: this block's part of the weighted sums, or rows, with what is needed to finish
    them.

    With ``drop`` set, clients with a non-finite upload are left out of the sums.
    """

    weights: np.ndarray | None
    drop: bool


Command = Advance | Ask | Evaluate | Collect


@dataclass(frozen=True)
class Collected:
    """One block's answer to :class:`Collect`."""

    vectors: Tensors
    """name -> [...] (weighted sum) or [C, ...] (rows)."""
    scalars: Tensors
    """Uploads of one number a client, name -> [C]."""
    diagnostics: Tensors
    """train_loss, update_norm, steps, finite -> [C]."""
    states: dict[int, Tensors]
    upload_bytes: int
    """Bytes that one client transmits."""


class Block:
    """Runs commands on a block's clients, lane by lane; answers are always in client order."""

    def __init__(self, world: World, engine: Engine, spec: BlockSpec, received: Tensors) -> None:
        self.world = world
        self.spec = spec
        size = len(spec.ids)
        groups = [slice(0, size)] if spec.vectorized else [slice(i, i + 1) for i in range(size)]
        self.lanes = [
            Lane(world, engine, spec, spec.ids[g], received, {k: v[g] for k, v in spec.own.items()})
            for g in groups
        ]
        rows = np.concatenate([lane.ids for lane in self.lanes])
        self.order = torch.from_numpy(np.argsort(rows, kind="stable"))

    def run(self, command: Command) -> Any:
        """Execute one command; None for those that only change the models."""
        match command:
            case Advance(steps):
                for lane in self.lanes:
                    lane.advance(
                        steps[np.isin(self.spec.ids, lane.ids)]
                        if isinstance(steps, np.ndarray)
                        else steps
                    )
                return None
            case Ask(probe, weights):
                rows = self._rows([probe.answer(lane.work) for lane in self.lanes])
                return rows.cpu() if weights is None else weighted_sum(rows, weights).cpu()
            case Evaluate():
                return self._evaluate()
            case Collect(weights, drop):
                return self._collect(weights, drop)

    def _rows(self, pieces: list[Tensor]) -> Tensor:
        return (
            pieces[0]
            if len(self.order) == 1
            else torch.cat(pieces)[self.order.to(pieces[0].device)]
        )

    def _collect(self, weights: np.ndarray | None, drop: bool) -> Collected:
        pairs = [lane.upload() for lane in self.lanes]
        uploads = {n: self._rows([u[n] for u, _ in pairs]) for n in pairs[0][0]}
        diagnostics = {n: self._rows([d[n] for _, d in pairs]).cpu() for n in pairs[0][1]}
        scalars = {n: v.cpu() for n, v in uploads.items() if v.dim() == 1}
        vectors = {n: v for n, v in uploads.items() if v.dim() > 1}
        if weights is not None:
            counted = weights * diagnostics["finite"].numpy() if drop else weights
            vectors = {n: weighted_sum(v, counted) for n, v in vectors.items()}
        states: dict[int, Tensors] = {}
        for lane in self.lanes:
            states |= {k: {n: v.cpu() for n, v in s.items()} for k, s in lane.states().items()}
        one = (
            sum(self._wire(n, v[0]) for n, v in uploads.items())
            if self.spec.rule.transmitted
            else 0
        )
        return Collected(
            {n: v.cpu() for n, v in vectors.items()}, scalars, diagnostics, states, one
        )

    def _wire(self, name: str, one: Tensor) -> int:
        """Bytes of one client's upload ``name``."""
        if name == BUFFERS and self.world.buffers != "aggregate":
            return 0
        if name == "delta" and self.spec.rule.private:
            one = one[self.spec.rule.private :]
        plain = isinstance(self.world.uplink, NoCompression)
        if plain or name == BUFFERS or name.startswith(OPTIMIZER) or one.dim() == 0:
            return one.numel() * one.element_size()
        return self.world.uplink.nbytes(one.numel())

    def _evaluate(self) -> Tensors:
        """Correct answers, summed loss and number of test rows of each client [C]."""
        results: dict[int, Tensor] = {}
        for lane in self.lanes:
            for c, k in enumerate(lane.ids):
                rows = self.world.data.test_of(int(k))
                loss, hit = per_sample(
                    self.world, lane.engine.net, lane.work.w[c], lane.buffers[c], rows
                )
                results[int(k)] = per_client(loss, hit, np.array([len(rows)]))[0]
        table = torch.stack([results[k] for k in sorted(results)])
        return {"correct": table[:, 0], "loss": table[:, 1], "rows": table[:, 2]}


def engines(world: World) -> dict[bool, Engine]:
    """The engine for each value of ``BlockSpec.vectorized``, on one shared network."""
    net = world.net()
    one = Recorded(net, world.local.batch_size) if world.device == "cuda" else Sequential(net)
    return {False: one, True: Vectorized(net)}
