"""Connecting to Ray: a local cluster, or the one at an address."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from orchestrator.cluster.reach import exposure, loopback_only, reachable
from orchestrator.config.parsing import parse_file
from orchestrator.errors import UserError
from orchestrator.files import home
from orchestrator.terminal import console, told

BOOTSTRAP = "ray_bootstrap_config.yaml"
"""In the home folder of the head node."""
STARTS = 2
"""Tries to start a Ray of this machine's own."""
MANY = 1e18
"""No cluster has so much of anything, be it bytes of memory."""


@contextmanager
def connected(
    address: str, num_cpus: int | None = None, num_gpus: float | None = None
) -> Iterator[str]:
    """A Ray connection and its dashboard's URL; ``local`` starts a cluster that ends with it.

    ``num_cpus`` and ``num_gpus`` declare the logical resources of a local cluster, which nobody but
    this machine can reach. Raises UserError if no cluster answers at ``address`` in time, or the
    options do not fit it.
    """
    if address != "local" and (num_cpus is not None or num_gpus is not None):
        raise UserError(
            "--num-cpus and --num-gpus describe a local cluster; an existing one has its own "
            "resources"
        )
    authenticate(address)
    # else an actor that asks for no GPU sees all that there are
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "1")
    import ray

    # Ray refuses resources for a cluster that is there already
    options: dict[str, Any] = (
        {"num_cpus": num_cpus, "num_gpus": num_gpus, "include_dashboard": False}
        if address == "local"
        else {}
    )
    if address == "local":
        console.print("starting Ray on this machine, then client actors: 10 to 20 s")
    with _terminated_as_interrupted() as heeded:
        context = _opened(address, options)
        heeded()  # Ray has put its own handler there
        try:
            _tell_exposure()
            yield str(context.dashboard_url or "")
        finally:
            ray.shutdown()


@contextmanager
def _terminated_as_interrupted() -> Iterator[Callable[[], None]]:
    """SIGTERM, which clusters send, is Ctrl-C, where nobody has another handler for it: Ray's own
    prints the stacks of its threads, and aborts. What is given puts the handler there again.
    """
    before = signal.getsignal(signal.SIGTERM)
    # None: not of Python's making, and so not to be put back
    if threading.current_thread() is not threading.main_thread() or before is None:
        yield lambda: None
        return

    def heeded() -> None:
        usual = before == signal.SIG_DFL
        signal.signal(signal.SIGTERM, signal.default_int_handler if usual else before)

    heeded()
    try:
        yield heeded
    finally:
        signal.signal(signal.SIGTERM, before)


def _opened(address: str, options: Mapping[str, Any]) -> Any:
    """Ray's connection; raises UserError if there is none."""
    place, alone = (address, True) if address == "local" else reachable(address)
    try:
        with loopback_only() if alone else nullcontext():
            context = _started(place, options, STARTS if address == "local" else 1)
        _keep_token()
        return context
    except (KeyboardInterrupt, SystemExit) as ended:
        # at SIGTERM Ray's own handler, which holds while it starts, ends the process
        told("fedorch", "stopped while Ray was being reached; nothing has begun")
        raise KeyboardInterrupt from ended
    except Exception as error:  # Ray's own are of any type: a node that starts too slowly, say
        first = _first_line(error)
        what = f"--address {address}: cannot connect to a Ray cluster: {first}"
        if address == "local":
            what = (
                f"Ray cannot be started on this machine: {first[:400]} (on a busy machine try "
                "again; fedorch run --in-process needs no Ray and has the same bits)"
            )
        raise UserError(what[:700]) from error


def _started(place: str, options: Mapping[str, Any], tries: int) -> Any:
    """The connection; a node of this machine's own that came up too slowly is started again."""
    import ray

    for left in reversed(range(tries)):
        try:
            return ray.init(
                address=place, log_to_driver=False, logging_level=logging.ERROR, **options
            )
        except Exception as error:  # Ray's own are of any type
            if not left:
                raise
            ray.shutdown()
            why = _first_line(error)[:200]
            told("note", f"Ray did not start, and is started again: {why}")
    raise AssertionError


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _keep_token() -> None:
    """Nobody but the user may read the token that Ray keeps for its clusters: Ray leaves it to the
    umask.
    """
    token = home() / ".ray" / "auth_token"
    with suppress(OSError):
        if token.stat().st_mode & 0o077:
            token.chmod(0o600)


def _tell_exposure() -> None:
    """Say at the start who else can reach the cluster."""
    import ray

    addresses = {str(node["NodeManagerAddress"]) for node in ray.nodes() if node["Alive"]}
    note = exposure(addresses, os.environ.get("RAY_AUTH_MODE", "token") == "token")
    if note is not None:
        told("note", note)


def room() -> dict[str, float]:
    """What the cluster has, or could grow to if it scales itself: amount of each resource (Ray must
    be connected).

    How far it could grow is said by FEDORCH_CLUSTER_MAX (``CPU=64,GPU=8``), or by the autoscaler's
    config, which ``ray up`` leaves on the head node. Raises UserError if either cannot be read.
    """
    import ray

    has: dict[str, float] = ray.cluster_resources()
    said = os.environ.get("FEDORCH_CLUSTER_MAX")
    could = _declared(said) if said else _scalable(home() / BOOTSTRAP)
    return {kind: max(has.get(kind, 0.0), could.get(kind, 0.0)) for kind in (*has, *could)}


def nodes() -> int:
    """How many of the cluster's nodes are alive (Ray must be connected)."""
    import ray

    return sum(node["Alive"] for node in ray.nodes())


def _declared(text: str) -> dict[str, float]:
    try:
        pairs = [part.split("=") for part in text.split(",")]
        found = {kind.strip(): float(amount) for kind, amount in pairs}
        if not all(kind and 0 <= amount < MANY for kind, amount in found.items()):
            raise ValueError
        return found
    except ValueError as error:
        raise UserError(f"FEDORCH_CLUSTER_MAX={text!r}: write it like CPU=64,GPU=8") from error


def _scalable(path: Path) -> dict[str, float]:
    """Each resource with as many as possible of the nodes that have most of it."""
    if not path.is_file():
        return {}
    try:
        config = parse_file(path)
        kinds = [
            (n.get("resources", {}), int(n.get("max_workers", 0)))
            for n in config["available_node_types"].values()
        ]
        most = int(config.get("max_workers", 0))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(
            f"{path} is not an autoscaler's config: {' '.join(str(error).split())}"
        ) from error
    amounts: dict[str, float] = {}
    for name in {name for resources, _ in kinds for name in resources}:
        left = most
        # the largest nodes first, until the cluster may have no more
        for each, count in sorted(
            ((float(r.get(name, 0)), count) for r, count in kinds), reverse=True
        ):
            taken = min(left, count)
            amounts[name] = amounts.get(name, 0.0) + each * taken
            left -= taken
    return amounts


def authenticate(address: str) -> None:
    """Say whether an existing cluster is reached with a token.

    A cluster that Ray starts itself always has one, but on the way to an explicit address Ray uses
    a token only if told to, and fails after 20 s without saying why.
    """
    if address == "local" or "RAY_AUTH_MODE" in os.environ:
        return
    named = any(k in os.environ for k in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"))
    has_token = named or (home() / ".ray" / "auth_token").exists()
    os.environ["RAY_AUTH_MODE"] = "token" if has_token else "disabled"
    if "ray" in sys.modules:
        import ray

        if not ray.is_initialized():
            # which has read the environment as it was imported
            ray._raylet.Config.initialize("")  # type: ignore[attr-defined]
