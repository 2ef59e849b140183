"""The loss around trained models along filter-normalised directions (Li et al. 2018); sharpness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from rich.table import Table

from algorithms.draws import generator, torch_generator
from algorithms.flat import ParamSpec
from orchestrator.analysis.judged import SOME
from orchestrator.analysis.left_out import failed_said, left_out_said
from orchestrator.analysis.names import over_seeds, require_alike, stopped_said
from orchestrator.analysis.sharpness import hessian_product, largest_eigenvalue, rise
from orchestrator.errors import UserError
from orchestrator.results import plots
from orchestrator.results.contents import ROUNDS
from orchestrator.results.digests import digest
from orchestrator.results.own_code import FILES
from orchestrator.results.pictures import require_free, write_picture
from orchestrator.results.run_folder import RunFolder
from orchestrator.results.usage import require_common
from orchestrator.rounds.experiment import Experiment
from orchestrator.terminal import bar, console, told
from orchestrator.training.evaluation import mean_loss, per_sample
from orchestrator.training.world import World

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Trained:
    """A run's final model, and rows of its dataset to judge it by."""

    name: str
    world: World
    w: Tensor
    buffers: Tensor
    rows: np.ndarray

    @classmethod
    def of(cls, name: str, folder: RunFolder, on: Literal["train", "test"], rows: int) -> Trained:
        """Load from a run's folder; the same ``rows`` rows for runs on the same data and seed."""
        tensors = folder.model()
        experiment = Experiment(folder.config())
        # of partitions its data tell; with what policy its agent began is nothing to a landscape
        known = {key: said for key, said in folder.result().items() if key != FILES}
        experiment.require_origin(known, folder.place)
        net, data = experiment.net, experiment.data
        if _shapes(tensors) != _shapes({**net.params, **net.buffers}):
            name = experiment.config.model.name
            raise UserError(f"{folder.place}: its model.safetensors is not the model {name}")
        pool = np.unique(data.train.rows) if on == "train" else data.test_rows
        if not len(pool):
            raise UserError(f"{folder.path}: the run has no {on} rows to evaluate on")
        # a permutation cut off: fewer rows are a part of more
        order = generator(experiment.config.seed, "landscape rows").permutation(len(pool))
        chosen = np.sort(pool[order[:rows]])
        w, buffers = net.spec.flatten(tensors), net.buffer_spec.flatten(tensors)
        return cls(name, experiment.world, w, buffers, chosen)


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def directions(spec: ParamSpec, w: Tensor, count: int, seed: int) -> Tensor:
    """Random directions [count, d] whose every filter (row of a kernel) is as long as the model's;
    biases stay.

    The draws depend on ``seed`` alone, so that runs of the same model are looked at along related
    directions.
    """
    out = torch.zeros(count, spec.size)
    for i in range(count):
        drawn = torch.randn(spec.size, generator=torch_generator(seed, "direction", i))
        pairs = zip(
            spec.views(drawn).values(),
            spec.views(w).values(),
            spec.views(out[i]).values(),
            strict=True,
        )
        for noise, own, place in pairs:
            # biases and batch-norm scales keep direction 0, as in Li et al. (2018)
            if own.dim() > 1:
                # all but the first axis: what leads to one output is one filter
                axes = tuple(range(1, own.dim()))
                own_norm, drawn_norm = (
                    torch.linalg.vector_norm(t, dim=axes, keepdim=True) for t in (own, noise)
                )
                place.copy_(noise * own_norm / drawn_norm.clamp_min(1e-12))
    return out


def grid(dims: int, points: int, radius: float) -> np.ndarray:
    """Coordinates [points^dims, dims] of a regular grid over [−radius, radius]."""
    axis = np.linspace(-radius, radius, points)
    return np.stack([a.ravel() for a in np.meshgrid(*[axis] * dims, indexing="ij")], 1)


def surface(model: Trained, places: np.ndarray, seed: int) -> pd.DataFrame:
    """Loss and accuracy at ``places`` [n, dims] around the model; a terminal shows progress."""
    net = model.world.net()
    axes = directions(net.spec, model.w, places.shape[1], seed)
    rows = []
    with bar() as shown:
        task = shown.add_task(model.name, total=len(places), note="")
        for place in places:
            w = model.w + torch.from_numpy(place).float() @ axes
            loss, hit, _ = per_sample(model.world, net, w, model.buffers, model.rows)
            found = {"loss": float(loss.double().mean()), "accuracy": float(hit.double().mean())}
            at = {f"x{j}": float(v) for j, v in enumerate(place)}
            rows.append({**at, **found})
            shown.advance(task)
    return pd.DataFrame(rows)


def sharpness(model: Trained, rho: float, seed: int) -> dict[str, float]:
    """Loss, curvature and rise of the loss at the model itself."""
    at = (model.world, model.world.net(), model.w, model.buffers, model.rows)
    top = largest_eigenvalue(partial(hessian_product, *at), len(model.w), seed)
    return {"centre": mean_loss(*at), "largest_eigenvalue": top, "rise": rise(*at, rho)}


@dataclass(frozen=True)
class Look:
    """How far around models, and on what, their loss is looked at; raises UserError for what is
    impossible.
    """

    dims: int = 1
    """1: along a line, 2: on a plane."""
    points: int = 21
    """On each axis."""
    radius: float = 1.0
    """In lengths of the model's filters."""
    on: Literal["train", "test"] = "train"
    rows: int = 2000
    """At most so many of them."""
    rho: float = 0.05
    """Radius of the SAM-style sharpness."""
    seed: int = 0
    """Of the directions, of the rows' choice within a run's seed, and of Lanczos' start."""

    def __post_init__(self) -> None:
        few = self.points < 2 or self.rows < 1
        if self.dims not in (1, 2) or few or self.radius <= 0 or self.rho <= 0:
            raise UserError(
                "--dims is 1 or 2, --points at least 2, --rows at least 1, --radius and --rho are "
                "positive"
            )

    def around(self, name: str, folder: RunFolder) -> pd.DataFrame:
        """Loss and accuracy around a run's final model, with the run's seed, sharpness and a digest
        of the rows that they are of on each line; raises UserError where the loss is no number.
        """
        model = Trained.of(name, folder, self.on, self.rows)
        found = surface(model, grid(self.dims, self.points, self.radius), self.seed)
        if not np.isfinite(found["loss"]).all():
            raise UserError(f"{folder.place}: around its model the loss is NaN or infinite")
        sharp, seed = sharpness(model, self.rho, self.seed), folder.config().seed
        return found.assign(run=name, seed=seed, rows=digest(model.rows), **sharp)


def survey(runs: Mapping[str, Sequence[RunFolder]], look: Look) -> tuple[Figure, pd.DataFrame]:
    """The landscapes of some models (name -> its runs on several seeds), as a picture of the mean
    over seeds and its data, seed by seed; prints their sharpness. Raises as ``Look.around``, and
    UserError for other models, data or losses, which have no axis in common.
    """
    require_alike(
        [one for seeds in runs.values() for one in seeds],
        lambda key: f"{key}.".startswith(("model.", "data.dataset.", "loss.")),
        "losses around models are compared for one model on one dataset, by one loss",
    )
    tables = [look.around(name, one) for name, seeds in runs.items() for one in seeds]
    data = pd.concat(tables, ignore_index=True)
    if said := _other_rows(data.groupby("run", sort=False)["rows"].agg(frozenset)):
        told("note", said)
    told_apart = ("run", "seed", "rows")
    data = data[["run", "seed", *(c for c in data if c not in told_apart)]]
    _print_sharpness(data, look)
    return plots.landscape(data, look.dims), data


def _other_rows(rows: pd.Series) -> str:
    """That models (name -> digests of the rows of its runs) are looked at on other rows; or ""."""
    if rows.nunique() < 2:
        return ""
    others = [str(name) for name, its in rows.items() if its != rows.iloc[0]]
    return (
        f"losses of {'; '.join(others[:SOME])} are on other rows than those of {rows.index[0]}: of "
        "other seeds, or of other training rows that the clients were dealt (--on test, of one "
        "seed, has the same for all)"
    )


def _print_sharpness(data: pd.DataFrame, look: Look) -> None:
    shown = Table(
        "run", "seeds", "loss", "largest eigenvalue", f"rise within {look.rho:g}",
        title=f"{look.on} loss on up to {look.rows} rows, mean ± standard deviation over seeds",
    )  # fmt: skip
    for name, own in data.groupby("run", sort=False):
        each = own.groupby("seed")[["centre", "largest_eigenvalue", "rise"]].first()
        cells = [_mean_and_deviation(each[c]) for c in each]
        shown.add_row(str(name), str(len(each)), *cells)
    console.print(shown)


def _mean_and_deviation(values: pd.Series) -> str:
    mean = f"{values.mean():.4g}"
    return f"{mean} ± {values.std(ddof=1):.2g}" if len(values) > 1 else mean


def show_landscape(folders: list[RunFolder], plot: Path, look: Look) -> None:
    """Print each run's sharpness, and write the picture and its data beside it as CSV; runs whose
    configs differ in nothing but the seed are one line. Raises as ``survey``.
    """
    require_free(plot)
    for folder in folders:
        require_common(folder)
    runs = over_seeds(folders)
    figure, data = survey(runs, look)
    # an exported model does not say who was left out
    groups = {
        name: [(one.config(), one.rounds()) for one in own if one.holds(ROUNDS)]
        for name, own in runs.items()
    }
    stopped = stopped_said({one.place: one for one in folders})
    for said in filter(None, [stopped, failed_said(folders), *left_out_said(groups)]):
        told("note", said)
    write_picture(figure, plot, data)
