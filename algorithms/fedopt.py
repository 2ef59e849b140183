"""The FedOpt family — Reddi et al., "Adaptive Federated Optimization" (ICLR 2021), Algorithm 2.

FedAvg's round with another server optimiser; each name fixes the optimiser, whose options stay open
(``server_optimizer: {name: adam, lr: ...}``). The second moment begins at 0, as PyTorch's does,
where Algorithm 2 (line 1) has v₋₁ ≥ τ²; AdaGrad's is an option (``initial``). FedAvgM: Hsu et al.
2019. FedAdamW: as in FDA-Opt's experiments.
"""

from __future__ import annotations

from typing import ClassVar

from algorithms.fedavg import FedAvg
from algorithms.part import part_name
from algorithms.parts.server_optimizers import (
    ServerAdaGrad,
    ServerAdam,
    ServerAdamW,
    ServerOptimizer,
    ServerSgd,
    ServerYogi,
)
from algorithms.setting import Composition


class _FedOptOptions(FedAvg.Options):
    # without a default, this class is no choice of its own
    name: str
    server: ClassVar[type[ServerOptimizer]]

    def refuses(self, parts: Composition) -> str | None:
        if isinstance(parts.server_optimizer, self.server):
            return None
        wanted = part_name(self.server)
        return (
            f"{self.name} is defined by the server optimizer {wanted!r}, not "
            f"{parts.server_optimizer.name!r}"
        )


class FedAvgM(FedAvg):
    """FedAvg with server momentum."""

    class Options(_FedOptOptions):
        """FedAvg with momentum at the server."""

        name: str = "fedavgm"
        server = ServerSgd
        defaults = {"server_optimizer": ServerSgd(momentum=0.9)}


class FedAdam(FedAvg):
    """FedAvg with Adam at the server."""

    class Options(_FedOptOptions):
        """Adaptive server step with Adam."""

        name: str = "fedadam"
        server = ServerAdam
        defaults = {"server_optimizer": ServerAdam()}


class FedAdamW(FedAvg):
    """FedAvg with AdamW at the server."""

    class Options(_FedOptOptions):
        """Adaptive server step with AdamW."""

        name: str = "fedadamw"
        server = ServerAdamW
        defaults = {"server_optimizer": ServerAdamW()}


class FedAdaGrad(FedAvg):
    """FedAvg with AdaGrad at the server."""

    class Options(_FedOptOptions):
        """Adaptive server step with AdaGrad."""

        name: str = "fedadagrad"
        server = ServerAdaGrad
        defaults = {"server_optimizer": ServerAdaGrad()}


class FedYogi(FedAvg):
    """FedAvg with Yogi at the server."""

    class Options(_FedOptOptions):
        """Adaptive server step with Yogi."""

        name: str = "fedyogi"
        server = ServerYogi
        defaults = {"server_optimizer": ServerYogi()}
