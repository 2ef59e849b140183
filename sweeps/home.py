"""The folder of a sweep: on a disk that all nodes share, or a copy here of one in storage such as
``s3://``.
"""

from __future__ import annotations

from pathlib import Path

from orchestrator.results.places import is_remote, join
from orchestrator.results.run_folder import RunFolder

TUNING = "tuning"
"""The first of two stages has a folder of its own inside."""
EXTENSION = "further-{}"
"""What is tried beyond the first stage's grids, inside its folder."""
TUNE = "tune"
"""Ray Tune's own files, which Tune itself writes where the sweep is."""


class Home:
    """What the sweep's driver reads and writes; trials write theirs below ``place``, wherever they
    run.
    """

    def __init__(self, place: str | Path) -> None:
        """Raises UserError for storage that cannot be reached."""
        self.folder = RunFolder.at(place)

    @property
    def path(self) -> Path:
        """The folder on this machine."""
        return self.folder.path

    @property
    def place(self) -> str:
        """Where all nodes find it: a path or a URI."""
        return self.folder.place

    def stage(self) -> Home:
        """The folder of the first stage."""
        return Home(join(self.place, TUNING))

    def extension(self, number: int) -> Home:
        """The folder of what is tried beyond the first stage's grids (1, 2, ...)."""
        return Home(join(self.place, EXTENSION.format(number)))

    def holds(self, name: str) -> bool:
        """Whether there is a file of that name."""
        return self.folder.holds(name)

    def collect(self) -> None:
        """Bring here what was written there."""
        self.folder.collect(_read)

    def send(self) -> None:
        """Bring there what was written here."""
        self.folder.send()


def local_copy(place: str) -> Path:
    """The sweep's results on this machine, for somebody who only reads; raises UserError if there
    is no such place.
    """
    if not is_remote(place):
        return Path(place).resolve()
    from orchestrator.results.storage import Mirror

    mirror = Mirror(place, viewed=True)
    mirror.pull(_read)
    # a status that was copied may speak of a trial that has ended since the first look
    before = mirror.there
    mirror.look()
    mirror.fetch(*filter(_read, mirror.there - before))
    return mirror.local


def _read(name: str) -> bool:
    """Whether tables and figures are made from that file, or a logger goes on writing it."""
    kept = (".json", ".parquet", ".yaml", ".sha256", ".db", ".py")  # plugins that configs name
    return name.endswith(kept) and TUNE not in name.split("/")
