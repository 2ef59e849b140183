"""The client's end of a compressed uplink."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from algorithms.draws import torch_generator
from algorithms.local import LocalRule, Tensors
from algorithms.parts.compressors import Compressor, NoCompression
from orchestrator.training.hooks import require_rows_apart, stirred
from orchestrator.training.messages import LOSSY, leaving, role

if TYPE_CHECKING:
    from torch import Tensor


@dataclass
class Uplink:
    """Sends what the compressor makes of each upload, and keeps what it left out for next time."""

    compressor: Compressor
    seed: int
    when: tuple[int, int]
    """(round, session within the round), of which every draw is a function."""
    ids: np.ndarray
    """The senders [C], in the order of the rows."""
    rule: LocalRule
    """Whose private entries never leave, and so take no room."""
    errors: Tensors
    """What was left out of earlier messages, by upload [C, ...]; replaced by what is left out now,
    where the compressor feeds errors back."""
    exempt: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    """Whose messages pass as they are: clients whose own will be replaced, and compressed after
    that, and the server where it trains itself, whose update does not travel."""

    def send(self, uploads: Tensors) -> Tensors:
        """What the server makes of ``uploads`` [C, ...]."""
        if isinstance(self.compressor, NoCompression):
            return uploads
        return {n: self._compressed(n, v) for n, v in uploads.items()}

    def _compressed(self, name: str, rows: Tensor) -> Tensor:
        if role(name, rows[0]) not in LOSSY:
            return rows
        mask = leaving(name, rows[0], self.rule)
        if mask is None:
            return self._message(name, rows)
        sent = rows.clone()
        sent[:, mask] = self._message(name, rows[:, mask])
        return sent

    def _message(self, name: str, rows: Tensor) -> Tensor:
        # error feedback (Karimireddy et al. 2019): what was left out is added to the next message
        before = self.errors.get(name)
        wanted = rows if before is None else rows + before

        def compressed(some: slice, stir: torch.Generator | None = None) -> Tensor:
            draws = [
                torch_generator(self.seed, f"compress {name}", *self.when, int(k))
                for k in self.ids[some]
            ]
            # a copy: one that works in place would leave nothing out
            return self.compressor.compress(stirred(wanted[some], stir), draws)

        require_rows_apart(
            self.compressor,
            "compress",
            self.when,
            len(rows),
            lambda *given: {name: compressed(*given)},
        )
        sent = compressed(slice(None))
        if self.compressor.feeds_back:
            left_out, old = wanted - sent, torch.zeros_like(rows) if before is None else before
            self.errors[name] = torch.where(self._exempt(rows), old, left_out)
        return torch.where(self._exempt(rows), rows, sent)

    def _exempt(self, rows: Tensor) -> Tensor:
        """Mask [C, 1]."""
        return torch.from_numpy(np.isin(self.ids, self.exempt)).to(rows.device)[:, None]
