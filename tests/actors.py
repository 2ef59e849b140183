"""Client actors that live as long as the suite: real processes, which are lent to one run after
another instead of being started for each.
"""

from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import RayActorError

from orchestrator.clients.actor import ClientActor, tensors_travel_as_arrays
from orchestrator.clients.pool import RayPool
from orchestrator.cluster.reservation import Reservation
from orchestrator.config import Config
from orchestrator.training.world import World
from tests.running import Where


class Lent(ClientActor):
    """A client actor that takes on another run's world."""

    def __init__(self) -> None:
        tensors_travel_as_arrays()
        self.run_name, self.index = "no run", 0

    def take(self, world: World, run: str, index: int, gpus: float) -> None:
        """Begin anew: nothing of the run before is kept."""
        super().__init__(world, run, index, gpus)


class Company:
    """The actors that are there; more are started when a run asks for more at once."""

    def __init__(self) -> None:
        self.idle: list[ActorHandle] = []

    def plane(self, config: Config) -> Where:
        """Makes a pool of this company's actors for a run of ``config``."""
        return lambda world: LentPool(world, config, self)

    def lend(self) -> ActorHandle:
        while self.idle:
            actor = self.idle.pop()
            if alive(actor):
                return actor
        cls: Any = ray.remote(Lent)
        return cls.options(num_cpus=0).remote()


def alive(actor: ActorHandle) -> bool:
    """Whether an actor answers: the last run may have lost it without noticing."""
    try:
        ray.get(actor.ready.remote())
    except RayActorError:
        return False
    return True


class LentPool(RayPool):
    """A pool that borrows its actors: it dispatches, replaces and replays as the real one does."""

    def __init__(self, world: World, config: Config, company: Company) -> None:
        self.company = company
        wanted: Any = config.resources
        actors = wanted.actors or -(-config.data.clients // wanted.clients_per_actor)
        nowhere: Any = None
        super().__init__(world, config.name, wanted, Reservation(nowhere, actors, owned=False))

    def _create(self, number: int, life: int) -> ActorHandle:
        actor = self.company.lend()
        actor.take.remote(self.world, self.run_name, number, self.resources.gpus_per_actor)
        return actor

    def close(self) -> None:
        working = [m.handle for m in self.crew.members if m.process is not None]
        self.crew.members = []  # those that still start are given up: Ray ends what nobody holds
        self.company.idle += working
