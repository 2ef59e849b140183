"""Lists of row numbers, one for each client, and what must hold between them."""

from __future__ import annotations

from collections.abc import Sequence
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


def keep_apart(
    train: Lists, test: Lists, test_rows: np.ndarray, heldout: np.ndarray, rows: int
) -> None:
    """Raise UserError unless training, test and held-out rows have nothing in common.

    ``train`` and ``test`` are the clients', ``test_rows`` the global test set; all are numbers
    below ``rows``. Whatever deals rows out, nothing that any of this lets through can make a model
    be judged on what it, or another client's, was trained on.
    """
    tested = np.concatenate([test.rows, test_rows])
    for some in (train.rows, tested, heldout):
        if len(some) and not 0 <= some.min() <= some.max() < rows:
            raise UserError(
                f"data.partition: it names row {some.max()}, and the dataset has {rows} rows"
            )
    both = np.intersect1d(train.rows, tested)
    if len(both):
        raise UserError(
            f"data.partition: row {both[0]} is in the training rows of client "
            f"{train.holder(both[0])} and in a test set ({len(both)} rows are in both)"
        )
    for whose, some in (("training rows", train.rows), ("test rows", tested)):
        both = np.intersect1d(heldout, some)
        if len(both):
            raise UserError(
                f"data.partition: row {both[0]} is held out at the server and in the clients' "
                f"{whose} ({len(both)} rows are in both)"
            )


def keep_disjoint(train: Lists) -> None:
    """Raise UserError if a training row has been dealt more than once."""
    row, times = np.unique(train.rows, return_counts=True)
    if (times > 1).any():
        raise UserError(
            f"data.partition: row {row[times > 1][0]} is dealt {times.max()} times, which this "
            "partition must not do"
        )
