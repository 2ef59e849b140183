"""Which of a test's parameters ``make test`` does itself, and which it leaves to the longer sets."""

from collections.abc import Iterable
from typing import Any

import pytest


def quick(values: Iterable[Any], *chosen: Any) -> list[Any]:
    """A test's parameters (each a value, or a tuple of several): ``chosen`` as they are, the others
    marked ``long``.
    """
    values = list(values)
    assert all(one in values for one in chosen), f"{chosen} are not all among {values}"
    return [v if v in chosen else _long(*(v if isinstance(v, tuple) else (v,))) for v in values]


def _long(*parameters: Any) -> Any:
    return pytest.param(*parameters, marks=pytest.mark.long)
