"""LEAF's datasets (Caldas et al. 2018), from the folders that its scripts write."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from algorithms.part import option
from orchestrator.data.own.characters import Alphabet, of_texts
from orchestrator.data.own.images import ENDINGS, decoded
from orchestrator.data.own.splitting import Wanted, assembled, place_of, require_other_rows
from orchestrator.data.own.users import User, owners, root_of, users_of
from orchestrator.data.room import need
from orchestrator.data.samples import Request, Samples
from orchestrator.data.text_datasets import Tokens
from orchestrator.errors import UserError

TWEET = 4
"""Which of a tweet's fields is its text: LEAF keeps id, date, query, user and text."""


class Leaf(Tokens):
    """LEAF's folders ``train/*.json`` and ``test/*.json``, whose users are natural clients. Inputs
    are what x holds: lists of numbers (FEMNIST, SYNTHETIC), texts whose y is the next character
    (Shakespeare), other texts or tweets' fields (Sent140), or names of images (CelebA).
    """

    name: str = "leaf"
    path: str = option(
        "",
        "the folder that holds train and test (or data, which holds them): its path (./ is the "
        "config's folder), or its name in a data folder",
        file=True,
    )
    shape: tuple[Annotated[int, Field(ge=1, le=100_000)], ...] = option(
        (), "numbers: the shape of an input, such as [1, 28, 28]; unset: as they are", max_length=4
    )
    alphabet: Literal["leaf", "train"] = option(
        "leaf",
        "characters: LEAF's 80 for Shakespeare, by its numbers; or those of the training rows, in "
        "their order, and a class for unknown ones",
    )
    images: str = option(
        "", "the folder of images; unset: raw/img_align_celeba beside train", file=True
    )
    side: int | None = option(
        None,
        "images are resized to this many pixels a side (LEAF: 84); unset: all have one size",
        ge=1,
        le=4096,
    )
    grey: bool = option(False, "one channel of brightness in place of red, green and blue")

    def read(self, request: Request) -> Samples:
        root = root_of(place_of(self.path, f"dataset {self.name!r}: path"))
        train, test = users_of(root / "train"), users_of(root / "test")
        users = [*train, *test]
        if not users:
            raise UserError(f"{root}: no user has any rows")
        owner = owners(train, test)
        tested = np.arange(len(owner)) >= sum(len(user.y) for user in train)
        if _reads_characters(users[0]):
            alphabet = Alphabet.told(request.tokens) or self._alphabet(train)
            made, tokens = _characters(users, alphabet, root), str(alphabet)
        else:
            made, tokens = self._kind(users[0])(users, root), ""
        samples = require_other_rows(assembled(*made, tested, owner, root), request, root)
        return replace(samples, tokens=tokens)

    def _alphabet(self, train: Sequence[User]) -> Alphabet:
        return Alphabet() if self.alphabet == "leaf" else of_texts(train)

    def _kind(self, user: User) -> Callable[[Sequence[User], Path], tuple[np.ndarray, Wanted]]:
        """What makes inputs and classes of all users' rows, by the first one's."""
        x = user.x[0]
        if isinstance(x, np.ndarray):
            return self._numbers
        if isinstance(x, str) and x.lower().endswith(ENDINGS):
            return self._images
        if isinstance(x, str) or (isinstance(x, list) and x and isinstance(x[0], str)):
            return self._texts
        raise UserError(
            f"{user}: row 1 of x is {str(x)[:50]!r}, and neither numbers, a text, the fields of a "
            "tweet nor the name of an image"
        )

    def _numbers(self, users: Sequence[User], root: Path) -> tuple[np.ndarray, Wanted]:
        width = users[0].x[0].size
        for user in users:
            if not isinstance(user.x, np.ndarray) or user.x.shape[1] != width:
                raise UserError(f"{user}: row 1 of x is not {width} numbers, as of other users")
        if self.shape and math.prod(self.shape) != width:
            raise UserError(
                f"data.dataset.shape: {[*self.shape]} are not the {width} numbers of a row in "
                f"{users[0].file}"
            )
        need(8 * sum(len(user.y) for user in users) * width, root)
        x = np.concatenate([user.x for user in users])
        return x.reshape(-1, *(self.shape or (width,))), _labels(users)

    def _texts(self, users: Sequence[User], root: Path) -> tuple[np.ndarray, Wanted]:
        texts = [(_text(user, row),) for user in users for row in range(len(user.y))]
        return self.ids(texts), _labels(users)

    def _images(self, users: Sequence[User], root: Path) -> tuple[np.ndarray, Wanted]:
        folder = root / "raw" / "img_align_celeba"
        if self.images:
            folder = place_of(self.images, f"dataset {self.name!r}: images")
        if not folder.is_dir():
            raise UserError(f"{folder}: there is no such folder of images; name it (images)")
        files = [folder / _image(user, row) for user in users for row in range(len(user.y))]
        return decoded(files, self.side, self.grey), _labels(users)


def _reads_characters(user: User) -> bool:
    """Whether rows are texts, whose labels are the characters that follow them."""
    x, y = user.x[0], user.y[0]
    texts = isinstance(x, str) and not x.lower().endswith(ENDINGS)
    return texts and isinstance(y, str) and len(y) == 1


def _characters(users: Sequence[User], alphabet: Alphabet, root: Path) -> tuple[np.ndarray, Wanted]:
    length = len(users[0].x[0])
    rows = sum(len(user.y) for user in users)
    need(12 * rows * length, root)
    for user in users:
        _require_texts(user, length)
    x = np.concatenate([alphabet.ids(user.x, length) for user in users])
    y = np.concatenate([alphabet.labels(user) for user in users])
    return x, Wanted(y, len(alphabet.classes), names=alphabet.classes)


def _require_texts(user: User, length: int) -> None:
    """Raise UserError for a row that is not ``length`` characters, and another as its label."""
    for row, (x, y) in enumerate(zip(user.x, user.y, strict=True)):
        if not isinstance(x, str) or len(x) != length or not length:
            found = f"has {len(x)} characters" if isinstance(x, str) else "is no text"
            raise UserError(f"{user}: row {row + 1} of x {found}, and other rows have {length}")
        if not isinstance(y, str) or len(y) != 1:
            raise UserError(f"{user}: row {row + 1} of y is {str(y)[:50]!r}, and no character")


def _text(user: User, row: int) -> str:
    found: Any = user.x[row]
    if isinstance(found, list):
        found = found[TWEET] if len(found) > TWEET else None
    if not isinstance(found, str):
        raise UserError(
            f"{user}: row {row + 1} of x is no text, and no list whose {TWEET + 1}th field is one"
        )
    return found


def _image(user: User, row: int) -> str:
    name: Any = user.x[row]
    if not isinstance(name, str) or Path(name).name != name:
        raise UserError(f"{user}: row {row + 1} of x is {str(name)[:100]!r}, and no image's name")
    return name


def _labels(users: Sequence[User]) -> Wanted:
    """Classes by whole numbers (which may be written as 1.0), or by texts."""
    values: list[int | str] = []
    for user in users:
        for row, y in enumerate(user.y):
            whole = type(y) is int or (type(y) is float and y.is_integer())
            if not (whole and abs(y) < 2**53) and not isinstance(y, str):
                raise UserError(
                    f"{user}: row {row + 1} of y is {str(y)[:50]!r}; a label is a whole number or "
                    "a text"
                )
            values.append(y if isinstance(y, str) else int(y))
            if type(values[-1]) is not type(values[0]):
                raise UserError(f"{user}: row {row + 1} of y is a text among numbers, or the other")
    return Wanted.named(np.array(values))
