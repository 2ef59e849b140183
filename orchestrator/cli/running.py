"""Running an experiment, or the same with several seeds, while a person looks on."""

from __future__ import annotations

import shlex
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from algorithms.local_config import SETTLED
from algorithms.section import WHOLE
from orchestrator.cli.run_shown import INTERRUPTED, RoundProgress, show_notes, show_plan, tell_where
from orchestrator.config import Config
from orchestrator.errors import Diverged, UserError
from orchestrator.results import manifest
from orchestrator.results.contents import CONFIG, RESULT
from orchestrator.results.own_code import FILES, other, untold
from orchestrator.results.places import join
from orchestrator.results.result import Result
from orchestrator.results.run_folder import RunFolder
from orchestrator.terminal import errors, told

if TYPE_CHECKING:
    from orchestrator.training.world import World

MOST_SEEDS = 1000
"""Of one series."""


def run_here(
    config: Config,
    folder: RunFolder,
    resuming: bool,
    interrupts: list[int] | None = None,
    lines: int = 1,
) -> Result:
    """Run it in this process; raises UserError if it cannot begin or go on. ``interrupts`` gets the
    signals that asked it to stop, if only after its last round. A log has a line for every
    ``lines``-th round.
    """
    # imported here, as in all commands: the others need not wait for what only this one needs
    from orchestrator.clients.plane import InProcess
    from orchestrator.rounds.drive import begin, drive, held
    from orchestrator.rounds.experiment import Experiment
    from orchestrator.rounds.metrics import Record

    def plane(world: World) -> InProcess:
        return InProcess(world, config.resources.gpus_per_actor)

    interrupts = [] if interrupts is None else interrupts
    with held(folder, resuming):
        experiment = Experiment(config, plane)
        show_plan(begin(experiment, folder, resuming))
        if config.resources.client_timeout is not None:
            told("note", "resources.client_timeout does nothing in one process, without actors")
        tell_where(folder)
        with (
            RoundProgress(config, experiment.t, lines) as progress,
            _on_interrupt(interrupts),
        ):

            def tell(record: Record) -> None:
                progress.show(record)
                show_notes(experiment.alarm.news())

            result = drive(experiment, folder, tell, lambda: bool(interrupts))
        show_notes(experiment.alarm.news())  # of the very end
        return result


def run_on_ray(
    config: Config,
    folder: RunFolder,
    resuming: bool,
    interrupts: list[int] | None = None,
    detach: bool = False,
    lines: int = 1,
) -> Result | None:
    """Run it by a server actor of the cluster that this process is connected to; None if that goes
    on without us. Raises UserError if it cannot begin or go on. ``interrupts`` and
    ``lines`` as above.
    """
    from orchestrator.cluster.outliving import outlived
    from orchestrator.rounds.remote import answer_of, launch

    server = launch(config, folder.place, resuming, detach)
    prepared = answer_of(server.prepared.remote())
    show_plan(prepared)
    tell_where(folder)
    if detach:
        return None
    progress = RoundProgress(config, prepared.done, lines)
    how = f"fedorch run --resume {shlex.quote(folder.place)}"
    with outlived(how, INTERRUPTED) as stopping:
        _follow(server, progress, prepared.done, [] if interrupts is None else interrupts, stopping)
    return answer_of(server.outcome.remote())


def require_files(config: Config, address: str) -> None:
    """Raise UserError for a file of the dataset's that is not here, before anything is started that
    takes seconds; a cluster elsewhere may have it.
    """
    if address != "local":
        return
    dataset = config.data.dataset
    for key, field in type(dataset).model_fields.items():
        place, extra = getattr(dataset, key), field.json_schema_extra
        if not isinstance(extra, dict) or not extra.get("file") or not isinstance(place, str):
            continue
        if key == "path" and not place:
            raise UserError("config: data.dataset.path: name it")
        # what begins otherwise may be a name in a data folder, or of a hub
        if place.startswith(("/", ".")) and not Path(place).exists():
            raise UserError(f"config: data.dataset.{key}: there is no {place}")


def _follow(
    server: Any,
    progress: RoundProgress,
    done: int,
    interrupts: list[int],
    stopping: threading.Event,
) -> None:
    """Show what a server does until its run has ended; pass an interrupt on to it."""
    from orchestrator.rounds.remote import answer_of

    def stop() -> None:
        stopping.set()
        server.stop.remote()

    seen, shown, life = done, 0, ""
    with progress, _on_interrupt(interrupts, stop):
        while True:
            news = answer_of(server.watch.remote(seen))
            for record in news.records:
                progress.show(record)
            seen += len(news.records)
            if news.life != life:
                # a new process of the server's has notes of its own
                life, shown = news.life, 0
                if interrupts:  # the process that was told so has died
                    server.stop.remote()
            show_notes(news.notes[shown:])
            shown = len(news.notes)
            if news.ended:
                return


@dataclass(frozen=True)
class Series:
    """Several experiments one after the other, each in a folder of ``place``."""

    configs: Mapping[str, Config]
    """Folder -> what runs into it."""
    place: str

    def folder(self, name: str) -> RunFolder:
        """The folder of a run: empty, or that of the same run, begun before.

        Raises UserError if another run is there.
        """
        folder = RunFolder.at(join(self.place, name))
        if not folder.holds(CONFIG):
            folder.require_empty()
            return folder
        begun = self._begun(folder)
        there, asked = begun.config(), self.configs[name]
        # more rounds of the same are a run that goes further
        alike = _says(asked.model_copy(update={"rounds": there.rounds}), there)
        if not alike or asked.rounds < there.rounds:
            raise UserError(
                f"{folder.place}: the run there is of another config; choose another --out"
            )
        self._require_code(name, begun)
        return folder

    def _begun(self, folder: RunFolder) -> RunFolder:
        """The run that is there, with what says how it has ended."""
        there = RunFolder.existing(folder.place)
        there.fetch(*filter(there.holds, (RESULT, manifest.NAME)))
        return there

    def _is_done(self, name: str, folder: RunFolder) -> bool:
        """Whether a run is finished, and no more rounds are asked for; not one that was going
        further when it was killed, whose config is another than that of its results.
        """
        there = self._begun(folder)
        enough = there.config().rounds >= self.configs[name].rounds
        return there.finished and enough and manifest.holds(there.path, CONFIG)

    def _require_code(self, name: str, there: RunFolder) -> None:
        """Raise UserError for a finished run whose parts were other ones of the same names; of one
        that goes on its checkpoint says it.
        """
        if there.finished:
            others = other(there.result(), untold(self.configs[name]))
            if others == [FILES]:
                raise UserError(
                    f"{there.place}: the run there is of other contents of the files that its "
                    "config names, if they are there; choose another --out"
                )
            if others:
                raise UserError(
                    f"{there.place}: the run there is by other code of parts of the same names, or "
                    "of what plugins import; "
                    "choose another --out"
                )

    def run(
        self, one: Callable[[Config, RunFolder, bool, list[int]], Result | None]
    ) -> list[RunFolder]:
        """Run them one after the other by ``one``, as far as they are not finished, until one is
        stopped, or the series is; returns the folders of those that are. Raises UserError for a
        place that is a run's own folder, or holds other runs. Those that diverge are told, and not
        among them (``require_whole``).
        """
        if RunFolder.at(self.place).holds(CONFIG):
            raise UserError(f"{self.place} is the folder of one run; choose another --out")
        folders = {name: self.folder(name) for name in self.configs}
        finished: list[RunFolder] = []
        interrupts: list[int] = []
        for name, folder in folders.items():
            begun = folder.holds(CONFIG)
            if begun and self._is_done(name, folder):
                told("note", f"{name} is finished already")
            else:
                try:
                    result = one(self.configs[name], folder, begun, interrupts)
                except KeyboardInterrupt:
                    break
                except Diverged as error:
                    # with other seeds it may not have
                    told("note", f"{name}: {error}")
                    continue
                finally:
                    folder.forget_empty()
                if result is None or result["status"] == "stopped":
                    break
            finished.append(folder)
            if interrupts:  # in its last round
                break
        return finished

    def require_whole(self, finished: Sequence[RunFolder]) -> None:
        """Raise Diverged if some runs have, so that they have no result, and KeyboardInterrupt if
        others are not ``finished``.
        """
        if len(finished) == len(self.configs):
            return
        diverged = self._diverged()
        if len(finished) + len(diverged) < len(self.configs):
            raise KeyboardInterrupt
        raise Diverged(
            f"{len(diverged)} of {len(self.configs)} runs in {self.place} diverged: "
            f"{', '.join(diverged)}"
        )

    def _diverged(self) -> list[str]:
        diverged = []
        for name in self.configs:
            folder = RunFolder.at(join(self.place, name))
            ending = self._begun(folder).ending() if folder.holds(RESULT) else None
            if ending is not None and ending["status"] == "failed" and ending.get("diverged"):
                diverged.append(name)
        return diverged


def _says(asked: Config, there: Config) -> bool:
    """Whether ``there``, in which everything is settled, is what was ``asked`` for."""
    left = {key for key in SETTLED if getattr(asked.local, key) in (None, "auto")}
    settled = {key: getattr(there.local, key) for key in left}
    return asked.model_copy(update={"local": asked.local.model_copy(update=settled)}) == there


def seed_folders(configs: Mapping[int, Config]) -> dict[str, Config]:
    """Seed -> config as a series has them; :func:`members` finds such folders again."""
    return {f"seed-{seed}": config for seed, config in configs.items()}


def seeds_of(text: str) -> list[int]:
    """The numbers of ``0-4,7``, each once; raises UserError for anything else."""
    found: list[int] = []
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        if not low.isdecimal() or (dash and not high.isdecimal()):
            raise UserError(f"--seeds {text[:50]!r}: write numbers, such as 0-4 or 0,1,5")
        first, last = int(low[:12]), int((high or low)[:12])
        if not first <= last < WHOLE or last - first >= MOST_SEEDS:
            raise UserError(f"--seeds {part.strip()[:50]!r}: at most {MOST_SEEDS}, from 0 upwards")
        found += range(first, last + 1)
    twice = [seed for seed in found if found.count(seed) > 1]
    if twice:
        raise UserError(f"--seeds: {twice[0]} is named twice")
    return found


@contextmanager
def _on_interrupt(interrupts: list[int], stop: Callable[[], Any] = lambda: None) -> Iterator[None]:
    """Ctrl-C, SIGTERM or SIGHUP ends the run after its round, with a checkpoint; two at once. The
    first is put among the ``interrupts``, and ``stop`` is called.
    """

    def handler(number: int, frame: object) -> None:
        # the second signal is an ordinary KeyboardInterrupt
        for sign in before:
            signal.signal(sign, signal.default_int_handler)
        errors.print(
            "stopping after this round, with a checkpoint of it (Ctrl-C again to stop at once)"
        )
        interrupts.append(number)
        stop()

    # only the main thread can have handlers; in another, nobody presses Ctrl-C
    mine = threading.current_thread() is threading.main_thread()
    # the last: the terminal was closed
    signs = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if mine else ()
    before = {sign: signal.signal(sign, handler) for sign in signs}
    try:
        yield
    finally:
        for sign, old in before.items():
            signal.signal(sign, old)
