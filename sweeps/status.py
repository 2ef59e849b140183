"""How a sweep is doing: the file that its driver keeps for other shells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from orchestrator.files import read_sealed
from orchestrator.results import locks
from orchestrator.results.contents import LOCK
from orchestrator.results.run_folder import RunFolder
from orchestrator.results.trials import STATUS
from sweeps.home import EXTENSION, TUNING


@dataclass(frozen=True)
class Status:
    """Its trials, and the best so far."""

    total: int
    finished: int
    stopped: int
    """By a scheduler."""
    failed: int
    running: Mapping[str, int]
    """Trial, by its settings, seed and (in brackets) folder -> its rounds so far."""
    metric: str
    best: float | None
    """Mean over the best setting's seeds, among the settings of which most seeds have ended; None:
    no trial has reported the metric."""
    best_trial: str
    """The best setting."""
    seconds: float
    """Since the sweep began, without the time that it was interrupted."""
    seconds_left: float | None
    """At the pace so far, trials under way by the rounds that they have done; None before any."""
    diverged: int = 0
    """Whose model, or loss, is NaN or infinite, wherever they stand; among the others, too."""
    trials: tuple[str, ...] = ()
    """Folders below trials/ that must hold results: of trials that have ended, by themselves or
    (once the sweep is over) by a scheduler."""
    best_folder: str = ""
    """The folder below trials/ of its first seed."""
    best_seeds: int = 1
    """Its seeds that have ended."""
    written: float = 0.0
    """When this was said (seconds since the epoch); 0: not known."""

    @property
    def ended(self) -> int:
        """Trials that are over, however."""
        return self.finished + self.stopped + self.failed

    def __str__(self) -> str:
        """One line, of a sweep that is being run: running, failed, best, time left."""
        running = [f"{len(self.running)} running"] if self.running else []
        parts = [*running, *self._so_far()]
        if self.seconds_left is not None and self.seconds_left > 0:
            minutes = round(self.seconds_left / 60)
            parts.append(f"about {minutes} min left" if minutes else "less than a minute left")
        return ", ".join(parts) or f"{self.finished} finished"

    def seen(self, driven: bool | None, now: float) -> str:
        """One line for somebody else at the time ``now``, who knows whether a process runs the
        sweep, or does not (None).
        """
        to_go = self.total - self.ended
        if driven is False and to_go > 0:
            parts = [f"interrupted with {to_go} to go", *self._so_far()]
            return f"{', '.join(parts)}; no process is running it: --resume goes on"
        if driven is None and to_go > 0 and self.written:
            return f"{self}; last heard of {max(0.0, now - self.written):.0f} s ago"
        return str(self)

    def _so_far(self) -> list[str]:
        parts = [
            f"{count} {kind}"
            for kind, count in (
                ("stopped", self.stopped),
                ("failed", self.failed),
                ("diverged", self.diverged),
            )
            if count
        ]
        if self.best is not None:
            of = f"; mean of {self.best_seeds} seeds" if self.best_seeds > 1 else ""
            parts.append(f"best {self.metric} {self.best:.4g} ({self.best_trial}{of})")
        return parts

    def write(self, folder: RunFolder) -> None:
        """Leave it in the sweep's folder, for ``read``."""
        folder.write_sealed(STATUS, asdict(self))

    @classmethod
    def read(cls, folder: Path) -> Status:
        """That of the sweep whose driver works in ``folder``; raises UserError if it is damaged."""
        return read_sealed(folder / STATUS, cls)


def is_driven(folder: Path) -> bool | None:
    """Whether a process runs the sweep (or the stage of one) in ``folder``: it holds the folder's
    lock, which ends with it however it ends. None if that cannot be known: a copy of storage has no
    lock, and some network file systems keep none.
    """
    return locks.is_held(folder / LOCK)


def stage_of(folder: Path) -> Path | None:
    """The folder with the file: that of the sweep, or of its first stage (the last extension of
    its grids) if it has got no further; None if no sweep has begun.
    """
    first = folder / TUNING
    places = (folder, *sorted(first.glob(EXTENSION.format("*")), reverse=True), first)
    return next((place for place in places if (place / STATUS).is_file()), None)
