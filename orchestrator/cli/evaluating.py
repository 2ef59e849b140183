"""``fedorch evaluate``: a run's final model, judged once more, on its own data or on others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from rich.table import Table

from orchestrator.clients.plane import InProcess
from orchestrator.config import Config, build
from orchestrator.config.reading import apply
from orchestrator.data.federated import FederatedData
from orchestrator.data.samples import Request, Samples, checked
from orchestrator.errors import UserError
from orchestrator.files import json_text
from orchestrator.results.columns import of_round
from orchestrator.results.run_folder import RunFolder
from orchestrator.results.usage import Inputs, inputs_left
from orchestrator.rounds.experiment import Experiment
from orchestrator.rounds.metrics import Record
from orchestrator.terminal import console

KEPT = ("seed", "plugins", "data", "model", "loss", "attack", "evaluation")
"""Sections of a run's config that its model is judged by; the others train."""


def show_evaluation(folder: RunFolder, settings: Sequence[str], as_json: bool) -> None:
    """Print what :func:`evaluation` finds."""
    record, rows = evaluation(folder, settings)
    if as_json:
        console.print(json_text(record), soft_wrap=True)
        return
    table = Table("metric", "value", "meaning", title=f"{rows:,} test rows", title_justify="left")
    for name, value in record.items():
        table.add_row(name, f"{value:.4f}", of_round(name))
    console.print(table)


def evaluation(folder: RunFolder, settings: Sequence[str]) -> tuple[Record, int]:
    """The metrics of the run's final model, and the number of test rows, with ``settings`` (of
    data and evaluation) applied to its config. Inputs are made as in training: pixels are scaled,
    and a table's columns standardised, by what training found. Raises UserError for data that the
    model does not fit.
    """
    config, inputs = _settled(folder, settings), inputs_left(folder)
    columns = tuple(inputs.get("columns", ()))
    request = Request(config.seed, config.data.clients, columns)
    samples = _fitting(config.data.dataset.load(request), inputs)
    data = FederatedData.build(config.data, config.seed, samples)
    data = replace(data, shift=tuple(inputs["shift"]), scale=tuple(inputs["scale"]))
    experiment = Experiment(config, InProcess, data)
    tensors, net = folder.model(), experiment.net
    w = net.spec.flatten({name: tensors[name] for name in net.spec.names})
    buffers = net.buffer_spec.flatten({name: tensors[name] for name in net.buffer_spec.names})
    record, _ = experiment.judge.of(w, buffers)
    return record, len(data.test_rows)


def _settled(folder: RunFolder, settings: Sequence[str]) -> Config:
    """What of the config judges, with the settings; raises UserError for one of the rest."""
    raw: dict[str, Any] = folder.config().model_dump(mode="json")
    judging = {key: raw[key] for key in KEPT}
    for setting in settings:
        section = setting.partition("=")[0].partition(".")[0]
        if section not in KEPT:
            raise UserError(
                f"--set {setting[:100]}: a finished model is judged by {', '.join(KEPT)} alone"
            )
        apply(judging, setting)
    return build({**judging, "cohort": 1, "local": {"execution": "sequential"}})


def _fitting(samples: Samples, inputs: Inputs) -> Samples:
    """The samples with the classes of the model; raises UserError for others than it knows."""
    shape, kind = tuple(inputs["shape"]), str(samples.x.dtype)
    if samples.shape != shape or kind != inputs["dtype"] or samples.task != inputs["task"]:
        raise UserError(
            f"the data are {samples.task} of {kind} inputs {samples.shape}; the model was trained "
            f"on {inputs['task']} of {inputs['dtype']} inputs {shape}"
        )
    if samples.task != "classes":
        if samples.outputs != inputs["outputs"]:
            raise UserError(
                f"the data ask for {samples.outputs} outputs, the model has {inputs['outputs']}"
            )
        return samples
    known = inputs.get("classes", [])
    if not known or not samples.names:
        if samples.classes > inputs["outputs"]:
            raise UserError(
                f"the data have {samples.classes} classes, the model {inputs['outputs']}"
            )
        return checked(replace(samples, classes=inputs["outputs"]), "the data")
    strange = [name for name in samples.names if name not in known]
    if strange:
        raise UserError(f"the model knows no class {strange[0]!r}; it knows {', '.join(known)}")
    number = np.array([known.index(name) for name in samples.names])
    return replace(samples, y=number[samples.y], classes=len(known), names=tuple(known))
