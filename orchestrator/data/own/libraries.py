"""Datasets of two libraries, Hugging Face's and torchvision's, by the names they have there."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field, JsonValue

from algorithms.part import nearest, option
from algorithms.parts.losses import IGNORED
from orchestrator.data.own.images import pixels
from orchestrator.data.own.splitting import (
    Part,
    Wanted,
    assembled,
    drawn,
    numbered,
    require_other_rows,
)
from orchestrator.data.samples import Dataset, Request, Samples
from orchestrator.data.sources import folders, located
from orchestrator.data.text_datasets import Tokens
from orchestrator.errors import UserError
from orchestrator.files import cache
from orchestrator.terminal import told

Name = Annotated[str, Field(max_length=200)]


class HuggingFace(Tokens):
    """A dataset of the Hugging Face hub, or one that the library ``datasets`` reads from a folder
    (saved by it, or CSV, Parquet and image files). Its own cache and offline mode hold; no code of
    a dataset is run.

    One column of images, texts (one or two columns), or numbers (any); or one of lists of words,
    whose label then is a list of as many classes.
    """

    name: str = "huggingface"
    path: str = option("", "USER/DATASET on the hub, or a folder (./ is the config's)", file=True)
    subset: Name = option("", "name of a part of the dataset (its configuration)")
    train: Name = option("train", "split that is trained on")
    test: Part | Name = option(
        "test", "split for the test; or a part of each client's rows (without: of each class's)"
    )
    inputs: tuple[Name, ...] = option((), "columns of inputs; unset: all that are nothing else")
    label: Name = option("label", "the column that is to be predicted")
    client: Name = option("", "the column that says whose a row is, for data.partition natural")
    side: int | None = option(
        None,
        "images are resized to this many pixels a side; unset: all have one size",
        ge=1,
        le=4096,
    )
    grey: bool = option(False, "images get one channel in place of red, green and blue")

    def read(self, request: Request) -> Samples:
        where = f"dataset {self.path!r}"
        if request.trains and self.test == self.train:
            raise UserError(
                f"{where}: test: {self.test!r} is the split that is trained on; name another, or a "
                "share of the rows (0.2)"
            )
        splits = self._splits(where)
        for column in (self.label, self.client, *self.inputs):
            for one in splits:
                if column and column not in one.column_names:
                    near = nearest(column, one.column_names)
                    raise UserError(f"{where} has no column {column!r}; {near}"[:500])
        columns = self._columns(splits, request, where)
        tagged = len(columns) == 1 and _is_words(splits[0].features[columns[0]])
        if tagged:
            inputs, wanted = self._tagged(splits, columns[0], where)
        else:
            inputs, wanted = self._inputs(splits, columns, where), self._wanted(splits, where)
        owner = numbered(_column(splits, self.client, where))[0] if self.client else None
        if isinstance(self.test, float):
            test = drawn(wanted.y if owner is None else owner, self.test, not request.trains)
        else:
            test = np.arange(len(wanted.y)) >= len(splits[0])
        found = replace(assembled(inputs, wanted, test, owner, where), sources=tuple(columns))
        return require_other_rows(found, request, where)

    def _columns(self, splits: Sequence[Any], request: Request, where: str) -> Sequence[str]:
        """Names of the columns that are inputs, by which a model knows them, and not by their
        places; raises UserError for the label, and for one that is not there.
        """
        if self.label in self.inputs:
            raise UserError(
                f"{where}: column {self.label!r} is the label, and no input; leave it out of "
                "data.dataset.inputs"
            )
        if len(set(self.inputs)) < len(self.inputs):
            raise UserError(f"{where}: data.dataset.inputs names a column twice")
        first = [c for c in splits[0].column_names if c not in (self.label, self.client)]
        there = {c for c in first if all(c in one.column_names for one in splits)}
        lacks = [c for c in request.sources if c not in there]
        if lacks and not self.inputs:
            raise UserError(
                f"{where} has no column {lacks[0][:200]!r}, which the model was trained on; name "
                "those that are to be its inputs, in their order, in data.dataset.inputs"
            )
        return self.inputs or request.sources or first

    def _tagged(self, splits: Sequence[Any], column: str, where: str) -> tuple[np.ndarray, Wanted]:
        """Words, and a class for each."""
        words = _lists(splits, column, where)
        names, tags = _tags_of(splits, self.label, where)
        for row, (some, theirs) in enumerate(zip(words, tags, strict=True)):
            if len(some) != len(theirs):
                raise UserError(
                    f"{where}: row {row + 1} has {len(some)} words in {column!r}, and "
                    f"{len(theirs)} classes in {self.label!r}"
                )
        ids, targets = self.tagged(words, tags)
        bare = (targets == IGNORED).all(1)
        if bare.any():
            raise UserError(f"{where}, column {column!r}: row {int(np.argmax(bare)) + 1} is empty")
        return ids, Wanted.tokens(targets, names)

    def _wanted(self, splits: Sequence[Any], where: str) -> Wanted:
        """Classes; or numbers, where the label's column is of fractions or of lists."""
        kind = splits[0].features[self.label]
        if hasattr(kind, "feature") or str(getattr(kind, "dtype", "")).startswith("float"):
            return Wanted.numbers(_numbers(splits, self.label, where))
        labels = _column(splits, self.label, where)
        if labels.dtype.kind == "i" and (labels < 0).any():
            row = int(np.argmax(labels < 0))
            raise UserError(
                f"{where}, column {self.label!r}: row {row + 1} is {labels[row]}, which stands for "
                "no label; name a test split that has labels (data.dataset.test)"
            )
        return _classes(splits, self.label, labels, where)

    def _splits(self, where: str) -> list[Any]:
        """The splits that are named, as the library has them."""
        import datasets

        if not self.path:
            raise UserError("data.dataset.path: name a dataset of the hub, or a folder")
        place = located(self.path)
        names = [self.train, *([self.test] if isinstance(self.test, str) else [])]
        try:
            if place is not None and any(place.glob("*dict.json")):
                found = datasets.load_from_disk(str(place))
            else:
                source = str(place.resolve()) if place else self.path
                found = datasets.load_dataset(source, self.subset or None)
        except Exception as error:  # whatever a download, or a file of any format, can raise
            why = " ".join(str(error).split())[:300] or type(error).__name__
            raise UserError(f"{where} cannot be loaded: {why}") from error
        for name in names:
            if name not in found:
                raise UserError(f"{where} has no split {name!r}; {nearest(name, list(found))}")
        return [found[name] for name in names]

    def _inputs(self, splits: Sequence[Any], columns: Sequence[str], where: str) -> np.ndarray:
        first = splits[0]
        kinds = {name: first.features[name] for name in columns}
        if len(columns) == 1 and type(kinds[columns[0]]).__name__ == "Image":
            rows = [
                _Item(f"{where}, image {i} of a split", one, i, columns[0])
                for one in splits
                for i in range(len(one))
            ]
            return pixels(rows, self.side, self.grey)
        if 1 <= len(columns) <= 2 and all(_is_text(kind) for kind in kinds.values()):
            texts = [[str(text) for text in _column(splits, name, where)] for name in columns]
            return self.ids(list(zip(*texts, strict=True)))
        _require_numbers(kinds, where)
        blocks = [_numbers(splits, name, where) for name in columns]
        if len({block.shape[2:] for block in blocks}) > 1:
            raise UserError(
                f"{where}: {', '.join(columns)} are numbers of other shapes than one another, and "
                "no row of inputs; name some of them in data.dataset.inputs"
            )
        return np.concatenate(blocks, axis=1) if len(blocks) > 1 else blocks[0]


@dataclass(frozen=True)
class _Item:
    """An image of a dataset; made when it is asked for."""

    called: str
    rows: Any
    number: int
    column: Any

    def __call__(self) -> Any:
        try:
            image = self.rows[self.number][self.column]
        except Exception as error:  # a damaged file, in whatever library reads it
            why = " ".join(str(error).split())[:200]
            raise UserError(f"{self.called} cannot be read: {why}") from error
        if not hasattr(image, "convert"):
            raise UserError(f"{self.called} is a {type(image).__name__}, and no image")
        return image

    def __str__(self) -> str:
        return self.called


def _require_numbers(kinds: Mapping[str, Any], where: str) -> None:
    wrong = [name for name, kind in kinds.items() if not _is_numeric(kind)]
    if wrong or not kinds:
        said = f"column {wrong[0]!r} is {kinds[wrong[0]]}" if wrong else "there is no column"
        raise UserError(
            f"{where}: {said[:300]}; inputs are one column of images, one or two of texts, or any "
            "of numbers: name them in data.dataset.inputs"
        )


def _is_text(kind: Any) -> bool:
    return getattr(kind, "dtype", "") in ("string", "large_string")


def _is_words(kind: Any) -> bool:
    return hasattr(kind, "feature") and _is_text(kind.feature)


def _lists(splits: Sequence[Any], column: str, where: str) -> list[list[Any]]:
    """A column of lists over all splits; raises UserError for a row that lacks one or a part."""
    rows = [row for one in splits for row in one[column]]
    for i, row in enumerate(rows):
        if row is None or any(item is None for item in row):
            raise UserError(f"{where}, column {column!r}: row {i + 1} is empty, or holds nothing")
    return [list(row) for row in rows]


def _tags_of(
    splits: Sequence[Any], label: str, where: str
) -> tuple[Sequence[str], list[list[int]]]:
    """Names of the classes, and those of each row's words; raises UserError for what is none."""
    inner = [getattr(one.features[label], "feature", None) for one in splits]
    rows = _lists(splits, label, where) if None not in inner else []
    each = [tag for row in rows for tag in row if tag != IGNORED]
    if {type(tag) for tag in each} not in ({int}, {str}):
        raise UserError(
            f"{where}, column {label!r}: the inputs are lists of words, and each needs a list of "
            "as many classes, whole numbers or texts"
        )
    called, places = _numbering(_names_of(inner, where, label), sorted(set(each)))
    # each split's, or the one of all
    theirs = [places[s % len(places)] for s, one in enumerate(splits) for _ in range(len(one))]
    return called, [[place[tag] for tag in row] for place, row in zip(theirs, rows, strict=True)]


def _numbering(
    names: Sequence[Sequence[str]], tags: Sequence[Any]
) -> tuple[list[str], list[dict[Any, int]]]:
    """What the classes are called, and for each split tag -> class: by its ``names``, or where they
    do not name the ``tags`` that there are, one for all splits by these.
    """
    if names and 0 <= tags[0] <= tags[-1] < min(map(len, names)):
        order = _order(names)
        places = [{i: order[name] for i, name in enumerate(some)} for some in names]
        return list(order), [place | {IGNORED: IGNORED} for place in places]
    return [str(tag) for tag in tags], [{tag: i for i, tag in enumerate(tags)} | {IGNORED: IGNORED}]


def _names_of(kinds: Sequence[Any], where: str, label: str) -> list[list[str]]:
    """The names that each split, by the ``kinds`` of its labels, has for its numbers; none where
    none has any. Raises UserError where only some have.
    """
    known = [list(getattr(kind, "names", None) or ()) for kind in kinds]
    if any(known) and not all(known):
        raise UserError(
            f"{where}, column {label!r}: one split has names for its classes and another has "
            "none, so nobody knows whether their numbers mean the same; give both the same type"
        )
    return known if all(known) else []


def _order(names: Sequence[Sequence[str]]) -> dict[str, int]:
    """Name -> its number among those of all splits."""
    return {name: i for i, name in enumerate(dict.fromkeys(n for some in names for n in some))}


def _classes(splits: Sequence[Any], label: str, labels: np.ndarray, where: str) -> Wanted:
    """Classes from ``labels`` [n] of all splits: by the names that the dataset has for its numbers,
    in its order, where it has such.
    """
    known = _names_of([one.features[label] for one in splits], where, label)
    if not known:
        return Wanted.named(labels)
    order = _order(known)
    ends = np.cumsum([len(one) for one in splits])[:-1]
    places = [
        np.array([order[name] for name in names])[theirs]
        for names, theirs in zip(known, np.split(labels, ends), strict=True)
    ]
    found, y = np.unique(np.concatenate(places), return_inverse=True)
    called = list(order)
    return Wanted(y, len(found), names=tuple(called[place] for place in found))


def _is_numeric(kind: Any) -> bool:
    inner = getattr(kind, "feature", kind)
    while hasattr(inner, "feature"):
        inner = inner.feature
    dtype = str(getattr(inner, "dtype", ""))
    return dtype.startswith(("int", "uint", "float", "bool"))


def _column(splits: Sequence[Any], name: str, where: str) -> np.ndarray:
    """A column of names (whole numbers or texts) over all splits; raises UserError for others."""
    values = [value for one in splits for value in one[name]]
    for row, value in enumerate(values):
        if not isinstance(value, int | str):
            raise UserError(
                f"{where}, column {name!r}: row {row + 1} is {str(value)[:50]!r}; it must be a "
                "whole number or a text"
            )
    if len({type(value) for value in values}) > 1:
        raise UserError(f"{where}, column {name!r} holds both numbers and texts")
    return np.array(values)


def _numbers(splits: Sequence[Any], name: str, where: str) -> np.ndarray:
    """A column of numbers, or of lists of so many numbers each, as [n, ...] float32."""
    try:
        found = np.concatenate([np.asarray(one[name], np.float64) for one in splits])
    except (ValueError, TypeError) as error:
        raise UserError(
            f"{where}, column {name!r}: its rows are not as many numbers each, or some are missing"
        ) from error
    return (found[:, None] if found.ndim == 1 else found).astype(np.float32)


SPLITS = (("train", "trainval", "train-standard"), ("test", "val"))
"""What torchvision's classes call what they are trained on, and tested on."""


class TorchVision(Dataset):
    """Any dataset of images and labels of ``torchvision.datasets`` by the name of its class: from a
    data folder in which torchvision finds it, else by its own download to the cache.
    """

    name: str = "torchvision"
    dataset: Name = option("SVHN", "the class in torchvision.datasets")
    options: dict[str, JsonValue] = option(
        {}, "keyword arguments of the class beside root, train, split and download"
    )
    side: int | None = option(
        None,
        "images are resized to this many pixels a side; unset: all have one size",
        ge=1,
        le=4096,
    )
    grey: bool = option(False, "one channel of brightness in place of red, green and blue")
    test: Part = option(0.2, "where the class has no test split: part of each class for the test")

    def read(self, request: Request) -> Samples:
        where = f"dataset torchvision.datasets.{self.dataset}"
        halves = list(self._halves(where))
        items = [(half, i) for half in halves for i in range(len(half))]
        wanted = Wanted.named(_labels(halves, where))
        test = (
            np.arange(len(wanted.y)) >= len(halves[0])
            if len(halves) > 1
            else drawn(wanted.y, self.test)
        )
        images = [_Item(f"{where}, image {i}", half, i, 0) for half, i in items]
        return assembled(pixels(images, self.side, self.grey), wanted, test, where=where)

    def _halves(self, where: str) -> Iterator[Any]:
        """The dataset's training and test splits, or all of it."""
        cls = self._class(where)
        takes = _taken(cls)
        unknown = [name for name in self.options if name not in takes]
        if unknown:
            near = nearest(unknown[0], list(takes))
            raise UserError(f"{where} takes no {unknown[0]!r}; {near}"[:500])
        if "train" in takes:
            for train in (True, False):
                yield self._made(cls, takes, {"train": train}, where)
        elif "split" in takes and "split" not in self.options:
            for names in SPLITS:
                yield self._split(cls, takes, names, where)
        else:
            if split := self.options.get("split"):
                told("note", f"{where}: only its split {split!r} is read, and part of it the test")
            yield self._made(cls, takes, {}, where)

    def _split(self, cls: type, takes: Collection[str], names: Sequence[str], where: str) -> Any:
        """A split, by the first of its ``names`` that the class knows."""
        for name in names[:-1]:
            try:
                return self._made(cls, takes, {"split": name}, where)
            except UserError as error:
                if "Unknown value" not in str(error):
                    raise
        return self._made(cls, takes, {"split": names[-1]}, where)

    def _class(self, where: str) -> type:
        import torchvision

        known = {
            name: cls
            for name, cls in vars(torchvision.datasets).items()
            if isinstance(cls, type)
            and issubclass(cls, torchvision.datasets.VisionDataset)
            and cls is not torchvision.datasets.VisionDataset
        }
        if self.dataset not in known:
            raise UserError(f"{where}: there is none; {nearest(self.dataset, list(known))}"[:500])
        return known[self.dataset]

    def _made(self, cls: type, takes: Collection[str], split: dict[str, Any], where: str) -> Any:
        """One split, from the first folder in which it is, or downloaded."""
        given: dict[str, Any] = {**self.options, **split}
        tries: list[tuple[Path, dict[str, Any]]] = [(folder, {}) for folder in folders()]
        if "download" in takes:
            tries.append((cache(), {"download": True}))
        why = ""
        for root, how in tries if "root" in takes else tries[:1]:
            place = {"root": str(root)} if "root" in takes else {}
            try:
                return cls(**place, **given, **how)
            except Exception as error:  # not there, damaged, or a download that fails
                why = " ".join(str(error).split())[:300] or type(error).__name__
        raise UserError(f"{where} cannot be had: {why}")


def _taken(cls: type) -> list[str]:
    """What a class takes by name, be it handed on to those that it is derived from."""
    found: dict[str, None] = {}
    for base in cls.__mro__:
        if "__init__" not in vars(base):
            continue
        given = inspect.signature(vars(base)["__init__"]).parameters.values()
        found |= {
            one.name: None for one in given if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
        }
        if not any(one.kind == one.VAR_KEYWORD for one in given):
            break
    return [name for name in found if name != "self"]


def _labels(halves: Sequence[Any], where: str) -> np.ndarray:
    """Labels of all rows of torchvision's datasets."""
    labels = []
    for half in halves:
        known = getattr(half, "targets", getattr(half, "labels", None))
        each = known if known is not None else (half[i][1] for i in range(len(half)))
        for row, label in enumerate(each):
            if not isinstance(label, int | np.integer) and getattr(label, "ndim", 1) != 0:
                raise UserError(
                    f"{where}: what is to be predicted of row {row} is a {type(label).__name__}, "
                    "and no class"
                )
            labels.append(int(label))
    return np.array(labels)
