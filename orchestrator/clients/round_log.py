"""What happened to the clients in one round, for its record."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass
class RoundLog:
    """Filled by the sessions and questions of a round, read when it is over."""

    cohort: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    diagnostics: dict[str, np.ndarray] = field(default_factory=dict)
    """train_loss and, where it is asked for, gradient_norm/LAYER (means over all local steps),
    update_norm (of the last session whose models were sent, where there is one), steps of each
    client."""
    dropped: list[int] = field(default_factory=list)
    """Who was lost, too late, or sent NaN."""
    uncounted: list[int] = field(default_factory=list)
    """Of these, whose update does not count, and who is in no mean of the round. Whose own model
    was late, or is of NaN, has sent one before."""
    unjudged: list[int] = field(default_factory=list)
    """Who was too late when its model was to be judged; it may have been dropped before, or not."""
    not_finite: list[int] = field(default_factory=list)
    """Whose updates held NaN or infinity, whether they were dropped for it or kept."""
    personal: dict[str, dict[int, tuple[float, float, float]]] = field(default_factory=dict)
    """"test" and "validation" -> client -> correct, summed loss, rows of its local model on its own
    rows."""
    question_bytes: int = 0
    """Bytes of the answers that clients gave in mid-round (states of a variance monitor,
    snapshots); also uploads."""
    computing: dict[int, float] = field(default_factory=dict)
    """client -> seconds that it computed, wherever and beside whom that was."""
    server_steps: float = 0.0
    """Local steps of the server's own training, which is no client's."""
    train_seconds: float = 0.0
    """Of the round's duration, as the others: while client actors computed."""
    transfer_seconds: float = 0.0
    evaluate_seconds: float = 0.0

    def computed(self, ids: np.ndarray, seconds: np.ndarray) -> None:
        """Clients ``ids`` [C] have computed for ``seconds`` [C]."""
        for k, more in zip(ids.tolist(), seconds.tolist(), strict=True):
            self.computing[k] = self.computing.get(k, 0.0) + more

    def seconds_a_client(self, apart: int) -> float | None:
        """Mean over the clients that took part, without the one that stands for the server
        (``apart``) and those that were too late; None if there was nobody.
        """
        gone = {*self.dropped, apart}
        counted = [s for k, s in self.computing.items() if k not in gone]
        return sum(counted) / len(counted) if counted else None

    def add(self, ids: np.ndarray, diagnostics: dict[str, np.ndarray], sent: bool = True) -> None:
        """Note a session of clients ``ids`` [m], whose models were ``sent`` or stay with them: what
        the same clients did in several sessions adds up; others stand beside them (clusters).
        """
        if not len(self.cohort):
            self.cohort, self.diagnostics = ids, diagnostics
            return
        self.cohort, place = np.unique(np.concatenate([self.cohort, ids]), return_inverse=True)
        both = {
            n: np.concatenate([self.diagnostics[n], v]).astype(float)
            for n, v in diagnostics.items()
        }
        done = both.pop("steps")
        steps = np.bincount(place, done)
        norms = np.zeros(len(self.cohort))
        # of what is written twice the last stays
        last = slice(None) if sent else slice(None, None, -1)
        norms[place[last]] = both.pop("update_norm")[last]
        # a client without data has done no step
        means = {n: np.bincount(place, done * v) / np.maximum(steps, 1) for n, v in both.items()}
        self.diagnostics = {"steps": steps, "update_norm": norms, **means}
