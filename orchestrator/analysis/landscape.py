"""The loss around trained models along filter-normalised directions (Li et al. 2018); sharpness."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import torch
from rich.table import Table
from torch import Tensor

from algorithms.draws import generator, torch_generator
from algorithms.flat import ParamSpec
from orchestrator.analysis.names import told_apart
from orchestrator.analysis.sharpness import largest_eigenvalue, rise
from orchestrator.errors import UserError
from orchestrator.results import plots
from orchestrator.results.pictures import write_picture
from orchestrator.results.run_folder import RunFolder
from orchestrator.rounds.experiment import Experiment
from orchestrator.terminal import bar, console
from orchestrator.training.evaluation import mean_loss, per_sample
from orchestrator.training.world import World


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
            loss, hit = per_sample(model.world, net, w, model.buffers, model.rows)
            found = {"loss": float(loss.double().mean()), "accuracy": float(hit.double().mean())}
            at = {f"x{j}": float(v) for j, v in enumerate(place)}
            rows.append({"run": model.name, **at, **found})
            shown.advance(task)
    return pd.DataFrame(rows)


def show_landscape(
    folders: list[RunFolder], plot: Path, *, dims: int, points: int, radius: float,
    on: Literal["train", "test"],
    rows: int, rho: float, seed: int,
) -> None:  # fmt: skip
    """Print each run's sharpness, and write the picture and its data beside it as CSV."""
    if dims not in (1, 2) or points < 2 or radius <= 0 or rows < 1 or rho <= 0:
        raise UserError(
            "--dims is 1 or 2, --points at least 2, --rows at least 1, --radius and --rho are "
            "positive"
        )
    places, tables = grid(dims, points, radius), []
    shown = Table(
        "run",
        "loss",
        "largest eigenvalue",
        f"rise within {rho:g}",
        title=f"{on} loss on up to {rows} rows",
    )
    for name, folder in zip(told_apart(folders), folders, strict=True):
        model = Trained.of(name, folder, on, rows)
        tables.append(surface(model, places, seed))
        if not np.isfinite(tables[-1]["loss"]).all():
            raise UserError(f"{folder.place}: around its model the loss is NaN or infinite")
        at = (model.world, model.world.net(), model.w, model.buffers, model.rows)
        numbers = mean_loss(*at), largest_eigenvalue(*at, seed), rise(*at, rho)
        shown.add_row(model.name, *[f"{n:.4g}" for n in numbers])
    data = pd.concat(tables)
    console.print(shown)
    write_picture(plots.landscape(data, dims), plot, data)
