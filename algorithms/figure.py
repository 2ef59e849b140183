"""What a run's report is to draw of what a part records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Axis = Literal["round", "mb", "seconds", "steps"]
"""What curves are drawn over: rounds, megabytes transmitted, seconds, local steps in lock step."""


@dataclass(frozen=True)
class Figure:
    """Curves of columns of a run's rounds, or a map of a column of its clients. It is drawn where a
    run has recorded the first of its columns, on the report's page and by ``fedorch plot``.
    """

    name: str
    """In ``fedorch plot --figure``."""
    title: str
    about: str
    """What one sees, in a sentence."""
    y: str = ""
    """What the curves' numbers are, with the unit; of a map, what a cell is."""
    curves: Mapping[str, str] = field(default_factory=dict)
    """Column -> what its curve is called; ``NAME_*``: all with a number behind, called so, too."""
    client: str = ""
    """Instead of curves: a column of ``clients.parquet``, drawn over clients and rounds."""
    over: Axis = "round"
    """What the curves are drawn over at first; a reader may choose another."""
    ticks: bool = False
    """A tick on the axis for each round, and curves as points: what lies between is not known."""
    limits: tuple[str, ...] = ()
    """Columns of its curves that are known everywhere, and drawn as dashed lines beside points."""
    bounds: tuple[float, float] | None = None
    """What the axis shows at least."""
