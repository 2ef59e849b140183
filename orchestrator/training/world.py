"""What every trainer needs to know, once per process."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch

from algorithms.local_config import LocalConfig
from algorithms.parts.compressors import Compressor, NoCompression
from algorithms.parts.losses import CrossEntropy, Loss
from orchestrator.data.augment import Augmentation
from orchestrator.data.federated import FederatedData
from orchestrator.data.mapped import Mapped
from orchestrator.models.base import Model
from orchestrator.models.net import Net
from orchestrator.training.messages import BufferPolicy

if TYPE_CHECKING:
    from torch import Tensor

    from orchestrator.plugins.plugin import Plugin


def device_of(gpus: float) -> str:
    """Where a process with so much of a GPU computes: there, within its share, or on the CPU."""
    if gpus <= 0 or not torch.cuda.is_available():
        return "cpu"
    # Ray only counts the shares of a GPU; this holds a process to its own
    torch.cuda.set_per_process_memory_fraction(min(1.0, gpus))
    return "cuda"


@dataclass
class World:
    """The federation as a trainer sees it; sent to every actor once."""

    data: FederatedData
    model: Model
    local: LocalConfig
    buffers: BufferPolicy
    seed: int
    threads: int
    mislabelled: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    """Ids of the clients that train on flipped labels."""
    forgers: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    """Ids of the clients whose messages are replaced before they are compressed."""
    uplink: Compressor = field(default_factory=NoCompression)
    loss: Loss = field(default_factory=CrossEntropy)
    augment: tuple[Augmentation, ...] = ()
    outputs: bool = False
    """Whether evaluations return the model's outputs, which metrics are made of."""
    gradient_norms: bool = False
    """Whether to record the norm of the mini-batch gradients of each layer."""
    draws: bool = False
    """Whether the network draws random numbers where no look at its modules tells."""
    device: str = "cpu"
    plugins: Sequence[Plugin] = ()
    """Of the run."""
    imports: Mapping[str, str] = field(default_factory=dict)
    """What they import: a process that finds something else by these names is of no use."""

    def net(self) -> Net:
        """A fresh network with the run's initial weights."""
        samples = self.data.samples
        net = Net.of(self.model, samples.shape, samples.outputs, self.seed)
        net.may_draw = self.draws
        return net.to(torch.device(self.device))

    @cached_property
    def inputs(self) -> Tensor | None:
        """All inputs, on the device; shared memory on the CPU, so it must never be written to. None
        where they stay on the disk.
        """
        if isinstance(self.data.samples.x, Mapped):
            return None
        # torch warns of arrays that cannot be written to, such as Ray's
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return torch.from_numpy(self.data.samples.x).to(self.device)

    @cached_property
    def labels(self) -> Tensor:
        """All targets (:attr:`Samples.wanted`), on the device; never written to."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return torch.from_numpy(self.data.samples.wanted).to(self.device)

    @cached_property
    def _scaling(self) -> tuple[Tensor, Tensor]:
        shape = (-1, *[1] * (len(self.data.samples.shape) - 1))
        shift, scale = (
            torch.tensor(v, device=self.device).view(shape)
            for v in (self.data.shift, self.data.scale)
        )
        return shift, scale

    def flip(self, labels: Tensor) -> Tensor:
        """What a label-flipping client makes of its labels: C − 1 − y."""
        return self.data.samples.classes - 1 - labels

    def batch(self, rows: np.ndarray, changes: Sequence[np.ndarray] = ()) -> tuple[Tensor, Tensor]:
        """Inputs [*rows.shape, ...] ready for the network, changed by what was drawn for each of
        ``augment`` [rows.size, k]; and targets [*rows.shape] (numbers, tokens: [*rows.shape, o]).
        """
        flat = rows.ravel()
        index = torch.from_numpy(flat).to(self.device)
        held = self.inputs
        if held is None:
            # looked up by NumPy's rows: those on a GPU could be read only after all it has to do
            x = torch.from_numpy(self.data.samples.x[flat]).to(self.device)
        else:
            # index_select on bytes, scaled afterwards: 16 against 276 µs (benchmarks/README.md)
            x = held.index_select(0, index)
        for augmentation, drawn in zip(self.augment, changes, strict=False):
            x = augmentation.apply(x, torch.from_numpy(drawn).to(self.device))
        x = x.view(*rows.shape, *self.data.samples.shape)
        if x.dtype == torch.uint8:
            shift, scale = self._scaling
            # in place on the copy that float() has made
            x = x.float().sub_(shift).mul_(scale)
        targets = self.labels.index_select(0, index)
        return x, targets.view(*rows.shape, *self.labels.shape[1:])
