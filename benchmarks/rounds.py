"""Milliseconds a round: fedorch against a bare PyTorch loop that does the same mathematics on the
same cores.

20 of 30 clients, 10 steps of SGD on batches of 32 (Fashion-MNIST shapes), then the mean; and the
floor: a round of 10 clients with no local work. ``python -m benchmarks.rounds [--repeat N]
[--gpu] [--in-process]``. The sides are measured in turn, so that a machine whose speed drifts does
not favour one.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table

from algorithms.local import LocalRule
from orchestrator.clients.plane import InProcess
from orchestrator.cluster.connection import connected
from orchestrator.config import load
from orchestrator.rounds.experiment import Experiment
from orchestrator.rounds.server import ray_plane

MODELS = {"linear": 5, "mlp": 3, "lenet5": 1, "drdm_cnn": 1}
"""Networks, with their counted rounds in parts of ``--repeat``."""
LARGER = {"leaf_cnn": 1, "resnet18_gn": 1}
"""And on GPUs."""
UNCOUNTED = 5
"""Rounds before: on a GPU, an actor records in its first four blocks."""
WORK = [
    "cohort=20",
    "local.steps=10",
    "local.batch_size=32",
    "rounds=100000",
    "evaluation.every=100000",
]


class BareLoop:
    """What a researcher writes: one module, one client after the other, ``torch.optim.SGD``, a
    running mean.
    """

    def __init__(self, experiment: Experiment, device: str = "cpu") -> None:
        self.data = experiment.data
        self.module = experiment.net.module.to(device)
        self.w = {n: p.detach().clone() for n, p in self.module.named_parameters()}
        x = torch.from_numpy(self.data.samples.x.copy()).float().to(device)
        self.x = (x / 255 - 0.2860) / 0.3530
        self.y = torch.from_numpy(self.data.samples.y.copy()).to(device)
        self.rng = np.random.default_rng(0)

    def step(self) -> None:
        """One round."""
        total = {n: torch.zeros_like(p) for n, p in self.w.items()}
        for k in self.rng.choice(self.data.clients, 20, replace=False):
            self._load(self.w)
            optimizer = torch.optim.SGD(self.module.parameters(), lr=0.05)
            rows = self.rng.permutation(self.data.train[k])
            for s in range(10):
                batch = torch.from_numpy(rows[32 * s % len(rows) :][:32])
                optimizer.zero_grad()
                F.cross_entropy(self.module(self.x[batch]), self.y[batch]).backward()
                optimizer.step()
            for n, p in self.module.named_parameters():
                total[n] += p.detach() / 20
        self.w = total
        if self.x.is_cuda:
            torch.cuda.synchronize()

    def _load(self, weights: dict[str, torch.Tensor]) -> None:
        with torch.no_grad():
            for n, p in self.module.named_parameters():
                p.copy_(weights[n])


class EmptyRound:
    """Broadcast and collection for 10 clients with no local work."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment
        self.t = 0

    def step(self) -> None:
        """One round."""
        algorithm, federation = self.experiment.algorithm, self.experiment.federation
        self.t += 1
        federation.begin_round(self.t)
        cohort = algorithm.draw(self.t)
        with federation.train(
            cohort, LocalRule(), {"w": algorithm.w, "buffers": algorithm.buffers}
        ) as training:
            training.collect(np.full(len(cohort), 1 / len(cohort)))


@dataclass
class Contestant:
    """A way to do a round, and its times in milliseconds."""

    name: str
    step: Callable[[], object]
    times: list[float]


def measure(contestants: list[Contestant], repeat: int) -> None:
    """Time the contestants in turn, after some uncounted steps of each."""
    for _ in range(UNCOUNTED):
        for c in contestants:
            c.step()
    for _ in range(repeat):
        for c in contestants:
            begun = time.perf_counter()
            c.step()
            c.times.append(1e3 * (time.perf_counter() - begun))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=15, help="counted rounds of each contestant")
    parser.add_argument(
        "--gpu", action="store_true", help="train there: in process, and two actors with half of it"
    )
    parser.add_argument(
        "--in-process", action="store_true", help="leave out what needs Ray: actors, the floor"
    )
    options = parser.parse_args()
    repeat, gpu, ray = options.repeat, options.gpu, not options.in_process
    torch.set_num_threads(1)
    table = Table("round", "how", "median ms", "min ms", "ratio to the bare loop")
    with connected("local", num_cpus=2) if ray else nullcontext():
        for model, rounds in (MODELS | LARGER if gpu else MODELS).items():
            _add(table, model, _contest(model, rounds * repeat, gpu, ray))
        if ray:
            _add(table, "empty, 10 clients", _floor(5 * repeat))
    Console().print(table)


def _contest(model: str, repeat: int, gpu: bool, ray: bool) -> list[Contestant]:
    work = [*WORK, f"model={model}", f"resources.gpus_per_actor={gpu / 2}"]

    def here(*settings: str) -> Callable[[], object]:
        config = load(None, [*work, *settings])
        return Experiment(config, lambda world: InProcess(world, float(gpu))).step

    bare = BareLoop(Experiment(load(None, work)), "cuda" if gpu else "cpu")
    contest = [
        Contestant("bare PyTorch loop, one core", bare.step, []),
        Contestant("fedorch in process, one core", here(), []),
        Contestant("the same, bf16", here("local.precision=bf16"), []),
    ]
    if gpu:
        each = here("local.execution=sequential")
        contest.append(Contestant("the same, one client after the other", each, []))
    if not ray:
        measure(contest, repeat)
        return contest
    config = load(None, work)
    there = Experiment(config, lambda world: ray_plane(world, config))
    measure([*contest, actors := Contestant("fedorch on Ray, two actors", there.step, [])], repeat)
    there.close()
    return [*contest, actors]


def _floor(repeat: int) -> list[Contestant]:
    config = load(None, ["model=linear", "cohort=10"])
    experiment = Experiment(config, lambda world: ray_plane(world, config))
    contest = [Contestant("fedorch on Ray, two actors", EmptyRound(experiment).step, [])]
    measure(contest, repeat)
    experiment.close()
    return contest


def _add(table: Table, title: str, contest: list[Contestant]) -> None:
    base = statistics.median(contest[0].times)
    for c in contest:
        middle = statistics.median(c.times)
        ratio = f"{middle / base:.2f}" if len(contest) > 1 else ""
        table.add_row(title, c.name, f"{middle:.1f}", f"{min(c.times):.1f}", ratio)


if __name__ == "__main__":
    main()
