"""What one trial of a sweep computes: a cell of the grid, a seed, and what was drawn for it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.config import Config, build
from orchestrator.config.defaults import put_all
from orchestrator.config.reading import apply_all
from orchestrator.errors import UserError
from orchestrator.files import read_json
from orchestrator.results.contents import TRIAL
from orchestrator.results.manifest import verify
from orchestrator.results.places import join
from orchestrator.results.run_folder import RunFolder
from sweeps.spaces import Yaml

PLANNED = "planned"
"""Key of a trial's Tune config under which the cell and the seed are; all others are paths of drawn
axes."""

LONGEST = 80
"""Characters of a setting and seed in the name of a folder."""


@dataclass(frozen=True)
class Planned:
    """A cell of the grid on one seed."""

    label: str
    settings: tuple[str, ...]
    seed: int


@dataclass(frozen=True)
class Choice:
    """What tells a trial from the others of its sweep."""

    planned: Planned
    drawn: Mapping[str, Yaml] = field(default_factory=dict)
    """Path -> value."""

    @classmethod
    def of(cls, trial: Mapping[str, Yaml]) -> Choice:
        """From a trial's Tune config, or its trial.json."""
        planned = trial[PLANNED]
        assert isinstance(planned, Mapping)
        label, settings, seed = planned["label"], planned["settings"], planned["seed"]
        assert isinstance(settings, list | tuple)
        assert isinstance(seed, int)
        drawn = {path: value for path, value in trial.items() if path != PLANNED}
        return cls(Planned(str(label), tuple(map(str, settings)), seed), drawn)

    def __str__(self) -> str:
        """Its setting and seed."""
        return f"{self.setting}, seed {self.planned.seed}"

    @property
    def setting(self) -> str:
        """Its cell, and what was drawn for it: what it has in common with other seeds."""
        drawn = (f"{path}={value}" for path, value in self.drawn.items())
        return ", ".join([self.planned.label, *drawn])

    def as_trial(self) -> dict[str, Yaml]:
        """As Tune has it: of mappings and lists, which its loggers and its folders can spell."""
        planned = asdict(self.planned)
        return {PLANNED: {**planned, "settings": list(self.planned.settings)}, **self.drawn}

    def config(self, base: Mapping[str, Yaml]) -> Config:
        """The base, the cell's settings, the drawn values, the seed; raises UserError."""
        # through JSON: settings are put into a copy, the base is all trials'
        raw: dict[str, Yaml] = json.loads(json.dumps(base))
        apply_all(raw, self.planned.settings)
        put_all(raw, {**self.drawn, "seed": self.planned.seed})
        return build(raw)

    def key(self, trial: str) -> str:
        """A short name that is a function of what the trial computes, and of Tune's name ``trial``
        where two may draw the same.
        """
        text = json.dumps(self.as_trial(), sort_keys=True, default=str)
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        return f"{digest}-{trial}" if self.drawn else digest

    def name(self, trial: str) -> str:
        """The name of the trial's folder: its setting and seed, for people, and its :meth:`key`."""
        # the signs of numbers stay, brackets do not
        said = re.sub(r"=[^\w.+-]+", "=", str(self), flags=re.ASCII)
        said = re.sub(r"[^\w.=+-]+", "-", said, flags=re.ASCII)
        return f"{said.strip('-.')[:LONGEST]}-{self.key(trial)}"

    def is_at(self, path: Path) -> bool:
        """Whether a trial of that choice leaves its results in a folder of that name."""
        which, name = r"\w+" if self.drawn else "", self.name("")
        # sweeps of before had no signs
        names = (name, name.replace("+", "-").replace("=-", "="))
        return any(re.fullmatch(re.escape(one) + which, path.name) for one in names)

    def folder(self, sweep: str, trial: str) -> RunFolder:
        """Where the trial leaves its results, in the sweep's folder (a path or a URI)."""
        return RunFolder.at(join(sweep, "trials", self.name(trial)))

    def write(self, folder: RunFolder) -> None:
        """Leave it in the trial's folder, for those who read the results."""
        folder.write_json(TRIAL, self.as_trial())

    @classmethod
    def read(cls, folder: Path) -> Choice:
        """What ``write`` has left there; raises UserError if it is damaged."""
        said = read_json(verify(folder, TRIAL), dict[str, Any])
        try:
            return cls.of(said)
        except (AssertionError, LookupError) as error:
            raise UserError(f"{folder / TRIAL} does not say what a trial computes") from error

    def leave_failed(
        self, folder: RunFolder, problem: str, diverged: bool = False, unreported: bool = False
    ) -> None:
        """Say in the trial's folder why it has no results, and whether that is NaN or infinity, or
        a metric that it does not report.
        """
        folder.make()
        self.write(folder)
        about = {"error": problem, "diverged": diverged}
        folder.leave_failure(about | ({"unreported": True} if unreported else {}))
        folder.publish()
