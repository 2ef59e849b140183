"""Characters by numbers, as networks that read them one by one take them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from orchestrator.data.own.users import User
from orchestrator.errors import UserError

LEAF = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""The 80 characters of LEAF's Shakespeare (its ``ALL_LETTERS``) in the order of their numbers."""
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Alphabet:
    """Characters, each of which has its place among them as its id; all others have one id more."""

    characters: str = LEAF
    closed: bool = True
    """Whether labels must be among them; if not, others are a class more."""

    @property
    def classes(self) -> tuple[str, ...]:
        """What labels can be."""
        return (*self.characters, *(() if self.closed else (UNKNOWN,)))

    def __str__(self) -> str:
        return f"characters{'' if self.closed else ' and others'}: {self.characters}"

    @classmethod
    def told(cls, text: str) -> Alphabet | None:
        """Of the ``text`` that it is told by; None for one that is no alphabet's."""
        kinds = {str(cls("", closed)): closed for closed in (True, False)}
        begins = next((kind for kind in kinds if text.startswith(kind)), None)
        return None if begins is None else cls(text.removeprefix(begins), kinds[begins])

    @cached_property
    def _sorted(self) -> tuple[np.ndarray, np.ndarray]:
        """Code points of the characters in order, and the id of each."""
        codes = _codes([self.characters], len(self.characters))[0]
        order = np.argsort(codes)
        return codes[order], order

    def ids(self, texts: Sequence[str] | np.ndarray, length: int) -> np.ndarray:
        """Ids [n, length] int32 of texts that have this ``length``."""
        known, order = self._sorted
        codes = _codes(texts, length)
        places = np.minimum(np.searchsorted(known, codes), len(known) - 1)
        ids = np.where(known[places] == codes, order[places], len(known))
        return ids.astype(np.int32)

    def labels(self, user: User) -> np.ndarray:
        """Classes [n] int64 of a user's rows; raises UserError for a character that is none."""
        found = self.ids(user.y, 1)[:, 0].astype(np.int64)
        if self.closed and (found >= len(self.characters)).any():
            row = int(np.argmax(found))
            raise UserError(
                f"{user}: row {row + 1} of y is {user.y[row]!r}, which is none of LEAF's "
                f"{len(LEAF)} characters; set data.dataset.alphabet to train"
            )
        return found


def of_texts(users: Sequence[User]) -> Alphabet:
    """The characters of all rows and labels of ``users``, in the order of their code points."""
    found = {c for user in users for text in (*user.x, *user.y) for c in text}
    return Alphabet("".join(sorted(found)), closed=False)


def _codes(texts: Sequence[str] | np.ndarray, length: int) -> np.ndarray:
    """Code points [n, length] uint32."""
    return np.array(texts, f"U{length}").view(np.uint32).reshape(-1, length)
