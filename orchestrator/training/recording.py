"""Training steps on a GPU, recorded once as a CUDA graph and then started as a whole.

A GPU is done with the kernels of a small network sooner than Python can start them one by one. The
recorded kernels are those that would be started otherwise, on the same numbers, so the results are
the same bits. A graph works on the very addresses that it was recorded with, so lanes of one kind
take turns in memory that stays: a :class:`Stand`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch

from algorithms.local import Tensors, writes
from orchestrator.training.engines import keep, told_apart

if TYPE_CHECKING:
    from torch import Tensor

    from orchestrator.training.lane import Lane

TRIALS = 3
"""Lanes whose replays are compared with the steps themselves before recordings are trusted: code of
others may do what tensors do not tell."""
STANDS = 8
"""Kinds of lanes that memory is kept for."""
KINDS = 64
"""Recorded steps that are kept of each."""

Replay: TypeAlias = "Callable[[], None]"
Capture: TypeAlias = "Callable[[Callable[[], None]], Replay | None]"


class Stands:
    """The memory in which an engine's lanes do recorded steps, by what tells them from others."""

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self.kept: dict[Hashable, Stand] = {}

    def advance(self, lane: Lane, steps: int | np.ndarray | None) -> None:
        """As :meth:`Lane.advance`, with steps that were recorded wherever they can be."""
        stand = self._of(lane)
        if stand is None:
            lane.advance(steps)
        elif not stand.watched:
            lane.advance(steps, stand.watch)
        else:
            there = stand.enter(lane)
            there.advance(steps, stand.step)
            stand.leave(there, lane)

    def _of(self, lane: Lane) -> Stand | None:
        """Where this lane can stand; None where its steps cannot be recorded."""
        net, its = lane.engine.net, told_apart(lane.rule)
        # what a draw on the CPU decides would be decided for ever
        if its is None or net.may_draw or getattr(net.module, "depends_on_values", False):
            return None
        tensors = lane.tensors()
        if any(t.device.type != lane.device.type for t in tensors.values()):
            return None
        places = [place(t) for t in tensors.values()]
        key = (
            its,
            lane.width,
            tuple((name, t.shape, t.dtype) for name, t in tensors.items()),
            tuple(places.index(one) for one in places),
        )
        stand = self.kept.get(key) or Stand(lane, self.capture)
        keep(self.kept, key, stand, STANDS)
        return stand if stand.steady and not entangled(tensors, lane.changing(tensors)) else None


class Stand:
    """Memory for lanes of one kind, and the steps that were recorded on it."""

    def __init__(self, lane: Lane, capture: Capture) -> None:
        """For lanes like this one."""
        self.capture = capture
        self.tensors = copied(lane.tensors())
        self.gradient = torch.empty_like(lane.gradient)
        self.batch: tuple[Tensor, Tensor] | None = None
        """Inputs [C, B, ...] and targets [C, B, ...] that recorded steps read."""
        self.kinds: dict[Hashable, int | Replay | None] = {}
        """Of each kind of step the recording, or how often it was done; None: it cannot be."""
        self.trials: dict[Hashable, int] = {}
        """Lanes in which such steps, with whatever learning rate, were as they should be."""
        self.tried: set[Hashable] = set()
        """Kinds of steps, without the rate, that the lane which is here has tried."""
        self.watched = False
        """Whether a first lane has done a step at home, as none is recorded, and nothing was seen
        that speaks against it."""
        self.steady = True
        """Whether steps have left tensors where they were, and alone what they may not change."""

    def watch(self, lane: Lane, x: Tensor, y: Tensor, sizes: Tensor) -> None:
        """A step of a lane at home, which tells whether its like can be recorded."""
        self._do(lane, x, y, sizes)
        self.watched = True

    def enter(self, lane: Lane) -> Lane:
        """The same lane, in this memory."""
        for name, tensor in lane.tensors().items():
            self.tensors[name].copy_(tensor)
        self.tried = set()
        there = lane.on(self.tensors)
        there.gradient = self.gradient
        return there

    def leave(self, there: Lane, lane: Lane) -> None:
        """Bring what ``there`` has changed back to the lane that entered."""
        lane.done, lane.work.lr, lane.work.loss = there.done, there.work.lr, there.work.loss
        if not self.steady:
            # it has made tensors of its own
            lane.become(there.on(copied(there.tensors())))
            return
        home = lane.tensors()
        for name in lane.changing(home):
            home[name].copy_(self.tensors[name])

    def step(self, lane: Lane, x: Tensor, y: Tensor, sizes: Tensor) -> None:
        """One step of a lane that has entered, recorded or not; as :meth:`Lane.step`."""
        shape = (x.shape, y.shape, lane.engine.count(sizes, y))
        key = (shape, lane.work.lr)
        # between steps, too, a rule is called
        self.steady = self.steady and (not lane.rule.watches_accuracy or self._holds(lane))
        kind = self.kinds.get(key, 0)
        if kind is None or not self.steady or self.trials.get(shape, 0) < 0:
            lane.step(x, y, sizes)
        elif not isinstance(kind, int):
            kind = self._replay(kind, shape, lane, x, y, sizes)
        elif kind:
            kind = self._record(lane, x, y, sizes)
        else:
            # in a first step, libraries choose their algorithms and take workspaces
            kind = 1
            self._do(lane, x, y, sizes)
        keep(self.kinds, key, kind, KINDS)

    def _do(self, lane: Lane, x: Tensor, y: Tensor, sizes: Tensor) -> None:
        before = Seen.of(lane)
        lane.step(x, y, sizes)
        self.steady = self.steady and before.is_all_that_changed(lane)

    def _holds(self, lane: Lane) -> bool:
        """Whether the tensors of a lane are those that are here."""
        return identical(lane.tensors(), self.tensors)

    def _load(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The batch, where recorded steps read it: it is of as many clients as still train."""
        if self.batch is None or any(
            there < here for there, here in zip(self.batch[1].shape, y.shape, strict=True)
        ):
            # what was recorded reads where the earlier ones were
            self.batch, self.kinds = (torch.empty_like(x), torch.empty_like(y)), {}
        here = self.batch[0][: len(x), : x.shape[1]], self.batch[1][: len(y), : y.shape[1]]
        here[0].copy_(x)
        here[1].copy_(y)
        return here

    def _record(self, lane: Lane, x: Tensor, y: Tensor, sizes: Tensor) -> Replay | None:
        """Do a step, and record it."""
        before, draws = self._copies(lane), _draws(lane)
        batch, other = self._load(x, y), lane.on(self.tensors)
        # what is recorded may not be looked at
        other.tries = replace(other.tries, on=False)
        replay = self.capture(lambda: other.step(*batch, sizes))
        # what was captured was not done, but for the draws
        self._put(before)
        draws()
        self._do(lane, x, y, sizes)
        return replay if self._holds(other) else None

    def _replay(
        self, replay: Replay, shape: Hashable, lane: Lane, x: Tensor, y: Tensor, sizes: Tensor
    ) -> Replay | None:
        """Do a step as it was recorded; None where that is not the step."""
        self._load(x, y)
        trials = self.trials.get(shape, 0)
        if trials == TRIALS:
            replay()
            return replay
        before, draws = self._copies(lane), _draws(lane)
        self._do(lane, x, y, sizes)
        after = self._copies(lane)
        self._put(before)
        draws()
        replay()
        # it extends a class of torch's: above, it would load torch for commands that train nothing
        from orchestrator.training.tracing import same

        if not self.steady or not same([*self._copies(lane).values()], [*after.values()]):
            self._put(after)
            self.trials[shape] = -1
            return None
        if shape not in self.tried:
            self.tried.add(shape)
            self.trials[shape] = trials + 1
        return replay

    def _copies(self, lane: Lane) -> Tensors:
        return {name: self.tensors[name].clone() for name in lane.changing(self.tensors)}

    def _put(self, copies: Tensors) -> None:
        for name, value in copies.items():
            self.tensors[name].copy_(value)


@dataclass(frozen=True)
class Seen:
    """A lane's tensors before a step, and how often each had been written to."""

    tensors: Tensors
    versions: dict[str, int]

    @classmethod
    def of(cls, lane: Lane) -> Seen:
        """As they are now."""
        tensors = lane.tensors()
        return cls(tensors, {name: writes(t) for name, t in tensors.items()})

    def is_all_that_changed(self, lane: Lane) -> bool:
        """Whether the lane still has these tensors, and of those that steps may not change none was
        written to.
        """
        now = lane.tensors()
        fixed = now.keys() - lane.changing(now)
        return identical(now, self.tensors) and all(
            writes(now[n]) == self.versions[n] for n in fixed
        )


def identical(ones: Tensors, others: Tensors) -> bool:
    """Whether they are the very same tensors by the same names."""
    return ones.keys() == others.keys() and all(t is others[name] for name, t in ones.items())


def copied(tensors: Tensors) -> Tensors:
    """Copies; what is one tensor by two names is one of them, too."""
    copies: dict[Hashable, Tensor] = {}
    for tensor in tensors.values():
        if place(tensor) not in copies:
            copies[place(tensor)] = tensor.clone(memory_format=torch.contiguous_format)
    return {name: copies[place(tensor)] for name, tensor in tensors.items()}


def entangled(tensors: Tensors, changing: list[str]) -> bool:
    """Whether any of the ``changing`` ones shares memory with another that is not the very same:
    copies of them would not.
    """
    own = {place(tensors[name]) for name in changing}
    others = {place(t) for t in tensors.values()} - own
    taken = [memory for memory, *_ in own if memory]
    return len(set(taken)) < len(taken) or not {m for m, *_ in others}.isdisjoint(taken)


def place(tensor: Tensor) -> tuple[int, int, torch.Size, tuple[int, ...]]:
    """Where a tensor lies: its memory (0: none) and which numbers of it."""
    memory = tensor.untyped_storage().data_ptr() if tensor.numel() else 0
    return memory, int(tensor.storage_offset()), tensor.shape, tensor.stride()


def _draws(lane: Lane) -> Callable[[], None]:
    """A function that puts the generator back that the network draws from."""
    if not lane.engine.net.stochastic:
        return lambda: None
    if lane.device.type == "cpu":
        numbers = torch.get_rng_state()
        return lambda: torch.set_rng_state(numbers)
    state = torch.cuda.get_rng_state(lane.device)
    return lambda: torch.cuda.set_rng_state(state, lane.device)


class CudaGraphs:
    """Captures on the current GPU, one at a time: what one leaves in memory the next may use."""

    def __init__(self) -> None:
        self.pool = torch.cuda.graph_pool_handle()

    def __call__(self, function: Callable[[], None]) -> Replay | None:
        """``function``'s kernels as a graph, which were not run; None where they do not make one
        (a value is looked at, say).
        """
        stream, graph = torch.cuda.current_stream(), torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self.pool):
                function()
        # a RuntimeError, too, but one that the user is told of
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:  # a synchronisation, which a graph cannot hold
            torch.cuda.set_stream(stream)
            return None
        return graph.replay
