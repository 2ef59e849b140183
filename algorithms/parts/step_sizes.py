"""Step sizes of a dual variable: constant, or falling with the rounds."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from algorithms.section import Section


class Decay(Section):
    """start · t^−power in round t (from 1)."""

    start: float = Field(ge=0, description="the first round's")
    power: float = Field(
        0.5, ge=0, le=10, description="0: constant; 1/2: the usual one of stochastic ascent"
    )


StepSize = Annotated[float, Field(ge=0)] | Decay
"""A number, or ``{start, power}``."""


def at(step: float | Decay, t: int) -> float:
    """The step size of round ``t`` (from 1)."""
    return step.start * t**-step.power if isinstance(step, Decay) else step
