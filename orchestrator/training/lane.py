"""A lane: the clients that step together — one client, or several vectorised."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from algorithms.draws import torch_generator, torch_seed
from algorithms.flat import ParamSpec
from algorithms.local import Tensors, Work
from algorithms.parts.compressors import NoCompression
from orchestrator.training.batches import Batches, stacked
from orchestrator.training.engines import Contrast, Engine
from orchestrator.training.evaluation import per_sample, summed_gradient
from orchestrator.training.world import World

if TYPE_CHECKING:
    from orchestrator.training.block import BlockSpec

OPTIMIZER, ERROR = "optimizer/", "error/"
BUFFERS = "buffers"


class Lane:
    """Local training of clients ``ids`` [C] in lock step.

    Rows are kept in order of falling planned work, so that clients which are done drop off the end.
    """

    def __init__(
        self,
        world: World,
        engine: Engine,
        spec: BlockSpec,
        ids: np.ndarray,
        received: Tensors,
        own: Tensors,
    ) -> None:
        self.world, self.engine, self.rule, self.t, self.session = (
            world,
            engine,
            spec.rule,
            spec.t,
            spec.session,
        )
        rule, states = spec.rule, spec.states
        sizes = world.data.holdings.sizes[ids]
        planned = np.array([world.local.planned(int(n)) for n in sizes])
        order = np.argsort(-planned, kind="stable")
        self.ids, self.planned = ids[order], planned[order]
        self.epoch = np.array([world.local.steps_per_epoch(int(n)) for n in sizes[order]])
        self.trains = self.epoch > 0
        self.done = np.zeros(len(ids), np.int64)
        self.streams = [
            Batches(world.data.holdings[k], world.local, world.seed, self.t, int(k), spec.session)
            for k in self.ids
        ]
        device = torch.device(world.device)
        flipped = torch.from_numpy(np.isin(self.ids, world.mislabelled)).to(device)
        self.flipped = flipped[:, None] if flipped.any() else None
        fresh = self._fresh_state(received)
        owned = [states.get(int(k), fresh) for k in self.ids]
        self.errors = _errors(owned, device)
        state = _stack(
            [{n: v for n, v in s.items() if not n.startswith(ERROR)} for s in owned], device
        )
        kept = {k: state.pop(k) for k in list(state) if k.startswith(OPTIMIZER)}
        self.buffers = state.pop(BUFFERS, received[BUFFERS].expand(len(ids), -1)).clone()
        self.work = Work(
            spec=engine.net.spec,
            clients=torch.from_numpy(self.ids).to(device),
            samples=torch.from_numpy(sizes[order]).to(device),
            received=received,
            state=state,
            w=torch.empty(0),
            start=torch.empty(0),
            steps=torch.zeros(len(ids), device=device),
            lr=world.local.rate(self.t),
            own={k: v[torch.from_numpy(order)].to(device) for k, v in own.items()},
        )
        self.work.start = rule.begin(self.work)
        self.work.w = self.work.start.clone(memory_format=torch.contiguous_format)
        self.views = engine.views(self.work.w, self.buffers)
        self.gradient = torch.empty_like(self.work.w)
        self.loss = torch.zeros(len(ids), device=device)
        self.norms = torch.zeros(len(ids), len(engine.net.spec.layers), device=device)
        self.optimizer_state = {k.removeprefix(OPTIMIZER): v for k, v in kept.items()}
        if world.local.optimizer_state != "keep":
            self.optimizer_state = world.local.optimizer.start(self.work.w)
            for name in self.optimizer_state:  # the average that the server handed out, if it did
                if OPTIMIZER + name in received:
                    self.optimizer_state[name].copy_(received[OPTIMIZER + name])

    def _fresh_state(self, received: Tensors) -> Tensors:
        """The state of a client that has never taken part."""
        spec = self.engine.net.spec
        state = dict(self.rule.state(received, spec))
        if self.world.local.optimizer_state == "keep":
            zero = torch.zeros(spec.size, device=self.world.device)
            state |= {OPTIMIZER + k: v for k, v in self.world.local.optimizer.start(zero).items()}
        if received[BUFFERS].numel() and self.world.buffers != "aggregate":
            state[BUFFERS] = received[BUFFERS]
        return state

    def advance(self, steps: int | np.ndarray | None) -> None:
        """Do ``steps`` steps on every client that has data, or (None) what is left of the planned
        work.

        Unequal steps [C] are for lanes of one client: several only ever finish in the order of
        their rows.
        """
        assert not isinstance(steps, np.ndarray) or len(self.ids) == 1, (
            "clients step together in this lane"
        )
        wanted = (
            np.where(self.trains, steps, 0)
            if steps is not None
            else np.maximum(self.planned - self.done, 0)
        )
        batches = [stream.take(int(n)) for stream, n in zip(self.streams, wanted, strict=True)]
        self.engine.attach(self.views)
        for s in range(len(batches[0])):
            taken = [mine[s] for mine in batches if len(mine) > s]
            if self.rule.watches_accuracy:
                self._begin_epochs(s, len(taken))
            with self._randomness(s):
                self._step(taken)
        self.done += wanted

    def _begin_epochs(self, step: int, active: int) -> None:
        """Tell the rule how well the models do that begin another pass over their data."""
        starting = ((self.done + step) % np.maximum(self.epoch, 1) == 0) & (
            np.arange(len(self.ids)) < active
        )
        if not starting.any():
            return
        accuracy = torch.zeros(len(self.ids))
        for c in np.flatnonzero(starting):
            rows = self.world.data.holdings[self.ids[c]]
            _, hit = per_sample(self.world, self.engine.net, self.work.w[c], self.buffers[c], rows)
            accuracy[c] = hit.float().mean()
        device = self.work.w.device
        self.rule.epoch(self.work, torch.from_numpy(starting).to(device), accuracy.to(device))
        self.engine.attach(self.views)

    def _step(self, batches: list[np.ndarray]) -> None:
        """One step of the first clients, on a batch each."""
        rows, sizes = stacked(batches)
        active = len(sizes)
        local, work = self.world.local, self.work.first(active)
        x, y = self.world.batch(rows)
        if self.flipped is not None:
            y = torch.where(self.flipped[:active], self.world.data.samples.classes - 1 - y, y)
        g = self.gradient[:active]
        compared = self.rule.references(work)
        contrast = (
            Contrast(compared, self.buffers[:active], self.rule.contrast) if compared else None
        )
        losses = self.engine.gradients(work.w, x, y, torch.from_numpy(sizes), g, contrast)
        if self.world.gradient_norms:
            self.norms[:active] += layer_norms(work.spec, g)
        if local.clip is not None:
            norms = torch.linalg.vector_norm(g, dim=1, keepdim=True)
            g.mul_((local.clip / norms.clamp_min(1e-12)).clamp_max(1.0))
        work.loss = losses
        g = self.rule.direction(g, work)
        state = {k: v[:active] for k, v in self.optimizer_state.items()}
        local.optimizer.step(state, work.w, g, work.lr)
        self.rule.after_step(work)
        self.loss[:active] += losses

    @contextmanager
    def _randomness(self, step: int) -> Iterator[None]:
        """Key the draws inside the network (dropout) by seed, round, client, step, and session if
        it is a later one.
        """
        if not self.engine.net.stochastic:
            yield
            return
        later = [self.session] if self.session else []
        seed = torch_seed(
            self.world.seed, "network", self.t, int(self.ids[0]), int(self.done[0]) + step, *later
        )
        on_gpu = self.world.device == "cuda"
        with torch.random.fork_rng([torch.cuda.current_device()] if on_gpu else []):
            # torch.manual_seed notes for each absent kind of device where it was called, which
            # takes a millisecond
            torch.cuda.manual_seed(seed) if on_gpu else torch.default_generator.manual_seed(seed)
            yield

    def upload(self) -> tuple[Tensors, Tensors]:
        """(what each client sends, diagnostics), name -> [C, ...] in this lane's row order."""
        self.work.steps.copy_(torch.from_numpy(self.done))
        if self.rule.asks_gradient:
            self.work.extras["gradient"] = self._data_gradient()
        uploads = dict(self.rule.upload(self.work))
        if self.rule.transmitted:
            uploads = {n: self._compressed(n, v) if v.dim() > 1 else v for n, v in uploads.items()}
            if self.world.local.optimizer_state == "average":
                uploads |= {OPTIMIZER + n: v for n, v in self.optimizer_state.items()}
        self.rule.sent(self.work, uploads)
        if self.buffers.numel() and self.world.buffers != "exclude":
            uploads[BUFFERS] = self.buffers
        moved = uploads["delta"] if "delta" in uploads else self.work.w - self.work.start
        # a sum is finite only if its terms are
        totals = [v.reshape(len(self.ids), -1).sum(1) for v in (moved, *uploads.values())]
        diagnostics = {
            "train_loss": self.loss / self.work.steps.clamp_min(1),
            "update_norm": torch.linalg.vector_norm(moved, dim=1),
            "steps": self.work.steps,
            "finite": torch.stack(totals).isfinite().all(0),
        }
        if self.world.gradient_norms:
            means = self.norms / self.work.steps.clamp_min(1).unsqueeze(1)
            diagnostics |= {
                f"gradient_norm/{n}": v for n, v in zip(self.work.spec.layers, means.T, strict=True)
            }
        return uploads, diagnostics

    def _data_gradient(self) -> Tensor:
        """Gradients [C, d] of the summed loss on all of each client's data, at its local model."""
        rows = [self.world.data.holdings[k] for k in self.ids]
        return torch.stack(
            [
                summed_gradient(self.world, self.engine.net, self.work.w[c], self.buffers[c], mine)
                for c, mine in enumerate(rows)
            ]
        )

    def _compressed(self, name: str, rows: Tensor) -> Tensor:
        """What the server makes of an upload [C, d], with error feedback where the compressor asks
        for it.
        """
        compressor = self.world.uplink
        if isinstance(compressor, NoCompression):
            return rows
        if (
            name == "delta" and self.rule.private
        ):  # what stays with the client takes no room in the message
            own, shared = rows.tensor_split([self.rule.private], dim=1)
            return torch.cat([own, self._message(name, shared)], 1)
        return self._message(name, rows)

    def _message(self, name: str, rows: Tensor) -> Tensor:
        compressor = self.world.uplink
        keys = [
            torch_generator(self.world.seed, f"compress {name}", self.t, self.session, int(k))
            for k in self.ids
        ]
        wanted = rows + self.errors[name] if name in self.errors else rows
        sent = compressor.compress(wanted, keys)
        if compressor.feeds_back:
            self.errors[name] = wanted - sent
        return sent

    def states(self) -> dict[int, Tensors]:
        """Each client's state after the round."""
        kept = self.work.state | {ERROR + name: rows for name, rows in self.errors.items()}
        if self.world.local.optimizer_state == "keep":
            kept |= {OPTIMIZER + k: v for k, v in self.optimizer_state.items()}
        if self.buffers.numel() and self.world.buffers != "aggregate":
            kept[BUFFERS] = self.buffers
        return {
            int(k): {name: v[c].clone() for name, v in kept.items()} for c, k in enumerate(self.ids)
        }


def layer_norms(spec: ParamSpec, vectors: Tensor) -> Tensor:
    """L2 norm of each layer's part of ``vectors`` [C, d] -> [C, layers]."""
    squares: dict[str, Tensor] = {}
    for e in spec.entries:
        part = vectors[:, e.start : e.stop].square().sum(1)
        squares[e.layer] = squares[e.layer] + part if e.layer in squares else part
    return torch.stack(list(squares.values()), 1).sqrt()


def _stack(rows: list[Tensors], device: torch.device) -> Tensors:
    """Row-wise stack of equally named tensors."""
    return {name: torch.stack([r[name].to(device) for r in rows]) for name in rows[0]}


def _errors(owned: list[Tensors], device: torch.device) -> Tensors:
    """What each client has left out of its earlier messages, by upload; 0 for one that has sent
    none.
    """
    like = {n: v for s in owned for n, v in s.items() if n.startswith(ERROR)}
    return {
        name.removeprefix(ERROR): torch.stack(
            [s.get(name, torch.zeros_like(v)).to(device) for s in owned]
        )
        for name, v in like.items()
    }
