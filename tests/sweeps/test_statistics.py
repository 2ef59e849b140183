"""What a cell shows of a run."""

import math

import pandas as pd
import pytest

from orchestrator.errors import UserError
from sweeps.entry import Column
from sweeps.statistics import value

ROUNDS = pd.DataFrame({
    "round": [1, 2, 3, 4, 5],
    "test_accuracy": [0.2, math.nan, 0.8, 0.7, math.nan],
    "loss": [3.0, 2.0, 1.0, 0.5, 0.75],
    "steps_total": [10, 20, 30, 40, 50],
    "seconds": [0.5] * 5,
    "bytes_up": [1e9] * 5,
    "bytes_down": [2e9] * 5,
})  # fmt: skip


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (Column(), 0.7),
        (Column(scale=100), 70.0),
        (Column(statistic="best"), 0.8),
        (Column("loss", statistic="best", better="low"), 0.5),
        (Column(statistic="tail", tail=2), 0.75),
        (Column(statistic="rounds_to", target=0.75), 3),
        (Column(statistic="steps_to", target=0.75), 30),
        (Column(statistic="gigabytes_to", target=0.75), 9.0),
        (
            Column(
                statistic="cost_to", target=0.75, cost=lambda steps, nbytes: steps + nbytes / 1e9
            ),
            39.0,
        ),
        (Column("loss", statistic="sum"), 7.25),
        (Column(statistic="seconds_to", target=0.75, scale=2.0), 3.0),
        (Column("loss", statistic="rounds_to", target=1.0, better="low", falling=True), 3),
    ],
)
def test_statistics(column, expected):
    assert value(ROUNDS, column) == pytest.approx(expected)


def test_a_target_that_was_missed_is_no_number():
    assert math.isnan(value(ROUNDS, Column(statistic="steps_to", target=0.9)))


def test_a_metric_that_is_not_reported():
    with pytest.raises(
        UserError, match="do not report 'test_acuracy'; did you mean 'test_accuracy'"
    ):
        value(ROUNDS, Column("test_acuracy"))
