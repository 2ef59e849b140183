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
        both = np.intersect1d(train.rows, some)
        if len(both):
            raise UserError(
                f"data.partition: row {both[0]} is in the training rows of client "
                f"{train.holder(both[0])} and in {where} ({len(both)} rows are in both)"
            )
    for (where, some), (other, more) in itertools.combinations(others.items(), 2):
        both = np.intersect1d(some, more)
        if len(both):
            raise UserError(
                f"data.partition: row {both[0]} is in {where} and in {other} ({len(both)} rows are "
                "in both)"
            )


def keep_disjoint(train: Lists) -> None:
    """Raise UserError if a training row has been dealt more than once."""
    row, times = np.unique(train.rows, return_counts=True)
    if (times > 1).any():
        raise UserError(
            f"data.partition: row {row[times > 1][0]} is dealt {times.max()} times, which this "
            "partition must not do"
        )
