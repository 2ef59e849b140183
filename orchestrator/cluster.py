"""Connecting to Ray: a local cluster, or the one at an address."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from orchestrator.errors import UserError


@contextmanager
def connected(address: str, num_cpus: int | None = None, num_gpus: float | None = None) -> Iterator[str]:
    """A Ray connection for the block, and the dashboard's URL; ``local`` starts a cluster that ends with it.

    ``num_cpus`` and ``num_gpus`` declare the logical resources of a local cluster. Raises UserError if there is no
    cluster at ``address`` or the options do not fit it.
    """
    if address != "local" and (num_cpus is not None or num_gpus is not None):
        raise UserError("--num-cpus and --num-gpus describe a local cluster; an existing one has its own resources")
    authenticate(address)
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "1")
    import ray

    options: dict[str, Any] = (
        {"num_cpus": num_cpus, "num_gpus": num_gpus, "include_dashboard": False} if address == "local" else {}
    )
    try:
        context = ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        first = str(error).strip().splitlines()[0]
        raise UserError(f"--address {address}: cannot connect to a Ray cluster: {first}") from error
    try:
        yield str(context.dashboard_url or "")
    finally:
        ray.shutdown()


def authenticate(address: str) -> None:
    """Say whether an existing cluster is reached with a token; must happen before Ray is imported.

    A cluster that Ray starts itself always has one, but on the way to an explicit address Ray uses a token only if
    told to, and fails after 20 s without saying why.
    """
    if address == "local" or "RAY_AUTH_MODE" in os.environ:
        return
    named = any(k in os.environ for k in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"))
    has_token = named or (Path.home() / ".ray" / "auth_token").exists()
    os.environ["RAY_AUTH_MODE"] = "token" if has_token else "disabled"
