"""What a config leaves to rules: local work, execution, block size. Never settled by timing."""

from __future__ import annotations

import math

from orchestrator.config.schema import Config
from orchestrator.errors import UserError
from orchestrator.models.net import Net
from orchestrator.training.engines import vectorizable

VECTORIZE_UP_TO = 200_000
"""Largest network (parameters) that ``auto`` trains vectorised on CPUs; see docs/performance.md."""
VECTORIZE_ON_GPUS_UP_TO = 8_000_000
"""The same where clients train on GPUs: of more, the kernels themselves take the time."""


def resolve(config: Config, net: Net) -> Config:
    """Settle what the config leaves to rules: local work, execution and block size (never by
    timing). Raises UserError where what it asks for cannot be with this network.
    """
    local = config.local
    execution = _execution(config, net)
    epochs = 1 if local.steps is None and local.epochs is None else local.epochs
    settled = {"execution": execution, "block": _block(config, execution), "epochs": epochs}
    return config.model_copy(update={"local": local.model_copy(update=settled)})


def _execution(config: Config, net: Net) -> str:
    """sequential or vectorized: vectorised where it is allowed and pays."""
    wanted, reason = config.local.execution, vectorizable(net)
    if wanted == "vectorized" and reason:
        raise UserError(
            f"config: local.execution: model {config.model.name!r} cannot be vectorized: {reason}"
        )
    if config.local.micro_batch is not None:
        if wanted == "vectorized":
            raise UserError(
                "config: local.micro_batch is for clients that are trained one after the other; "
                "set local.execution to sequential"
            )
        return "sequential"
    if not config.round_end.lock_step:
        if wanted == "vectorized":
            raise UserError(
                f"config: local.execution: {config.round_end.name} has clients of their own pace; "
                "use sequential"
            )
        return "sequential"
    if wanted != "auto":
        return wanted
    if config.resources.gpus_per_actor:
        pays = net.spec.size <= VECTORIZE_ON_GPUS_UP_TO
    else:
        # convolutions (kernels stored as nhwc) are faster one client after the other on CPUs
        pays = net.spec.size <= VECTORIZE_UP_TO and not any(e.nhwc for e in net.spec.segments)
    return "vectorized" if pays and reason is None else "sequential"


def _block(config: Config, execution: str) -> int:
    """Clients a block: as large as is still spread over some actors."""
    block, m = config.local.block, config.cohort_size
    if config.resources.clients_per_actor is not None:
        if block is not None and block > 1:
            raise UserError(
                "config: resources.clients_per_actor gives clients a fixed home, in blocks of one; "
                f"local.block must be 1 or unset, and is {block} (in the config.yaml of a run, as "
                "it was begun)"
            )
        return 1
    if block is not None:
        return block
    # at least two blocks of vectorised clients, at most 16 of others
    return min(10, math.ceil(m / 2)) if execution == "vectorized" else math.ceil(m / 16)
