"""Trackers: parts that pass a run's numbers on while it goes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pydantic import JsonValue

from algorithms.part import Part


@dataclass(frozen=True)
class Tracked:
    """A run that begins, or goes on, as a tracker is told of it."""

    name: str
    config: Mapping[str, JsonValue]
    """All of it, nested."""
    folder: Path
    """The run's, on the machine that its server is on."""
    done: int
    """Rounds that are kept of what was done before; later ones are done again."""
    known: str = ""
    """``Log.known`` of the process that the run goes on from."""


class Log(ABC):
    """What a tracker opens for a run."""

    known: str = ""
    """What must be known to go on with it after a resume (an id, say); up to 1,000 characters."""

    @abstractmethod
    def add(self, record: Mapping[str, float]) -> None:
        """Pass on a round's metrics; ``round`` is among them, and NaN may be."""

    def flush(self) -> None:
        """A checkpoint follows, from which the run may go on: what was added must not be lost."""

    def end(self, ending: Mapping[str, object], files: Sequence[Path]) -> None:
        """The run ends here: what result.json says, and the files that it leaves."""


class Tracker(Part):
    """Opens a log for a run. Whatever it raises is told in a note, and does not end the run."""

    remote: ClassVar[bool] = False
    """Whether calls may take long: they are made in a thread of their own, in their order."""

    @abstractmethod
    def begin(self, run: Tracked) -> Log:
        """The log of a run that begins or goes on."""
