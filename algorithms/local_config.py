"""Section ``local`` of a config: what a client does in a round, and how that is executed."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, SerializeAsAny, model_validator

from algorithms.part import chosen_from
from algorithms.parts.optimizers import Optimizer, Sgd
from algorithms.parts.schedules import Constant, Schedule
from algorithms.section import Section

Precision = Literal["float32", "bf16", "tf32"]
SETTLED = ("execution", "block", "epochs")
"""What a config may leave to rules, which then say it in a run's own."""


class LocalConfig(Section):
    """A client's local work."""

    steps: int | None = Field(
        None, ge=1, description="mini-batch steps a round τ (either this or epochs)"
    )
    epochs: int | None = Field(None, ge=1, description="passes over the client's data a round E")
    batch_size: int = Field(32, ge=1, description="mini-batch size b")
    lr: float = Field(0.1, gt=0, description="local learning rate η")
    lr_decay: float = Field(
        1.0, gt=0, le=1, description="the learning rate is multiplied by this after every round"
    )
    schedule: Annotated[SerializeAsAny[Schedule], chosen_from(Schedule)] = Field(
        Constant(), description="a factor of the learning rate for each round"
    )
    within: Annotated[SerializeAsAny[Schedule], chosen_from(Schedule)] = Field(
        Constant(), description="a further factor for each step of a client, anew in every round"
    )
    optimizer: Annotated[SerializeAsAny[Optimizer], chosen_from(Optimizer)] = Sgd()
    optimizer_state: Literal["reset", "keep", "average"] = Field(
        "reset",
        description="the local optimizer's state starts anew each round, stays with the client, or "
        "is sent, averaged and handed out again",
    )
    micro_batch: int | None = Field(
        None,
        ge=1,
        description="compute the gradient of a mini-batch in pieces of at most so many rows, for "
        "memory's sake (gradient accumulation); unset: at once",
    )
    clip: float | None = Field(
        None, gt=0, description="clip each mini-batch gradient to this L2 norm"
    )
    drop_last: bool = Field(False, description="skip an epoch's last, smaller mini-batch")
    sampling: Literal["shuffle", "independent"] = Field(
        "shuffle", description="pass through the shuffled data, or draw every mini-batch anew"
    )
    precision: Precision = Field(
        "float32",
        description="what networks are multiplied in while they train: float32; bf16 (autocast: "
        "products in bfloat16, while weights, losses, gradients and all that is sent stay "
        "float32); tf32 (on NVIDIA GPUs: float32 products of numbers rounded to 10 bits)",
    )
    execution: Literal["auto", "sequential", "vectorized"] = Field(
        "auto", description="train a block's clients one by one, or as one batched computation"
    )
    block: int | None = Field(
        None, ge=1, description="clients a block (a unit of work and of summation); unset: auto"
    )

    @model_validator(mode="after")
    def _one_measure_of_work(self) -> LocalConfig:
        if self.steps is not None and self.epochs is not None:
            raise ValueError("give either steps or epochs, not both")
        return self

    @property
    def steady(self) -> bool:
        """Whether all steps of a round have the same learning rate."""
        return isinstance(self.within, Constant) and not self.within.warmup

    def rate(self, t: int) -> float:
        """The learning rate of round ``t`` (from 1)."""
        return self.lr * self.lr_decay ** (t - 1) * self.schedule.factor(t)

    def reach(self, t: int, steps: int) -> float:
        """The rates of the first ``steps`` steps of a client in round ``t``, added up."""
        return self.rate(t) * sum(self.within.factor(s) for s in range(1, steps + 1))

    def steps_per_epoch(self, samples: int) -> int:
        """Mini-batches in one pass over ``samples`` rows."""
        # the second is a ceiling, exact in integers
        return samples // self.batch_size if self.drop_last else -(-samples // self.batch_size)

    def planned(self, samples: int) -> int:
        """Local steps a round of a client with ``samples`` rows."""
        each = self.steps_per_epoch(samples)
        if self.steps is not None:
            # without a whole batch under drop_last, a client has nothing to step on
            return self.steps if each else 0
        return (self.epochs or 1) * each
