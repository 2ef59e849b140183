"""Synchronous training (BSP): all clients, one local step, average — every step.

The baseline of the FDA thesis: parameters are averaged after each client's own optimiser step, and
the clients' optimiser state stays with them. With plain SGD this is large-batch SGD over the union
of the mini-batches.
"""

from __future__ import annotations

from algorithms.algorithm import everyone
from algorithms.fedavg import FedAvg
from algorithms.parts.round_ends import Fixed
from algorithms.setting import Composition


class Synchronous(FedAvg):
    """FedAvg with full participation and one local step per round."""

    class Options(FedAvg.Options):
        """Parameter averaging after every local step of all clients."""

        name: str = "synchronous"
        defaults = {"cohort": 1.0, "local.steps": 1, "local.optimizer_state": "keep"}

        def refuses(self, parts: Composition) -> str | None:
            if parts.local.steps != 1 or not isinstance(parts.round_end, Fixed):
                return (
                    "synchronous training averages after every step: --set local.steps=1 --set "
                    "round_end=fixed"
                )
            return everyone(self.name, parts)
