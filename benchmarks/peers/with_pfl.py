"""pfl in one process: ``with_pfl.py FOLDER``."""

from __future__ import annotations

import asyncio
import itertools
import logging
import sys
import time
from pathlib import Path
from typing import Any

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from torch.nn import functional as F

from benchmarks.peers.networks import network, tensors
from benchmarks.peers.work import read_work, tell


class Clock(TrainingProcessCallback):
    """When each round has ended."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def after_central_iteration(self, *about: Any, **more: Any) -> tuple[bool, Any]:
        """Tell the time, and nothing else."""
        self.times.append(time.perf_counter())
        return False, Metrics()


def main(folder: Path) -> None:
    """Train, and print the seconds of each round."""
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    asyncio.set_event_loop(asyncio.new_event_loop())
    work, (x, y) = read_work(folder), tensors(folder)
    module, clock = network(work), Clock()
    module.loss = lambda x, y, eval=False: F.cross_entropy(module(x), y)
    module.metrics = lambda x, y, eval=False: {}

    def user(k: int) -> Dataset:
        rows = slice(k * work.rows, (k + 1) * work.rows)
        return Dataset([x[rows], y[rows]], user_id=k)

    users = FederatedDataset(user, get_user_sampler("random", list(range(work.clients))))
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=work.rounds + 1,
            evaluation_frequency=10**9,
            train_cohort_size=work.cohort,
            val_cohort_size=None,
        ),
        backend=SimulatedBackend(users, users),
        model=PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0)),
        model_train_params=NNTrainHyperParams(
            local_learning_rate=work.lr,
            local_num_epochs=work.epochs,
            local_batch_size=work.batch,
        ),
        callbacks=[clock],
    )
    tell([b - a for a, b in itertools.pairwise(clock.times)])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
