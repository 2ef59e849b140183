"""A folder of image files, and images of any library as one array."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from algorithms.part import option
from orchestrator.data.computed import computed_once
from orchestrator.data.own.splitting import Part, Wanted, assembled, drawn, numbered, place_of
from orchestrator.data.room import need
from orchestrator.data.samples import Dataset, Request, Samples
from orchestrator.data.sources import reading
from orchestrator.errors import UserError
from orchestrator.files import said
from orchestrator.terminal import told

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".pgm", ".ppm", ".tif", ".tiff")
SOME = 3
"""Files that a note names."""
Side = int | tuple[int, int] | None
"""Pixels a side; or width and height; or as many as the images have."""


class ImageFolder(Dataset):
    """Image files in a folder for each class: ``PATH/CLASS/*.png``, or ``PATH/train/CLASS/*`` and
    ``PATH/test/CLASS/*``; with ``clients``, each of these folders has one for each client first
    (``PATH/CLIENT/CLASS/*``).
    """

    name: str = "folder"
    path: str = option(
        "",
        "the folder: its path (./ is the config's folder), or its name in a data folder",
        file=True,
    )
    side: int | None = option(
        None,
        "images are resized to this many pixels a side; unset: all have one size",
        ge=1,
        le=4096,
    )
    grey: bool = option(False, "one channel of brightness in place of red, green and blue")
    clients: bool = option(False, "folders of clients hold the folders of classes")
    test: Part = option(
        0.2,
        "without PATH/test: part of each client's images (without clients: of each class's) for "
        "the test",
    )

    def read(self, request: Request) -> Samples:
        root = place_of(self.path, f"dataset {self.name!r}: path")
        with said(f"cannot read {root}"):
            split = (root / "train").is_dir() and (root / "test").is_dir()
            halves = [self._listed(root / half) for half in ("train", "test")] if split else []
            files = [file for half in halves or [self._listed(root)] for file in half]
        if not files:
            raise UserError(f"{root}: there are no images in folders of classes in it")
        _tell_of_others(root, files)
        levels = [file.relative_to(root).parts[int(split) :] for file in files]
        wanted = Wanted.named([parts[-2] for parts in levels])
        owner = numbered([parts[0] for parts in levels])[0] if self.clients else None
        test = np.arange(len(files)) >= len(halves[0]) if split else None
        if test is None:
            test = drawn(wanted.y if owner is None else owner, self.test, not request.trains)
        return assembled(decoded(files, self.side, self.grey), wanted, test, owner, root)

    def _listed(self, folder: Path) -> list[Path]:
        """The image files below the folders of classes, in the order of their names."""
        found = sorted(folder.glob("*/*/*" if self.clients else "*/*"))
        return shown(found, folder)


def _tell_of_others(root: Path, files: Sequence[Path]) -> None:
    """Note which files below folders of ``root`` are none of its images, if there are any."""
    with said(f"cannot read {root}"):
        below = sorted(file for file in root.glob("*/**/*") if file.is_file())
    counted = {*files}
    others = [file for file in seen(below, root) if file not in counted]
    if others:
        some = ", ".join(str(file.relative_to(root)) for file in others[:SOME])
        told(
            "note",
            f"{root}: {len(others):,} files are no images in folders of classes, and do not count "
            f"({some}{', …' if others[SOME:] else ''})",
        )


def seen(files: Iterable[Path], folder: Path) -> list[Path]:
    """Those of the ``files`` that are not hidden, nor in hidden folders, below ``folder``."""
    return [
        file
        for file in files
        if not any(part.startswith(".") for part in file.relative_to(folder).parts)
    ]


def shown(files: Iterable[Path], folder: Path) -> list[Path]:
    """The image files among ``files``, but for hidden ones, or in hidden folders, below
    ``folder``.
    """
    return [file for file in seen(files, folder) if file.suffix.lower() in ENDINGS]


def decoded(files: Sequence[Path], side: int | None, grey: bool) -> np.ndarray:
    """Pixels [n, C, H, W] of image files as :func:`pixels`, decoded once for all runs."""
    sha = hashlib.sha256(f"{side} {grey}".encode())
    for file in files:
        with reading(file):
            sha.update(hashlib.sha256(file.read_bytes()).digest())
    shape = (len(files), 1 if grey else 3, side, side)
    return computed_once(
        "images", sha.hexdigest()[:32], shape, np.uint8,
        lambda: pixels_of_files(files, side, grey),
    )  # fmt: skip


def pixels_of_files(files: Sequence[Path], side: Side, grey: bool) -> np.ndarray:
    """Pixels [n, C, H, W] of image files as :func:`pixels`."""
    return pixels([_Opener(file) for file in files], side, grey)


class _Opener:
    """An image file, which whatever goes wrong with is said of."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self) -> Any:
        from PIL import Image

        with reading(self.path), Image.open(self.path) as image:
            image.load()
            return image

    def __str__(self) -> str:
        return str(self.path)


def pixels(images: Sequence[Callable[[], Any]], side: Side, grey: bool) -> np.ndarray:
    """Images of Pillow as uint8 [n, C, H, W]: grey or in colour, resized to ``side`` pixels (None:
    all must have one size).

    ``images`` are called for one image each, and named by ``str`` where one is wrong: UserError.
    """
    from PIL import Image

    size = (side, side) if isinstance(side, int) else side
    rows: np.ndarray | None = None
    for i, opened in enumerate(images):
        image = opened()
        if image.mode.startswith(("I", "F")):
            raise UserError(f"{opened}: its pixels are of mode {image.mode}; only 8 bits are read")
        image = image.convert("L" if grey else "RGB")
        if size is not None and image.size != size:
            image = image.resize(size, Image.Resampling.BILINEAR)
        one = np.asarray(image)
        if rows is None:
            need(len(images) * one.size, opened)
            rows = np.empty((len(images), *one.shape), np.uint8)
        if one.shape != rows.shape[1:]:
            raise UserError(
                f"{opened} has {image.size[0]} x {image.size[1]} pixels, and {images[0]} has "
                f"{rows.shape[2]} x {rows.shape[1]}; set data.dataset.side to have them resized"
            )
        rows[i] = one
    assert rows is not None
    return rows[:, None] if grey else np.ascontiguousarray(rows.transpose(0, 3, 1, 2))
