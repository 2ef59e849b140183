"""The account of bytes and joules: what a deployment would transmit and spend, per client."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor

from algorithms.local import Tensors


def payload(tensors: Tensors) -> int:
    """Bytes of a message that carries ``tensors`` at their own dtypes."""
    return sum(size(t) for t in tensors.values())


def size(tensor: Tensor) -> int:
    """Bytes of one tensor."""
    return tensor.numel() * tensor.element_size()


@dataclass
class Ledger:
    """Bytes to (down) and from (up) each of N clients, and its local steps, since the start of the run."""

    clients: int
    steps: np.ndarray = field(init=False)
    down: np.ndarray = field(init=False)
    up: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.down = np.zeros(self.clients, np.int64)
        self.up = np.zeros(self.clients, np.int64)
        self.steps = np.zeros(self.clients, np.int64)

    def sent(self, ids: np.ndarray, nbytes: int | np.ndarray) -> None:
        """The server sent ``nbytes`` to each of ``ids``."""
        self._book(self.down, ids, nbytes)

    def received(self, ids: np.ndarray, nbytes: int | np.ndarray) -> None:
        """The server received ``nbytes`` from each of ``ids``."""
        self._book(self.up, ids, nbytes)

    def worked(self, ids: np.ndarray, steps: np.ndarray) -> None:
        """Clients ``ids`` did ``steps`` local steps."""
        self._book(self.steps, ids, steps.astype(np.int64))

    def _book(self, column: np.ndarray, ids: np.ndarray, amount: int | np.ndarray) -> None:
        """Add ``amount`` (one, or one each) to the clients among ``ids``; the server itself has no account."""
        clients = ids < self.clients
        column[ids[clients]] += np.broadcast_to(amount, ids.shape)[clients]

    def state(self) -> dict[str, Any]:
        return {"down": self.down, "up": self.up, "steps": self.steps}

    def restore(self, state: dict[str, Any]) -> None:
        self.down, self.up, self.steps = (np.asarray(state[k]).astype(np.int64) for k in ("down", "up", "steps"))


class Energy(BaseModel):
    """DRDM's energy model (Eq. 18): E = Σ_k (steps_k E^p_k + 8 bytes_k P_k / R_k), R = B log2(1 + SNR) (Shannon).

    Eq. 18 as printed multiplies by T τ although T already counts local steps; the steps that were really done are
    used here. Each value is one number for all clients, or a list with one for each.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    step_joules: float | tuple[float, ...] = Field(0.002, description="E^p, processing energy of one local step, in J")
    transmit_watts: float | tuple[float, ...] = Field(0.1, description="transmit power P of a client, in W")
    bandwidth_hz: float | tuple[float, ...] = Field(1e6, description="bandwidth B of a client's uplink, in Hz")
    snr_db: float | tuple[float, ...] = Field(10.0, description="signal-to-noise ratio at the receiver, in dB")

    @model_validator(mode="after")
    def _positive(self) -> Energy:
        for key in ("step_joules", "transmit_watts", "bandwidth_hz"):
            least = float(np.min(getattr(self, key)))
            if not (least > 0 or (least == 0 and key != "bandwidth_hz")):
                raise ValueError(f"{key} must be positive, not {least}")
        return self

    def check(self, clients: int) -> str | None:
        """Which list has the wrong length for ``clients`` clients, in one sentence; None if all fit."""
        for key in type(self).model_fields:
            value = getattr(self, key)
            if isinstance(value, tuple) and len(value) != clients:
                return f"energy.{key} has {len(value)} values for {clients} clients"
        return None

    def rate(self) -> np.ndarray:
        """Shannon rate of the uplink in bit/s."""
        return np.asarray(self.bandwidth_hz) * np.log2(1 + 10 ** (np.asarray(self.snr_db) / 10))

    def joules(self, steps: np.ndarray, bytes_up: np.ndarray) -> np.ndarray:
        """Energy [N] that each client spends on ``steps`` [N] local steps and ``bytes_up`` [N] bytes sent."""
        return np.asarray(self.step_joules) * steps + 8 * bytes_up * np.asarray(self.transmit_watts) / self.rate()
