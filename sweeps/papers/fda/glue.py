"""What chapter 4 of the FDA thesis trains: GLUE's tasks, the FedOpt methods, and the learning rates
that it selected for them (Table 4.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from sweeps.entry import Settings

Rates = Mapping[str, tuple[int, int]]
"""FedOpt method -> powers of ten of the server's and the clients' learning rate."""


class Server(NamedTuple):
    """A FedOpt method."""

    counterpart: str
    """The FDA-Opt method with the same optimiser."""
    algorithm: str
    optimizer: str


SERVERS: Mapping[str, Server] = {
    "FedAvg": Server("FDA-SGD", "fedavg", "{name: sgd}"),
    "FedAvgM": Server("FDA-SGDM", "fedavgm", "{name: sgd, momentum: 0.9}"),
    "FedAdam": Server(
        "FDA-Adam", "fedadam",
        "{name: adam, beta2: 0.999, eps: 1.0e-8, bias_correction: true}",
    ),
    "FedAdamW": Server(
        "FDA-AdamW", "fedadamw",
        "{name: adamw, beta2: 0.999, eps: 1.0e-8, weight_decay: 0.01, bias_correction: true}",
    ),
    "FedAdaGrad": Server("FDA-AdaGrad", "fedadagrad", "{name: adagrad, eps: 1.0e-10}"),
}  # fmt: skip
CLIENT = tuple(range(-5, 0))


@dataclass(frozen=True)
class Glue:
    """A task as chapter 4 distributes and trains it."""

    key: str
    label: str
    data: str
    clients: int
    cohort: int
    rounds: int
    best: float
    """Best centralised accuracy, percent (Table 4.3)."""
    percents: tuple[int, int]
    """Targets, in percent of the best."""
    rates: Rates
    easy: float
    """Target of the stand-in."""
    limit: int | None = None
    """Training rows of the stand-in."""
    length: int = 128
    """Tokens kept of a text."""
    model: str = "roberta_base"
    tokenizer: str = "roberta-base"

    @property
    def base(self) -> Settings:
        """One epoch a round: as many steps at every client of the cohort as at its longest, as in
        the published code, and as FDA-Opt counts them.
        """
        return (
            f"name=fda_opt_{self.key.replace('-', '_')}",
            f"rounds={self.rounds}",
            f"data.dataset={{name: glue, task: {self.data}, tokenizer: {self.tokenizer}, length: "
            f"{self.length}}}",
            f"data.clients={self.clients}",
            "data.partition={name: glue_dirichlet, alpha: 1.0}",
            f"model={self.model}",
            f"cohort={self.cohort}",
            "sampler=cyclic",
            "round_end={name: fixed, steps: longest}",
            "local={epochs: 1, batch_size: 8}",
            "evaluation={clients: false}",
        )

    @property
    def targets(self) -> tuple[float, float]:
        low, high = (round(self.best * p / 1e4, 8) for p in self.percents)
        return low, high

    def server_grid(self, method: str) -> tuple[float, ...]:
        """Server rates: five for the two small tasks, three for the others."""
        small = self.clients == 10
        if method in ("FedAvg", "FedAvgM"):
            return powers(range(-4, 1) if small else range(-2, 1))
        return powers(range(-5, 0) if small else range(-5, -2))


def powers(exponents: range | tuple[int, ...]) -> tuple[float, ...]:
    """Powers of ten."""
    return tuple(float(f"1e{n}") for n in exponents)


MNLI_RATES: Rates = {
    "FedAvg": (0, -2), "FedAvgM": (0, -3), "FedAdam": (-4, -2),
    "FedAdamW": (-4, -4), "FedAdaGrad": (-4, -2),
}  # fmt: skip
MRPC = Glue(
    "mrpc", "MRPC", "mrpc", 10, 10, 100, 90.2, (90, 95),
    {"FedAvg": (0, -3), "FedAvgM": (0, -3), "FedAdam": (-4, -4),
     "FedAdamW": (-4, -5), "FedAdaGrad": (-4, -5)},
    easy=0.69,
)  # fmt: skip
RTE = Glue(
    "rte", "RTE", "rte", 10, 5, 250, 78.7, (90, 95),
    {"FedAvg": (0, -3), "FedAvgM": (-1, -3), "FedAdam": (-5, -5),
     "FedAdamW": (-5, -5), "FedAdaGrad": (-4, -3)},
    easy=0.54, length=256,
)  # fmt: skip
SST2 = Glue(
    "sst2", "SST-2", "sst2", 100, 10, 200, 94.8, (95, 99),
    {"FedAvg": (0, -3), "FedAvgM": (0, -4), "FedAdam": (-4, -4),
     "FedAdamW": (-4, -4), "FedAdaGrad": (-4, -4)},
    easy=0.62, limit=20_000,
)  # fmt: skip
QNLI = Glue(
    "qnli", "QNLI", "qnli", 250, 10, 200, 92.8, (90, 95),
    {"FedAvg": (0, -3), "FedAvgM": (0, -3), "FedAdam": (-4, -3),
     "FedAdamW": (-4, -3), "FedAdaGrad": (-4, -3)},
    easy=0.54, limit=25_000,
)  # fmt: skip
MNLI_M = Glue(
    "mnli-m", "MNLI-m", "mnli", 1000, 10, 200, 90.6, (85, 90), MNLI_RATES, easy=0.38, limit=40_000,
    model="deberta_v3_base", tokenizer="microsoft/deberta-v3-base",
)  # fmt: skip
MNLI_MM = Glue(
    "mnli-mm", "MNLI-mm", "mnli_mm", 1000, 10, 200, 90.7, (85, 90), MNLI_RATES, easy=0.38,
    limit=40_000,
    model="deberta_v3_base", tokenizer="microsoft/deberta-v3-base",
)  # fmt: skip
TASKS = (MRPC, RTE, SST2, QNLI, MNLI_M, MNLI_MM)
