"""Figures of what runs have left, rather than of a metric: landscapes, energy by channel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sweeps.entry import Drawing

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from orchestrator.results.run_folder import RunFolder

Runs = Mapping[str, "Sequence[RunFolder]"]


def landscape(points: int, rows: int) -> Drawing:
    """The loss on a plane around the rows' final models, ``points`` on each axis, over ``rows``
    rows of the training data; mean over seeds.
    """

    def drawn(runs: Runs) -> tuple[Figure, pd.DataFrame]:
        # imported here: listing the entries need not wait for what draws them
        from orchestrator.analysis.landscape import Look, survey

        return survey(runs, Look(dims=2, points=points, rows=rows))

    return drawn


def energy_map(target: float) -> Drawing:
    """The local steps of least energy until the worst client has the accuracy ``target``, by
    channel.
    """

    def drawn(runs: Runs) -> tuple[Figure, pd.DataFrame]:
        from matplotlib.figure import Figure

        from orchestrator.analysis.energy import Channels, energy_map

        figure, table = energy_map([one for own in runs.values() for one in own], Channels(target))
        if figure is None:
            figure = Figure()
            figure.text(0.5, 0.5, "no number of local steps reaches it on all seeds", ha="center")
        return figure, table

    return drawn
