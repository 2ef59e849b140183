"""Runs: begun from Python as by the command, and what is in their folders."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pandas as pd
import torch
from pydantic import BaseModel

from algorithms.part import nearest
from orchestrator import files
from orchestrator.cli.evaluating import evaluation, own_test_rows
from orchestrator.cli.exporting import write_model
from orchestrator.cli.predicting import inputs_in, require_odds
from orchestrator.cli.run_shown import quiet
from orchestrator.cli.running import Series, run_here, run_on_ray, seed_folders
from orchestrator.config import Config, build
from orchestrator.config.defaults import put_all
from orchestrator.config.reading import placed, raw_of
from orchestrator.data.samples import is_whole
from orchestrator.errors import UserError
from orchestrator.plugins.raw import beside
from orchestrator.results.contents import REPORT
from orchestrator.results.members import members
from orchestrator.results.result import Result
from orchestrator.results.run_folder import RunFolder
from orchestrator.results.usage import Given, TrainedModel
from orchestrator.training.modes import put_back

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL import Image
    from torch import Tensor

    from orchestrator.analysis.compared import Runs as Compared

Place = str | PathLike[str]
Asked: TypeAlias = (
    "Given | Place | Image.Image | Sequence[Place | Image.Image | Mapping[str, object]]"
)
"""What a run's model may be asked of."""


class Run:
    """A run that has ended, by its folder."""

    def __init__(self, place: Place) -> None:
        """Raises UserError if there is none in the folder (or at the URI) ``place``."""
        self.folder = RunFolder.viewed(str(place))

    def __repr__(self) -> str:
        result = self.result
        return f"<Run {result['name']}: {result['status']}, {result['rounds']} rounds, {self.path}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the report, or the last round's metrics where it has none."""
        if not self.report.is_file():
            return self.summary.to_frame().to_html()
        page = html.escape(files.read_bytes(self.report).decode())
        return f'<iframe srcdoc="{page}" width="100%" height="640" style="border: 0"></iframe>'

    @property
    def path(self) -> str:
        """Where it is: a path or a URI."""
        return self.folder.place

    @property
    def config(self) -> Config:
        """With everything settled."""
        return self.folder.config()

    @property
    def result(self) -> Result:
        """result.json; raises UserError if the run has none yet, or it is damaged."""
        return self.folder.result()

    @property
    def summary(self) -> pd.Series:
        """The metrics of the last round."""
        return pd.Series(self.result["metrics"], name=self.result["name"], dtype=float)

    @property
    def rounds(self) -> pd.DataFrame:
        """A row a round; docs/monitoring.md says what the columns are."""
        return self.folder.rounds()

    @property
    def clients(self) -> pd.DataFrame:
        """A row a client and evaluated round."""
        return self.folder.clients()

    @property
    def report(self) -> Path:
        """The page that shows the run."""
        return self.folder.path / REPORT

    def model(self) -> torch.nn.Module:
        """The network with the final weights, in evaluation mode."""
        return TrainedModel(self.folder).module

    @property
    def classes(self) -> list[str]:
        """Names of the classes, in the order of the outputs; empty where the data have none."""
        return TrainedModel(self.folder).inputs.get("classes", [])

    def outputs(self, x: Asked) -> Tensor:
        """The model's outputs [n, o] (of classes: logits), as :meth:`TrainedModel.outputs`: images
        are given as pixels and rows of a table as they are, and become numbers as in training.
        ``x`` may also be the path of an image, of a folder of images, a table, ``.npy`` or
        ``.npz``, or an image of Pillow's, of any size; or a list of these, or of mappings. Raises
        UserError for what the model does not take.
        """
        model, given = self._asked(x)
        return model.outputs(given)

    def predict(self, x: Asked) -> np.ndarray:
        """Classes [n] of inputs [n, ...] as of :meth:`outputs`; numbers [n, o], or classes of
        tokens [n, L], where the model was trained on such.
        """
        model, given = self._asked(x)
        return model.predict(given)

    def probabilities(self, x: Asked) -> np.ndarray:
        """How likely each class is, [n, o], of inputs as of :meth:`outputs`; raises UserError where
        the loss was none that makes probabilities of outputs (cross entropy, focal).
        """
        model, given = self._asked(x)
        require_odds(model, self.config, f"the model of {self.path}")
        return torch.softmax(model.outputs(given), 1).numpy()

    def _asked(self, x: Asked) -> tuple[TrainedModel, Any]:
        model = TrainedModel(self.folder)
        return model, inputs_in(model, self.config, x)

    def test(self) -> tuple[np.ndarray, np.ndarray]:
        """The run's test rows anew: inputs [n, ...] as its model takes them (pixels are uint8, a
        table's columns standardised) and targets [n]. Raises UserError if its data are gone, or are
        others by now.
        """
        return own_test_rows(self.folder)

    def evaluate(self, all_rows: bool = False, **settings: Any) -> pd.Series:
        """Metrics of the final model on test rows, with ``settings`` of ``data`` and ``evaluation``
        applied (``**{"data.dataset.path": "new.csv"}``), or on ``all_rows`` of other data: what
        ``fedorch evaluate`` prints. Raises UserError for data that the model does not fit.
        """
        return pd.Series(evaluation(self.folder, _words(settings), all_rows)[0], dtype=float)

    def export(self, file: Place, license: str = "unknown") -> Path:
        """Write the model as ``fedorch export`` does, by the ending of ``file``, with a card beside
        it; returns where. Raises UserError for another ending, and what is there already.
        """
        if not isinstance(file, str | PathLike):
            raise UserError(f"export: give the path of a file, not {file!r}")
        write_model(self.folder, Path(file), license)
        return Path(file)

    def plot(self, *metrics: str) -> Figure:
        """Metrics over rounds (default: accuracies, or else losses)."""
        from orchestrator.pages.figures import ACCURACY, LOSS
        from orchestrator.results.plots import curves

        _require_names(metrics)
        rounds = self.rounds
        unknown = [name for name in metrics if name not in rounds]
        if unknown:
            known = [str(column) for column in rounds]
            raise UserError(
                f"the run has not recorded {unknown[0]!r}; {nearest(unknown[0], known)}"
            )
        if metrics:
            return curves({"": rounds}, {name: name.replace("_", " ") for name in metrics}, "")
        accuracy = bool({*ACCURACY} & {*rounds})
        return curves(
            {"": rounds}, ACCURACY if accuracy else LOSS, "accuracy" if accuracy else "loss"
        )


class Runs(Sequence[Run]):
    """Several runs; those that differ in their seeds alone are one column of a comparison."""

    def __init__(self, runs: Sequence[Run | Place]) -> None:
        """Runs, or their folders (or URIs); raises UserError where there is none."""
        self.runs = [run if isinstance(run, Run) else Run(run) for run in runs]

    def __getitem__(self, i: Any) -> Any:
        return Runs(self.runs[i]) if isinstance(i, slice) else self.runs[i]

    def __len__(self) -> int:
        return len(self.runs)

    def __repr__(self) -> str:
        return f"<Runs: {len(self)}>"

    def _repr_html_(self) -> str:
        if not self.runs:
            return html.escape(repr(self))
        return self.table().to_html() + "".join(f"<p>{html.escape(one)}</p>" for one in self.notes)

    @property
    def notes(self) -> list[str]:
        """What must be known to read :meth:`table`: of what the runs are, which diverged or missed
        their goals, what they differ in beside their names.
        """
        from orchestrator.analysis.comparison import notes_of

        compared = self._compared()
        first = next(iter(compared.columns))
        return notes_of(compared, (), [compared.usual()], first)

    def _compared(self) -> Compared:
        from orchestrator.analysis.compared import Runs as Compared

        return Compared.read([run.folder for run in self.runs])

    def table(self) -> pd.DataFrame:
        """Metrics of the last rounds: a row a metric; for each group of runs that differ in their
        seeds alone mean, standard error of it (sem) and number of runs (n). How alike clients are
        is no number of a run that has diverged. :attr:`notes` says what must be known beside it.
        """
        from orchestrator.config.goal import counts_of_the_diverged

        compared = self._compared()
        columns = {}
        for name, numbers in compared.columns.items():
            each = pd.DataFrame([self.runs[i].summary for i in numbers])
            none = [one for one in each if not counts_of_the_diverged(str(one))]
            each.loc[[compared.diverged[i] for i in numbers], none] = math.nan
            columns[name] = pd.DataFrame(
                {"mean": each.mean(), "sem": each.sem(), "n": each.count()}
            )
        return pd.concat(columns, axis=1)

    def plot(self, metric: str = "") -> Figure:
        """A metric (unset: accuracy, else loss) over rounds: for each group of runs that differ in
        their seeds alone the mean, with a band of one standard error to either side.
        """
        from orchestrator.analysis.names import require_curve
        from orchestrator.results.plots import bands

        _require_names([metric])
        compared = self._compared()
        metric = metric or compared.usual()
        require_curve(metric, compared.folders, compared.rounds)
        return bands(compared.groups(metric), metric, metric.replace("_", " "))


def _require_names(metrics: Sequence[object]) -> None:
    for metric in metrics:
        if not isinstance(metric, str):
            raise UserError(f"plot: give names of metrics, not {metric!r}")


def said(config: Place | Mapping[str, Any] | Config | None) -> dict[str, Any]:
    """What a config says that is given in one of the forms of :func:`config_of`."""
    if isinstance(config, Config):
        return config.model_dump(mode="json")
    if isinstance(config, Mapping):
        return plain(placed(beside(dict(config), Path()), Path()))
    if config is None or isinstance(config, str | PathLike):
        return raw_of(None if config is None else Path(config))
    raise UserError(
        f"config: give the path of a YAML file, a mapping, or a fedorch.Config, not {config!r}"
    )


def config_of(
    config: Place | Mapping[str, Any] | Config | None = None,
    plugins: Sequence[Place] = (),
    **settings: Any,
) -> Config:
    """A config from a YAML file, a mapping, another config, or None (the quick start), with
    ``settings`` (``rounds=3``, ``**{"local.lr": 0.1}``); raises UserError for a wrong one.
    """
    raw = said(config)
    put_all(raw, {key: placed(plain(value), Path()) for key, value in settings.items()})
    if plugins := _listed(plugins, "plugins", "files"):
        raw["plugins"] = [*(raw.get("plugins") or ()), *map(str, plugins)]
    return build(raw)


def plain(value: Any) -> Any:
    """``value`` as YAML would have it: of lists, mappings, and Python's own numbers."""
    if isinstance(value, BaseModel):  # a config, or a section of one
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | range):
        return [plain(one) for one in value]
    if isinstance(value, np.ndarray | torch.Tensor):
        return plain(value.tolist())
    if isinstance(value, PathLike):
        return str(value)
    return value.item() if isinstance(value, np.generic) else value


def run(
    config: Place | Mapping[str, Any] | Config | None = None,
    *,
    out: Place | None = None,
    seeds: Sequence[int] | None = None,
    address: str | None = None,
    plugins: Sequence[Place] = (),
    resume: Place | None = None,
    verbose: bool = True,
    **settings: Any,
) -> Any:
    """Run an experiment to its end, as ``fedorch run`` does, with the same bits.

    ``config`` and ``settings`` are those of :func:`config_of`; ``out`` is a new folder (default:
    runs/NAME-TIME). It runs in this process; by Ray actors if Ray is initialised in it, or on the
    cluster at ``address`` ("local" starts one for the run). Ctrl-C or SIGTERM ends it after its
    round, with a checkpoint, and raises KeyboardInterrupt. With ``seeds`` one run for each, in
    folders ``seed-N`` of ``out``: a :class:`Runs`; else a :class:`Run`. ``resume`` is the folder of
    a run that goes on, further with ``rounds=N``. Raises UserError in one sentence for whatever a
    user can mend.
    """
    import ray

    _require_texts(out, address)
    here = address is None and not ray.is_initialized()
    one = run_here if here else run_on_ray
    if resume is not None:
        if (config, out, seeds) != (None, None, None):
            raise UserError("resume: a run goes on in its own folder; give no config, out or seeds")
        folder, chosen = _begun(resume, plugins, settings)
        with quiet() if not verbose else nullcontext(), _ray(address), put_back():
            _whole(one(chosen, folder, True, []))
        return Run(folder.place)
    numbers = None if seeds is None else _seeds(seeds, settings)
    chosen = config_of(config, plugins, **settings)
    with quiet() if not verbose else nullcontext(), _ray(address), put_back():
        if numbers is None:
            folder = RunFolder.dated(chosen.name) if out is None else RunFolder.new(str(out))
            try:
                _whole(one(chosen, folder, False, []))
            finally:
                folder.forget_empty()
            return Run(folder.place)
        configs = {
            seed: config_of(config, plugins, **{**settings, "seed": seed}) for seed in numbers
        }
        place = RunFolder.dated(chosen.name).place if out is None else str(out)
        series = Series(seed_folders(configs), place)
        finished = series.run(one)
        series.require_whole(finished)
        return Runs([Run(f.place) for f in finished])


def _whole(result: Result | None) -> None:
    """Raise KeyboardInterrupt for a run that was stopped: who has asked for the end of this one
    does not want the next, nor its numbers beside those of whole ones.
    """
    if result is not None and result["status"] == "stopped":
        raise KeyboardInterrupt


def _require_texts(out: object, address: object) -> None:
    for called, given, kinds in (("out", out, str | PathLike), ("address", address, str)):
        if given is not None and not isinstance(given, kinds):
            raise UserError(f"{called}: give a text, not {given!r}")


def _begun(
    place: Place, plugins: Sequence[Place], settings: Mapping[str, Any]
) -> tuple[RunFolder, Config]:
    """The run there, and with what it goes on."""
    folder = RunFolder.existing(str(place))
    named = [*map(str, _listed(plugins, "plugins", "files"))]
    return folder, folder.config(named, _words(settings))


def _words(settings: Mapping[str, Any]) -> list[str]:
    """Settings as ``--set`` has them."""
    return [f"{key}={_word(key, value)}" for key, value in settings.items()]


def _word(key: str, value: object) -> str:
    try:
        return json.dumps(plain(value))
    except TypeError as error:
        kind = type(value).__name__
        raise UserError(
            f"{key}: a {kind} is no setting, or holds something that is none"
        ) from error


def _seeds(given: Sequence[int], settings: Mapping[str, Any]) -> list[int]:
    """Whole numbers, each once; raises UserError for anything else, and a seed in ``settings``."""
    if "seed" in settings:
        raise UserError("seed: seeds says which; leave one of them out")
    seeds = _listed(given, "seeds", "whole numbers")
    wrong = [seed for seed in seeds if not is_whole(seed)]
    if wrong or not seeds:
        raise UserError(f"seeds: give whole numbers, not {wrong[0] if wrong else seeds!r}")
    twice = [seed for i, seed in enumerate(seeds) if seed in seeds[:i]]
    if twice:
        raise UserError(f"seeds: {twice[0]} is there twice")
    return [int(seed) for seed in seeds]


def _listed(given: Any, called: str, what: str) -> list[Any]:
    """The entries of a list; raises UserError for what is none, a text among them."""
    if not isinstance(given, Iterable) or isinstance(given, str | PathLike):
        raise UserError(f"{called}: give a list of {what}, not {given!r}")
    return list(given)


def _ray(address: str | None) -> Any:
    """A connection for the run, unless it needs none or there is one."""
    from orchestrator.cluster.connection import connected

    return nullcontext() if address is None else connected(address)


def open(place: Place) -> Any:
    """A run's folder (or URI) as a :class:`Run`; a folder of ``seed-N`` as :class:`Runs`."""
    places = members(str(place))
    return Run(place) if places == [str(place)] else Runs([Run(one) for one in places])


def compare(runs: Sequence[Any] | Place) -> Runs:
    """Runs, or the places of runs (a folder of ``seed-N`` is all in it), side by side."""
    found: list[Run] = []
    # the place of one is no list of places
    several = [runs] if isinstance(runs, str | PathLike | Run) else _listed(runs, "runs", "runs")
    for one in several:
        opened = one if isinstance(one, Run | Runs) else open(one)
        found += [opened] if isinstance(opened, Run) else list(opened)
    return Runs(found)
