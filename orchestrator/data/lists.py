"""Lists of row numbers, one for each client, and what must hold between them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.errors import UserError


@dataclass(frozen=True)
class Lists:
    """N lists of row numbers, stored as one array and its offsets."""

    rows: np.ndarray
    offsets: np.ndarray

    @classmethod
    def of(cls, lists: Sequence[np.ndarray]) -> Lists:
        sizes = [len(one) for one in lists]
        return cls(
            np.concatenate([np.asarray(one, np.int64) for one in lists]), np.cumsum([0, *sizes])
        )

    def __getitem__(self, k: int) -> np.ndarray:
        return self.rows[self.offsets[k] : self.offsets[k + 1]]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def sizes(self) -> np.ndarray:
        return np.diff(self.offsets)

    def holder(self, row: int) -> int:
        """The first list that has ``row``, which one must have."""
        place = np.flatnonzero(self.rows == row)[0]
        return int(np.searchsorted(self.offsets, place, "right")) - 1


def by_owner(owner: np.ndarray, clients: int) -> list[np.ndarray]:
    """Places in ``owner`` [n] that hold 0, ..., clients − 1, each ascending."""
    order = np.argsort(owner, kind="stable")
    ends = np.searchsorted(owner[order], np.arange(clients + 1))
    return [order[start:end] for start, end in itertools.pairwise(ends)]


def keep_apart(train: Lists, others: Mapping[str, np.ndarray], rows: int) -> None:
    """Raise UserError unless the clients' training rows and the ``others`` have nothing in common.

    ``others`` are row numbers by what is said of them ("a test set"); all are below ``rows``.
    Whatever deals rows out, nothing that this lets through can make a model be judged on what it,
    or another client's, was trained on or chosen by.
    """
    for some in (train.rows, *others.values()):
        if len(some) and not 0 <= some.min() <= some.max() < rows:
            raise UserError(
                f"data.partition: it names row {some.max()}, and the dataset has {rows} rows"
            )
    for where, some in others.items():
        both = _shared(train.rows, some, rows)
        if len(both):
            raise UserError(
                f"data.partition: row {both[0]} is in the training rows of client "
                f"{train.holder(both[0])} and in {where} ({len(both)} rows are in both)"
            )
    for (where, some), (other, more) in itertools.combinations(others.items(), 2):
        both = _shared(some, more, rows)
        if len(both):
            raise UserError(
                f"data.partition: row {both[0]} is in {where} and in {other} ({len(both)} rows are "
                "in both)"
            )


def _shared(one: np.ndarray, other: np.ndarray, rows: int) -> np.ndarray:
    """Those of the row numbers below ``rows`` that are in both, ascending."""
    marked = np.zeros((2, rows), bool)
    # of no rows a list may be of any type
    marked[0, one.astype(np.int64)] = marked[1, other.astype(np.int64)] = True
    return np.flatnonzero(marked.all(0))


def keep_disjoint(train: Lists) -> None:
    """Raise UserError if a training row has been dealt more than once."""
    times = np.bincount(train.rows, minlength=1)
    if times.max() > 1:
        raise UserError(
            f"data.partition: row {np.argmax(times > 1)} is dealt {times.max()} times, which this "
            "partition must not do"
        )
