"""What a part can say of a run that it was in: from the run's record, in sentences."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

Rounds = Mapping[str, np.ndarray]
"""Column of ``rounds.parquet`` -> its values [T], NaN in rounds that have none."""


def recorded(rounds: Rounds, column: str) -> np.ndarray:
    """The finite values of a column, in order; none where no round has recorded any."""
    values = rounds.get(column, np.empty(0))
    return values[np.isfinite(values)]
