"""Other libraries' rounds of the same work, where they are installed, for the table of
``benchmarks.rounds``.

``pip install pfl``. Flower's simulation asks for a Ray release of its own, so it cannot be run
beside fedorch.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import threading
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

ROWS = 320
"""Ten batches of 32: pfl ends a client's work with its data, so smaller clients' rows are
repeated."""


class PflRounds:
    """Rounds of pfl's federated averaging, which runs in a thread that is let on for a round at a
    time.
    """

    def __init__(self, module: Any, x: Tensor, y: Tensor, clients: list[np.ndarray]) -> None:
        """A network, all inputs and labels, and the rows of each client."""
        self.module, self.x, self.y = module, x, y
        self.rows = [torch.from_numpy(np.resize(rows, max(len(rows), ROWS))) for rows in clients]
        logging.getLogger("pfl").setLevel(logging.WARNING)
        self.go, self.done = threading.Semaphore(0), threading.Semaphore(0)
        threading.Thread(target=self._run, daemon=True).start()

    def step(self) -> None:
        """One round."""
        self.go.release()
        self.done.acquire()

    def _run(self) -> None:
        from pfl.aggregate.simulate import SimulatedBackend
        from pfl.algorithm.base import NNAlgorithmParams
        from pfl.algorithm.federated_averaging import FederatedAveraging
        from pfl.data.dataset import Dataset
        from pfl.data.federated_dataset import FederatedDataset
        from pfl.data.sampling import get_user_sampler
        from pfl.hyperparam.base import NNTrainHyperParams
        from pfl.model.pytorch import PyTorchModel

        asyncio.set_event_loop(asyncio.new_event_loop())
        self.go.acquire()
        users = FederatedDataset(
            lambda k: Dataset([self.x[self.rows[k]], self.y[self.rows[k]]], user_id=k),
            get_user_sampler("random", list(range(len(self.rows)))),
        )
        module = self.module
        module.loss = lambda x, y, eval=False: F.cross_entropy(module(x), y)
        module.metrics = lambda x, y, eval=False: {}
        FederatedAveraging().run(
            NNAlgorithmParams(
                central_num_iterations=10**9,
                evaluation_frequency=10**9,
                train_cohort_size=20,
                val_cohort_size=None,
            ),
            backend=SimulatedBackend(users, users),
            model=PyTorchModel(
                module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0)
            ),
            model_train_params=NNTrainHyperParams(
                local_learning_rate=0.05,
                local_num_epochs=None,
                local_num_steps=10,
                local_batch_size=32,
            ),
            callbacks=[self._pacer()],
        )

    def _pacer(self) -> Any:
        from pfl.callback.base import TrainingProcessCallback
        from pfl.metrics import Metrics

        outer = self

        class Pacer(TrainingProcessCallback):
            def after_central_iteration(self, *about: Any, **more: Any) -> tuple[bool, Any]:
                outer.done.release()
                outer.go.acquire()
                return False, Metrics()

        return Pacer()


def has_pfl() -> bool:
    """Whether pfl is installed."""
    return importlib.util.find_spec("pfl") is not None
