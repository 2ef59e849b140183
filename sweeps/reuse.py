"""Trials that other sweeps have finished: taken over, instead of run again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.config import Config
from orchestrator.errors import UserError
from orchestrator.results import manifest
from orchestrator.results.contents import CLIENTS, HOLDINGS, INPUTS, RESULT, ROUNDS
from orchestrator.results.digests import digest
from orchestrator.results.members import has_pbt
from orchestrator.results.own_code import other
from orchestrator.results.places import is_remote
from orchestrator.results.provenance import versions
from orchestrator.results.result import Result
from orchestrator.results.run_folder import RunFolder
from orchestrator.results.usage import inputs_left
from orchestrator.rounds.experiment import Experiment
from orchestrator.terminal import console
from sweeps.home import EXTENSION, TUNING
from sweeps.results import no_sweep, stored


@dataclass(frozen=True)
class Finished:
    """Trials of other sweeps, in all of their stages, by what they compute."""

    folders: Mapping[str, Path] = field(default_factory=dict)
    """:func:`work` of a trial -> its folder, on a disk that all nodes share."""

    @classmethod
    def of(cls, places: Sequence[str]) -> Finished:
        """All that have finished in the sweeps' folders; raises UserError for a folder that is no
        sweep's, is in storage, or has lost trials.
        """
        found: dict[str, Path] = {}
        for place in places:
            if is_remote(place):
                raise UserError(f"--reuse {place}: only folders on a disk that all nodes share")
            if has_pbt(Path(place)):
                raise UserError(
                    f"--reuse {place}: pbt's trials have taken over from one another, and are not "
                    "what their settings alone would make"
                )
            for stage in _stages(Path(place).resolve()):
                found |= cls.at(stage).folders
        return cls(found)

    @classmethod
    def at(cls, stage: Path) -> Finished:
        """Those of one sweep, or of one stage; raises UserError if it has lost trials."""
        if has_pbt(stage):
            return cls()  # they have not always been of the settings that they ended with
        ended = [one.folder for one in stored(stage)[1] if one.status == "finished"]
        return cls({work(folder.config()): folder.path for folder in ended})

    def __or__(self, other: Finished) -> Finished:
        return Finished({**self.folders, **other.folders})

    def twin(self, experiment: Experiment) -> RunFolder | None:
        """The trial that has done what ``experiment`` would do, to the last bit: of the same
        config, data, initial weights and versions, and without clients whom a clock has left out,
        which nobody does again. One that is damaged is none: it is told, and the work done again.
        """
        path = self.folders.get(work(experiment.config))
        if path is None:
            return None
        folder, origin = RunFolder(path), experiment.origin
        result = folder.result()
        same = all(result.get(key) == value for key, value in origin.items())
        if not same or other(result, origin) or result["versions"] != versions():
            return None
        if folder.config().resources.on_timeout == "drop" and _has_dropped(folder):
            return None
        try:
            manifest.require_whole(path)
        except UserError as error:
            console.print(f"note: it is run again, for {error}")
            return None
        return folder


def _has_dropped(folder: RunFolder) -> bool:
    """Whether clients were left out in a round, or when models were judged."""
    return bool(folder.rounds().reindex(columns=["dropped", "unjudged"]).gt(0).any(axis=None))


NOTHING = Finished()
"""Every trial is run."""


def work(config: Config) -> str:
    """Digest of all that decides what a run leaves: a name, checkpoints and the actors that it runs
    on do not.
    """
    resources = config.resources
    on = {"threads": resources.threads, "gpu": resources.gpus_per_actor > 0}
    return digest(
        {
            **config.model_dump(mode="json", exclude={"name", "checkpoint", "resources", "track"}),
            **on,
        }
    )


def take_over(twin: RunFolder, folder: RunFolder) -> Result:
    """Leave in a trial's ``folder`` what its twin has left, and where it is from; nothing if it is
    that folder. Raises UserError for a twin that is damaged.
    """
    result = twin.result()
    if twin.path == folder.path:
        return result
    folder.write_model(twin.model())
    folder.write_table(ROUNDS, twin.rounds())
    folder.write_table(CLIENTS, twin.clients())
    folder.write_table(HOLDINGS, twin.holdings())
    folder.write_json(INPUTS, inputs_left(twin))
    # the twin of a twin is from where that one was run
    folder.write_json(RESULT, {"taken_from": twin.place, **result})
    folder.seal()
    folder.publish()
    return result


def tell(folder: Path) -> None:
    """Say how many of a sweep's trials were taken over, and from where."""
    results = [one.folder.result() for one in stored(folder)[1] if one.status == "finished"]
    origins = [result["taken_from"] for result in results if "taken_from" in result]
    for sweep, count in Counter(str(Path(one).parents[1]) for one in origins).items():
        console.print(f"{count} of {len(results)} trials were taken from {sweep}", soft_wrap=True)


def _stages(folder: Path) -> list[Path]:
    """A sweep's folder, and those of its tuning, as far as they hold sweeps."""
    first = folder / TUNING
    stages = [folder, first, *sorted(first.glob(EXTENSION.format("*")))]
    found = [stage for stage in stages if (stage / "sweep.json").is_file()]
    if not found:
        raise no_sweep(folder)
    return found
