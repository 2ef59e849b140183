"""The server of a run as a Ray actor: owns the round loop, the checkpoints and the metrics."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import RayActorError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from orchestrator.clients.plane import Plane
from orchestrator.clients.pool import RayPool, Resources
from orchestrator.config import Config, ResourcesConfig
from orchestrator.drive import begin, drive
from orchestrator.errors import UserError
from orchestrator.experiment import Experiment, Record
from orchestrator.run_folder import RunFolder
from orchestrator.training.world import World

NAMESPACE = "fedorch"


@dataclass(frozen=True)
class Progress:
    """What has happened since the caller last asked."""

    records: list[Record]
    ended: bool


class Server:
    """Driver actor of one run. ``watch`` may be called while ``run`` is under way."""

    def __init__(self, config: Config, out: str, resuming: bool, detached: bool) -> None:
        self.detached = detached
        self.config, self.folder, self.resuming = config, RunFolder(Path(out)), resuming
        self.changed = threading.Condition()
        self.records: list[Record] = []
        self.ended = False
        self.stopping = threading.Event()

    def __repr__(self) -> str:
        return f"fedorch {self.config.name} server"

    def prepare(self) -> dict[str, Any]:
        """Build the experiment and start the client actors; returns facts about the plan."""
        self.experiment = Experiment(self.config, lambda world: ray_plane(world, self.config))
        facts = begin(self.experiment, self.folder, self.resuming)
        self.records = list(self.experiment.records)
        return facts

    def run(self) -> dict[str, Any]:
        """The round loop; returns the result."""
        try:
            return drive(self.experiment, self.folder, self._tell, self.stopping.is_set)
        finally:
            with self.changed:
                self.ended = True
                self.changed.notify_all()
            self.experiment.close()
            if self.detached:  # nobody owns this actor, so it ends itself; the results are on disk
                ray.kill(ray.get_runtime_context().current_actor)

    @ray.method(concurrency_group="watch")
    def watch(self, seen: int) -> Progress:
        """Wait until there are more than ``seen`` records, or the run has ended."""
        with self.changed:
            self.changed.wait_for(lambda: len(self.records) > seen or self.ended)
            return Progress(self.records[seen:], self.ended)

    @ray.method(concurrency_group="watch")
    def stop(self) -> None:
        """End after the round under way, with a checkpoint."""
        self.stopping.set()

    def _tell(self, record: Record) -> None:
        with self.changed:
            self.records.append(record)
            self.changed.notify_all()


def ray_plane(world: World, config: Config) -> Plane:
    """The client actors of a run."""
    return RayPool(world, config.name, pool_resources(config, _actors(config.resources, config.data.clients)))


def pool_resources(config: Config, actors: int) -> Resources:
    """What ``actors`` client actors are pinned to."""
    r = config.resources
    return Resources(
        actors=actors,
        cpus_per_actor=r.cpus_per_actor,
        gpus_per_actor=r.gpus_per_actor,
        clients_per_actor=r.clients_per_actor,
        strategy=r.strategy,
        boot_timeout=r.boot_timeout,
    )


def _actors(r: ResourcesConfig, clients: int) -> int:
    """How many client actors: as configured, or as many as the cluster's resources allow."""
    total = ray.cluster_resources()
    kind, each = ("GPU", r.gpus_per_actor) if r.gpus_per_actor else ("CPU", r.cpus_per_actor)
    room = int(total.get(kind, 0) / each + 1e-9) if each else 1
    wanted = r.actors or (-(-clients // r.clients_per_actor) if r.clients_per_actor else min(room, clients))
    if wanted < 1 or (each and wanted > room):
        raise UserError(
            f"resources: {max(1, wanted)} client actors with {each:g} {kind} each do not fit the cluster's "
            f"{total.get(kind, 0):g} {kind}"
        )
    return wanted


def launch(config: Config, out: Path, resuming: bool, detached: bool = False) -> ActorHandle:
    """Create the server actor on this node; it shows in the dashboard under the run's name."""
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    remote: Any = ray.remote
    cls = remote(num_cpus=0, concurrency_groups={"watch": 4})(Server)
    try:
        return cls.options(
            name=f"{config.name} @ {out}",
            namespace=NAMESPACE,
            scheduling_strategy=here,
            lifetime="detached" if detached else None,
        ).remote(config, str(out), resuming, detached)
    except ValueError as error:
        raise UserError(f"a run with folder {out} is already under way on this cluster") from error


def answer(reference: Any) -> Any:
    """``ray.get`` that turns a server's UserError, or its death, into a UserError here."""
    try:
        return ray.get(reference)
    except RayTaskError as error:
        if isinstance(error.cause, UserError):
            raise UserError(str(error.cause)) from error
        raise
    except RayActorError as error:
        raise UserError(
            f"the server of the run died: {str(error).splitlines()[0]}; continue it with --resume"
        ) from error
