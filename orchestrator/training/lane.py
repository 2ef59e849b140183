"""A lane: the clients that step together — one, or several vectorised."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Self

import numpy as np
import torch

from algorithms.draws import torch_seed
from algorithms.finite import finite_rows
from algorithms.flat import ParamSpec
from algorithms.local import Probe, Tensors, Work, writes
from orchestrator.errors import UserError
from orchestrator.training.batches import Batches, common_width, stacked
from orchestrator.training.engines import Contrast, Engine
from orchestrator.training.entries import Given, entries, require_remembered
from orchestrator.training.evaluation import per_sample, summed_gradient
from orchestrator.training.hooks import Tries, is_own_hook
from orchestrator.training.memory import Memory
from orchestrator.training.messages import BUFFERS, OPTIMIZER, PERSONAL, BlockSpec
from orchestrator.training.uplink import Uplink
from orchestrator.training.world import World

if TYPE_CHECKING:
    from torch import Tensor

AT_ONCE = 1 << 24
"""Numbers that a GPU gathers at a time, for steps to come."""
OF_WORK = ("w", "start", "clients", "samples", "steps")
"""Tensors of a lane's work, beside those that rules name."""
OF_LANE = ("buffers", "loss", "norms")
"""Tensors of its own, which steps change; what ``gradient`` holds is of one step."""


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
        self.world, self.engine, self.rule = world, engine, spec.rule
        self.t, self.session = spec.t, spec.session
        self.tries = Tries(self.t)
        self.own_direction = is_own_hook(self.rule, "direction")
        self.device = torch.device(world.device)
        order = self._plan(ids)
        fresh = self._fresh_memory(received)
        states = [spec.states.get(int(k), {}) for k in self.ids]
        self.memory = Memory.of(states, fresh, self.device)
        self.known = {name: rows.to("meta") for name, rows in self.memory.rule.items()}
        """What the rule's clients remember: of which shapes and types."""
        common = received[BUFFERS].expand(len(ids), -1)
        self.buffers = self.memory.statistics.get(self.kept_statistics or "", common).clone()
        self.work = self._work(received, {k: v[torch.from_numpy(order)] for k, v in own.items()})
        self.views = engine.views(self.work.w, self.buffers)
        self.gradient = torch.empty_like(self.work.w)
        self.loss = torch.zeros(len(ids), device=self.device)
        self.norms = torch.zeros(len(ids), len(engine.net.spec.layers), device=self.device)
        self.optimizer_state = self._optimizer(received)
        decays = world.local.optimizer.decays(engine.net.spec)
        self.decays = None if decays is None else decays.to(self.device)
        self.uplink = Uplink(
            world.uplink, world.seed, (self.t, self.session), self.ids, self.rule,
            self.memory.errors, np.append(world.forgers, world.data.clients),
        )  # fmt: skip

    def _plan(self, ids: np.ndarray) -> np.ndarray:
        """Who does how much, on which batches and labels; returns the order of the rows."""
        data, local = self.world.data, self.world.local
        sizes = data.holdings.sizes[ids]
        planned = np.array([local.planned(int(n)) for n in sizes])
        order = np.argsort(-planned, kind="stable")
        self.ids, self.sizes, self.planned = ids[order], sizes[order], planned[order]
        self.epoch = np.array([local.steps_per_epoch(int(n)) for n in self.sizes])
        self.trains = self.epoch > 0
        self.width = common_width(local.batch_size, int(sizes.max())) if len(ids) > 1 else 0
        self.done = np.zeros(len(ids), np.int64)
        self.streams = [
            Batches(data.holdings[k], local, self.world.seed, self.t, int(k), self.session)
            for k in self.ids
        ]
        flipped = np.isin(self.ids, self.world.mislabelled)[:, None]
        self.flipped = torch.from_numpy(flipped).to(self.device) if flipped.any() else None
        return order

    def _fresh_memory(self, received: Tensors) -> Tensors:
        """What a client remembers that has never taken part."""
        spec = self.engine.net.spec
        state = dict(self.rule.state(received, spec))
        if self.world.local.optimizer_state == "keep":
            zero = torch.zeros(spec.size, device=self.device)
            state |= {OPTIMIZER + k: v for k, v in self.world.local.optimizer.start(zero).items()}
        if self.kept_statistics:
            common = self.world.buffers == "aggregate"
            # where they are not sent, a client that joins late has none but the first model's
            state[self.kept_statistics] = (
                received[BUFFERS] if common else self.engine.net.initial_buffers
            )
        return state

    @property
    def kept_statistics(self) -> str | None:
        """Under which name the clients keep the batch-norm statistics of the model that they train;
        None where they do not, or the network has none.
        """
        if not self.engine.net.buffer_spec.size:
            return None
        if self.rule.personal:
            return PERSONAL
        return None if self.world.buffers == "aggregate" else BUFFERS

    def _work(self, received: Tensors, own: Tensors) -> Work:
        """What the rule's hooks see, with the models where local training starts."""
        work = Work(
            spec=self.engine.net.spec,
            clients=torch.from_numpy(self.ids).to(self.device),
            samples=torch.from_numpy(self.sizes).to(self.device),
            received=received,
            state=self.memory.rule,
            w=torch.empty(0),
            start=torch.empty(0),
            steps=torch.zeros(len(self.ids), device=self.device),
            lr=self.world.local.rate(self.t),
            own={k: v.to(self.device) for k, v in own.items()},
            private=self.rule.private,
        )
        self.tries.of(self.rule, "begin", work)
        work.start = self.rule.begin(work)
        require_remembered(self.rule, work, self.known)
        # row after row in memory, whatever begin returned: engines train on views of it
        work.w = work.start.clone(memory_format=torch.contiguous_format)
        return work

    def _optimizer(self, received: Tensors) -> Tensors:
        """The local optimiser's state [C, ...]: the clients', a new one, or the server's mean."""
        if self.world.local.optimizer_state == "keep":
            return self.memory.optimizer
        state = self.world.local.optimizer.start(self.work.w)
        for name in state:
            if OPTIMIZER + name in received:
                state[name].copy_(received[OPTIMIZER + name])
        return state

    def advance(
        self,
        steps: int | np.ndarray | None,
        step: Callable[[Lane, Tensor, Tensor, Tensor], None] | None = None,
    ) -> None:
        """Do ``steps`` steps on every client that has data, or (None) the rest of the planned work,
        each by ``step`` (unset: :meth:`step`).

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
        local, rate, step = self.world.local, self.world.local.rate(self.t), step or Lane.step
        # the first row has the most to do, and who is done is at the end
        if not batches[0]:
            return
        rows, sizes = stacked(batches, self.width)
        active = np.count_nonzero(sizes, axis=1)
        for s, (x, y) in enumerate(self._inputs(rows, sizes, active)):
            if self.rule.watches_accuracy:
                self._begin_epochs(s, active[s])
            if not local.steady:
                self.work.lr = rate * local.within.factor(self._number_of_step(s, active[s]))
            with self._randomness(s):
                step(self, x, y, torch.from_numpy(sizes[s, : active[s]]))
        self.done = self.done + wanted
        # of the last step, and of those who were still training then
        self.work.loss = torch.zeros(0)

    def _inputs(
        self, rows: np.ndarray, sizes: np.ndarray, active: np.ndarray
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs and targets [C, w, ...] of the first ``active`` [S] clients, step after step."""
        at_once = 1
        if self.device.type == "cuda" and not self.world.augment:
            # a launch takes a GPU longer than the batch
            at_once = max(
                1, AT_ONCE // (rows[0].size * int(np.prod(self.world.data.samples.shape)))
            )
        s = 0
        while s < len(rows):
            n, some = int(active[s]), slice(s, s + at_once)
            some = slice(s, s + int(np.count_nonzero(active[some] == n)))
            x, y = self.world.batch(rows[some, :n], self._changes(sizes[s, :n], rows.shape[2]))
            if self.flipped is not None:
                # the clients of a label-flipping attack
                y = torch.where(self.flipped[:n], self.world.flip(y), y)
            yield from zip(x, y, strict=True)
            s = some.stop

    def _number_of_step(self, step: int, active: int) -> int:
        """Of the first ``active`` clients' step under way, in the round; raises UserError where it
        is not the same of all.
        """
        done = self.done[:active]
        if (done != done[0]).any():
            raise UserError(
                "local.within: clients that step together have done different numbers of steps, "
                "and so have different rates; set local.execution to sequential"
            )
        return int(done[0]) + step + 1

    def _begin_epochs(self, step: int, active: int) -> None:
        """Tell the rule how well the models do that begin another pass over their data."""
        # clients that never train have epochs of 0 steps, and are not active
        starting = ((self.done + step) % np.maximum(self.epoch, 1) == 0) & (
            np.arange(len(self.ids)) < active
        )
        if not starting.any():
            return
        accuracy = torch.zeros(len(self.ids))
        for c in np.flatnonzero(starting):
            rows = self.world.data.holdings[self.ids[c]]
            flip = self._flips()[c]
            hit = per_sample(
                self.world, self.engine.net, self.work.w[c], self.buffers[c], rows, flip
            ).hit
            accuracy[c] = hit.float().mean()
        device = self.work.w.device
        work, about = self.work, (torch.from_numpy(starting).to(device), accuracy.to(device))
        given = Given.of(self.rule, work)
        self.tries.of(self.rule, "epoch", work, *about)
        self.rule.epoch(work, *about)
        given.keep(work, self.work, whole=True)
        # per_sample has bound the network to one model, in evaluation mode
        self.engine.attach(self.views)

    def step(self, x: Tensor, y: Tensor, sizes: Tensor) -> None:
        """One step of the first clients [C], on inputs x [C, w, ...] and targets y [C, w, ...], of
        which the first ``sizes`` [C] (on the CPU) count.

        What it does to tensors depends on :meth:`tensors`, the learning rate and its arguments.
        """
        active = len(sizes)
        local, work = self.world.local, self.work.first(active)
        given = Given.of(self.rule, work)
        g = self.gradient[:active]
        self.tries.of(self.rule, "references", work)
        compared = self.rule.references(work)
        contrast = (
            Contrast(compared, self.buffers[:active], self.rule.contrast) if compared else None
        )
        losses = self.engine.gradients(work.w, x, y, sizes, g, contrast)
        # what the network gives, before clipping
        if self.world.gradient_norms:
            self.norms[:active] += layer_norms(work.spec, g)
        if local.clip is not None:
            norms = torch.linalg.vector_norm(g, dim=1, keepdim=True)
            g.mul_((local.clip / norms.clamp_min(1e-12)).clamp_max(1.0))
        work.loss = losses
        # after clipping: the config clips the mini-batch gradient, not the rule's correction
        self.tries.of(self.rule, "direction", work, g)
        direction = self.rule.direction(g, work)
        if direction.shape != g.shape:
            raise UserError(
                f"{type(self.rule).__name__}: its direction is of shape {tuple(direction.shape)}, "
                f"where gradients are of shape {tuple(g.shape)}"
            )
        g = direction
        if self.own_direction:
            entries(self.rule, work)
            # the optimiser writes into it, and a user's own rule may keep what it returns
            g = direction.clone(memory_format=torch.contiguous_format)
        state = {k: v[:active] for k, v in self.optimizer_state.items()}
        # one of a user's own need not know of it
        masked = {} if self.decays is None else {"decays": self.decays}
        local.optimizer.step(state, work.w, g, work.lr, **masked)
        self.tries.of(self.rule, "after_step", work)
        self.rule.after_step(work)
        self.loss[:active] += losses
        given.keep(work, self.work)

    def answer(self, probe: Probe) -> Tensor:
        """What the clients answer [C, k]; raises UserError for a question that changes their
        models.
        """
        self.tries.of(probe, "answer", self.work)
        w, version = self.work.w, writes(self.work.w)
        answer = probe.answer(self.work)
        if self.work.w is not w or writes(w) != version:
            raise UserError(
                f"{type(probe).__name__} changes work.w, which the clients go on to train; change "
                "a copy"
            )
        return answer

    def tensors(self) -> Tensors:
        """All that steps read or change, by names of its own."""
        work = self.work
        groups = {
            "received": work.received,
            "own": work.own,
            "state": work.state,
            "extras": work.extras,
            "optimizer": self.optimizer_state,
        }
        found = {f"{group}/{n}": t for group, its in groups.items() for n, t in its.items()}
        found |= {name: getattr(work, name) for name in OF_WORK}
        found |= {name: getattr(self, name) for name in OF_LANE}
        return found if self.decays is None else found | {"decays": self.decays}

    @staticmethod
    def changing(names: Iterable[str]) -> list[str]:
        """Which of the names in :meth:`tensors` are of what steps may change."""
        groups = ("state/", "extras/", "optimizer/")
        return [n for n in names if n.startswith(groups) or n == "w" or n in OF_LANE]

    def on(self, tensors: Tensors) -> Self:
        """A lane that goes on as this one would, in other memory: ``tensors``, named as in
        :meth:`tensors`, of the first clients' batches too.
        """

        def group(name: str) -> Tensors:
            begin = name + "/"
            return {n.removeprefix(begin): t for n, t in tensors.items() if n.startswith(begin)}

        other = copy.copy(self)
        other.work = replace(
            self.work,
            received=group("received"),
            own=group("own"),
            state=group("state"),
            extras=group("extras"),
        )
        for name in OF_WORK:
            setattr(other.work, name, tensors[name])
        for name in OF_LANE:
            setattr(other, name, tensors[name])
        other.optimizer_state = group("optimizer")
        other.decays = tensors.get("decays")
        other.views = self.engine.views(other.work.w, other.buffers)
        return other

    def become(self, other: Lane) -> None:
        """Go on with what ``other``, which is :meth:`on` other memory, has come to."""
        self.work = replace(other.work, received=self.work.received)
        self.views, self.optimizer_state = other.views, other.optimizer_state
        for name in OF_LANE:
            setattr(self, name, getattr(other, name))

    def _changes(self, sizes: np.ndarray, width: int) -> list[np.ndarray]:
        """What is drawn for the inputs of the first clients' batches, name by name of the
        augmentations, [C * width, k]: each client by its own generator, whoever trains beside it.
        """
        shape = self.world.data.samples.shape
        drawn = [
            [one.draw(stream.changing, int(n), shape) for one in self.world.augment]
            for stream, n in zip(self.streams, sizes, strict=False)
        ]
        return [
            np.concatenate([np.pad(d, ((0, width - len(d)), (0, 0))) for d in each])
            for each in zip(*drawn, strict=True)
        ]

    def _flips(self) -> list[bool]:
        """Which clients look at their labels flipped."""
        return [False] * len(self.ids) if self.flipped is None else self.flipped[:, 0].tolist()

    @contextmanager
    def _randomness(self, step: int) -> Iterator[None]:
        """Key the network's draws (dropout) by seed, round, client, step, and later session."""
        if not self.engine.net.stochastic:
            yield
            return
        later = [self.session] if self.session else []
        # such a network is trained one client a lane, so the first is the only one
        seed = torch_seed(
            self.world.seed, "network", self.t, int(self.ids[0]), int(self.done[0]) + step, *later
        )
        on_gpu = self.world.device == "cuda"
        with torch.random.fork_rng([torch.cuda.current_device()] if on_gpu else []):
            # torch.manual_seed notes for each absent kind of device where it was called, which
            # takes a millisecond
            torch.default_generator.manual_seed(seed)
            if on_gpu:
                torch.cuda.manual_seed(seed)
            yield

    def standing(self) -> Tensors:
        """How far each client has come, name -> [C, ...]: ``delta``, and its batch-norm statistics
        where they are averaged, be it to evaluate only.
        """
        found = {"delta": self.work.w - self.work.start}
        return found | ({BUFFERS: self.buffers} if self._averages_statistics else {})

    @property
    def _averages_statistics(self) -> bool:
        return bool(self.buffers.numel()) and self.world.buffers != "exclude"

    def upload(self) -> tuple[Tensors, Tensors]:
        """(what each client sends, diagnostics), name -> [C, ...] in this lane's row order."""
        self.work.steps.copy_(torch.from_numpy(self.done))
        self.work.reach = self._reach()
        if self.rule.asks_gradient:
            self.work.extras["gradient"] = self._data_gradient()
        self.tries.of(self.rule, "upload", self.work)
        uploads = dict(self.rule.upload(self.work))
        require_remembered(self.rule, self.work, self.known)
        if self.rule.transmitted:
            uploads = self.uplink.send(uploads)
            # after the compressor: moments and statistics are sent whole
            if self.world.local.optimizer_state == "average":
                uploads |= {OPTIMIZER + n: v for n, v in self.optimizer_state.items()}
        self.tries.of(self.rule, "sent", self.work, uploads)
        self.rule.sent(self.work, uploads)
        require_remembered(self.rule, self.work, self.known)
        if self._averages_statistics:
            uploads[BUFFERS] = self.buffers
        return uploads, self._diagnostics(uploads)

    def _reach(self) -> Tensor:
        if self.world.local.steady:
            return self.work.steps * self.world.local.rate(self.t)
        each = [self.world.local.reach(self.t, int(n)) for n in self.done]
        return torch.tensor(each, device=self.device)

    def _diagnostics(self, uploads: Tensors) -> Tensors:
        """What a round's record says of each client, name -> [C]."""
        steps = self.work.steps
        moved = uploads["delta"] if "delta" in uploads else self.work.w - self.work.start
        # as a rule the move is what is sent
        sent = {id(t): t for t in (moved, *uploads.values(), *self._kept()) if t.numel()}
        found = {
            "train_loss": self.loss / steps.clamp_min(1),
            "update_norm": torch.linalg.vector_norm(moved, dim=1),
            "steps": steps,
            "finite": torch.stack([finite_rows(v) for v in sent.values()]).all(0),
        }
        if self.world.gradient_norms:
            means = (self.norms / steps.clamp_min(1).unsqueeze(1)).T
            layers = self.work.spec.layers
            found |= {f"gradient_norm/{n}": v for n, v in zip(layers, means, strict=True)}
        return found

    def _kept(self) -> list[Tensor]:
        """What the clients are about to remember [C, ...]: a NaN there would spoil a later round,
        and an infinite second moment end their training without a word.
        """
        kept = [*self.work.state.values(), *self.uplink.errors.values(), self.buffers]
        if self.world.local.optimizer_state == "keep":
            kept += self.optimizer_state.values()
        return kept

    def _data_gradient(self) -> Tensor:
        """Gradients [C, d] of the summed loss on all of each client's data, at its local model."""
        world, net = self.world, self.engine.net
        rows = [world.data.holdings[k] for k in self.ids]
        each = zip(self.work.w, self.buffers, rows, self._flips(), strict=True)
        return torch.stack([summed_gradient(world, net, w, b, mine, f) for w, b, mine, f in each])

    def states(self) -> dict[int, Tensors]:
        """What each client remembers after the round (see :class:`Memory`)."""
        self.memory.rule, self.memory.errors = self.work.state, self.uplink.errors
        if self.kept_statistics:
            self.memory.statistics = {self.kept_statistics: self.buffers}
        if self.world.local.optimizer_state == "keep":
            self.memory.optimizer = self.optimizer_state
        return {int(k): self.memory.of_client(c) for c, k in enumerate(self.ids)}


def layer_norms(spec: ParamSpec, vectors: Tensor) -> Tensor:
    """L2 norm of each layer's part of ``vectors`` [C, d] -> [C, layers]."""
    squares: dict[str, Tensor] = {}
    for e in spec.segments:
        part = vectors[:, e.start : e.stop].square().sum(1)
        squares[e.layer] = squares[e.layer] + part if e.layer in squares else part
    return torch.stack(list(squares.values()), 1).sqrt()
