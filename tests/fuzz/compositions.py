"""Compositions: any algorithm with any attack, aggregator, compressor ..., run, resumed, looked at."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from random import Random
from typing import Any, ClassVar
from unittest import mock

import numpy as np
import torch
from safetensors.torch import load_file

from algorithms.algorithm import AlgorithmOptions
from algorithms.part import variants
from algorithms.parts.aggregators import Aggregator
from algorithms.parts.attacks import Attack
from algorithms.parts.compressors import Compressor
from algorithms.parts.optimizers import Optimizer
from algorithms.parts.round_ends import RoundEnd
from algorithms.parts.samplers import Sampler
from algorithms.parts.server_optimizers import ServerOptimizer
from orchestrator.clients.plane import InProcess
from orchestrator.config import Config, build
from orchestrator.config.paths import put
from orchestrator.data.federated import FederatedData
from orchestrator.data.partitioners import Partitioner
from orchestrator.errors import Diverged, UserError
from orchestrator.results.run_folder import RunFolder
from orchestrator.rounds import drive as driving
from orchestrator.rounds.experiment import Experiment
from tests.fuzz.family import Family, Pieces, Wrong
from tests.fuzz.schema import Setting, settings
from tests.graphs import Graphs, recording

LEARN_NOTHING = {"local", "server_only"}
"""Algorithms whose clients send nothing."""
PARTS: dict[str, Any] = {
    "attack": Attack,
    "aggregator": Aggregator,
    "compression.uplink": Compressor,
    "compression.downlink": Compressor,
    "round_end": RoundEnd,
    "local.optimizer": Optimizer,
    "server_optimizer": ServerOptimizer,
    "sampler": Sampler,
    "data.partition": Partitioner,
}
TINY: dict[str, Any] = {
    "data.limit": 240,
    "data.clients": 5,
    "rounds": 2,
    "checkpoint.every": 1,
    "checkpoint.keep": 5,
    "model": "linear",
}
CHOICES: dict[str, tuple[Any, ...]] = {
    "model": ({"name": "mlp", "hidden": [9]}, {"name": "mlp", "hidden": []}, "lenet5"),
    "buffers": ("aggregate", "local", "exclude"),
    "non_finite": ("fail", "drop", "keep"),
    "cohort": (1, 2, 3, 5, 1.0, 0.4),
    "seed": (1, 2, 3),
    "local.steps": (1, 2, 5),
    "local.epochs": (1, 2),
    "local.batch_size": (1, 7, 32, 10_000),
    "local.lr": (1e-6, 0.01, 1.0, 1e4, 1e30, 1e38),
    "local.lr_decay": (0.5, 1e-30),
    "local.clip": (1e-6, 1.0, 1e30),
    "local.drop_last": (True,),
    "local.sampling": ("independent",),
    "local.optimizer_state": ("keep", "average"),
    "local.block": (1, 2, 5),
    "local.execution": ("sequential", "vectorized"),
    "data.heldout.per_class": (1, 3),
    "data.pool": ("all",),
    "data.client_test.source": ("local",),
    "data.scale": ("half", "unit"),
    "data.dataset": ("synthetic",),
    "evaluation.every": (2,),
    "evaluation.local_models": (True,),
    "evaluation.gradient_norms": (True,),
    "evaluation.clients": (False,),
    "data.clients": (1, 2, 3),
}
WORK = ("algorithm.personal_steps", "algorithm.anchor_batches")
"""Options by which a client works so long: the most that they admit is not waited for."""
BATCH_NORM: list[Setting] = [
    ("model.name", "fedaa_resnet"),
    ("data.limit", 90),
    ("data.pool", "all"),
    ("data.client_test.source", "local"),
]
"""The smallest model that has it takes long: it is judged on few rows."""


class Compositions(Family):
    """Two rounds of whatever fits together, in this process."""

    name = "compositions"
    deadline = 60.0
    quick = 4
    pictures: ClassVar[float] = 0.03
    """Part of the cases that make the report, too, which takes longer than all else."""
    recorded: ClassVar[float] = 0.2
    """Part of the cases that are trained once more in steps that are recorded, as on a GPU."""

    def draw(self, rng: Random) -> Pieces:
        name = rng.choice(list(variants(AlgorithmOptions)))
        fixed = variants(AlgorithmOptions)[name].defaults
        pieces: Pieces = [("algorithm.name", name)]
        pieces += [
            (k, 2) for k in ("local.steps", "cohort") if k not in fixed and rng.random() < 0.7
        ]
        if rng.random() < 0.3:
            pieces += list(self._options(rng, "algorithm", variants(AlgorithmOptions)[name]))
        for key, family in PARTS.items():
            if rng.random() < 0.18:
                pieces += self._part(rng, key, family)
        for key, values in CHOICES.items():
            if rng.random() < 0.1:
                pieces.append((key, rng.choice(values)))
        if rng.random() < 0.15:
            pieces.append(("data.partition.name", "natural"))
            pieces.append(("data.dataset", "synthetic"))
        if rng.random() < 0.06:
            pieces += BATCH_NORM
        pieces += [("pictures", True)] if rng.random() < self.pictures else []
        return [*pieces, *([("recorded", True)] if rng.random() < self.recorded else [])]

    def _part(self, rng: Random, key: str, family: Any) -> list[Setting]:
        name = rng.choice(list(variants(family)))
        options = self._options(rng, key, variants(family)[name]) if rng.random() < 0.4 else []
        return [(f"{key}.name", name), *options]

    def _options(self, rng: Random, key: str, part: Any) -> list[Setting]:
        drawn = settings(rng, part, 0.4, 0.03, f"{key}.")
        return [(k, 5 if k in WORK and isinstance(v, int) and v > 50 else v) for k, v in drawn]

    def play(self, pieces: Pieces, folder: Path) -> None:
        raw: dict[str, Any] = {}
        for path, value in [*TINY.items(), *pieces]:
            if path not in ("pictures", "recorded"):
                put(raw, path, value)
        given = dict(pieces)
        if given.get("data.dataset") == "synthetic":
            raw["data"].pop("limit", None)
        config = build(raw)
        with drawn(bool(given.get("pictures"))):
            self._run(config, folder)
        if given.get("recorded"):
            require_same_recorded(config)

    def _run(self, config: Config, folder: Path) -> None:
        whole = run(config, folder / "whole")
        require_kept_apart(whole.data, config)
        result = strict(folder / "whole" / "result.json")
        require_finite_or_told(result, folder / "whole", config)
        require_booked(whole, config)
        require_resumed(result, folder)
        require_same_bytes(config, whole)


def require_resumed(result: dict[str, Any], folder: Path) -> None:
    """What is in ``whole`` there, from round 1's checkpoint to the same bits."""
    shutil.copytree(folder / "whole", folder / "half", ignore=shutil.ignore_patterns(".lock"))
    half = folder / "half"
    (half / "result.json").unlink()
    for later in sorted((half / "checkpoints").glob("round-*"))[1:]:
        shutil.rmtree(later)
    resume(half)
    again = strict(half / "result.json")
    if again["state_sha256"] != result["state_sha256"]:
        raise Wrong("resumed from round 1 it is another state: " + str(again["rounds"]))


def run(config: Config, place: Path) -> Experiment:
    """As ``fedorch run --in-process`` does."""
    return _driven(Experiment(config), RunFolder.new(place), False)


def resume(place: Path) -> Experiment:
    """As ``fedorch run --resume`` does."""
    folder = RunFolder.existing(place)
    return _driven(Experiment(folder.config()), folder, True)


def _driven(experiment: Experiment, folder: RunFolder, resuming: bool) -> Experiment:
    try:
        driving.begin(experiment, folder, resuming)
        driving.drive(experiment, folder)
    except UserError:
        # whatever a failed run leaves is valid, too
        if (folder.path / "result.json").exists():
            strict(folder.path / "result.json")
        raise
    finally:
        experiment.close()
    return experiment


def drawn(pictures: bool) -> Any:
    """With the report, or with a page that takes no second."""
    written = driving.report_of if pictures else _blank
    return mock.patch.object(driving, "report_of", written)


def _blank(folder: RunFolder, config: Config) -> str:
    return "<html></html>"


def strict(path: Path) -> dict[str, Any]:
    """JSON that any parser takes."""

    def refuse(word: str) -> None:
        raise Wrong(f"{path.name} is no valid JSON: it holds a bare {word}")

    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
    return found


def require_finite_or_told(result: dict[str, Any], folder: Path, config: Config) -> None:
    """A model or a metric that is not finite is said in result.json."""
    tensors = load_file(folder / "model.safetensors")
    bad = [k for k, v in tensors.items() if not v.isfinite().all()]
    odd = [k for k, v in result["metrics"].items() if v is None or not math.isfinite(v)]
    told = json.dumps({k: v for k, v in result.items() if k not in ("metrics", "name")})
    if (bad or odd) and "diverged" not in told and "finite" not in told:
        raise Wrong(f"not finite, and nothing said: {bad or odd} under {config.non_finite}")
    if not math.isfinite(result["joules"] or 0.0):
        raise Wrong(f"joules are not finite: {result['joules']}")


def require_booked(experiment: Experiment, config: Config) -> None:
    """Bytes and steps are booked where something was sent or done, and never less than none."""
    ledger = experiment.federation.ledger
    for what in ("up", "down", "steps"):
        column = getattr(ledger, what)
        # with whom should a single client gossip?
        alone = config.algorithm.name == "drdsgd" and config.data.clients == 1
        silent = alone or config.algorithm.name in LEARN_NOTHING
        if (column < 0).any() or (what != "steps" and not silent and not column.sum()):
            raise Wrong(f"the ledger is wrong: {what} {column.tolist()[:9]}")
    if not ledger.steps.any() and config.algorithm.name != "server_only":
        raise Wrong("finished without one step: " + repr(ledger.steps.tolist()))


def require_kept_apart(data: FederatedData, config: Config) -> None:
    """No row is trained on and tested on, by whomever."""
    judged = np.unique(np.concatenate([data.test.rows, data.test_rows, data.heldout_rows]))
    both = np.intersect1d(data.train.rows, judged)
    if len(both):
        where = f"{config.data.partition.name}, pool {config.data.pool}"
        raise Wrong(f"rows are trained and tested on ({where}): {len(both)} of {len(judged)}")


def require_same_bytes(config: Config, whole: Experiment) -> None:
    """One by one or batched, clients send the same bytes."""
    done = whole.config.local.execution
    other = "sequential" if done == "vectorized" else "vectorized"
    local = config.local.model_copy(update={"execution": other})
    try:
        one = Experiment(config.model_copy(update={"local": local}))
        one.step()
        one.step()
    # what cannot be batched says so; and another order of sums may diverge where this one did not
    except (UserError, Diverged):
        return
    # a round end that watches the models may end a step earlier or later after other rounding
    if config.round_end.name == "fixed" and config.algorithm.name not in _BY_THE_MODELS:
        a, b = (e.federation.ledger.up.tolist() for e in (whole, one))
        if a != b and finite(whole) and finite(one):
            raise Wrong(f"sent {done} and {other} are not the same bytes: {a} {b}")


def require_same_recorded(config: Config) -> None:
    """Steps give the same bits where they are recorded and replayed, of which there must be some."""
    more = {"steps": None, "epochs": 4} if config.local.epochs else {"steps": 7}
    if config.algorithm.name not in ("afl", "synchronous"):
        longer = config.local.model_copy(update=more)
        config = config.model_copy(update={"local": longer})
    ends = []
    for plane in (InProcess, recording(Graphs())):
        one = Experiment(config, plane)
        try:
            one.step()
            one.step()
        except (UserError, Diverged) as error:
            ends.append(str(error))
        else:
            ends.append(one.state_sha256())
    if ends[0] != ends[1]:
        raise Wrong(f"recorded steps end otherwise: {ends}")


_BY_THE_MODELS = {"afl", "drfa", "drdm", "scaffpd", "fedaa", "clustered"}
"""Algorithms whose cohorts are drawn by what the models did."""


def finite(experiment: Experiment) -> bool:
    """Whether the model is."""
    return bool(torch.isfinite(experiment.algorithm.model()).all())
