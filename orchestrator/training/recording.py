"""Training steps on a GPU, recorded once as a CUDA graph and then started as a whole.

A GPU is done with the kernels of a small network sooner than Python can start them one by one. The
recorded kernels are those that would be started otherwise, on the same numbers, so the results are
the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from algorithms.local_config import Precision
from algorithms.parts.losses import Loss
from orchestrator.models.net import Net
from orchestrator.training.engines import Contrast, Sequential

if TYPE_CHECKING:
    from torch import Tensor

WARM_UP = 3
"""Steps before recording, in which libraries choose their algorithms and take workspaces."""


@dataclass(frozen=True)
class Recording:
    """A step on tensors of its own, which are filled before and read after it is replayed."""

    graph: torch.cuda.CUDAGraph
    inputs: tuple[Tensor, ...]
    """Model [d], buffers [b], inputs [B, ...], labels [B]."""
    gradient: Tensor
    loss: Tensor

    @property
    def buffers(self) -> Tensor:
        """Statistics [b], which the step changes."""
        return self.inputs[1]


class Recorded(Sequential):
    """:class:`Sequential` on a GPU, with full batches replayed; other batches, and contrasts, are
    computed as ever.

    A network that cannot be recorded (what it computes depends on values of its inputs) is not.
    """

    def __init__(self, net: Net, loss: Loss, precision: Precision, batch_size: int) -> None:
        super().__init__(net, loss, precision)
        self.batch_size = batch_size
        self.recording: Recording | None = None
        # what a draw on the CPU decides would be decided for ever
        self.recordable = not (getattr(net.module, "depends_on_values", False) or net.may_draw)
        self.attached: list[Tensor] = []

    def views(self, w: Tensor, buffers: Tensor) -> list[Tensor]:
        return [buffers[0], *super().views(w, buffers)]

    def attach(self, views: list[Tensor]) -> None:
        self.attached = views

    def gradients(
        self,
        w: Tensor,
        x: Tensor,
        y: Tensor,
        sizes: Tensor,
        out: Tensor,
        contrast: Contrast | None = None,
    ) -> Tensor:
        usual = contrast is None and int(sizes[0]) == self.batch_size
        buffers = self.attached[0]
        now = (w[0], buffers, x[0], y[0])
        if usual and self.recordable and self.recording is None:
            self._try_to_record(now)
        if not usual or self.recording is None:
            super().attach(self.attached[1:])
            return super().gradients(w, x, y, sizes, out, contrast)
        step = self.recording
        for place, value in zip(step.inputs, now, strict=True):
            place.copy_(value)
        step.graph.replay()
        out[0].copy_(step.gradient)
        buffers.copy_(step.buffers)
        # a copy: the next replay writes over it
        return step.loss.clone().unsqueeze(0)

    def _try_to_record(self, example: tuple[Tensor, ...]) -> None:
        stream = torch.cuda.current_stream()
        try:
            # the warm-up draws numbers that no step of the run may miss
            with torch.random.fork_rng([stream.device]):
                # copies, because the graph works on the very addresses that it was recorded with
                self.recording = self._record(tuple(t.clone() for t in example))
        # a RuntimeError, too, but one that the user is told of
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:  # a synchronisation, which a graph cannot hold
            torch.cuda.set_stream(stream)
            self.recordable = False

    def _record(self, inputs: tuple[Tensor, ...]) -> Recording:
        """Record a step on these tensors."""
        gradient = torch.empty_like(inputs[0])
        super().attach(self.net.views(*inputs[:2]))
        # torch asks for the warm-up on a side stream
        beside = torch.cuda.Stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            for _ in range(WARM_UP):
                self._step(inputs, gradient)
        torch.cuda.current_stream().wait_stream(beside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loss = self._step(inputs, gradient)
        return Recording(graph, inputs, gradient, loss)

    def _step(self, inputs: tuple[Tensor, ...], gradient: Tensor) -> Tensor:
        loss = self._mean(inputs[2], inputs[3], None)
        self.net.gradient(loss, gradient)
        return loss.detach()
