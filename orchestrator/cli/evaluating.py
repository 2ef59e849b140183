"""``fedorch evaluate``: a run's final model, judged once more, on its own data or on others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from rich.table import Table

from orchestrator.clients.plane import InProcess
from orchestrator.config import Config, build
from orchestrator.config.reading import apply_all
from orchestrator.data.federated import FederatedData
from orchestrator.data.mapped import Mapped
from orchestrator.data.samples import Request, Samples, checked
from orchestrator.errors import UserError
from orchestrator.files import json_text
from orchestrator.pages.sentence import measured_earlier
from orchestrator.results.run_folder import RunFolder
from orchestrator.results.usage import Inputs, inputs_left, require_common
from orchestrator.rounds.experiment import Experiment
from orchestrator.rounds.metrics import Record
from orchestrator.terminal import console, labels_of, told

KEPT = ("seed", "plugins", "data", "model", "loss", "attack", "evaluation")
"""Sections of a run's config that its model is judged by; the others train."""
OTHERS = ("data", "evaluation")
"""Those of which it may be others."""


def show_evaluation(
    folder: RunFolder, settings: Sequence[str], as_json: bool, every: bool = False
) -> None:
    """Print what :func:`evaluation` finds."""
    record, rows = evaluation(folder, settings, every)
    for name, (trained, judged) in rows.trained.items():
        told("note", f"{trained:,} of {judged:,} {name} are rows that the run trained on")
    if rows.nameless:
        classes = inputs_left(folder)["classes"]
        told("note", f"the data do not name their classes; their 0 is taken for {classes[0]!r}, …")
    earlier = measured_earlier(folder.result())
    if earlier and not settings:
        told("note", earlier)
    if as_json:
        console.print(json_text(record), soft_wrap=True)
        return
    title = f"{rows.judged:,} {'rows' if every else 'test rows'}"
    table = Table("metric", "value", title=title, title_justify="left")
    shown = labels_of(record)
    for name, label in shown.items():
        table.add_row(label, f"{record[name]:.4f}")
    console.print(table)
    more = len(record.keys() - shown.keys())
    if more:
        console.print(f"{more} more with --format json; their meanings: fedorch describe columns")


@dataclass(frozen=True)
class Rows:
    """What a model was judged by."""

    judged: int
    """Test rows."""
    trained: Mapping[str, tuple[int, int]]
    """Of which of other data some equal a row that the run trained on, where its data are still
    there -> how many, of how many."""
    nameless: bool = False
    """Whether other data name no classes, and the model's have names."""


def evaluation(
    folder: RunFolder, settings: Sequence[str], every: bool = False
) -> tuple[Record, Rows]:
    """The metrics of the run's final model on test rows, with ``settings`` (of
    data and evaluation) applied to its config; or on ``every`` row of other data, which then are
    no clients'. Inputs are made as in training: pixels are scaled, and a table's columns
    standardised, by what training found. Raises UserError for data that the model does not fit,
    and without settings of data for others than the run's.
    """
    require_common(folder)
    other = "data" in map(_section, settings)
    if every and not any(map(_is_dataset, settings)):
        raise UserError(
            "--all-rows: of the run's own data only test rows judge; name others: --set "
            "data.dataset.path=…"
        )
    config, inputs = _settled(folder, settings), inputs_left(folder)
    config = _without_clients(config) if every else config
    columns = tuple(inputs.get("columns", ()))
    request = Request(config.seed, config.data.clients, columns, trains=False)
    samples = _fitting(config.data.dataset.load(request), inputs)
    if other and samples.train < config.data.clients:
        raise UserError(
            f"{config.data.clients} clients cannot share {samples.train} training rows; --all-rows "
            "judges the model by all rows of the data, as no client's"
        )
    # where nothing is said of clients, few rows need not have each class in both splits
    dealt = replace(samples, y=np.zeros_like(samples.y)) if every else samples
    with _hinted(other):
        data = FederatedData.build(config.data, config.seed, dealt)
    data = replace(
        data, samples=samples, shift=tuple(inputs["shift"]), scale=tuple(inputs["scale"])
    )
    if every:
        data = replace(data, test_rows=np.arange(len(samples.y)))
    if not other:
        _require_own(folder, data)
    experiment = Experiment(config, InProcess, data)
    tensors, net = folder.model(), experiment.net
    w = net.spec.flatten({name: tensors[name] for name in net.spec.names})
    buffers = net.buffer_spec.flatten({name: tensors[name] for name in net.buffer_spec.names})
    record, _ = experiment.judge.of(w, buffers)
    trained = _trained_on(folder, data, _judging_rows(data, record)) if other else {}
    nameless = other and bool(inputs.get("classes")) and not samples.names
    return record, Rows(len(data.test_rows), trained, nameless)


@contextmanager
def _hinted(other: bool) -> Iterator[None]:
    """Of ``other`` data that cannot be dealt out to the run's clients: how they can judge all the
    same.
    """
    try:
        yield
    except UserError as error:
        if not other:
            raise
        raise UserError(
            f"{error}; rows of whomever judge with --all-rows and --set data.dataset.path=FILE"
        ) from error


def own_test_rows(folder: RunFolder) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets of a run's test rows; raises UserError if its data are gone, or others by
    now.
    """
    config = folder.config()
    data = FederatedData.build(config.data, config.seed)
    _require_own(folder, data)
    samples, rows = data.samples, data.test_rows
    return np.array(samples.x[rows], order="C"), np.array(samples.wanted[rows])


def _require_own(folder: RunFolder, data: FederatedData) -> None:
    digest = folder.result().get("data_sha256", data.sha256)
    if digest != data.sha256:
        raise UserError(
            f"{folder.place}: the dataset's files are not those that the run had; put them back, "
            "or say with --set data.… that it is to be judged by others"
        )


def _judging_rows(data: FederatedData, record: Record) -> dict[str, np.ndarray]:
    """What the metrics of a record are of: name -> rows."""
    kinds = {
        "test_": ("test rows", data.test_rows),
        "client_": ("test rows of clients", data.test.rows),
        "validation_": (
            "validation rows", np.append(data.validation_rows, data.validation.rows)
        ),
        "heldout_": ("held-out rows", data.heldout_rows),
    }  # fmt: skip
    return {
        name: np.unique(rows)
        for begins, (name, rows) in kinds.items()
        if any(metric.startswith(begins) for metric in record)
    }


def _trained_on(
    folder: RunFolder, data: FederatedData, judging: Mapping[str, np.ndarray]
) -> dict[str, tuple[int, int]]:
    """How many of the rows ``judging`` are rows that the run was trained on, as far as its own data
    can still be had, where there are any; and of how many.
    """
    config = folder.config()
    try:
        own = FederatedData.build(config.data, config.seed)
    except UserError:
        return {}
    mine, theirs = own.samples.x, data.samples.x
    if mine.shape[1:] != theirs.shape[1:] or isinstance(mine, Mapped) or isinstance(theirs, Mapped):
        return {}
    known = {mine[row].tobytes() for row in np.unique(own.train.rows)}
    found = {
        name: (sum(theirs[row].tobytes() in known for row in rows), len(rows))
        for name, rows in judging.items()
    }
    return {name: counts for name, counts in found.items() if counts[0]}


def _section(setting: str) -> str:
    """Of the config, that a ``section.key=value`` is of."""
    return setting.partition("=")[0].partition(".")[0]


def _is_dataset(setting: str) -> bool:
    """Whether a ``section.key=value`` is of the dataset."""
    return setting.startswith(("data=", "data.dataset"))


def _without_clients(config: Config) -> Config:
    """For rows that nobody has: one client with all of them, of which nothing is said."""
    data = config.data.model_dump(mode="json", include={"dataset", "scale"})
    # nor need a table say whose rows are whose
    data["dataset"] |= {"client": ""} if isinstance(data["dataset"].get("client"), str) else {}
    raw = config.model_dump(mode="json", include=set(KEPT))
    raw["data"] = {**data, "clients": 1, "partition": "iid"}
    raw["evaluation"]["clients"] = False
    return _judging(raw)


def _settled(folder: RunFolder, settings: Sequence[str]) -> Config:
    """What of the config judges, with the settings; raises UserError for one of the rest."""
    raw: dict[str, Any] = folder.config().model_dump(mode="json")
    judging = {key: raw[key] for key in KEPT}
    for setting in settings:
        if _section(setting) not in OTHERS:
            raise UserError(
                f"--set {setting[:100]}: a finished model can be judged by other data and "
                f"metrics, and so only {' and '.join(OTHERS)} can be set"
            )
    if any(map(_is_dataset, settings)):
        # it counts rows of the run's own data
        judging["data"] = {**judging["data"], "limit": None}
    apply_all(judging, settings)
    return _judging(judging)


def _judging(raw: dict[str, Any]) -> Config:
    # nothing is trained: no mini-batch can be too small
    return build({**raw, "cohort": 1, "local": {"execution": "sequential", "drop_last": True}})


def _fitting(samples: Samples, inputs: Inputs) -> Samples:
    """The samples with the classes of the model; raises UserError for others than it knows."""
    shape, kind = tuple(inputs["shape"]), str(samples.x.dtype)
    if samples.shape != shape or kind != inputs["dtype"] or samples.task != inputs["task"]:
        raise UserError(
            f"the data are {samples.task} of {kind} inputs {samples.shape}; the model was trained "
            f"on {inputs['task']} of {inputs['dtype']} inputs {shape}{_made_alike(samples, shape)}"
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
    if _numbered(samples.names, known):
        number = np.array([*map(int, samples.names)])
        return checked(
            replace(samples, y=number[samples.y], classes=len(known), names=()), "the data"
        )
    if wrong := [n for n in samples.names if n.isdecimal() and int(n) >= len(known)]:
        raise UserError(
            f"the model knows no class {wrong[0]}: it has {len(known)}, from 0 to {len(known) - 1} "
            f"({', '.join(known)})"
        )
    number = np.array([_known(name, known) for name in samples.names])
    return replace(samples, y=number[samples.y], classes=len(known), names=tuple(known))


def _made_alike(samples: Samples, shape: tuple[int, ...]) -> str:
    """Which options of a folder make its images what a model was trained on; or ""."""
    if not len(shape) == len(samples.shape) == 3:
        return ""
    hints = []
    if (samples.shape[0], shape[0]) == (3, 1):
        hints.append("data.dataset.grey=true makes one channel of three")
    if samples.shape[1:] != shape[1:] and shape[1] == shape[2]:
        hints.append(f"data.dataset.side={shape[1]} resizes images")
    return "".join(f"; {hint}" for hint in hints)


def _numbered(names: Sequence[str], known: Sequence[str]) -> bool:
    """Whether labels are numbers of classes that have other names."""
    numbers = all(name.isdecimal() and int(name) < len(known) for name in names)
    return numbers and not any(name.isdecimal() for name in known)


def _known(name: str, known: Sequence[str]) -> int:
    """The number of the model's class of that name, in whatever case if that is clear, and with
    "_" for "/", which no folder is called; raises UserError.
    """
    if name in known:
        return known.index(name)
    plain = [one.lower().replace("/", "_") for one in known]
    alike = [number for number, one in enumerate(plain) if one == name.lower()]
    if len(alike) != 1:
        raise UserError(f"the model knows no class {name!r}; it knows {', '.join(known)}")
    return alike[0]
