"""How a sweep is doing: the file that its driver keeps for other shells."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from sweeps.home import TUNING

FILE = "status.json"


@dataclass(frozen=True)
class Status:
    """Its trials, and the best so far."""

    total: int
    finished: int
    stopped: int
    """By a scheduler."""
    failed: int
    running: Mapping[str, int]
    """Trial -> its rounds so far."""
    metric: str
    best: float | None
    """None: no trial has reported the metric."""
    best_trial: str
    seconds: float
    """Since the sweep began, without the time that it was interrupted."""
    seconds_left: float | None
    """As long as the trials that have ended took; None before the first has."""

    @property
    def ended(self) -> int:
        """Trials that are over, however."""
        return self.finished + self.stopped + self.failed

    def __str__(self) -> str:
        """One line: running, failed, best, time left."""
        parts = [f"{len(self.running)} running"]
        parts += [
            f"{count} {kind}"
            for kind, count in (("stopped", self.stopped), ("failed", self.failed))
            if count
        ]
        if self.best is not None:
            parts.append(f"best {self.metric} {self.best:.4g} ({self.best_trial})")
        if self.seconds_left is not None and self.seconds_left > 0:
            parts.append(f"about {self.seconds_left / 60:.0f} min left")
        return ", ".join(parts)

    def to_json(self) -> str:
        """What ``read`` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, folder: Path) -> Status:
        """That of the sweep whose driver works in ``folder``."""
        return cls(**json.loads((folder / FILE).read_text()))


def stage_of(folder: Path) -> Path | None:
    """The folder with the file: that of the sweep, or of its first stage if it has got no further;
    None if no sweep has begun.
    """
    places = (folder, folder / TUNING)
    return next((place for place in places if (place / FILE).is_file()), None)
