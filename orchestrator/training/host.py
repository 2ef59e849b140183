"""A block host: the trainer inside every client actor, and inside the in-process plane."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from algorithms.local import Tensors
from orchestrator.errors import UserError
from orchestrator.training import hooks
from orchestrator.training.block import Block, engines
from orchestrator.training.evaluation import PerSample, per_sample
from orchestrator.training.messages import BlockSpec, Command
from orchestrator.training.recording import CudaGraphs, Stands
from orchestrator.training.world import World

Key = tuple[int, int]
"""(session, block)"""


@dataclass(frozen=True)
class Answer:
    """Answers to the commands of one call, and the seconds that they took."""

    outputs: list[Any]
    seconds: float
    """Of the whole call: with what was replayed, and with what only the judge wanted."""
    judging: float
    """What of these only the judge wanted."""
    clients: np.ndarray
    """Seconds that each client of the block [C] computed."""


class BlockHost:
    """Keeps blocks between calls and executes commands on them."""

    def __init__(self, world: World) -> None:
        torch.set_num_threads(world.threads)
        if world.device == "cuda":
            # sums by index (gradients of embeddings) go in a fixed order only if told to;
            # cuBLAS reads this before its first call
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
            torch.use_deterministic_algorithms(True, warn_only=True)
            # it would fill every new tensor, which costs time and changes nothing here
            torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
            # its gradients are added in any order
            torch.backends.cuda.enable_mem_efficient_sdp(False)
        # benchmark chooses algorithms by timing, which differs from run to run
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
        # TF32 rounds what is multiplied to 10 bits of mantissa
        rounds = world.local.precision == "tf32"
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = rounds
        hooks.forget()
        self.world = world
        self.engines = engines(world)
        graphs = CudaGraphs() if world.device == "cuda" else None
        self.stands = {kind: Stands(graphs) for kind in self.engines} if graphs else {}
        self.blocks: dict[Key, Block] = {}

    def start(
        self, key: Key, spec: BlockSpec, received: Tensors, replay: Sequence[Command],
        commands: Sequence[Command], keep: bool,
    ) -> Answer:  # fmt: skip
        """Create a block, bring it to where its predecessor was (``replay``), execute ``commands``.

        Raises UserError if the GPU's memory does not hold it.
        """
        begun = time.perf_counter()
        with _fitting():
            received = {k: v.to(self.world.device) for k, v in received.items()}
            kind = spec.vectorized
            where = self.stands.get(kind)
            self.blocks[key] = Block(self.world, self.engines[kind], spec, received, where)
            for command in replay:
                self.blocks[key].run(command)
            # counted when it was first done
            self.blocks[key].spent()
            answer = self.resume(key, commands, keep)
        return replace(answer, seconds=time.perf_counter() - begun)

    def resume(self, key: Key, commands: Sequence[Command], keep: bool) -> Answer:
        """Execute ``commands`` on a block that an earlier call left; raises as :meth:`start`."""
        begun = time.perf_counter()
        # if it goes, it goes first: nobody asks again for a block that failed
        block = self.blocks[key] if keep else self.blocks.pop(key)
        with _fitting():
            outputs = [block.run(c) for c in commands]
        return Answer(outputs, time.perf_counter() - begun, *block.spent())

    def forget(self, key: Key) -> None:
        """Drop a block, if it is here."""
        self.blocks.pop(key, None)

    def evaluate(self, model: Tensors, rows: np.ndarray) -> PerSample:
        """What the model {w, buffers} makes of ``rows``, by flipped labels if {flipped} is there,
        too.
        """
        w, buffers = model["w"].to(self.world.device), model["buffers"].to(self.world.device)
        net = self.engines[False].net
        return per_sample(self.world, net, w, buffers, rows, "flipped" in model)


@contextmanager
def _fitting() -> Iterator[None]:
    """Say in one sentence that a GPU's memory is too small."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise UserError(
            "the GPU's memory does not hold so many clients at once; lower local.block or "
            "local.batch_size, "
            f"or raise resources.gpus_per_actor ({str(error).splitlines()[0][:120]})"
        ) from error
