"""``fedorch evaluate``: a run's final model, judged once more, on its own data or on others."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from rich.table import Table as Printed

from algorithms.parts.losses import IGNORED
from orchestrator.clients.plane import InProcess
from orchestrator.config import Config, build
from orchestrator.config.reading import apply_all
from orchestrator.data.columns import Column
from orchestrator.data.federated import FederatedData
from orchestrator.data.mapped import Inputs as Stored
from orchestrator.data.mapped import pieces, reordered
from orchestrator.data.own.tables import Table
from orchestrator.data.samples import Request, Samples, checked
from orchestrator.data.sources import located
from orchestrator.data.text_datasets import DIGEST
from orchestrator.errors import UserError
from orchestrator.files import json_text
from orchestrator.pages.sentence import measured_earlier
from orchestrator.results.contents import CLIENTS
from orchestrator.results.run_folder import RunFolder
from orchestrator.results.usage import (
    Inputs,
    inputs_left,
    require_common,
    require_frozen,
    tell_of_imports,
)
from orchestrator.rounds.experiment import Experiment
from orchestrator.rounds.metrics import Record
from orchestrator.terminal import console, labels_of, told

KEPT = ("seed", "plugins", "data", "model", "loss", "attack", "evaluation")
"""Sections of a run's config that its model is judged by; the others train."""
OTHERS = ("data", "evaluation")
"""Those of which it may be others."""
WHO = ("data=", "data.dataset", "data.clients", "data.partition", "data.pool", "data.limit")
"""How settings begin with which clients are others than the run's."""


def show_evaluation(
    folder: RunFolder, settings: Sequence[str], as_json: bool, every: bool = False
) -> None:
    """Print what :func:`evaluation` finds."""
    record, judged = evaluation(folder, settings, every)
    if as_json:
        console.print(json_text(record), soft_wrap=True)
        return
    title = f"{judged:,} {'rows' if every else 'test rows'}"
    table = Printed("metric", "value", title=title, title_justify="left")
    shown = labels_of(record)
    for name, label in shown.items():
        table.add_row(label, f"{record[name]:.4f}")
    console.print(table)
    more = len(record.keys() - shown.keys())
    if more:
        console.print(f"{more} more with --format json; their meanings: fedorch describe columns")


def evaluation(
    folder: RunFolder, settings: Sequence[str], every: bool = False
) -> tuple[Record, int]:
    """The metrics of the run's final model on test rows, and how many these are, with ``settings``
    (of data and evaluation) applied to its config; or on ``every`` row of other data, which then
    are no clients'. Inputs are made as in training: pixels are scaled, and a table's columns
    standardised, by what training found. Raises UserError for data that the model does not fit,
    and without settings of data for others than the run's.
    """
    require_common(folder)
    tell_of_imports(folder)
    other = "data" in map(_section, settings)
    if every and not any(map(_is_dataset, settings)):
        raise UserError(
            "--all-rows: of the run's own data only test rows judge; name others: --set "
            "data.dataset.path=…"
        )
    config, inputs = _settled(folder, settings), inputs_left(folder)
    if not every:
        _require_other_rows(config, settings)
    _require_same_order(folder.config(), config)
    config = _without_clients(config, settings) if every else config
    columns, tokens = tuple(inputs.get("columns", ())), inputs.get("tokens", "")
    sources = tuple(inputs.get("sources", ()))
    request = Request(config.seed, config.data.clients, columns, tokens, sources, trains=False)
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
    require_frozen(experiment.origin.get("frozen_sha256", ""), inputs, folder.place)
    w = net.spec.flatten({name: tensors[name] for name in net.spec.names})
    buffers = net.buffer_spec.flatten({name: tensors[name] for name in net.buffer_spec.names})
    record, _ = experiment.judge.of(w, buffers)
    if other:
        _tell_of_others(folder, data, record, inputs.get("classes", []))
    elif (earlier := measured_earlier(folder.result())) and not settings:
        told("note", earlier)
    return record, len(data.test_rows)


def _tell_of_others(
    folder: RunFolder, data: FederatedData, record: Record, classes: Sequence[str]
) -> None:
    """Note what a record of other data leaves open, of a model of such ``classes``."""
    # whose clients have done steps, an exported model does not say
    whose = "the run trained on" if folder.holds(CLIENTS) else "were there to train on"
    for name, (trained, judged) in _trained_on(folder, data, _judging_rows(data, record)).items():
        told("note", f"{trained:,} of {judged:,} {name} are rows that {whose}")
    if classes and not data.samples.names:
        told("note", f"the data do not name their classes; their 0 is taken for {classes[0]!r}, …")


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
    if not _is_own(folder, data):
        raise UserError(
            f"{folder.place}: the dataset's files are not those that the run had; put them back, "
            "or say with --set data.… that it is to be judged by others"
        )


def _is_own(folder: RunFolder, data: FederatedData) -> bool:
    """Whether it is what the run had."""
    return folder.result().get("data_sha256", data.sha256) == data.sha256


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
    """How many of the rows ``judging`` are rows that the run was trained on, where there are any,
    and of how many; it is noted where its own data cannot be had.
    """
    config = folder.config()
    try:
        own = FederatedData.build(config.data, config.seed)
        unknown = "" if _is_own(folder, own) else "the files of its own data are others by now"
    except UserError as error:
        unknown = str(error)
    if unknown or (unknown := _of_other_kinds(own.samples.x, data.samples.x)):
        told("note", f"whether the run trained on such rows cannot be said: {unknown}")
        return {}
    known = {*_digests(own.samples.x, _rows_of_training(folder, config, own))}
    found = {
        name: (sum(one in known for one in _digests(data.samples.x, rows)), len(rows))
        for name, rows in judging.items()
    }
    return {name: counts for name, counts in found.items() if counts[0]}


def _rows_of_training(folder: RunFolder, config: Config, own: FederatedData) -> np.ndarray:
    """Those of the clients that have done steps, and the server's where it learns by them."""
    used = [own.train.rows]
    if folder.holds(CLIENTS):
        clients = folder.clients()
        last = clients[clients["round"] == clients["round"].max()]
        used = [own.train[k] for k in last.loc[last["steps"] > 0, "client"]]
    if config.learns_by_heldout:
        used.append(own.heldout_rows)
    return np.unique(np.concatenate(used)) if used else own.heldout_rows[:0]


def _of_other_kinds(own: Stored, judged: Stored) -> str:
    """What two kinds of inputs are, whose bytes do not say which rows are the same; or ""."""
    if (own.shape[1:], own.dtype) == (judged.shape[1:], judged.dtype):
        return ""
    kinds = [f"{x.dtype} of shape {x.shape[1:]}" for x in (own, judged)]
    return f"its own inputs are {kinds[0]}, and these {kinds[1]}"


def _digests(x: Stored, rows: np.ndarray) -> Iterator[bytes]:
    """Of each of the inputs at ``rows``, which need not be in memory together."""
    for piece in pieces(reordered(x, rows)):
        yield from (hashlib.sha256(row.tobytes()).digest() for row in piece)


def _section(setting: str) -> str:
    """Of the config, that a ``section.key=value`` is of."""
    return setting.partition("=")[0].partition(".")[0]


def _is_dataset(setting: str) -> bool:
    """Whether a ``section.key=value`` is of the dataset."""
    return setting.startswith(("data=", "data.dataset"))


def _require_same_order(trained: Config, judged: Config) -> None:
    """Raise UserError for the columns that a model predicts, in another order."""
    own, now = trained.data.dataset, judged.data.dataset
    if not (isinstance(own, Table) and isinstance(now, Table)) or own.label == now.label:
        return
    several = isinstance(own.label, tuple) and isinstance(now.label, tuple)
    if several and sorted(own.label) == sorted(now.label):
        raise UserError(
            f"data.dataset.label: the model predicts {', '.join(own.label)}, in this order"
        )


def _without_clients(config: Config, settings: Sequence[str]) -> Config:
    """For rows that nobody has: one client with all of them, of which nothing is said."""
    data = config.data.model_dump(mode="json", include={"dataset", "scale"})
    if _kept_test(config, settings):
        del data["dataset"]["test"]  # all rows of the new file judge, and no others
    # nor need a table say whose rows are whose
    data["dataset"] |= {"client": ""} if isinstance(data["dataset"].get("client"), str) else {}
    raw = config.model_dump(mode="json", include=set(KEPT))
    raw["data"] = {**data, "clients": 1, "partition": "iid"}
    raw["evaluation"]["clients"] = False
    return _judging(raw)


def _kept_test(config: Config, settings: Sequence[str]) -> str:
    """What the run's config says of a table's test rows (a file, or a column that tells), where
    settings name another table and leave that; or "".
    """
    dataset, given = config.data.dataset, {setting.partition("=")[0] for setting in settings}
    if "data.dataset.path" not in given or "data.dataset.test" in given:
        return ""
    return dataset.test if isinstance(dataset, Table) and isinstance(dataset.test, str) else ""


def _require_other_rows(config: Config, settings: Sequence[str]) -> None:
    """Raise UserError where another table is named, and the run's file of test rows would judge."""
    test = _kept_test(config, settings)
    if test and located(test) is not None:
        raise UserError(
            f"the test rows would still be those of {test}: name others with --set "
            "data.dataset.test=…, or judge by all rows of the new file with --all-rows"
        )


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
    if any(setting.startswith(WHO) for setting in settings):
        # malicious are clients of the run, by their numbers there
        judging["attack"] = {"name": "none"}
    apply_all(judging, settings)
    config = _judging(judging)
    # what is asked for now is no old run's
    asked = any(one.startswith(("evaluation=", "evaluation.metrics")) for one in settings)
    if asked and (problem := config.metrics_problem()):
        raise UserError(f"config: {problem}")
    return config


def _judging(raw: dict[str, Any]) -> Config:
    # nothing is trained: no mini-batch can be too small
    other = {"cohort": 1, "local": {"execution": "sequential", "drop_last": True}}
    return build({**raw, **other}, begun=True)


def _by_the_same(*makers: str) -> bool:
    """Whether token ids are made by what does the same; runs of before have no digest of it."""
    names, digests = zip(*(one.partition(f", {DIGEST}")[::2] for one in makers), strict=True)
    return len({*(digests if all(digests) else names)}) == 1


def _fitting(samples: Samples, inputs: Inputs) -> Samples:
    """The samples with the classes of the model; raises UserError for others than it knows."""
    shape, kind = tuple(inputs["shape"]), str(samples.x.dtype)
    if samples.shape != shape or kind != inputs["dtype"] or samples.task != inputs["task"]:
        raise UserError(
            f"the data are {samples.task} of {kind} inputs {samples.shape}; the model was trained "
            f"on {inputs['task']} of {inputs['dtype']} inputs {shape}{_made_alike(samples, shape)}"
        )
    made = inputs.get("tokens") or samples.tokens
    if samples.tokens and not _by_the_same(made, samples.tokens):
        raise UserError(
            f"the data make token ids by other means ({samples.tokens[:200]}) than those that the "
            f"model was trained on ({made[:200]})"
        )
    _require_columns(samples, inputs)
    known, outputs = inputs.get("classes", []), inputs["outputs"]
    if samples.task == "numbers" or not samples.names:
        if samples.outputs > outputs or (samples.task != "classes" and samples.outputs != outputs):
            raise UserError(f"the data ask for {samples.outputs} outputs, the model has {outputs}")
        wider = samples.task == "classes"
        return checked(replace(samples, classes=outputs), "the data") if wider else samples
    numbers = _numbers_of(samples.names, known, outputs)
    names = tuple(known) if not _numbered(samples.names, known, outputs) else ()
    if samples.task == "tokens":
        tags = samples.wanted
        meant = np.where(tags == IGNORED, IGNORED, numbers[np.maximum(tags, 0)])
        return checked(replace(samples, targets=meant, tags=outputs, names=names), "the data")
    return checked(replace(samples, y=numbers[samples.y], classes=outputs, names=names), "the data")


def _require_columns(samples: Samples, inputs: Inputs) -> None:
    """Raise UserError for rows of which a table, or a library, would make other inputs than the
    model was trained on, and say so of arrays, of which nobody knows what made them.
    """
    known = [column["name"] for column in inputs.get("columns", [])]
    named = ", ".join(known or inputs.get("sources", []))[:200]
    if samples.columns and not known:
        _require_plain(samples.columns, inputs.get("sources", []))
    plain = _are_plain(inputs.get("columns", []))
    if known and samples.sources and not (plain and known == list(samples.sources)):
        raise UserError(
            f"the model was trained on columns of a table ({named}), standardised by its training "
            "rows, as this dataset's are not: give the rows as CSV or Parquet"
        )
    if named and not samples.columns and not samples.sources:
        made = "" if plain else ", standardised by its training rows"
        told("note", f"the model was trained on columns ({named}){made}; arrays are taken as such")


def _are_plain(columns: Sequence[Column]) -> bool:
    """Whether a table's columns are numbers as they stand there."""
    return all((c["mean"], c["std"], c["texts"]) == (0, 1, None) for c in columns)


def _require_plain(columns: Sequence[Column], wanted: Sequence[str]) -> None:
    """Raise UserError for a table's ``columns`` that are not as they stand there, or not those that
    are ``wanted``, in their order (none: any).
    """
    names = [column["name"] for column in columns]
    if not _are_plain(columns) or names != (wanted or names):
        order = f", in the order {', '.join(wanted)[:200]} (features)" if wanted else ""
        raise UserError(
            "the model was trained on no table, and its inputs are as they were there: set "
            f"data.dataset.standardize to false, with numbers alone{order}"
        )


def _numbers_of(names: Sequence[str], known: Sequence[str], outputs: int) -> np.ndarray:
    """The model's class [c] for each class of the data, by their ``names``; raises UserError for
    one that the model does not have.
    """
    if _numbered(names, known, outputs):
        return np.array([*map(int, names)])
    if not known:
        raise UserError(
            f"the classes of the model have no names, only numbers from 0 to {outputs - 1}, and "
            f"those of the data are {', '.join(names)[:200]}: name them by numbers"
        )
    if wrong := [n for n in names if n not in known and n.isdecimal() and int(n) >= len(known)]:
        raise UserError(
            f"the model knows no class {wrong[0]}: it has {len(known)}, from 0 to {len(known) - 1} "
            f"({', '.join(known)})"
        )
    return np.array([_known(name, known) for name in names])


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


def _numbered(names: Sequence[str], known: Sequence[str], outputs: int) -> bool:
    """Whether labels are numbers of classes that have other names, or none."""
    numbers = all(name.isdecimal() and int(name) < outputs for name in names)
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
