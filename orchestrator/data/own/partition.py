"""A partition of a user's own: a function in a plugin that says whose each row is."""

from __future__ import annotations

import numpy as np

from orchestrator.data.lists import by_owner
from orchestrator.data.partitioners import Partitioner, Pool
from orchestrator.errors import UserError
from orchestrator.plugins.own import Own


class OwnPartition(Own, Partitioner):
    """A function that returns the client [n] of each row to be shared out: 0 to N-1, or -1 for a
    row that nobody is to have; a config says it in short as ``data.partition: ./parts.py:halves``.

    It may ask for the rows' ``labels`` [n], the numbers of ``clients`` and ``classes``, ``owner``
    [n] (natural clients, or None) and ``rng``, a generator by the run's seed.
    """

    name: str = "own"

    def split(self, pool: Pool) -> list[np.ndarray]:
        facts = {
            "labels": pool.labels.copy(), "clients": pool.clients, "classes": pool.classes,
            "owner": None if pool.owner is None else pool.owner.copy(), "rng": pool.rng(),
        }  # fmt: skip
        try:
            found = np.asarray(self.made("data.partition", facts))
        except ValueError as error:
            raise UserError(str(error)) from error
        if found.shape != pool.labels.shape or found.dtype.kind not in "iu":
            raise UserError(
                f"data.partition: {self.of} returns {found.dtype} of shape {found.shape}, and not "
                f"a whole number, a client, for each of {len(pool.labels)} rows"
            )
        if not -1 <= found.min() <= found.max() < pool.clients:
            raise UserError(
                f"data.partition: {self.of} names client {found.max()}; there are 0 to "
                f"{pool.clients - 1}, and -1 for nobody"
            )
        return by_owner(found, pool.clients)
