"""A plane runs blocks somewhere. Both run the same commands on the same blocks: equal bits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from algorithms.local import Tensors
from orchestrator.training.evaluation import PerSample
from orchestrator.training.host import Answer, BlockHost, Key
from orchestrator.training.messages import BlockSpec, Command
from orchestrator.training.world import World, device_of

SHOWN = 5
"""Clients that are named where many could be."""


def abridged(ids: Sequence[int] | np.ndarray) -> str:
    """The first of some clients' numbers, for people."""
    return ", ".join(map(str, ids[:SHOWN])) + (", ..." if len(ids) > SHOWN else "")


@dataclass
class Assignment:
    """Commands for one block, with all that is needed to recreate the block elsewhere."""

    key: Key
    spec: BlockSpec
    received: Any
    """Handle from :meth:`Plane.share`."""
    replay: Sequence[Command]
    """Commands that the block has already executed."""
    commands: Sequence[Command]
    keep: bool
    """Whether more commands will follow."""
    cost: int
    """Expected work, for longest-first dispatch."""


class Plane(ABC):
    """Where blocks run."""

    actors: int = 1
    repeated: int = 0
    """Calls made again because their actor was lost or too slow."""

    @property
    def replaced(self) -> int:
        """Client actors that had to be replaced so far."""
        return 0

    @property
    def available(self) -> int:
        """Client actors that can be given work now."""
        return self.actors

    def events(self) -> list[str]:
        """What went wrong since this was last asked: a sentence for each actor lost."""
        return []

    @abstractmethod
    def share(self, tensors: Tensors) -> Any:
        """Make tensors available to every trainer once; returns a handle."""

    @abstractmethod
    def run(self, assignments: Sequence[Assignment]) -> list[Answer | None]:
        """Execute the assignments; answers in order, None where clients are dropped as slow."""

    @abstractmethod
    def evaluate(self, model: Any, chunks: Sequence[np.ndarray]) -> Iterable[PerSample]:
        """Per-sample results of a shared model on each chunk of rows, in order."""

    @abstractmethod
    def forget(self, keys: Sequence[Key]) -> None:
        """Drop blocks of an abandoned session."""

    def busy(self, answers: Sequence[Answer | None]) -> tuple[float, float]:
        """Of the time until the last answer, how long the trainers there are trained, and judged;
        what one client did is in the answers themselves.
        """
        # blocks run side by side, at most one at a time on each trainer
        beside = max(1, min(self.available, len(answers)))
        judging = sum(a.judging for a in answers if a is not None)
        every = sum(a.seconds for a in answers if a is not None)
        return (every - judging) / beside, judging / beside

    def close(self) -> None:
        """Release everything."""


class InProcess(Plane):
    """One block host in this process: tests, debugging, machines without Ray, trials of a sweep."""

    def __init__(self, world: World, gpus: float = 0.0) -> None:
        """``gpus``: how much of a GPU this process may use."""
        self.host = BlockHost(replace(world, device=device_of(gpus)))

    def share(self, tensors: Tensors) -> Tensors:
        # copies, as over Ray: what a trainer does in place must not reach the server
        return {k: v.clone() for k, v in tensors.items()}

    def run(self, assignments: Sequence[Assignment]) -> list[Answer | None]:
        return [self._run(one) for one in assignments]

    def _run(self, one: Assignment) -> Answer:
        if one.key in self.host.blocks:
            return self.host.resume(one.key, one.commands, one.keep)
        return self.host.start(one.key, one.spec, one.received, one.replay, one.commands, one.keep)

    def evaluate(self, model: Tensors, chunks: Sequence[np.ndarray]) -> Iterator[PerSample]:
        return (self.host.evaluate(model, rows) for rows in chunks)

    def forget(self, keys: Sequence[Key]) -> None:
        for key in keys:
            self.host.forget(key)
