"""A block host: the trainer inside every client actor, and inside the driver in the in-process plane."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from algorithms.local import Tensors
from orchestrator.training.block import Block, BlockSpec, Command, engines
from orchestrator.training.evaluation import per_sample
from orchestrator.training.world import World

Key = tuple[int, int]
"""(session, block)"""


@dataclass(frozen=True)
class Answer:
    """Answers to the commands of one call, and the seconds that they took."""

    outputs: list[Any]
    seconds: float


class BlockHost:
    """Keeps blocks between calls and executes commands on them."""

    def __init__(self, world: World) -> None:
        torch.set_num_threads(world.threads)
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        self.world = world
        self.engines = engines(world)
        self.blocks: dict[Key, Block] = {}

    def start(
        self, key: Key, spec: BlockSpec, received: Tensors, replay: Sequence[Command], commands: Sequence[Command],
        keep: bool,
    ) -> Answer:  # fmt: skip
        """Create a block, bring it to where its predecessor was (``replay``), then execute ``commands``."""
        begun = time.perf_counter()
        received = {k: v.to(self.world.device) for k, v in received.items()}
        self.blocks[key] = Block(self.world, self.engines[spec.vectorized], spec, received)
        for command in replay:
            self.blocks[key].run(command)
        answer = self.resume(key, commands, keep)
        return Answer(answer.outputs, time.perf_counter() - begun)

    def resume(self, key: Key, commands: Sequence[Command], keep: bool) -> Answer:
        """Execute ``commands`` on a block that an earlier call left here."""
        begun = time.perf_counter()
        block = self.blocks[key] if keep else self.blocks.pop(key)
        return Answer([block.run(c) for c in commands], time.perf_counter() - begun)

    def forget(self, key: Key) -> None:
        """Drop a block, if it is here."""
        self.blocks.pop(key, None)

    def evaluate(self, model: Tensors, rows: np.ndarray) -> tuple[Tensor, Tensor]:
        """Per-sample loss and correctness of the model {w, buffers} on ``rows``."""
        w, buffers = model["w"].to(self.world.device), model["buffers"].to(self.world.device)
        return per_sample(self.world, self.engines[False].net, w, buffers, rows)
