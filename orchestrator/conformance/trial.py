"""A part in a small run of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from algorithms.algorithm import AlgorithmOptions
from algorithms.part import Part, part_name
from orchestrator.clients.plane import InProcess, Plane
from orchestrator.config import Config, build
from orchestrator.config.paths import has, put
from orchestrator.results.checkpoint import load_latest, save
from orchestrator.rounds.experiment import Experiment
from orchestrator.training.world import World


class Fault(Exception):
    """What a part does wrong."""


class Inapplicable(Exception):
    """Why a check says nothing of a part."""


Where = Callable[[World], Plane]
USUAL: dict[str, Any] = {
    "model": "linear", "rounds": 3, "data.clients": 6, "data.limit": 400, "local.block": 2,
    "cohort": 4, "local.steps": 3, "local.lr": 0.02, "evaluation.every": 3,
}  # fmt: skip
"""400 images, 6 clients, three rounds, but for what an algorithm asks for itself."""


@dataclass(frozen=True)
class Trial:
    """A part of the family whose parts stand at ``key`` in a config."""

    cls: type[Part]
    key: str
    plugin: str
    """Its file or module."""

    @property
    def name(self) -> str:
        return part_name(self.cls) or ""

    def config(self, **settings: Any) -> Config:
        """A small config with the part in it, and what ``settings`` (dotted keys, __ for a dot)
        say; raises UserError if the part is refused in it.
        """
        given = {key.replace("__", "."): value for key, value in settings.items()}
        fixed: Mapping[str, Any] = {}
        if issubclass(self.cls, AlgorithmOptions):
            fixed = self.cls.defaults
        raw: dict[str, Any] = {"plugins": [self.plugin]}
        put(raw, self.key, self.name)
        if self.key == "data.dataset":
            fixed = {**fixed, "data.limit": None}
        work = {key: value for key, value in USUAL.items() if key not in fixed}
        for key, value in {**work, **given}.items():
            if not has(raw, key):
                put(raw, key, value)
        return build(raw)

    def run(self, config: Config, plane: Where = InProcess) -> Experiment:
        """To its end; raises UserError or whatever the part raises."""
        experiment = Experiment(config, plane)
        try:
            while not experiment.finished:
                experiment.step()
        finally:
            experiment.close()
        return experiment

    def resumed(self, config: Config, after: int) -> Experiment:
        """To its end, with all but a checkpoint lost ``after`` so many rounds."""
        first = Experiment(config)
        while first.t < after:
            first.step()
        with tempfile.TemporaryDirectory() as folder:
            save(Path(folder), first.t, first.state(), 1)
            t, state, _ = load_latest(Path(folder))
        second = Experiment(config)
        second.restore(t, state)
        while not second.finished:
            second.step()
        return second
