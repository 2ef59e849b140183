"""Reservations: the bundles of a Ray placement group that a run's client actors live in."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from orchestrator.errors import UserError


@dataclass(frozen=True)
class Reservation:
    """One bundle per client actor."""

    group: PlacementGroup
    first: int = 0
    """Number of the first actor's bundle."""
    owned: bool = True
    """Whether the group ends with the run."""
    inherited: bool = False
    """Whether it is from before the server's process died: some bundles may be lost with their node, and come back
    only when there is room."""

    def place(self, index: int) -> PlacementGroupSchedulingStrategy:
        """Where the actor of that number goes."""
        return PlacementGroupSchedulingStrategy(self.group, placement_group_bundle_index=self.first + index)

    def end(self) -> None:
        """Give the room back."""
        if self.owned:
            remove_placement_group(self.group)


def reserve(actors: int, cpus: float, gpus: float, strategy: str, timeout: float) -> Reservation:
    """Room for ``actors`` actors with so many CPUs and GPUs each.

    Raises UserError if the cluster cannot give it within ``timeout`` seconds.
    """
    bundle = {k: v for k, v in (("CPU", cpus), ("GPU", gpus)) if v}
    group = placement_group([bundle or {"CPU": 0.001}] * actors, strategy=strategy, name=_name())
    if not group.wait(timeout):
        remove_placement_group(group)
        free = {k: v for k, v in ray.available_resources().items() if k in ("CPU", "GPU")}
        raise UserError(f"resources: no room for {actors} x {bundle} within {timeout:.0f} s; free: {free}")
    return Reservation(group)


def inherited() -> Reservation | None:
    """What this actor reserved before its process died and was started again, if Ray has kept it (it does not for a
    detached actor)."""
    try:
        return Reservation(ray.util.get_placement_group(_name()), inherited=True)
    except ValueError:
        return None


def _name() -> str:
    return f"clients of {ray.get_runtime_context().get_actor_id() or uuid.uuid4().hex}"
