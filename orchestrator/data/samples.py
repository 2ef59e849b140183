"""The samples of a dataset, and the family of datasets that a config can name."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from algorithms.part import Part
from algorithms.parts.losses import IGNORED
from orchestrator.data.columns import Column
from orchestrator.data.mapped import Inputs, Mapped, pieces
from orchestrator.errors import UserError

MOST_CLASSES = 1_000_000
"""A model has an output for each, and an evaluation a row."""
Split = tuple[np.ndarray, np.ndarray]
"""(inputs, labels) of the training or the test rows."""


@dataclass(frozen=True)
class Samples:
    """All samples of a dataset: training rows first, then test rows.

    Images are uint8 and scaled when a batch is drawn, x ↦ (x/255 − mean) / std per channel; other
    inputs are used as they are (float32 features, integer token ids).
    """

    x: Inputs
    """Inputs [n, ...]: images [n, C, H, W] uint8, features [n, p] float32, or token ids [n, L]
    int32. In memory, or on the disk."""
    y: np.ndarray
    """Labels [n] int64 in 0..classes-1."""
    train: int
    """Number of training rows; the rest are test rows."""
    classes: int
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    owner: np.ndarray | None = None
    """Natural client of each row [n], where the dataset has natural clients."""
    targets: np.ndarray | None = None
    """Numbers to be predicted [n, o] float32, of data without classes; or a class for each of L
    tokens [n, L] int64 (``IGNORED``: none). ``y`` then are the groups by which rows are dealt
    out."""
    columns: tuple[Column, ...] = ()
    """What made the inputs of a table's rows, in their order."""
    names: tuple[str, ...] = ()
    """Of the classes, where the data have any."""
    tags: int = 0
    """Number of classes of tokens; 0 where nothing is said of tokens."""
    owners: tuple[str, ...] = ()
    """Names of the natural clients, by number, where they have any."""
    tokens: str = ""
    """What made token ids of texts, where that is said: another would mean others by them."""
    sources: tuple[str, ...] = ()
    """Names of the columns that inputs are made of, in their order, where the data have any."""

    @property
    def outputs(self) -> int:
        """Numbers that a model makes of an input, or of a token: one for each class, or for each
        target.
        """
        if self.targets is None:
            return self.classes
        return self.tags or self.targets.shape[1]

    @property
    def made(self) -> tuple[int, ...]:
        """Shape of what a model makes of an input."""
        if self.targets is None or not self.tags:
            return (self.outputs,)
        return (self.targets.shape[1], self.tags)

    @property
    def wanted(self) -> np.ndarray:
        """What is to be predicted: classes [n], numbers [n, o], or classes of tokens [n, L]."""
        return self.y if self.targets is None else self.targets

    @property
    def task(self) -> Literal["classes", "numbers", "tokens"]:
        """Which of them it is."""
        if self.targets is None:
            return "classes"
        return "tokens" if self.tags else "numbers"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return tuple(self.x.shape[1:])


@dataclass(frozen=True)
class Request:
    """What a dataset may depend on: the run's seed and number of clients (for generated data), and
    what a trained model has made of a table's columns.
    """

    seed: int
    clients: int
    columns: tuple[Column, ...] = ()
    """How columns become inputs; empty: as the training rows say."""
    tokens: str = ""
    """``Samples.tokens`` of what the model was trained on; "": as the training rows say."""
    sources: tuple[str, ...] = ()
    """``Samples.sources`` of that; empty: as the dataset finds them."""
    trains: bool = True
    """Whether the training rows are trained on, so that the test rows must be others."""


class _Plain(Request):
    """For a dataset that has not said that it depends on the run, and whatever it is made of."""

    def __repr__(self) -> str:
        return (
            f"Request(columns={self.columns}, tokens={self.tokens!r}, sources={self.sources}, "
            f"trains={self.trains})"
        )

    def __getattribute__(self, name: str) -> Any:
        if name in ("seed", "clients"):
            raise UserError(
                f"a dataset that reads request.{name} has other samples in other runs: its class "
                "must say generated = True"
            )
        return super().__getattribute__(name)


class Dataset(Part):
    """A dataset that a config can name."""

    generated: ClassVar[bool] = False
    """Whether the samples depend on the request's seed or number of clients: runs of a sweep do not
    share them then. Who reads either must say it."""

    @property
    def made_by(self) -> str:
        """What makes token ids of texts (``Samples.tokens``); "" where nothing is said of it."""
        return ""

    @property
    def padding(self) -> int | None:
        """The token id that short texts are filled up with; None where nothing is said of it."""
        return None

    def load(self, request: Request) -> Samples:
        """All samples, which are what :class:`Samples` says.

        Raises UserError, naming the places searched if they cannot be had, else what is wrong.
        """
        where = f"dataset {self.name!r}"
        if not self.generated and not isinstance(request, _Plain):
            request = _Plain(**vars(request))
        try:
            samples = checked(self.read(request), where)
        except MemoryError as error:
            raise UserError(f"{where}: there is not enough memory for it") from error
        if samples.x.dtype == np.int32 and not samples.tokens:
            samples = replace(samples, tokens=self.made_by)
        if request.trains and samples.classes < 2 and samples.task != "numbers":
            place = getattr(self, "path", "") or where
            raise UserError(f"{place}: all rows are of one class, and there is nothing to learn")
        return samples

    @abstractmethod
    def read(self, request: Request) -> Samples:
        """Read or generate all samples; what they must be is checked by ``load``."""


def checked(samples: Samples, where: object) -> Samples:
    """The same samples; raises UserError that names ``where`` if they are not what they must be."""
    if wrong := _wrong_types(samples) or _wrong_names(samples):
        raise UserError(f"{where}: {wrong}")
    labels(samples.y, len(samples.x), samples.classes, where)
    if not 0 < samples.train < len(samples.y):
        raise UserError(
            f"{where}: of {len(samples.y)} rows, {samples.train} are for training; there must be "
            "some, and others for the test"
        )
    found = (_wrong_inputs, _wrong_scaling, _wrong_owners, _wrong_targets, _wrong_texts)
    for wrong in (one(samples) for one in found):
        if wrong:
            raise UserError(f"{where}: {wrong}")
    return samples


def is_whole(value: object) -> bool:
    """Whether it is a whole number, of Python's or of NumPy's."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _wrong_types(samples: Samples) -> str | None:
    for name in ("train", "classes", "tags"):
        value = getattr(samples, name)
        if not is_whole(value):
            return f"{name} is {str(value)[:50]!r}, and not a whole number"
    for name in ("x", "y", "owner", "targets"):
        value = getattr(samples, name)
        if isinstance(value, np.ma.MaskedArray):
            return f"{name} is a masked array; give its rows without a mask, those that count"
        given = value is not None or name in ("x", "y")
        if given and not isinstance(value, np.ndarray | Mapped):
            return f"{name} is of type {type(value).__name__}, and not an array of NumPy's"
    for name in ("y", "owner"):
        value = getattr(samples, name)
        if value is not None and value.dtype.kind not in "iu":
            return (
                f"{name} is {value.dtype}, and not whole numbers; what is to be predicted: targets"
            )
    return None


def _wrong_names(samples: Samples) -> str | None:
    if not 0 <= samples.classes <= MOST_CLASSES:
        return f"there are {samples.classes:,} classes; {MOST_CLASSES:,} are the most"
    for called, texts in (("names", samples.names), ("owners", samples.owners)):
        if not isinstance(texts, tuple | list) or not all(isinstance(one, str) for one in texts):
            return f"{called} is to be a tuple of texts"
    wanted = samples.tags or samples.classes
    if samples.names and len(samples.names) != wanted:
        return f"{len(samples.names)} names are not one for each of {wanted} classes"
    known = -1 if samples.owner is None or not samples.owner.size else samples.owner.max()
    if samples.owners and len(samples.owners) <= known:
        return f"{len(samples.owners)} names of owners, whose numbers go to {known}"
    return None


def _wrong_inputs(samples: Samples) -> str | None:
    x = samples.x
    if x.ndim < 2 or 0 in x.shape[1:]:
        return f"inputs of shape {x.shape} are no rows of numbers"
    if x.dtype == np.uint8:
        return None if x.ndim == 4 else f"images of shape {x.shape} are not [n, C, H, W]"
    if x.dtype not in (np.int32, np.float32):
        return f"inputs are {x.dtype}; they must be uint8, int32 or float32"
    # NaN is the least and the largest of whatever it is among
    bounds = np.array([(piece.min(), piece.max()) for piece in pieces(x)])
    if x.dtype == np.int32:
        return None if bounds.min() >= 0 else "there are negative token ids"
    return None if np.isfinite(bounds).all() else "some inputs are NaN or infinite"


def _wrong_scaling(samples: Samples) -> str | None:
    channels = samples.x.shape[1] if samples.x.dtype == np.uint8 else 0
    if not len(samples.mean) == len(samples.std) == channels:
        return (
            f"{len(samples.mean)} means and {len(samples.std)} deviations for {channels} channels"
        )
    good = np.isfinite([*samples.mean, *samples.std]).all() and min(samples.std, default=1) > 0
    return None if good else "means must be finite, and deviations be above 0"


def _wrong_owners(samples: Samples) -> str | None:
    owner = samples.owner
    if owner is None or (owner.shape == samples.y.shape and owner.min() >= 0):
        return None
    return f"owners of shape {owner.shape} are not one number, 0 or more, for each row"


def _wrong_targets(samples: Samples) -> str | None:
    t = samples.targets
    if t is None:
        return None
    if samples.tags:
        return _wrong_tags(samples, t)
    if t.dtype != np.float32 or t.ndim != 2 or len(t) != len(samples.y) or not t.shape[1]:
        return f"targets are {t.dtype} of shape {t.shape}, and not float32 [n, o]"
    return None if np.isfinite([t.min(), t.max()]).all() else "some targets are NaN or infinite"


def _wrong_texts(samples: Samples) -> str | None:
    for text in (*samples.names, *(text for one in samples.columns for text in one["texts"] or ())):
        try:
            text.encode()
        except UnicodeEncodeError:  # names of folders can be such, and texts of arrays
            return f"{text[:100]!r}, a class or a text of a column, is no UTF-8"
    return None


def _wrong_tags(samples: Samples, tags: np.ndarray) -> str | None:
    if tags.dtype != np.int64 or tags.ndim != 2 or len(tags) != len(samples.y):
        return f"classes of tokens are {tags.dtype} of shape {tags.shape}, and not int64 [n, L]"
    wrong = (tags != IGNORED) & ((tags < 0) | (tags >= samples.tags))
    if wrong.any():
        row, place = np.argwhere(wrong)[0]
        return (
            f"token {place} of row {row} has the class {tags[row, place]}, and they are from 0 to "
            f"{samples.tags - 1} ({IGNORED}: none)"
        )
    bare = (tags == IGNORED).all(1)
    return f"no token of row {int(np.argmax(bare))} has a class" if bare.any() else None


def array_of(values: object, called: str) -> np.ndarray:
    """What a user gives, as an array [n, ...]; raises UserError, which names it as ``called``, for
    what is none.
    """
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise UserError(f"{called}: some of it is masked, and so no number; leave those rows out")
    try:
        found = np.asarray(values)
    # ragged lists; tensors of a type that NumPy has not, with a gradient, or on a GPU
    except (TypeError, ValueError, RuntimeError) as error:
        why = " ".join(str(error).split())[:200]
        raise UserError(f"{called}: this is no array: {why}") from error
    if not found.ndim:
        raise UserError(f"{called}: {str(values)[:100]!r} is no array of rows")
    return found


def labels(y: np.ndarray, rows: int, classes: int, where: object) -> np.ndarray:
    """Labels of ``rows`` inputs as int64 [rows]; raises UserError that names ``where`` unless they
    are as many whole numbers in 0..classes-1.
    """
    if y.shape != (rows,):
        raise UserError(f"{where}: labels of shape {y.shape} are not one for each of {rows} inputs")
    wrong = ~_whole(y, classes - 1)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise UserError(
            f"{where}: the label of row {row} is {y[row]}; it must be a whole number from 0 to "
            f"{classes - 1}"
        )
    return y.astype(np.int64)


def counts(n: np.ndarray, total: int, where: object) -> np.ndarray:
    """Rows of each client as int64 [N]; raises UserError that names ``where`` unless they are whole
    numbers, 0 or more, that sum to ``total``.
    """
    # also of no numbers, of which all are whole: dates have no sum
    numbers = n.ndim == 1 and n.dtype.kind in "iuf"
    if not numbers or not _whole(n, total).all() or n.sum() != total:
        raise UserError(f"{where} must be one whole number of rows for each client, {total} in all")
    return n.astype(np.int64)


def row_numbers(rows: np.ndarray, where: object) -> np.ndarray:
    """Row numbers as int64 [n]; raises UserError that names ``where`` for anything else."""
    if rows.ndim != 1 or not _whole(rows, 2**53).all():
        raise UserError(f"{where} must be a list of row numbers, whole and 0 or more")
    return rows.astype(np.int64)


def _whole(numbers: np.ndarray, most: int) -> np.ndarray:
    """Which of them are whole numbers from 0 to ``most``, in whatever type they were stored."""
    if numbers.dtype.kind not in "iuf":
        return np.zeros(numbers.shape, bool)
    if numbers.dtype.kind == "f":
        # in a narrow type ``most`` itself would be infinite, and infinity no more than it
        numbers = numbers.astype(np.float64)
    return (numbers >= 0) & (numbers <= most) & (numbers == np.floor(numbers))


@dataclass(frozen=True)
class Pictures:
    """What the images of a dataset are: ``side`` x ``side`` pixels in 1 or 3 channels, in
    ``classes`` classes.
    """

    side: int
    channels: int
    classes: int

    def split(self, x: np.ndarray, y: np.ndarray, where: object) -> Split:
        """One split: images [n, H, W] or [n, H, W, 3], labels int64 [n].

        Raises UserError that names ``where`` if they are anything else.
        """
        one = (self.side, self.side)
        forms = [(*one, self.channels), *([one] if self.channels == 1 else [])]
        if x.dtype != np.uint8 or x.shape[1:] not in forms or not len(x):
            raise UserError(
                f"{where}: images are {x.dtype} of shape {x.shape}; they must be uint8 of shape "
                f"(n, {', '.join(map(str, forms[-1]))})"
            )
        return x.reshape(-1, *forms[-1]), labels(y, len(x), self.classes, where)


def join(
    train: Split,
    test: Split,
    classes: int,
    mean: tuple[float, ...] = (),
    std: tuple[float, ...] = (),
) -> Samples:
    """Samples from (inputs, labels) of both splits; images [n, H, W(, C)] become [n, C, H, W]."""
    x = np.concatenate([train[0], test[0]])
    if x.dtype == np.uint8:
        # channels first, as torch has them
        x = x[:, None] if x.ndim == 3 else np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    y = np.concatenate([train[1], test[1]]).astype(np.int64)
    return Samples(x, y, len(train[1]), classes, mean, std)
