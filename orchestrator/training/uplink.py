"""The client's end of a compressed uplink."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from algorithms.draws import torch_generator
from algorithms.local import Tensors
from algorithms.parts.compressors import Compressor, NoCompression
from orchestrator.training.messages import LOSSY, Role, role


@dataclass
class Uplink:
    """Sends what the compressor makes of each upload, and keeps what it left out for next time."""

    compressor: Compressor
    seed: int
    when: tuple[int, int]
    """(round, session within the round), of which every draw is a function."""
    ids: np.ndarray
    """The senders [C], in the order of the rows."""
    private: int
    """Entries at the beginning of the model that never leave, and so take no room."""
    errors: Tensors
    """What was left out of earlier messages, by upload [C, ...]; replaced by what is left out now,
    where the compressor feeds errors back."""

    def send(self, uploads: Tensors) -> Tensors:
        """What the server makes of ``uploads`` [C, ...]."""
        if isinstance(self.compressor, NoCompression):
            return uploads
        return {n: self._compressed(n, v) for n, v in uploads.items()}

    def _compressed(self, name: str, rows: Tensor) -> Tensor:
        what = role(name, rows[0])
        if what not in LOSSY:
            return rows
        if what is not Role.model or not self.private:
            return self._message(name, rows)
        stays, shared = rows.tensor_split([self.private], dim=1)
        return torch.cat([stays, self._message(name, shared)], 1)

    def _message(self, name: str, rows: Tensor) -> Tensor:
        draws = [
            torch_generator(self.seed, f"compress {name}", *self.when, int(k)) for k in self.ids
        ]
        # error feedback (Karimireddy et al. 2019): what was left out is added to the next message
        wanted = rows + self.errors[name] if name in self.errors else rows
        sent = self.compressor.compress(wanted, draws)
        if self.compressor.feeds_back:
            self.errors[name] = wanted - sent
        return sent
