"""Rows of a user's own data become training rows and test rows, classes and clients numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from algorithms.draws import generator
from orchestrator.data.columns import Column
from orchestrator.data.mapped import Inputs, pieces, reordered
from orchestrator.data.samples import Request, Samples
from orchestrator.data.sources import folders, located
from orchestrator.errors import UserError
from orchestrator.files import digest, said

Part = Annotated[float, Field(gt=0, lt=1)]
"""Of the rows, for the test."""


def place_of(path: str, key: str) -> Path:
    """The file or folder that an option names: as it is, or in a data folder; or UserError."""
    found = located(path) if path else None
    if found is None:
        places = ", ".join(map(str, folders()))
        if not path:
            raise UserError(f"{key}: name it")
        raise UserError(f"{key}: there is no {path!r} here or under {places}")
    return found


def require_another(test: Path, train: Path, key: str) -> None:
    """Raises UserError if a file of test rows is that of the training rows, or a copy of it."""
    with said(f"cannot read {test}"):
        same = test.samefile(train) or (
            test.stat().st_size == train.stat().st_size and digest(test) == digest(train)
        )
    if same:
        raise UserError(
            f"{key}: {test} holds the very rows that are trained on; name another file, or a share "
            "of the rows (0.2)"
        )


def drawn(groups: np.ndarray, part: float, some: bool = False) -> np.ndarray:
    """Mask [n] of the ``part`` of the rows of each group (ids [n]) that is for the test: never all,
    and one where there are two. It is the same for every seed of a run: the data are one dataset.
    With ``some`` one of several rows is for the test, even if no group has two.
    """
    order = generator(0, "test rows of own data").permutation(len(groups))
    grouped = order[np.argsort(groups[order], kind="stable")]
    _, sizes = np.unique(groups, return_counts=True)
    chosen = np.zeros(len(groups), bool)
    for rows in np.split(grouped, np.cumsum(sizes)[:-1]):
        chosen[rows[: min(len(rows) - 1, max(1, round(part * len(rows))))]] = True
    if some and len(groups) > 1 and not chosen.any():
        chosen[order[0]] = True
    return chosen


def numbered(values: Sequence[Any] | np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Each value's place [n] among the distinct ones in their order, and these, as text."""
    names, places = np.unique(np.asarray(values), return_inverse=True)
    return places.astype(np.int64), [str(name) for name in names]


@dataclass(frozen=True)
class Wanted:
    """What is to be predicted of n rows."""

    y: np.ndarray
    """Classes [n]; of numbers, the groups by which rows are dealt out."""
    classes: int
    targets: np.ndarray | None = None
    """Numbers [n, o] float32; None of classes."""
    names: tuple[str, ...] = ()
    """Of the classes."""
    tags: int = 0
    """Number of classes of tokens, of which ``targets`` [n, L] int64 then are."""

    @classmethod
    def numbers(cls, targets: np.ndarray) -> Wanted:
        """Of numbers [n, o]. Groups are tenths of the rows by the first number; where all are 0 or
        1, they are by the first that is 1.
        """
        targets = targets.astype(np.float32)
        if np.isin(targets, (0, 1)).all():
            first = np.where(targets.any(1), targets.argmax(1), targets.shape[1])
            group = numbered(first)[0]
        else:
            ranks = np.argsort(np.argsort(targets[:, 0], kind="stable"), kind="stable")
            group = ranks * min(10, len(ranks)) // max(1, len(ranks))
        return cls(group, int(group.max(initial=0)) + 1, targets)

    @classmethod
    def tokens(cls, tags: np.ndarray, names: Sequence[str]) -> Wanted:
        """Of a class for each token [n, L] int64 (``IGNORED``: none), with these ``names``. Rows go
        by their commonest class beside the one that is commonest of all, if they have any.
        """
        if not names:
            return cls(np.zeros(len(tags), np.int64), 0, tags)
        counts = np.stack([(tags == tag).sum(1) for tag in range(len(names))], 1)
        usual = int(counts.sum(0).argmax())
        others = np.delete(counts, usual, axis=1)
        chosen = np.delete(np.arange(len(names)), usual)[others.argmax(1)] if len(names) > 1 else 0
        groups = np.where(others.any(1), chosen, usual)
        return cls(groups, len(names), tags, tuple(names), len(names))

    @classmethod
    def named(cls, values: Sequence[Any] | np.ndarray) -> Wanted:
        """Of a class for each row, in the order of the classes' names."""
        y, names = numbered(values)
        return cls(y, len(names), names=tuple(names))


def require_other_rows(samples: Samples, request: Request, where: object) -> Samples:
    """The same samples; raises UserError if one is to train and the rows of the test, the last
    ones, are those that are trained on.
    """
    x, train = samples.x, samples.train
    y = samples.y if samples.targets is None else samples.targets
    if not request.trains or len(y) != 2 * train or not isinstance(x, np.ndarray):
        return samples
    if np.array_equal(x[:train], x[train:]) and np.array_equal(y[:train], y[train:]):
        raise UserError(
            f"{where}: the rows of the test are the very rows that are trained on, in their order; "
            "give it others"
        )
    return samples


def assembled(
    x: Inputs,
    wanted: Wanted,
    test: np.ndarray,
    owner: np.ndarray | None = None,
    where: object = "",
    columns: Sequence[Column] = (),
) -> Samples:
    """Samples from rows in any order: inputs [n, ...] (images [n, C, H, W] uint8), what is to be
    predicted, which are for the ``test`` (mask [n]), whose they are (ids [n]), and of a table which
    ``columns`` made the inputs.

    Images are scaled by mean and deviation of the training rows' pixels. Raises UserError if there
    are no rows for one of both.
    """
    y, targets = wanted.y, wanted.targets
    if test.all() or not test.any():
        raise UserError(f"{where}: no rows are for {'training' if test.all() else 'the test'}")
    train = int((~test).sum())
    if test[:train].any():
        order = np.concatenate([np.flatnonzero(~test), np.flatnonzero(test)])
        x, y = reordered(x, order), y[order]
        owner = None if owner is None else owner[order]
        targets = None if targets is None else targets[order]
    mean, std = moments(x, train) if x.dtype == np.uint8 else ((), ())
    return Samples(
        x, y.astype(np.int64), train, wanted.classes, mean, std, owner, targets, tuple(columns),
        wanted.names, wanted.tags,
    )  # fmt: skip


def moments(images: Inputs, rows: int | None = None) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel's pixels in [0, 1], of the first ``rows`` (None:
    all) images [n, C, H, W] uint8; a deviation of 0 (all pixels the same) counts as 1.
    """
    # histograms are exact, and need no copy of all images as numbers
    histograms = np.zeros((images.shape[1], 256))
    for image in (image for piece in pieces(images, rows) for image in piece):
        for counts, channel in zip(histograms, image, strict=True):
            counts += np.bincount(channel.ravel(), minlength=256)
    means, stds, level = [], [], np.arange(256) / 255
    for counts in histograms:
        mean = float(counts @ level / counts.sum())
        std = float(np.sqrt(counts @ (level - mean) ** 2 / counts.sum()))
        means.append(mean)
        stds.append(std or 1.0)
    return tuple(means), tuple(stds)
