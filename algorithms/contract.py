"""The contract between the science and the machinery: who takes part, what they send, what can be
asked.

An algorithm meets its clients here and nowhere else: :class:`Clients` opens a :class:`Training`
session for a :class:`Cohort`, whose :class:`Updates` come back. What stands between the two sides
(attacks, compression, dropped clients, the account of bytes) is the machinery's business, and is
not seen from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from algorithms.local import LocalRule, Probe, Tensors

if TYPE_CHECKING:
    from torch import Tensor


class Broken(ValueError):
    """A part has returned what its contract does not allow: which, and what."""


@dataclass(frozen=True)
class Cohort:
    """The distinct clients of a round."""

    ids: np.ndarray
    """Client ids [m], ascending; N is the server."""
    counts: np.ndarray
    """How often each was drawn [m] (1 without replacement)."""

    @classmethod
    def of(cls, drawn: Sequence[int] | np.ndarray) -> Cohort:
        """The cohort of client ids as drawn, in any order, with repeats."""
        # a client that was drawn twice trains once, and counts twice
        ids, counts = np.unique(np.asarray(drawn, np.int64), return_counts=True)
        return cls(ids, counts)

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Updates:
    """What a cohort sent: weighted sums of the vectors (when weights were given), or all rows.

    Clients whose update was dropped are not listed.
    """

    clients: np.ndarray
    """Client ids [m], ascending."""
    samples: np.ndarray
    """Their training samples n_k [m]."""
    weights: Tensor | None
    """The weights [m] of the sums, with the total that was given at collection; None: rows."""
    vectors: Tensors
    """name -> the weighted sum [...], or the rows [m, ...]."""
    scalars: Tensors
    """name -> one number of each client [m]; these always come as rows."""

    def mean(self, name: str) -> Tensor:
        """Σ_k p_k u_k [d] for the weights p given at collection; raises TypeError for rows."""
        if self.weights is None:
            raise TypeError("these updates were collected as rows; combine them with an aggregator")
        return self.vectors[name]

    def rows(self, name: str) -> Tensor:
        """The update matrix [m, d] in client order; raises TypeError for weighted sums."""
        if self.weights is not None:
            raise TypeError(
                "these updates were collected as weighted sums; collect without weights to get rows"
            )
        return self.vectors[name]


@dataclass(frozen=True)
class Influence:
    """How much each client's upload counted in an aggregate."""

    clients: np.ndarray
    """Client ids [m]."""
    weights: np.ndarray
    """Weights [m] of their uploads."""

    @classmethod
    def of(cls, clients: np.ndarray, rows: np.ndarray, weights: np.ndarray) -> Influence:
        """``weights`` on ``rows`` of the cohort ``clients``, brought to sum 1; 0 elsewhere.

        Equal on these rows if all ``weights`` are zero.
        """
        total = weights.sum()
        full = np.zeros(len(clients))
        full[rows] = weights / total if total > 0 else 1 / len(rows)
        return cls(clients, full)

    def shares(self, clients: int) -> np.ndarray:
        """Part of the aggregate's weight [clients] that each had, by magnitude: nothing makes
        weights positive, or their sum 1. NaN of those that sent nothing; a client that was drawn
        twice has both.
        """
        total = np.abs(self.weights).sum()
        found = np.full(clients, np.nan)
        here = self.clients < clients  # the server itself may have trained beside them
        ids, weights = self.clients[here], np.abs(self.weights[here])
        found[ids] = 0.0
        np.add.at(found, ids, weights / total if total > 0 else weights)
        return found

    def combine(self, rows: Tensor) -> Tensor:
        """Σ_k p_k rows_k [d]; a row of weight 0 does not count, whatever it holds."""
        # 0 · ∞ would be NaN
        used = torch.from_numpy(self.weights != 0)
        return torch.from_numpy(self.weights)[used].to(rows) @ rows[used]


class Training(Protocol):
    """A cohort in the middle of a round."""

    cohort: Cohort

    @property
    def start(self) -> Tensor:
        """The model [d] that the clients have got, or the models [m, d] of their own: of a
        compressed broadcast what they made of it, from which they count their updates.
        """

    def advance(self, steps: int | np.ndarray | None = None) -> None:
        """Do ``steps`` local steps on every client (or steps [m] on each); None: the work's rest.

        Unequal steps need clients that train one by one (``local.execution: sequential``).
        """

    def query(
        self, probe: Probe, weights: np.ndarray | None = None, among: np.ndarray | None = None
    ) -> Tensor:
        """Ask all clients: the weighted sum [k] of their answers, or (no weights) rows [m, k].

        With ``among`` only the clients at these places of the cohort answer, in as many rows. With
        ``non_finite: drop`` the sum is over those whose model is finite, with the same total, and
        the rows of the others are NaN.
        """

    def combine(self, rows: Tensor, weights: np.ndarray) -> Tensor:
        """Σ_k p_k rows_k [k] of what each of the cohort has answered ``rows`` [m, k], as the sum of
        a query.
        """

    def evaluate(self) -> None:
        """Record the accuracy and loss of each local model on its client's own test data."""

    def collect(self, weights: np.ndarray | None = None) -> Updates:
        """End local training; the uploads, summed with ``weights`` [m] or (None) as rows."""


class Clients(Protocol):
    """All that an algorithm may ask of the clients. In-process and Ray implementations give the
    same bits.
    """

    def train(
        self,
        cohort: Cohort,
        rule: LocalRule,
        received: Tensors,
        known: Tensors | None = None,
        own: Tensors | None = None,
    ) -> AbstractContextManager[Training]:
        """Open a training session.

        ``received`` is transmitted to each client. ``known`` is not: clients have it already (from
        a shared seed, or from an earlier message of the round). Nor is ``own``, whose row i [m,
        ...] is the cohort's i-th client's.
        """

    def loss(
        self,
        ids: np.ndarray,
        w: Tensor,
        buffers: Tensor,
        batch_size: int | None = None,
        known: bool = False,
    ) -> Tensor:
        """Training loss f_k(w) of each client [len(ids)], on one mini-batch or (None) on all its
        data.

        ``known`` says that the clients already have the model, so that only the losses are
        transmitted.
        """

    def heldout(self, w: Tensor, buffers: Tensor) -> Tensor:
        """Correct answers, rows and summed loss of each class [classes, 3], on the server's
        held-out rows.
        """

    def exchange(self, ids: np.ndarray, nbytes: np.ndarray) -> None:
        """Book what clients ``ids`` exchanged among themselves: ``nbytes`` [len(ids)] sent, and as
        much received.
        """
