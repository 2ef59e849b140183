"""Soak: rounds for half an hour while client actors are killed at random; prints what could leak,
minute by minute.

    python -m benchmarks.soak --minutes 30

The run ends with the digest of an undisturbed run of as many rounds, which must be the same.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import time
from collections import Counter
from pathlib import Path

import ray
from ray._private.internal_api import memory_summary
from ray._private.state import actors

from orchestrator.cluster.connection import connected
from orchestrator.config import Config, load
from orchestrator.rounds.experiment import Experiment
from orchestrator.rounds.server import ray_plane

SETTINGS = [
    "data.limit=2000", "data.clients=20", "cohort=10", "model=lenet5", "algorithm=scaffold",
    "local.steps=5",
    "local.block=2", "local.execution=sequential", "resources.actors=2", "rounds=1000000",
    "evaluation.every=50",
]  # fmt: skip


def main(words: list[str] | None = None) -> None:
    """Soak, then compare with an undisturbed run."""
    options = argparse.ArgumentParser()
    options.add_argument("--minutes", type=float, default=30)
    options.add_argument("--every", type=float, default=20, help="mean seconds between kills")
    options.add_argument(
        "--pause", type=float, default=0.0, help="seconds of rest after each round"
    )
    chosen = options.parse_args(words)
    config = load(None, SETTINGS)
    with connected("local", num_cpus=2):
        rounds, digest = soak(config, chosen.minutes, chosen.every, chosen.pause)
    alone = Experiment(config)
    while alone.t < rounds:
        alone.step()
    verdict = "equal" if alone.state_sha256() == digest else "DIFFERENT"
    print(
        f"{rounds} rounds; state {digest[:16]}, undisturbed {alone.state_sha256()[:16]}: {verdict}"
    )


def soak(config: Config, minutes: float, every: float, pause: float) -> tuple[int, str]:
    """Run with kills; returns the rounds done and the digest of the state."""
    draws = random.Random(0)
    experiment = Experiment(config, lambda world: ray_plane(world, config))
    plane = experiment.federation.plane
    begun = said = time.monotonic()
    kill_at = begun + every
    print(
        "| minute | rounds | killed | actors alive | groups | objects | store MiB | server MiB | "
        "open files |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    while time.monotonic() - begun < 60 * minutes:
        experiment.step()
        time.sleep(pause)
        now = time.monotonic()
        if now >= kill_at:
            alive = [
                p.pid for p in plane.crew.processes.values() if Path(f"/proc/{p.pid}").exists()
            ]
            if alive:
                os.kill(draws.choice(alive), signal.SIGKILL)
            kill_at = now + draws.expovariate(1 / every)
        if now - said >= 60:
            said = now
            tell(int((now - begun) / 60), experiment.t, plane.replaced)
    experiment.close()
    return experiment.t, experiment.state_sha256()


def tell(minute: int, rounds: int, killed: int) -> None:
    """One line of the table."""
    states = Counter(actor["State"] for actor in actors().values())
    groups = Counter(group["state"] for group in ray.util.placement_group_table().values())
    store = re.search(
        r"Plasma memory usage (\d+) MiB, (\d+) objects",
        memory_summary(ray.get_runtime_context().gcs_address, stats_only=True),
    )
    used, objects = store.groups() if store else ("?", "?")
    status = Path("/proc/self/status").read_text()
    resident = int(re.search(r"VmRSS:\s+(\d+)", status)[1]) // 1024
    files = len(os.listdir("/proc/self/fd"))
    print(
        f"| {minute} | {rounds} | {killed} | {states['ALIVE']} | {groups['CREATED']} | {objects} | "
        f"{used} | "
        f"{resident} | {files} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
