"""What a round has spent: bytes, and the seconds of its parts."""

from __future__ import annotations

import time

import numpy as np

from orchestrator.clients.federation import Federation
from orchestrator.rounds.metrics import Record


class Spent:
    """Of one round, from when this is made."""

    def __init__(self, federation: Federation) -> None:
        self._federation = federation
        self._begun, self._sent_before = time.perf_counter(), self._bytes()
        self._seconds: Record = {}

    def aggregated(self) -> None:
        """The server has its model: where the time went until now, but for an evaluation that is
        still to come; and the seconds of a client, which are not the round's.
        """
        log = self._federation.log
        train, transfer, evaluate = log.train_seconds, log.transfer_seconds, log.evaluate_seconds
        of_a_client = log.seconds_a_client(self._federation.terms.server)
        rest = time.perf_counter() - self._begun - train - transfer - evaluate
        self._seconds = {
            **({} if of_a_client is None else {"seconds_client": of_a_client}),
            "seconds_train": train,
            "seconds_transfer": transfer,
            "seconds_aggregate": max(0.0, rest),
            "seconds_evaluate": evaluate,
        }

    def evaluated(self, seconds: float) -> None:
        """Judging has taken so many more ``seconds``."""
        self._seconds["seconds_evaluate"] += seconds

    def record(self) -> Record:
        """Bytes and seconds until now, and how many clients have sent or were sent any."""
        passed = self._bytes() - self._sent_before
        down, up = passed.sum(1)
        return {
            "contacted": float((passed.sum(0) > 0).sum()),
            "bytes_down": float(down),
            "bytes_up": float(up),
            "bytes_questions": float(self._federation.log.question_bytes),
            "seconds": time.perf_counter() - self._begun,
            **self._seconds,
        }

    def _bytes(self) -> np.ndarray:
        """Bytes of each client so far [2, N]: down, up."""
        ledger = self._federation.ledger
        return np.stack([ledger.down, ledger.up])
