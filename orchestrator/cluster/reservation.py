"""Room for a run's client actors: the bundles of a Ray placement group, one for each."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from orchestrator.cluster.connection import nodes, room
from orchestrator.config.schema import ResourcesConfig
from orchestrator.errors import UserError

LOOK = 20.0
"""Seconds after which a reservation that settles for fewer actors counts the free resources
again."""


@dataclass(frozen=True)
class Reservation:
    """One bundle per client actor."""

    group: PlacementGroup
    actors: int
    first: int = 0
    """Number of the first actor's bundle."""
    owned: bool = True
    """Whether the group ends with the run."""
    whole: bool = True
    """Whether every bundle is there; if not, some were lost with their node, and come back when
    there is room."""

    def bundle_of(self, number: int) -> PlacementGroupSchedulingStrategy:
        """Where the actor of that number goes."""
        return PlacementGroupSchedulingStrategy(
            self.group, placement_group_bundle_index=self.first + number
        )

    def end(self) -> None:
        """Give the room back."""
        if self.owned:
            remove_placement_group(self.group)


def bundle(r: ResourcesConfig) -> dict[str, float]:
    """What one client actor is pinned to: amount of each resource."""
    amounts: list[tuple[str, float]] = [("CPU", r.cpus_per_actor), ("GPU", r.gpus_per_actor)]
    # Ray takes no empty bundle
    return {kind: amount for kind, amount in amounts if amount} or {"CPU": 0.001}


def reserve(r: ResourcesConfig, clients: int, fewer: bool = False) -> Reservation:
    """Room for the client actors of a run with so many clients, or (``fewer``, or where the config
    names no number of them and the cluster does not grow) for as many as there is.

    Raises UserError if the cluster cannot give it within ``boot_timeout``.
    """
    each, actors = bundle(r), _wanted(r, clients, fewer)
    _require_nodes(r, actors)
    fewer = fewer or not (r.actors or r.clients_per_actor or _grows())
    deadline = time.monotonic() + r.boot_timeout
    while True:
        group = placement_group([each] * actors, strategy=r.strategy, name=_name())
        if group.wait(LOOK if fewer else r.boot_timeout):
            return Reservation(group, actors)
        remove_placement_group(group)
        # counted without the group, so what is free is what the next one may have
        free = {kind: ray.available_resources().get(kind, 0.0) for kind in each}
        if not fewer or time.monotonic() >= deadline:
            raise UserError(
                f"resources: no room for {actors} x {each} ({r.strategy}, on {nodes()} nodes) "
                f"within {r.boot_timeout:.0f} s; free: {free}"
            )
        actors = max(
            1, min(actors, *(capacity(kind, free[kind], amount) for kind, amount in each.items()))
        )


def reserved_before() -> Reservation | None:
    """What this actor reserved before its process died and was started again, if Ray has kept it.

    Ray 2.60 removes the placement groups of an actor that restarts if the job that created the
    actor has ended, too, as it has for a detached one.
    """
    try:
        group = ray.util.get_placement_group(_name())
    except ValueError:
        return None
    return Reservation(group, group.bundle_count, whole=False)


def capacity(kind: str, there: float, amount: float) -> int:
    """How often ``amount`` of a resource fits into what is ``there``; a GPU's part lies on one."""
    if kind != "GPU" or amount >= 1:
        # amounts are floats: three times 0.1 must fit into 0.3
        return int(there / amount + 1e-9)
    whole = int(there + 1e-9)
    return whole * int(1 / amount + 1e-9) + int((there - whole) / amount + 1e-9)


def _require_nodes(r: ResourcesConfig, actors: int) -> None:
    """Raise UserError for actors that want a node each, of a cluster that has fewer and does not
    grow.
    """
    if r.strategy == "STRICT_SPREAD" and actors > nodes() and not _grows():
        raise UserError(
            "resources.strategy STRICT_SPREAD puts every client actor on a node of its own: "
            f"{actors} of them want {actors} nodes, and the cluster has {nodes()}; take SPREAD, "
            "or fewer resources.actors"
        )


def _grows() -> bool:
    """Whether nodes may come that are not there yet."""
    return room() != ray.cluster_resources()


def _wanted(r: ResourcesConfig, clients: int, fewer: bool) -> int:
    """How many client actors: as configured, or as many as the cluster's resources allow (once it
    has any).

    Raises UserError if they do not fit the cluster, unless ``fewer`` will do.
    """
    each, most, has = bundle(r), room(), ray.cluster_resources()
    # what is there, or will be once a cluster without such nodes has grown
    there = has if all(has.get(kind) for kind in each) else most
    fit = min(capacity(kind, there.get(kind, 0.0), amount) for kind, amount in each.items())
    if not r.cpus_per_actor and not r.gpus_per_actor:
        fit = 1  # they could be any number
    wanted = max(
        1,
        r.actors
        or (-(-clients // r.clients_per_actor) if r.clients_per_actor else min(fit, clients)),
    )
    for kind, amount in each.items():
        if not fewer and wanted > capacity(kind, most.get(kind, 0.0), amount):
            raise UserError(
                f"resources: {wanted} client actors with {amount:g} {kind} each do not fit the "
                "cluster's "
                f"{most.get(kind, 0.0):g} {kind}"
            )
    return wanted


def _name() -> str:
    # an actor that Ray starts again keeps its id: by it the new process finds the old one's group
    return f"clients of {ray.get_runtime_context().get_actor_id() or uuid.uuid4().hex}"
