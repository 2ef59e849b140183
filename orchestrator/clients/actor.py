"""The client actor: a Ray actor, pinned to part of a GPU, that trains the clients it is handed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import ray
import torch

from algorithms.local import Tensors
from orchestrator.clients.plane import abridged
from orchestrator.plugins.imports import require_imports
from orchestrator.training.evaluation import PerSample
from orchestrator.training.host import Answer, BlockHost, Key
from orchestrator.training.messages import BlockSpec, Command
from orchestrator.training.world import World, device_of

if TYPE_CHECKING:
    from torch import Tensor


def tensors_travel_as_arrays() -> None:
    """Send tensors through Ray as NumPy buffers and copy them on arrival.

    Ray maps received arrays from shared memory; a tensor made from one without a copy would let an
    in-place step of an optimiser change the object for every process on the node.
    """
    ray.util.register_serializer(torch.Tensor, serializer=_to_array, deserializer=_to_tensor)


# functions with a name travel by reference, which is 2 ms a call faster than lambdas by value
def _to_array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy()


def _to_tensor(array: np.ndarray) -> Tensor:
    return torch.tensor(array)


@dataclass(frozen=True)
class Process:
    """Where a client actor runs."""

    pid: int
    device: str


class ClientActor:
    """Hosts one or many clients; created by the pool, and replaced from explicit state."""

    def __init__(self, world: World, run: str, index: int, gpus: float) -> None:
        tensors_travel_as_arrays()
        self.run_name, self.index = run, index
        self.host = BlockHost(replace(world, device=device_of(gpus)))

    def __repr__(self) -> str:
        return f"fedorch {self.run_name} clients #{self.index}"

    def _tell(self, spec: BlockSpec) -> None:
        """Show in the process's title, until this call ends, what is done.

        Names of tasks would show it, too, but each process keeps statistics of every name that it
        has ever seen.
        """
        raylet: Any = ray._raylet
        raylet.setproctitle(f"ray::{self!r}, round {spec.t}: clients {abridged(spec.ids)}")

    def ready(self) -> Process:
        """Answers once the actor can work; raises UserError where its plugins import other code."""
        require_imports(self.host.world.plugins, self.host.world.imports)
        return Process(os.getpid(), self.host.world.device)

    def start(
        self, key: Key, spec: BlockSpec, received: Tensors, replay: Sequence[Command],
        commands: Sequence[Command], keep: bool,
    ) -> Answer:  # fmt: skip
        """See :meth:`BlockHost.start`."""
        self._tell(spec)
        return self.host.start(key, spec, received, replay, commands, keep)

    def resume(self, key: Key, commands: Sequence[Command], keep: bool) -> Answer:
        """See :meth:`BlockHost.resume`."""
        self._tell(self.host.blocks[key].spec)
        return self.host.resume(key, commands, keep)

    def forget(self, key: Key) -> None:
        """See :meth:`BlockHost.forget`."""
        self.host.forget(key)

    def evaluate(self, model: Tensors, rows: np.ndarray) -> PerSample:
        """See :meth:`BlockHost.evaluate`."""
        return self.host.evaluate(model, rows)
