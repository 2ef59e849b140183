"""What a config leaves to rules: local work, execution, block size. Never settled by timing."""

from __future__ import annotations

import math

from orchestrator.config.schema import Config
from orchestrator.errors import UserError
from orchestrator.models.net import Net
from orchestrator.training.engines import vectorizable

VECTORIZE_UP_TO = 200_000
"""Largest network (parameters) that ``execution: auto`` trains vectorised; see
benchmarks/README.md."""


def resolve(config: Config, net: Net) -> Config:
    """Settle what the config leaves to rules: local work, execution and block size (never by
    timing).
    """
    local = config.local
    reason = vectorizable(net)
    if local.execution == "vectorized" and reason:
        raise UserError(
            f"config: local.execution: model {config.model.name!r} cannot be vectorized: {reason}"
        )
    execution = local.execution
    if not config.round_end.lock_step:
        if execution == "vectorized":
            raise UserError(
                f"config: local.execution: {config.round_end.name} has clients of their own pace; "
                "use sequential"
            )
        execution = "sequential"
    if execution == "auto":
        small = net.spec.size <= VECTORIZE_UP_TO and not any(e.nhwc for e in net.spec.entries)
        execution = "vectorized" if small and reason is None else "sequential"
    block = local.block
    if block is None:
        m = config.cohort_size
        block = min(10, math.ceil(m / 2)) if execution == "vectorized" else math.ceil(m / 16)
    homes = config.resources.clients_per_actor
    if homes is not None:
        block = 1 if local.block is None else block
        if block > 1:
            raise UserError(
                "config: local.block: must be 1 when resources.clients_per_actor gives clients a "
                "fixed home"
            )
    epochs = 1 if local.steps is None and local.epochs is None else local.epochs
    settled = local.model_copy(update={"execution": execution, "block": block, "epochs": epochs})
    return config.model_copy(update={"local": settled})
