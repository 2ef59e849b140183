"""A block, the unit of work and of summation: fixed by the config, never by the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from algorithms.finite import finite_rows
from algorithms.local import Probe, Tensors, writes
from algorithms.parts.aggregators import weighted_sum
from orchestrator.data.federated import SPLITS
from orchestrator.errors import UserError
from orchestrator.training.clock import now, shares
from orchestrator.training.engines import Engine, Sequential, Vectorized
from orchestrator.training.evaluation import per_client, per_sample
from orchestrator.training.lane import Lane
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
    scalars,
    travelling,
    vectors,
    weight,
)
from orchestrator.training.world import World

if TYPE_CHECKING:
    from torch import Tensor

    from orchestrator.training.recording import Stands


class Block:
    """Runs commands on a block's clients, lane by lane; answers are always in client order."""

    def __init__(
        self,
        world: World,
        engine: Engine,
        spec: BlockSpec,
        received: Tensors,
        stands: Stands | None = None,
    ) -> None:
        """``stands``: where steps with this engine are recorded."""
        self.world, self.stands = world, stands
        self.spec = spec
        self._received = [(name, value, _standing(value)) for name, value in received.items()]
        """What was sent to the clients, and how it stood before."""
        size = len(spec.ids)
        groups = [slice(0, size)] if spec.vectorized else [slice(i, i + 1) for i in range(size)]
        self.lanes = [
            Lane(world, engine, spec, spec.ids[g], received, {k: v[g] for k, v in spec.own.items()})
            for g in groups
        ]
        # lanes sort their rows by planned work; answers go back in client order
        rows = np.concatenate([lane.ids for lane in self.lanes])
        self.order = np.argsort(rows, kind="stable")
        self._place = torch.from_numpy(self.order).to(world.device)
        self._judging, self._seconds = 0.0, np.zeros(size)

    def run(self, command: Command) -> Any:
        """Execute one command; None for those that only change the models."""
        begun, before = now(self.world.device), self._steps()
        answer = self._execute(command)
        self._require_untouched()
        took = now(self.world.device) - begun
        # the judge's work is not the clients'
        if isinstance(command, Evaluate | Look):
            self._judging += took
        else:
            self._seconds += shares(took, self._steps() - before)
        return answer

    def _require_untouched(self) -> None:
        """Raise UserError if the rule has written into what other clients have received, too: who
        they are is the machine's to say.
        """
        for name, value, standing in self._received:
            if _standing(value) != standing:
                raise UserError(
                    f"{type(self.spec.rule).__name__} changes work.received[{name!r}] in place, "
                    "which the other clients have received, too; change a copy"
                )

    def spent(self) -> tuple[float, np.ndarray]:
        """Seconds since this was last asked: of judging, and that each client [C] has computed."""
        spent = self._judging, self._seconds
        self._judging, self._seconds = 0.0, np.zeros(len(self.spec.ids))
        return spent

    def _steps(self) -> np.ndarray:
        """Local steps that each client [C] has done."""
        return np.concatenate([lane.done for lane in self.lanes])[self.order]

    def _execute(self, command: Command) -> Any:
        match command:
            case Advance(steps):
                for lane in self.lanes:
                    if isinstance(steps, np.ndarray):
                        self._advance(lane, steps[np.isin(self.spec.ids, lane.ids)])
                    else:
                        self._advance(lane, steps)
                return None
            case Ask(probe, weights, drop):
                return self._answers(probe, weights, drop)
            case Evaluate():
                return self._evaluate()
            case Look(weights, drop):
                return self._look(weights, drop)
            case Collect(weights, drop):
                return self._collect(weights, drop)

    def _advance(self, lane: Lane, steps: int | np.ndarray | None) -> None:
        if self.stands is None:
            lane.advance(steps)
        else:
            self.stands.advance(lane, steps)

    def _rows(self, pieces: list[Tensor]) -> Tensor:
        if len(pieces) == 1 and (np.diff(self.order) == 1).all():
            return pieces[0]
        return torch.cat(pieces)[self._place]

    def _answers(self, probe: Probe, weights: np.ndarray | None, drop: bool) -> Tensor | Part:
        rows, counted = self._rows([lane.answer(probe) for lane in self.lanes]), self._counted(drop)
        if weights is not None:
            return Part.of({ANSWER: rows}, weights, counted)
        rows = rows.cpu()
        lost = torch.from_numpy(~counted)
        return rows if counted.all() else rows.masked_fill(lost[:, None], torch.nan)

    def _counted(self, drop: bool) -> np.ndarray:
        """Whose model is of numbers [C], where others are to be left out."""
        if not drop:
            return np.ones(len(self.order), bool)
        each = [finite_rows(one.work.w) & finite_rows(one.buffers) for one in self.lanes]
        return self._rows(each).cpu().numpy()

    def _look(self, weights: np.ndarray, drop: bool) -> Part:
        """The changes of the models and the batch-norm statistics, summed with ``weights`` [C]."""
        pieces = [lane.standing() for lane in self.lanes]
        rows = {n: self._rows([piece[n] for piece in pieces]) for n in pieces[0]}
        return Part.of(rows, weights, self._counted(drop))

    def _collect(self, weights: np.ndarray | None, drop: bool) -> Collected:
        pairs = [lane.upload() for lane in self.lanes]
        uploads = {n: self._rows([u[n] for u, _ in pairs]) for n in pairs[0][0]}
        diagnostics = {n: self._rows([d[n] for _, d in pairs]).cpu() for n in pairs[0][1]}
        sent = vectors(uploads)
        if weights is not None:
            # weighted_sum skips rows of weight 0, whatever they hold
            counted = weights * diagnostics["finite"].numpy() if drop else weights
            sent = {n: weighted_sum(v, counted) for n, v in sent.items()}
        return Collected(
            vectors={n: v.cpu() for n, v in sent.items()},
            scalars={n: v.cpu() for n, v in scalars(uploads).items()},
            diagnostics=diagnostics,
            states=self._states(),
            # uploads are of one shape, so the first client stands for each
            upload_bytes=self._weight({n: v[0] for n, v in uploads.items()}),
        )

    def _states(self) -> dict[int, Tensors]:
        found = [item for lane in self.lanes for item in lane.states().items()]
        return {k: {n: v.cpu() for n, v in state.items()} for k, state in found}

    def _weight(self, one: Tensors) -> int:
        """Bytes that a client transmits whose uploads are ``one``."""
        rule = self.spec.rule
        if not rule.transmitted:
            return 0
        return weight(travelling(one, rule, self.world.buffers), self.world.uplink)

    def _evaluate(self) -> Tensors:
        """Correct answers, summed loss and number of rows [C, 3] of each client, by ``SPLITS``."""
        results: dict[int, list[Tensor]] = {}
        for lane in self.lanes:
            for c, k in enumerate(lane.ids):
                model = lane.engine.net, lane.work.w[c], lane.buffers[c]
                results[int(k)] = [
                    per_client(*per_sample(self.world, *model, rows)[:2], np.array([len(rows)]))[0]
                    for rows in self.world.data.judging(int(k))
                ]
        each = zip(*[results[k] for k in sorted(results)], strict=True)
        return {name: torch.stack(table) for name, table in zip(SPLITS, each, strict=True)}


def _standing(value: Tensor) -> tuple[int, int]:
    """How often it has been written to, and where its numbers are."""
    return writes(value), value.data_ptr()


def engines(world: World) -> dict[bool, Engine]:
    """The engine for each value of ``BlockSpec.vectorized``, on one shared network."""
    # one for both: each brings its own vectors to whatever it computes
    net = world.net()
    local = world.local
    common = net, world.loss, local.precision
    return {False: Sequential(*common, local.micro_batch), True: Vectorized(*common)}
