"""The sets of tests, and which of a test's parameters ``make test`` leaves to the longer ones."""

from collections.abc import Iterable
from typing import Any

import pytest

SETS = ("test", "long", "slow")
"""``make test``, ``make test-long``, ``make test-slow``."""
COLLECTED = pytest.StashKey[dict[str, str]]()
"""Node id -> set of all tests that pytest found, those among them that it leaves out."""


def set_of(item: pytest.Item) -> str:
    """The set that a test is in; one that is slow is not long."""
    return next((s for s in ("slow", "long") if item.get_closest_marker(s)), "test")


def quick(values: Iterable[Any], *chosen: Any) -> list[Any]:
    """A test's parameters (each a value, or a tuple of several): ``chosen`` as they are, the others
    marked ``long``.
    """
    values = list(values)
    assert all(one in values for one in chosen), f"{chosen} are not all among {values}"
    return [v if v in chosen else _long(*(v if isinstance(v, tuple) else (v,))) for v in values]


def _long(*parameters: Any) -> Any:
    return pytest.param(*parameters, marks=pytest.mark.long)
