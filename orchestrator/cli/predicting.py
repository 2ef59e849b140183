"""``fedorch predict``: what a run's model says of files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch

from orchestrator.config import Config
from orchestrator.data.columns import Column, texts_of
from orchestrator.data.own.images import ENDINGS, pixels, pixels_of_files, shown
from orchestrator.data.own.tables import ENDINGS as TABLES
from orchestrator.data.own.tables import reader_of
from orchestrator.data.samples import Dataset, array_of
from orchestrator.data.sources import read_npz, reading
from orchestrator.errors import UserError
from orchestrator.results.run_folder import RunFolder
from orchestrator.results.usage import Inputs, TrainedModel

Odds = Literal["none", "best", "each"]
"""Which probabilities are told."""


def predictions(place: str, files: Sequence[Path], each: bool = False) -> pd.DataFrame:
    """A row for each image or row of the files: which it is, and what the model of the run at
    ``place`` says: a class, and where the loss gives it the class's probability (``each``: that of
    all classes, too); or numbers.

    Files are image files or folders of such, tables, .npy or .npz (``x``), as the model was trained
    on. Raises UserError for others, and for probabilities that there are not.
    """
    folder = RunFolder.viewed(place)
    model, config = TrainedModel(folder), folder.config()
    odds: Odds = "best" if gives_odds(model, config) else "none"
    if each:
        require_odds(model, config, f"--each: the model of {place}")
        odds = "each"
    pictures = {file: _images(file) for file in files}
    images = [image for some in pictures.values() for image in some]
    found = []
    if images:
        found.append(_told(model, [str(image) for image in images], _pixels(model, images), odds))
    for file in files:
        if not pictures[file]:
            given = _read(file, config.data.dataset, model.inputs.get("columns", []))
            names = [f"{file} {i}" for i in range(len(given))]
            try:
                found.append(_told(model, names, given, odds))
            except UserError as error:
                # one of several files
                text = str(error)
                raise UserError(text if str(file) in text else f"{file}: {text}") from error
    return pd.concat(found, ignore_index=True)


def gives_odds(model: TrainedModel, config: Config) -> bool:
    """Whether a softmax of the model's outputs says how likely each class is."""
    return config.loss.softmax is True and model.inputs["task"] == "classes"


def require_odds(model: TrainedModel, config: Config, called: str) -> None:
    """Raises UserError for a model whose outputs are not turned into probabilities by a softmax."""
    if not gives_odds(model, config):
        raise UserError(
            f"{called} gives no probabilities of classes (loss {config.loss.name}, task "
            f"{model.inputs['task']})"
        )


def inputs_in(model: TrainedModel, config: Config, given: object) -> object:
    """What a model is asked of, where that is named: of the path of an image, a folder of images, a
    table or an array its contents; of an image of Pillow's its pixels, as the model wants them; of
    a list of such all of theirs, and of mappings the rows; all else as it is. Raises UserError for
    files that it cannot read.
    """
    if isinstance(given, str | PathLike):
        file = Path(given)
        if images := _images(file):
            return _pixels(model, images)
        return _read(file, config.data.dataset, model.inputs.get("columns", []))
    if isinstance(given, list | tuple) and given:
        if all(isinstance(one, Mapping | pd.Series) for one in given):
            return pd.DataFrame([*map(dict, given)])
        if all(isinstance(one, str | PathLike) or _is_picture(one) for one in given):
            parts: list[Any] = [inputs_in(model, config, one) for one in given]
            tables = all(isinstance(part, pd.DataFrame) for part in parts)
            return pd.concat(parts, ignore_index=True) if tables else np.concatenate(parts)
        if any(map(_is_picture, given)):
            raise UserError("images of Pillow's stand in a list with images, and files, alone")
    if _is_picture(given):
        return pixels([_InMemory(given)], *_picture(model, "the image"))
    return given


def _is_picture(given: object) -> bool:
    """Whether it is an image of Pillow's."""
    return callable(getattr(given, "convert", None)) and hasattr(given, "mode")


@dataclass(frozen=True)
class _InMemory:
    """An image of Pillow's, as one that is opened."""

    image: object

    def __call__(self) -> object:
        return self.image

    def __str__(self) -> str:
        return "the image"


def _images(file: Path) -> list[Path]:
    """The image files that a path names; none if it is no folder, and no image."""
    if file.is_dir():
        inside = shown(sorted(file.rglob("*")), file)
        if not inside:
            raise UserError(f"{file}: there are no images in it")
        return inside
    return [file] if file.suffix.lower() in ENDINGS else []


def _pixels(model: TrainedModel, images: Sequence[Path]) -> np.ndarray:
    return pixels_of_files(images, *_picture(model, images[0]))


def _picture(model: TrainedModel, named: object) -> tuple[tuple[int, int], bool]:
    """Width and height of the images that a model takes, and whether they are grey."""
    if not takes_pictures(model.inputs):
        raise UserError(f"{named}: the model was not trained on images of files")
    channels, height, width = model.inputs["shape"]
    return (width, height), channels == 1


def takes_pictures(inputs: Inputs) -> bool:
    """Whether inputs can be made of image files: pixels of one channel, or of three."""
    shape = inputs["shape"]
    return inputs["dtype"] == "uint8" and len(shape) == 3 and shape[0] in (1, 3)


def _read(file: Path, trained: Dataset, columns: Sequence[Column]) -> pd.DataFrame | np.ndarray:
    """What is in a file: an array, or rows, of which the model knows the ``columns``."""
    ending = file.suffix.lower()
    if ending == ".npz":
        return array_of(read_npz(file, "x")[0], str(file))
    if ending == ".npy":
        with reading(file):
            return array_of(np.load(file, allow_pickle=False), str(file))
    table = reader_of(file, trained)
    if table is not None:
        return table.rows(file, texts_of(columns))
    known = ", ".join((*TABLES, ".npy", ".npz", *ENDINGS))
    raise UserError(f"{file}: its name says nothing of what is in it; known are {known}")


def _told(
    model: TrainedModel, names: list[str], given: pd.DataFrame | np.ndarray, odds: Odds
) -> pd.DataFrame:
    outputs = model.outputs(given)
    if len(outputs) != len(names):
        raise UserError(f"{names[0].rpartition(' ')[0]}: give inputs of shape (n, ...)")
    table = {"input": names}
    if model.inputs["task"] == "numbers":
        numbers = {f"output {i}": column for i, column in enumerate(outputs.T.tolist())}
        return pd.DataFrame(table | numbers)
    called = model.inputs.get("classes") or [str(c) for c in range(model.inputs["outputs"])]
    told = outputs.argmax(-1)
    if model.inputs["task"] == "tokens":
        return pd.DataFrame(table | {"classes": [" ".join(called[c] for c in row) for row in told]})
    frame = pd.DataFrame(table | {"class": [called[c] for c in told]})
    if odds == "none":
        return frame
    likely = torch.softmax(outputs, 1)
    frame = frame.assign(probability=likely.amax(1).numpy())
    if odds == "best":
        return frame
    columns = {f"P({name})": column for name, column in zip(called, likely.T.numpy(), strict=True)}
    return pd.concat([frame, pd.DataFrame(columns)], axis=1)
