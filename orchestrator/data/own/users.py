"""What LEAF's JSON files (Caldas et al. 2018) say: rows of users."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from orchestrator.data.room import need
from orchestrator.data.sources import reading
from orchestrator.errors import UserError
from orchestrator.files import said


@dataclass(frozen=True)
class User:
    """What one file says of one user: as many rows of ``x`` as of ``y``."""

    name: str
    file: Path
    x: np.ndarray | list[Any]
    """Rows of numbers [n, p] float32, or whatever else they are."""
    y: list[Any]

    def __str__(self) -> str:
        return f"{self.file}, user {self.name!r}"[:300]


def root_of(path: Path) -> Path:
    """The folder with LEAF's folders train and test: ``path``, or ``path/data``; or UserError."""
    with said(f"cannot read {path}"):
        root = next((p for p in (path, path / "data") if (p / "train").is_dir()), None)
        if root is None:
            raise UserError(f"{path}: there is no folder train in it, or in a folder data in it")
        if not (root / "test").is_dir():
            raise UserError(f"{root}: there is no folder test in it, beside train")
    return root


def users_of(folder: Path) -> list[User]:
    """The users of ``folder/*.json`` that have rows, in the order of their names; or UserError."""
    with said(f"cannot read {folder}"):
        files = sorted(folder.glob("*.json"))
    if not files:
        raise UserError(f"{folder}: there is no file *.json in it")
    found: dict[str, User] = {}
    for user in (user for file in files for user in _read(file)):
        if user.name in found:
            first = found[user.name].file.name
            raise UserError(f"{user} is in {first}, too; is one of both of an earlier sampling?")
        found[user.name] = user
    return [found[name] for name in sorted(found) if found[name].y]


def _read(file: Path) -> list[User]:
    """The users that a file names. LEAF leaves those without rows in ``user_data``."""
    with reading(file):
        # a short number of text becomes a pointer and a float of Python's
        need(7 * file.stat().st_size, file)
        found = json.loads(file.read_bytes(), parse_constant=_refused, object_pairs_hook=_once)
        for key, kind in (("users", list), ("user_data", dict)):
            if not isinstance(found, dict) or not isinstance(found.get(key), kind):
                raise ValueError(f"it is no object with a {kind.__name__} {key!r}, as LEAF's are")
        sizes = found.get("num_samples", [None] * len(found["users"]))
        if not isinstance(sizes, list) or len(sizes) != len(found["users"]):
            raise ValueError("num_samples is not one number for each of users")
        return list(_users(file, found["users"], found["user_data"], sizes))


def _refused(word: str) -> None:
    raise ValueError(f"it holds {word}, which is no number")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in found if keys.count(key) > 1)
        raise ValueError(f"key {twice[:100]!r} is twice in one object")
    return found


def _users(file: Path, names: list[Any], rows: dict[str, Any], sizes: list[Any]) -> Iterator[User]:
    seen: set[str] = set()
    for name, size in zip(names, sizes, strict=True):
        if isinstance(name, str) and name in seen:
            raise ValueError(f"user {name[:100]!r} is twice in users")
        if not isinstance(name, str) or name not in rows:
            raise ValueError(f"user {str(name)[:100]!r} is in users, and not in user_data")
        seen.add(name)
        # popped, so that Python's numbers are not kept beside NumPy's
        yield _user(file, name, rows.pop(name), size)


def _user(file: Path, name: str, rows: Any, size: object) -> User:
    who = f"user {name[:100]!r}"
    x, y = (rows.get(key) if isinstance(rows, dict) else None for key in "xy")
    if not isinstance(x, list) or not isinstance(y, list):
        raise ValueError(f"{who} has no lists x and y")
    if len(x) != len(y):
        raise ValueError(f"{who} has {len(x)} rows of x, and {len(y)} of y")
    if size not in (None, len(y)):
        raise ValueError(f"{who} has {len(y)} rows, and num_samples says {str(size)[:20]}")
    _require_utf8([name, *y], who)
    if x and _are_numbers(x[0]):
        return User(name, file, _numbers(x, who), y)
    _require_utf8(x, who)
    return User(name, file, x, y)


def _require_utf8(rows: list[Any], who: str) -> None:
    """Raise ValueError for half a pair of surrogates, which JSON can hold, and no file of ours."""
    parts = (part for row in rows for part in (row if isinstance(row, list) else [row]))
    try:
        ", ".join(part for part in parts if isinstance(part, str)).encode()
    except UnicodeEncodeError as error:
        around = error.object[max(0, error.start - 20) : error.start + 20]
        raise ValueError(f"{who} has a text that is no UTF-8: {around!r}") from error


def _are_numbers(row: object) -> bool:
    return isinstance(row, list) and bool(row) and type(row[0]) in (int, float)


def _numbers(x: list[Any], who: str) -> np.ndarray:
    """Rows of numbers [n, p] float32; raises ValueError for what is none."""
    for row, one in enumerate(x):
        if not isinstance(one, list) or len(one) != len(x[0]):
            length = f"has {len(one)} numbers" if isinstance(one, list) else "is no list"
            raise ValueError(f"{who}: row {row + 1} of x {length}, and row 1 has {len(x[0])}")
        if not all(type(number) in (int, float) for number in one):
            raise ValueError(f"{who}: row {row + 1} of x holds something that is no number")
    with np.errstate(over="ignore"):
        return np.array(x, np.float64).astype(np.float32)


def owners(train: Sequence[User], test: Sequence[User]) -> np.ndarray:
    """Each row's user [n], of all training rows, then all test rows.

    Users are numbered by the order of their names: those that have training rows, then those that
    are in the test only, so that the first clients are those that can train.
    """
    first = {user.name for user in train}
    names = [*sorted(first), *sorted({user.name for user in test} - first)]
    number = {name: i for i, name in enumerate(names)}
    both = [*train, *test]
    return np.repeat([number[user.name] for user in both], [len(user.y) for user in both])
