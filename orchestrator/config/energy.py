"""Section ``energy`` of a config: what a step and a byte cost a client, in joules."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from algorithms.section import Section

Amount = Annotated[float, Field(ge=0, le=1e9)]
"""Of joules or watts; steps and transmissions may be free."""
Hertz = Annotated[float, Field(ge=1e-3, le=1e15)]
Decibels = Annotated[float, Field(ge=-100, le=100)]
"""Below, 1 + SNR is 1 in float64, and nothing is ever received."""


class Energy(Section):
    """DRDM's energy model (Eq. 18): E = Σ_k (steps_k E^p_k + 8 bytes_k P_k / R_k), R = B log2(1 +
    SNR) (Shannon).

    Eq. 18 as printed multiplies by T τ although T already counts local steps; the steps that were
    really done are used here. Each value is one number for all clients, or a list with one for
    each.
    """

    step_joules: Amount | tuple[Amount, ...] = Field(
        0.002, description="E^p, processing energy of one local step, in J"
    )
    transmit_watts: Amount | tuple[Amount, ...] = Field(
        0.1, description="transmit power P of a client, in W"
    )
    bandwidth_hz: Hertz | tuple[Hertz, ...] = Field(
        1e6, description="bandwidth B of a client's uplink, in Hz"
    )
    snr_db: Decibels | tuple[Decibels, ...] = Field(
        10.0, description="signal-to-noise ratio at the receiver, in dB"
    )

    def check(self, clients: int) -> str | None:
        """Which list is not of length ``clients``, in one sentence; None if all fit."""
        for key in type(self).model_fields:
            value = getattr(self, key)
            if isinstance(value, tuple) and len(value) != clients:
                return f"energy.{key} has {len(value)} values for {clients} clients"
        return None

    def rate(self) -> np.ndarray:
        """Shannon rate of the uplink in bit/s."""
        # log1p, because 1 + SNR would be 1 on a channel that is nearly all noise, and the rate 0
        bits = np.log1p(10 ** (np.asarray(self.snr_db) / 10)) / np.log(2)
        return np.asarray(self.bandwidth_hz) * bits

    def joules(self, steps: np.ndarray, bytes_up: np.ndarray) -> np.ndarray:
        """Joules [N] that each client spends on ``steps`` [N] and on sending ``bytes_up`` [N]."""
        return (
            # E^p and E^t of Eq. 18
            np.asarray(self.step_joules) * steps
            + 8 * bytes_up * np.asarray(self.transmit_watts) / self.rate()
        )
