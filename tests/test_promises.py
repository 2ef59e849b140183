"""The table of docs/testing.md: each test that it names is there, and in the set where it stands."""

import re
from pathlib import Path

import pytest

from tests.sets import COLLECTED, SETS

TABLE = (Path(__file__).parents[1] / "docs" / "testing.md").read_text()
ROWS = [line for line in TABLE.splitlines() if "::test_" in line]


def cells(row):
    """(set, node id) of each test that a row of the table names."""
    _, *columns = row.split("|")[1:-1]
    for where, column in zip(SETS, columns, strict=True):
        for name in re.findall(r"`([^`]+)`", column):
            yield where, f"tests/{name}"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip())
def test_the_tests_that_hold_a_promise_are_in_their_sets(row, request):
    """One with parameters stands for those of them that are in the set."""
    collected = request.config.stash[COLLECTED]
    named = list(cells(row))
    assert named
    if not {name.partition("::")[0] for _, name in named} <= {
        i.partition("::")[0] for i in collected
    }:
        pytest.skip("only a part of the tests was collected")
    for where, name in named:
        found = {s for i, s in collected.items() if i == name or i.startswith(f"{name}[")}
        assert where in found, f"{name} is in {sorted(found) or 'no file'}, not in {where}"


def test_what_only_make_test_slow_shows():
    """Only what cuts networks, or loses whole clusters, has nothing quicker to show it."""
    assert sum(all(where == "slow" for where, _ in cells(row)) for row in ROWS) == 4
