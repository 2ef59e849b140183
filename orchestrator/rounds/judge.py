"""Judging models: which test rows there are, and what a round's record and table of clients say.

Each distinct row is evaluated once, and every metric is a float64 mean over rows, so that no number
depends on how many actors did the work.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from algorithms.algorithm import Algorithm
from algorithms.local import GivenModel
from orchestrator.clients.federation import Federation
from orchestrator.config.schema import EvaluationConfig
from orchestrator.data.federated import FederatedData
from orchestrator.rounds.metrics import Record, over_clients, over_rows
from orchestrator.training.evaluation import per_client
from orchestrator.training.messages import BUFFERS

ClientTable = dict[str, np.ndarray]
"""Column -> a value of each client [N]."""


@dataclass(frozen=True)
class TestRows:
    """Distinct rows to evaluate, and the places among them of what is asked for."""

    rows: np.ndarray
    clients: np.ndarray
    """The clients' own test rows, one client after the other; empty where they are not asked."""
    test: np.ndarray
    """The global test set."""
    heldout: np.ndarray
    """The server's held-out rows."""

    @classmethod
    def of(cls, data: FederatedData, with_clients: bool) -> TestRows:
        """The rows that a round's evaluation looks at."""
        clients = data.test.rows if with_clients else np.empty(0, np.int64)
        groups = (clients, data.test_rows, data.heldout_rows)
        # clients may share test rows, and have them from the global test set
        rows, found_at = np.unique(np.concatenate(groups), return_inverse=True)
        a, b = len(groups[0]), len(groups[0]) + len(groups[1])
        return cls(rows, found_at[:a], found_at[a:b], found_at[b:])


class Judge:
    """Evaluates an algorithm's models after a round."""

    def __init__(
        self, evaluation: EvaluationConfig, algorithm: Algorithm, federation: Federation
    ) -> None:
        self.evaluation, self.algorithm, self.federation = evaluation, algorithm, federation
        self.data = federation.data
        self.benign = federation.terms.adversary.benign
        """Mask [N] of the clients whose metrics count."""
        self.tests = TestRows.of(self.data, evaluation.clients)

    def judge(self) -> tuple[Record, ClientTable]:
        """All accuracy metrics, and their values by client."""
        tests, algorithm = self.tests, self.algorithm
        loss, hit = self.federation.per_sample(algorithm.model(), algorithm.buffers, tests.rows)
        losses, hits = loss.numpy(), hit.numpy()
        record = over_rows(losses[tests.test], hits[tests.test], "test")
        record |= over_rows(losses[tests.heldout], hits[tests.heldout], "heldout")
        table: ClientTable = {} if self.benign.all() else {"malicious": ~self.benign}
        table |= algorithm.by_client()
        if self.evaluation.clients:
            sizes = self.data.test.sizes
            sums = per_client(loss[tests.clients], hit[tests.clients], sizes).numpy()
            record |= self._over_benign(sums, "client")
            table |= _means(sums)
        personal = self._personal()
        if personal is not None:
            record |= self._over_benign(personal, "personal")
            table["personal_accuracy"] = _per_row(personal[:, 0], personal[:, 2])
        return record, table

    def _over_benign(self, sums: np.ndarray, prefix: str) -> Record:
        return over_clients(sums[self.benign], prefix)

    def _personal(self) -> np.ndarray | None:
        """Correct answers, summed loss and rows [N, 3] of each client's own model, where there are
        such models: personal ones, or those that were trained in the round.
        """
        models = self.algorithm.personal_models()
        rule = self.algorithm.personal_rule() if models is None else GivenModel()
        if rule is not None and self.evaluation.personal:
            known = {"w": self.algorithm.w, BUFFERS: self.algorithm.buffers}
            everyone = np.arange(self.data.clients)
            own = {} if models is None else {"model": models}
            with self.federation.judging(everyone, rule, known, own) as session:
                session.evaluate()
        found = self.federation.log.personal
        if not found:
            return None
        # who was not in the round has no test rows here, and is left out of the means
        return np.array([found.get(k, (0.0, 0.0, 0.0)) for k in range(self.data.clients)])


def keeps_personal_models(algorithm: Algorithm) -> bool:
    """Whether each client has a model of its own, here or on the server."""
    return algorithm.personal_models() is not None or algorithm.personal_rule() is not None


def _means(sums: np.ndarray) -> ClientTable:
    correct, loss, rows = sums.T
    return {
        "accuracy": _per_row(correct, rows),
        "loss": _per_row(loss, rows),
        "test_rows": rows,
    }


def _per_row(total: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Means [N] over each client's rows; NaN for a client without any."""
    return np.divide(total, rows, out=np.full(len(rows), np.nan), where=rows > 0)
