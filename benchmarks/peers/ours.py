"""fedorch in this process, or on so many client actors: ``ours.py FOLDER [ACTORS]``."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from benchmarks.peers.work import Work, read_work, tell, timed
from orchestrator.cluster.connection import connected
from orchestrator.config import Config, load
from orchestrator.rounds.experiment import Experiment
from orchestrator.rounds.server import ray_plane


def config(work: Work, folder: Path) -> Config:
    """The work as a config."""
    settings = [
        f"data.dataset={{name: npz, path: {folder / 'data.npz'}}}", "data.partition=natural",
        f"data.clients={work.clients}", f"model={work.model}", f"cohort={work.cohort}",
        f"local.epochs={work.epochs}", f"local.batch_size={work.batch}", f"local.lr={work.lr}",
        "rounds=1000000", "evaluation.every=1000000", "evaluation.clients=false",
    ]  # fmt: skip
    return load(None, settings)


def main(folder: Path, actors: int) -> None:
    """Train, and print the seconds of each round."""
    torch.set_num_threads(1)
    work = read_work(folder)
    chosen = config(work, folder)
    if not actors:
        tell(list(timed(Experiment(chosen).step, work)))
        return
    with connected("local", num_cpus=actors):
        experiment = Experiment(chosen, lambda world: ray_plane(world, chosen))
        seconds = list(timed(experiment.step, work))
        experiment.close()
    tell(seconds)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
