"""The server actor from outside: starting it, telling it to stop, hearing what it says."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import RayActorError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from orchestrator.config import Config
from orchestrator.errors import UserError
from orchestrator.plugins.sources import publish
from orchestrator.rounds.server import Server

NAMESPACE = "fedorch"
NO_MODULE = re.compile(r"No module named '[\w.]+'")
RESTARTS = 3
"""How often a server whose process died is started again; a preempted node does not count."""
TELL_AGAIN = 5.0
"""Seconds after which a server is told to stop again: its process may have died and been started
again since."""


def launch(
    config: Config, out: str | Path, resuming: bool, detached: bool = False
) -> ActorHandle[Any]:
    """Create the server actor on this node; it shows in the dashboard under the run's name.

    It asks for one byte of memory because Ray puts an actor that asks for nothing on any node, soft
    strategy or not.
    """
    publish()
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    remote: Any = ray.remote
    # callers wait inside watch and outcome, each in a thread; Ray repeats their calls to a server
    # that it has started again: they ask, or say stop, and may do so twice
    cls = remote(
        num_cpus=0, memory=1, max_concurrency=8, max_restarts=RESTARTS, max_task_retries=-1
    )(Server)
    try:
        return cls.options(
            name=f"{config.name} @ {out}",
            namespace=NAMESPACE,
            scheduling_strategy=here,
            lifetime="detached" if detached else None,
        ).remote(config, str(out), resuming, detached)
    # what Ray says to a name that is taken
    except ValueError as error:
        raise UserError(f"a run with folder {out} is already under way on this cluster") from error


def halt(place: str) -> None:
    """Have the run that goes into the folder ``place`` end after its round, and wait until it has.

    Raises UserError if no run goes there on this cluster.
    """
    names = [
        one["name"]
        for one in ray.util.list_named_actors(all_namespaces=True)
        if one["namespace"] == NAMESPACE
    ]
    name = next((n for n in names if n.endswith(f" @ {place}")), None)
    if name is None:
        raise UserError(f"no run goes into {place} on this cluster")
    server = ray.get_actor(name, NAMESPACE)
    with contextlib.suppress(RayActorError):
        ray.get(server.stop.remote())
        # its answer may be lost: a detached server ends itself with its run
        ended = server.outcome.remote()
        while not ray.wait([ended], timeout=TELL_AGAIN)[0]:
            ray.get(server.stop.remote())


def answer_of(reference: Any) -> Any:
    """``ray.get`` that turns a server's UserError, or its death, into a UserError here."""
    try:
        return ray.get(reference)
    except RayTaskError as error:
        if isinstance(error.cause, UserError):
            raise type(error.cause)(str(error.cause)) from error
        raise
    except RayActorError as error:
        if missing := NO_MODULE.search(str(error)):
            raise UserError(
                f"plugins: {missing[0]} in Ray's processes; what a plugin imports must be found "
                "there, too (PYTHONPATH)"
            ) from error
        raise UserError(
            f"the server of the run died: {str(error).splitlines()[0]}; continue it with --resume"
        ) from error
