"""What must be known to use a run's model: left beside its weights, in ``inputs.json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NotRequired, TypeAlias

import numpy as np
import pandas as pd
import torch

# pydantic reads the standard library's only from Python 3.12 on
from typing_extensions import TypedDict

from orchestrator import files
from orchestrator.config import Config
from orchestrator.data.columns import Column, frame_of, inputs_of_rows
from orchestrator.data.federated import FederatedData
from orchestrator.data.samples import array_of
from orchestrator.errors import UserError
from orchestrator.models.fixed import fixed
from orchestrator.models.net import Net
from orchestrator.plugins.blame import raised
from orchestrator.plugins.imports import digest_of, imports_of
from orchestrator.results import manifest
from orchestrator.results.contents import INPUTS
from orchestrator.results.digests import digest
from orchestrator.results.result import Result
from orchestrator.results.run_folder import RunFolder
from orchestrator.terminal import told
from orchestrator.training.modes import own_modes

if TYPE_CHECKING:
    from torch import Tensor

Given: TypeAlias = "np.ndarray | Tensor | pd.DataFrame | pd.Series | Mapping[str, object]"
"""What a model may be asked of."""
WILD = 30.0
"""Deviations from the mean beyond which inputs of a table are hardly standardised."""
BATCH = 500
"""Rows of one forward pass, as in training's evaluations."""


class Inputs(TypedDict):
    """What the model takes and makes."""

    shape: list[int]
    """Of one input."""
    dtype: Literal["uint8", "int32", "float32"]
    """uint8: pixels of images [C, H, W], which are scaled: (x − shift) · scale."""
    shift: list[float]
    """Of each channel; empty but for images."""
    scale: list[float]
    outputs: int
    task: Literal["classes", "numbers", "tokens"]
    columns: NotRequired[list[Column]]
    """What makes inputs of a table's rows; empty for other data."""
    tokens: NotRequired[str]
    """What made token ids of texts; "" where nothing is known of that."""
    sources: NotRequired[list[str]]
    """Names of the columns that inputs are made of, in their order, where the data have any."""
    classes: NotRequired[list[str]]
    """Names, where the data have any."""
    clients: NotRequired[list[str]]
    """Names of those that it was trained by, where they have any."""
    frozen_sha256: NotRequired[str]
    """Of what the network held that nobody trained, such as the weights of a checkpoint below
    adapters, or tables of whole numbers: it is not among the model's tensors, but built again; ""
    where there is nothing."""


def parameters_of(folder: RunFolder, result: Result) -> int:
    """Numbers that a run has trained; of one of before, all that its model holds. Raises UserError
    for a model that is damaged.
    """
    every = sum(one.numel() for one in folder.model().values())
    return result.get("parameters", every)


def inputs_of(data: FederatedData, frozen: str, clients: Sequence[str] = ()) -> Inputs:
    """Of the models that are trained on ``data``, with ``frozen`` (a digest) beside them, by
    ``clients`` of such names.
    """
    samples = data.samples
    dtype: Literal["uint8", "int32", "float32"] = str(samples.x.dtype)  # type: ignore[assignment]
    return {
        "shape": list(samples.shape), "dtype": dtype, "shift": list(data.shift),
        "scale": list(data.scale), "outputs": samples.outputs,
        "task": samples.task,
        "columns": list(samples.columns), "tokens": samples.tokens,
        "sources": list(samples.sources),
        "classes": list(samples.names), "clients": list(clients),
        "frozen_sha256": frozen,
    }  # fmt: skip


def frozen_sha256(net: Net) -> str:
    """Digest of what a network holds, as it was built, that nobody trains; "" of nothing."""
    return digest(found) if (found := fixed(net)) else ""


def require_frozen(frozen: str, inputs: Inputs, place: str) -> None:
    """Raises UserError where that (a digest) is not what the run at ``place`` was trained with."""
    # runs of before have not told all of it
    if inputs.get("frozen_sha256", "") not in ("", frozen):
        raise UserError(
            f"{place}: the weights of its model that nobody trained are not those that the others "
            "were trained with: put back what its config names (model.checkpoint, or the like), or "
            "take the version of fedorch that it was run with, if that drew them otherwise"
        )


def inputs_left(folder: RunFolder) -> Inputs:
    """What a run has left of that; raises UserError if it cannot be read."""
    return files.read_json(manifest.verify(folder.path, INPUTS), Inputs)


def require_common(folder: RunFolder) -> None:
    """Raises UserError for a run whose models all stay with the clients: what it has left is
    nobody's.
    """
    config = folder.config()
    if config.algorithm.keeps_models:
        raise UserError(
            f"{folder.place}: {config.algorithm.name} leaves every model with its client, so "
            "there is no common one to use"
        )


def tell_of_imports(folder: RunFolder) -> None:
    """Note that what the run's plugins import has changed since, and with it perhaps its model."""
    left = folder.result().get("imports_sha256", "")
    if left and left != digest_of(imports_of(folder.config().plugins)):
        told(
            "note",
            f"{folder.place}: modules that its plugins import are not those that it was trained "
            "with; its model may be another",
        )


class TrainedModel:
    """The final model of a run."""

    @own_modes()
    def __init__(self, folder: RunFolder) -> None:
        """Raises UserError if the run has left no model, or it cannot be built here; or if what it
        has left is nobody's, since all models stay with the clients.
        """
        require_common(folder)
        tell_of_imports(folder)
        self.inputs = inputs_left(folder)
        net = _built(folder.config(), self.inputs)
        frozen = frozen_sha256(net)
        _put(net, folder.model(), folder.place)
        require_frozen(frozen, self.inputs, folder.place)
        net.module.eval()  # which need not return it
        self.module = net.module

    @own_modes()
    def outputs(self, x: Given) -> Tensor:
        """The model's outputs [n, o] for inputs [n, ...], or one input: images as uint8 pixels
        [C, H, W] ([H, W] where they are grey, [H, W, C] will do), scaled here as in training; rows
        of a table (a frame, a row of one, a mapping of columns, or of one row), made numbers here
        as in training; all else as it was trained on. Raises UserError for inputs of another shape
        or type.
        """
        rows = self._rows(self._numbers(x))
        return torch.cat([self._made(part) for part in rows.split(BATCH)])

    def _made(self, part: Tensor) -> Tensor:
        try:
            with torch.no_grad():
                # which a parameter of the network's, given as it is, would not be
                made: Tensor = self.module(self._ready(part)).detach()
        except Exception as error:  # whatever a network may raise, as an id that it has no row for
            raise UserError(
                f"the model cannot take {_told(part, self.module)}: {raised(error)}"
            ) from error
        return made

    def _numbers(self, x: Given) -> np.ndarray:
        columns = self.inputs.get("columns", [])
        if isinstance(x, pd.Series) and columns:
            x = {str(name): value for name, value in x.items()}  # a row of a frame
        if isinstance(x, Mapping):
            x = frame_of(x)
        if not isinstance(x, pd.DataFrame):
            array = array_of(x, "inputs")
            scaled = any(column["mean"] or column["std"] != 1 for column in columns)
            if scaled and array.dtype.kind in "iuf" and (np.abs(array) > WILD).any():
                told(
                    "note",
                    f"the array has numbers beyond ±{WILD:g}, and the model wants columns that are "
                    "standardised: give rows as they are as a frame or a mapping",
                )
            return array
        if not columns:
            raise UserError("the model was not trained on a table: give its inputs as an array")
        return inputs_of_rows(columns, x)

    def predict(self, x: Given) -> np.ndarray:
        """Of each input its class [n]; numbers [n, o], or classes of tokens [n, L], where the model
        was trained on such.
        """
        out = self.outputs(x)
        return (out if self.inputs["task"] == "numbers" else out.argmax(-1)).numpy()

    def _ready(self, part: Tensor) -> Tensor:
        if self.inputs["dtype"] != "uint8":
            return part
        shift, scale = (torch.tensor(self.inputs[k]).view(-1, 1, 1) for k in ("shift", "scale"))
        # in the order of training's batches, for the same bits
        return part.float().sub_(shift).mul_(scale)

    def _rows(self, x: np.ndarray) -> Tensor:
        shape, kind = tuple(self.inputs["shape"]), np.dtype(self.inputs["dtype"])
        found = _as(x, shape) if kind == np.uint8 else _as(x, shape, images=False)
        if found is None:
            raise UserError(f"inputs of shape {x.shape} are none of shape (n, {_text(shape)})")
        if (wrong := _wrong_type(found, kind)) is not None:
            raise UserError(f"inputs are {wrong}")
        with np.errstate(over="ignore"):
            made = np.ascontiguousarray(found.astype(kind))
        good = np.isfinite(made).all(axis=tuple(range(1, made.ndim)))
        if not good.all():
            raise UserError(f"inputs: row {good.argmin()} has NaN, or a number beyond float32")
        return torch.from_numpy(made)


def _wrong_type(x: np.ndarray, kind: np.dtype) -> str | None:
    """What inputs are instead of what training on ``kind`` would take; None where they are that."""
    if kind == np.uint8:
        good = x.dtype == kind
        return None if good else f"{x.dtype}; the model takes pixels, uint8 from 0 to 255"
    if kind == np.float32:
        return None if x.dtype.kind in "iuf" else f"{x.dtype}; the model takes numbers"
    if x.dtype.kind not in "iu":
        return f"{x.dtype}; the model takes token ids"
    good = not x.size or 0 <= x.min() <= x.max() < 2**31
    return None if good else f"from {x.min()} to {x.max()}; the model takes token ids, 0 or more"


def _told(x: Tensor, module: torch.nn.Module) -> str:
    """Inputs in words; token ids with those that there are."""
    if x.dtype != torch.int32 or not x.numel():
        return f"inputs of shape {tuple(x.shape)}"
    rows = [
        part.num_embeddings for part in module.modules() if isinstance(part, torch.nn.Embedding)
    ]
    known = f" (its embeddings have {', '.join(map(str, rows))} rows)" if rows else ""
    return f"token ids from {int(x.min())} to {int(x.max())}{known}"


def _as(x: np.ndarray, shape: tuple[int, ...], images: bool = True) -> np.ndarray | None:
    """Inputs [n, *shape], where x is that, or one such; of images also with channels last, or of
    one channel without it.
    """
    last = (*shape[1:], shape[0])
    forms = [shape, *([last, *([shape[1:]] if shape[0] == 1 else [])] if images else [])]
    for form in forms:
        rows = x[None] if x.shape == form else x
        if rows.shape[1:] != form:
            continue
        if form == shape:
            return rows
        return rows[:, None] if form == shape[1:] else rows.transpose(0, 3, 1, 2)
    return None


def _text(shape: tuple[int, ...]) -> str:
    return ", ".join(map(str, shape))


def _built(config: Config, inputs: Inputs) -> Net:
    try:
        return Net.of(config.model, tuple(inputs["shape"]), inputs["outputs"], config.seed)
    except ValueError as error:
        raise UserError(f"config: {error}") from error


def _put(net: Net, tensors: Mapping[str, Tensor], place: str) -> None:
    """Give a network the weights and statistics of the run at ``place``; raises UserError if these
    are of another one. Integers, and what no client trains, are as they were built, where they are
    not among the ``tensors``.
    """
    # by name, as a state dict leaves out buffers that are not persistent
    needed = net.params | net.buffers
    mine = net.module.state_dict() | needed
    for name in sorted({*needed} | {*tensors}):
        if name not in mine:
            raise UserError(f"{place}: its model has no {name}, which the weights are of")
        if name not in tensors:
            raise UserError(f"{place}: the weights hold no {name}, which its model has")
        if tensors[name].shape != mine[name].shape:
            shapes = (tuple(tensors[name].shape), tuple(mine[name].shape))
            raise UserError(
                f"{place}: the weights do not fit its model: {name} is {shapes[0]}, and in the "
                f"model {shapes[1]}"
            )
        with torch.no_grad():
            mine[name].copy_(tensors[name])
