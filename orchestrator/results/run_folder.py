"""The folder of a run: what is written where, each file whole or not at all."""

from __future__ import annotations

import contextlib
import itertools
import os
import shlex
import shutil
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pandas as pd

from orchestrator import files
from orchestrator.config import Config, build
from orchestrator.config.reading import apply_all, read_whole
from orchestrator.config.schema import HOW_MUCH
from orchestrator.errors import UserError
from orchestrator.plugins.plugin import source
from orchestrator.plugins.raw import exchanged, kept
from orchestrator.results import checkpoint, locks, manifest
from orchestrator.results.contents import (
    CLIENTS,
    CONFIG,
    HOLDINGS,
    LOCK,
    MODEL,
    PLUGINS,
    REPORT,
    RESULT,
    ROUNDS,
    SAID,
    SEALED,
)
from orchestrator.results.members import members
from orchestrator.results.places import is_remote
from orchestrator.results.result import Ending, Result, ending
from orchestrator.results.trials import STATUS
from orchestrator.terminal import sweep_again, told

if TYPE_CHECKING:
    from torch import Tensor

    from orchestrator.results.storage import Mirror


class RunFolder:
    """One run's folder: config.yaml, checkpoints/, tensorboard/, and the results."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[str] | None = None
        self._above: Path | None = None
        """The folder above, if it was made for this one."""

    @classmethod
    def at(cls, place: str | Path) -> RunFolder:
        """The folder of a path, or the local copy of a URI's; raises UserError for a bad URI."""
        if is_remote(str(place)):
            from orchestrator.results.storage import Mirror

            return MirroredRunFolder(Mirror(str(place)))
        return RunFolder(files.resolved(place))

    @classmethod
    def new(cls, place: str | Path) -> RunFolder:
        """A folder that is not there, or is empty; raises UserError otherwise. Writes nothing."""
        folder = cls.at(place)
        folder.require_empty()
        return folder

    @classmethod
    def dated(cls, name: str) -> RunFolder:
        """A new folder of the run ``name`` and the time; another than that of a run that has begun
        in the same second. Raises UserError if it cannot be made.
        """
        path = Path("runs", f"{name}-{time.strftime('%Y%m%d-%H%M%S')}").resolve()
        above = None if path.parent.exists() else path.parent
        with files.said(f"{path}: cannot be created"):
            path.parent.mkdir(parents=True, exist_ok=True)
            for count in itertools.count(2):
                with contextlib.suppress(FileExistsError):
                    path.mkdir()
                    break
                path = path.with_name(f"{path.name.removesuffix(f'-{count - 1}')}-{count}")
        folder = RunFolder(path)
        folder._above = above
        return folder

    @classmethod
    def existing(cls, place: str | Path) -> RunFolder:
        """The folder of an earlier run; raises UserError if it is not one."""
        folder = cls.at(place)
        if folder.holds(CONFIG):
            folder.fetch(CONFIG, *folder.held(PLUGINS))
        return folder._known(place)

    @classmethod
    def viewed(cls, place: str) -> RunFolder:
        """The folder of an earlier run, only to be read; raises UserError if it is not one."""
        if not is_remote(place):
            folder = cls.existing(place)
        else:
            from orchestrator.results.storage import Mirror

            folder = MirroredRunFolder(Mirror(place, viewed=True))
            # checkpoints and TensorBoard files are in folders, and nobody looks at them
            folder.collect(lambda name: "/" not in name or name.startswith(f"{PLUGINS}/"))
            folder._known(place)
        # results of another config than the one that is there now mean nothing
        if (folder.path / manifest.NAME).exists() and not manifest.holds(folder.path, CONFIG):
            folder.config()  # one that is no config is told as such
            raise UserError(
                f"{place}: the results there are of another config.yaml: it was changed since "
                f"(then `fedorch run --resume {place}` brings them up to date, if there is a "
                "checkpoint), or is damaged"
            )
        return folder

    def tell_if_behind(self) -> None:
        """Say so where a checkpoint is of a later round than the results: of a run that went on
        after it had been stopped, and was killed.
        """
        rounds, last = self.result()["rounds"], checkpoint.newest(self.checkpoints)
        if last > rounds:
            told(
                "note",
                f"{self.place}: its results are of round {rounds}, and it went on to round {last} "
                f"or later; fedorch run --resume {shlex.quote(self.place)} brings them up to date",
            )

    @property
    def place(self) -> str:
        """Where a user finds the results."""
        return str(self.path)

    @property
    def _here(self) -> str:
        """The folder on this machine, in words."""
        return str(self.path)

    def _taken(self, besides: str) -> bool:
        """Whether anything but ``besides`` is there."""
        path = self.path
        if not path.exists():
            return False
        return not path.is_dir() or any(p.name not in (LOCK, besides) for p in path.iterdir())

    def require_empty(self, besides: str = "") -> None:
        """Raises UserError if anything but ``besides`` is there."""
        if self.path.exists() and not self.path.is_dir():
            raise UserError(f"--out {self.place}: it is no folder; choose another")
        if self._taken(besides):
            raise UserError(
                f"--out {self.place}: it exists and is not empty; choose another{self._or_go_on()}"
            )

    def _or_go_on(self) -> str:
        """What else can be done with a folder that is taken."""
        if self.holds(STATUS):
            return f", or go on with the sweep there: {sweep_again(self.place)}"
        if self.holds(CONFIG):
            return f", or go on with the run there: fedorch run --resume {shlex.quote(self.place)}"
        return ""

    def holds(self, name: str) -> bool:
        """Whether there is a file of that name."""
        return (self.path / name).is_file()

    def held(self, inside: str) -> list[str]:
        """Files of a folder in this one, where they must be fetched to be here."""
        return []

    # What follows brings a copy here and the results there up to date with one another, where they
    # are not the same folder; see MirroredRunFolder.

    def fetch(self, *names: str) -> None:
        """Bring files here; raises UserError if that fails."""

    def collect(self, wanted: Callable[[str], bool]) -> None:
        """Bring here what was written there by others, where a file's name is ``wanted``."""

    def send(self) -> None:
        """Bring there what has changed here; raises UserError if that fails."""

    def publish(self) -> None:
        """:meth:`send`, and remove there what is gone here; raises UserError if that fails."""

    def refresh(self, resuming: bool) -> None:
        """Start with a copy of what is there, or (unless ``resuming``) with nothing."""

    def discard(self) -> None:
        """Remove the copy here, which nobody will look for."""

    def _known(self, place: str | Path) -> RunFolder:
        if not self.begun:
            there = is_remote(str(place)) or Path(place).exists()
            why = "is not the folder of a run: it holds no config.yaml" if there else "is not there"
            inside = [one for one in members(str(place)) if one != str(place)] if there else []
            runs = f"; it holds runs: name one, such as {inside[0]}" if inside else ""
            raise UserError(f"{place} {why}{runs}")
        return self

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def config(self, plugins: Sequence[str] = (), settings: Sequence[str] = ()) -> Config:
        """The config that the run was started with, but for other ``plugins`` in the place of those
        of the same names, and for ``settings`` (``rounds=60``) of what decides no round's results;
        raises UserError if it is not whole, and for other settings.
        """
        path = self.path / CONFIG
        raw = exchanged(kept(read_whole(path), path), plugins)
        missing = set(Config.model_fields) - set(raw)
        if missing:  # a run writes all of them, and defaults would make it another run
            lost = ", ".join(sorted(missing))
            raise UserError(
                f"{path} is damaged, or of another version of fedorch: it has lost {lost}"
            )
        for setting in settings:
            section = setting.partition("=")[0].partition(".")[0]
            if section not in HOW_MUCH:
                raise UserError(
                    f"--set {setting[:100]}: a run goes on as it was begun; only "
                    f"{', '.join(HOW_MUCH)} can be others"
                )
        apply_all(raw, settings)
        config = build(raw, begun=True)
        others = any(one.startswith("stop") for one in settings)
        if problem := config.goal_problem() if others else None:
            raise UserError(f"config: {problem}")
        return config

    def plugins(self) -> dict[str, str]:
        """Name -> SHA-256 of the plugins that config.yaml names, none of which is imported."""
        path = self.path / CONFIG
        return {one["name"]: one["sha256"] for one in kept(read_whole(path), path)[PLUGINS]}

    @property
    def begun(self) -> bool:
        """Whether a run has ever been opened here."""
        return (self.path / CONFIG).is_file()

    @property
    def finished(self) -> bool:
        """Whether a run has come to its end here; raises UserError if what says so is damaged."""
        return self.holds(RESULT) and self.ending()["status"] == "finished"

    def make(self) -> None:
        """Create the folder, if it is not there; raises UserError if that is impossible."""
        with files.said(f"--out {self._here}: cannot be created"):
            self.path.mkdir(parents=True, exist_ok=True)

    def says(self, config: Config) -> bool:
        """Whether config.yaml is that config, with everything settled."""
        return files.read_bytes(self.path / CONFIG).decode() == config.dump()

    def open(self, config: Config) -> None:
        """Create the folder with the resolved config, and the plugins' files that it names."""
        self.make()
        for plugin in config.plugins:
            content = source(plugin)
            if content is not None:
                with files.said(f"{self.path}: cannot be written"):
                    self._mine(PLUGINS).mkdir(exist_ok=True)
                self.write_text(f"{PLUGINS}/{plugin.name}.py", content.decode())
        self.write_text(CONFIG, config.dump())

    @property
    def claimed(self) -> bool:
        """Whether this process holds it."""
        return self._lock is not None

    def claim(self, patience: float = 0.0) -> None:
        """Keep other processes out of this folder until :meth:`release`, or this process ends.

        Raises UserError if it cannot be written, or another one holds it and does not let go for
        ``patience`` seconds.
        """
        self.require_no_links()
        deadline = time.monotonic() + patience
        while (lock := locks.take(self.path / LOCK)) is None:
            if time.monotonic() >= deadline:
                raise UserError(f"{self.path} is in use: {self._holder()} is running into it")
            time.sleep(0.2)
        # who holds it, for others to read; a full disk is told where it matters
        with contextlib.suppress(OSError):
            lock.truncate(0)
            lock.write(f"process {os.getpid()} on {socket.gethostname()}")
            lock.flush()
        self._lock = lock

    def require_no_links(self) -> None:
        """Raises UserError for a link to a folder: what a run writes, and what it removes, is in
        its own folder, whoever has sent that.
        """
        with files.said(f"{self.path}: cannot be read"):
            inside = list(self.path.iterdir()) if self.path.is_dir() else []
        for path in inside:
            if path.is_symlink() and path.is_dir():
                raise UserError(
                    f"{path} is a link to a folder elsewhere, which a run does not write to; put "
                    "the folder itself there"
                )

    def _holder(self) -> str:
        with contextlib.suppress(OSError, UnicodeError):
            return (self.path / LOCK).read_text(encoding="utf-8").strip() or "another process"
        return "another process"

    def release(self) -> None:
        """Let others have the folder, which goes if nothing was written into it."""
        if self._lock is None:
            return
        if not self._taken(besides=""):
            with contextlib.suppress(OSError):
                (self.path / LOCK).unlink()
        self.forget_empty()
        with contextlib.suppress(OSError):  # what could not be written of its text is tried again
            self._lock.close()
        self._lock = None

    def forget_empty(self) -> None:
        """Remove the folder, and the one above that was made for it, if nothing is in them."""
        with contextlib.suppress(OSError):
            self.path.rmdir()
            if self._above is not None:
                self._above.rmdir()

    def require_mine(self) -> None:
        """Raises UserError if the folder that this process has claimed is gone, or another's by
        now: somebody may have removed it, and begun anew there.
        """
        if self._lock is not None and not locks.is_at(self._lock, self.path / LOCK):
            raise UserError(
                f"{self.path}: cannot be written: it was removed or replaced while this run was "
                "going into it"
            )

    def _mine(self, name: str) -> Path:
        """Where a file of that name may be written; raises UserError as :meth:`require_mine`."""
        self.require_mine()
        return self.path / name

    def write_text(self, name: str, text: str) -> None:
        """Write a file, whole or not at all; raises UserError if that fails, as all below do."""
        files.write_text(self._mine(name), text)

    def write_json(self, name: str, value: object) -> None:
        """Write a document."""
        files.write_json(self._mine(name), value)

    def write_sealed(self, name: str, value: object) -> None:
        """Write a document with its own checksum."""
        files.write_sealed(self._mine(name), value)

    def write_table(self, name: str, table: pd.DataFrame) -> None:
        """Write a parquet file."""
        files.write_whole(self._mine(name), lambda path: table.to_parquet(path, index=False))

    def write_model(self, tensors: Mapping[str, Tensor]) -> None:
        """Write the model's tensors."""
        from safetensors.torch import save_file

        files.write_whole(self._mine(MODEL), lambda path: save_file(dict(tensors), path))

    def write_report(self, text: str) -> None:
        """Write the run's page, and seal it if the others are."""
        self.write_text(REPORT, text)
        if (self.path / manifest.NAME).exists():
            manifest.renew(self.path, REPORT)

    def keep_config(self, config: Config) -> bool:
        """See to it that config.yaml is what ran; whether it has been another one, and not the same
        in other words, as who edits it before ``--resume`` may write it.
        """
        path, text = self.path / CONFIG, config.dump()
        if path.is_file() and files.read_bytes(path) == text.encode():
            return False
        same = False
        with contextlib.suppress(UserError):
            same = self.config() == config
        self.write_text(CONFIG, text)
        return not same

    def seal(self, names: Sequence[str] = SEALED) -> None:
        """Say which of a run's files are here, and what is in them, when all are complete."""
        self.require_mine()
        manifest.seal(self.path, [name for name in names if (self.path / name).is_file()])

    def leave_failure(self, about: Mapping[str, object]) -> None:
        """Say in result.json why the run cannot go on; where that cannot be written (a full disk,
        say) there is none, rather than one of before. Tables and a model that are there are those
        of an earlier end, and no results any more.
        """
        try:
            self.require_mine()
        except UserError:
            return
        try:
            self.write_json(RESULT, {**about, "status": "failed"})
            self.seal(SAID)
        except UserError:
            with contextlib.suppress(OSError):
                (self.path / RESULT).unlink(missing_ok=True)

    def save(self, t: int, state: Mapping[str, Any], keep: int) -> None:
        """Write round ``t``'s checkpoint; raises UserError if the disk refuses (others stay)."""
        self.require_mine()
        checkpoint.save(self.checkpoints, t, state, keep)
        # older checkpoints that have gone here go there, too
        self.publish()

    # What a run has left is read only if it is as it was left: manifest.verify.

    def ending(self) -> Ending:
        """How the run has ended; raises UserError if it has not, or result.json is damaged."""
        return ending(self.path)

    def result(self) -> Result:
        """result.json of a run that has done a round; raises UserError if there is none."""
        path = manifest.verify(self.path, RESULT)
        ended = files.read_json(path, Ending)
        if ended["status"] == "failed" and "rounds" not in ended:
            why = ended.get("error", "nobody knows why")
            raise UserError(f"{self.path}: the run failed before its first round: {why}")
        return files.read_json(path, Result)

    def rounds(self) -> pd.DataFrame:
        """rounds.parquet; raises UserError if it cannot be read."""
        return self._table(ROUNDS)

    def clients(self) -> pd.DataFrame:
        """clients.parquet; raises UserError if it cannot be read."""
        return self._table(CLIENTS)

    def holdings(self) -> pd.DataFrame:
        """holdings.parquet: client, label, rows (where there are any); empty if a run of before has
        none. Raises UserError if it cannot be read.
        """
        if not (self.path / HOLDINGS).exists():
            return pd.DataFrame({"client": [], "label": [], "rows": []}, dtype=int)
        return self._table(HOLDINGS)

    def model(self) -> dict[str, Tensor]:
        """The tensors of the final model; raises UserError if they cannot be read."""
        from safetensors.torch import load_file

        return load_file(self._left(MODEL))

    def _left(self, name: str) -> Path:
        """The path of what a run that has not failed has left; raises UserError otherwise."""
        if manifest.holds(self.path, RESULT) and (ended := self.ending())["status"] == "failed":
            why = ended.get("error", "nobody knows why")
            raise UserError(f"{self.place}: the run failed, and has no {name}: {why}")
        return manifest.verify(self.path, name)

    def _table(self, name: str) -> pd.DataFrame:
        path = self._left(name)
        with files.said(f"cannot read {path}"):
            table = pd.read_parquet(path)
        words = [str(c) for c in table if not pd.api.types.is_numeric_dtype(table[c])]
        if words:
            raise UserError(f"cannot read {path}: its column {words[0]} does not hold numbers")
        return table


class MirroredRunFolder(RunFolder):
    """A folder here whose copy in storage is what the user asked for."""

    def __init__(self, mirror: Mirror) -> None:
        super().__init__(mirror.local)
        self.mirror = mirror
        self.there = None if mirror.folder is None else RunFolder(mirror.folder)
        """What ``file://`` names is a folder that others may know by its path."""

    @property
    def place(self) -> str:
        return self.mirror.uri

    @property
    def _here(self) -> str:
        return f"{self.place}: its copy on this machine, {self.path},"

    def _taken(self, besides: str) -> bool:
        return any(name.split("/")[0] != besides for name in self.mirror.there)

    def claim(self, patience: float = 0.0) -> None:
        super().claim(patience)
        try:
            if self.there is not None:
                self.there.claim(patience)
            # others may have been there before
            self.mirror.look()
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        super().release()
        if self.there is not None:
            self.there.release()

    def holds(self, name: str) -> bool:
        return name in self.mirror.there

    def held(self, inside: str) -> list[str]:
        return [name for name in self.mirror.there if name.startswith(f"{inside}/")]

    def fetch(self, *names: str) -> None:
        self.mirror.fetch(*names)

    def collect(self, wanted: Callable[[str], bool]) -> None:
        self.mirror.pull(wanted)

    def send(self) -> None:
        self.mirror.push()

    def publish(self) -> None:
        self.mirror.push()
        self.mirror.prune()

    def refresh(self, resuming: bool) -> None:
        if resuming:
            self.mirror.pull()
        else:
            self.mirror.clear()

    def discard(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
