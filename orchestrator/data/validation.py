"""Training rows that are kept for choices: of rates, of when to stop. What is chosen on them can be
judged on test rows, which have had no say in it.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from algorithms.draws import generator
from algorithms.section import Section
from orchestrator.errors import UserError

Parts = list[np.ndarray]
"""Row numbers of each client."""


class ValidationConfig(Section):
    """Section ``data.validation``: parts of the training rows on which choices are made."""

    clients: float = Field(
        0.0, ge=0, lt=1, description="part of each client's training rows that it keeps back"
    )
    server: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="part of each class of the training rows that nobody trains on, and the server "
        "judges its model by",
    )


def keep_back(
    config: ValidationConfig, train: Parts, labels: np.ndarray, overlapping: bool, seed: int
) -> tuple[Parts, Parts, np.ndarray]:
    """Training and validation rows of each client, and the rows that the server is judged by on
    validation data: its own, or those of all clients.

    ``train`` are the rows that each client was dealt, ``labels`` [n] those of all rows. What one
    client keeps back nobody trains on; a row that it was dealt several times is kept as often, so
    that classes have the shares that they have in its training. Raises UserError for a client that
    cannot keep a part, or if nobody keeps a row.
    """
    own, kept = np.empty(0, np.int64), [np.empty(0, np.int64)] * len(train)
    if config.server:
        rng = generator(seed, "validation at the server")
        own = _of_each_class(train, labels, config.server, rng)
        _, train = _split(train, own)
        _require_rows(train, "server")
    if config.clients and overlapping:
        rng = generator(seed, "validation of all")
        kept, train = _split(train, _of_each_class(train, labels, config.clients, rng))
        _require_rows(train, "clients")
    elif config.clients:
        cuts = [_cut(rows, config.clients, seed, k) for k, rows in enumerate(train)]
        train, kept = [a for a, _ in cuts], [b for _, b in cuts]
    if config.clients and not any(map(len, kept)):
        raise UserError(
            "data.validation.clients: nobody has a row to keep back; take fewer clients, or more "
            "rows"
        )
    return train, kept, own if config.server else np.unique(np.concatenate(kept))


def _split(parts: Parts, some: np.ndarray) -> tuple[Parts, Parts]:
    """Each client's rows that are among ``some``, and the others."""
    among = [np.isin(rows, some) for rows in parts]
    pairs = list(zip(parts, among, strict=True))
    return [rows[is_in] for rows, is_in in pairs], [rows[~is_in] for rows, is_in in pairs]


def _of_each_class(
    train: Parts, labels: np.ndarray, fraction: float, rng: np.random.Generator
) -> np.ndarray:
    """The ``fraction`` of the distinct rows of each class, at least one where there are two."""
    rows = np.unique(np.concatenate(train))
    kept = []
    for label in np.unique(labels[rows]):
        mine = rng.permutation(rows[labels[rows] == label])
        kept.append(mine[: _size(len(mine), fraction)])
    return np.sort(np.concatenate(kept))


def _cut(rows: np.ndarray, fraction: float, seed: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Client ``k``'s rows for training, and those that it keeps back."""
    mixed = generator(seed, "validation", k).permutation(rows)
    size = _size(len(rows), fraction)
    return np.sort(mixed[size:]), np.sort(mixed[:size])


def _size(rows: int, fraction: float) -> int:
    """How many of ``rows`` are kept back: never all, and one where the fraction is less."""
    return min(rows - 1, max(1, round(fraction * rows)))


def _require_rows(train: Parts, key: str) -> None:
    empty = [k for k, rows in enumerate(train) if not len(rows)]
    if empty:
        raise UserError(
            f"data.validation.{key}: client {empty[0]} is left without training rows "
            f"({len(empty)} clients in all are); keep back a smaller part"
        )
