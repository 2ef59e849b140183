"""What a cell shows of a run."""

import math
from types import SimpleNamespace

import pandas as pd
import pytest

from orchestrator.errors import UserError
from sweeps.entry import Column
from sweeps.plan import Sweep
from sweeps.results import table_of
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


@pytest.mark.parametrize(
    ("metric", "column", "expected"),
    [
        ([3.0, 2.0, 1.0, 0.5, math.nan], Column("x"), math.nan),
        ([3.0, 2.0, 1.0, 0.5, math.nan], Column("x", statistic="tail", tail=2), math.nan),
        ([3.0, 2.0, 1.0, 0.5, math.nan], Column("x", statistic="best", better="low"), 0.5),
        # reported by rounds that are evaluated only: the first, third and fourth
        ([3.0, math.nan, 1.0, math.nan, math.nan], Column("x"), math.nan),
        ([3.0, math.nan, 1.0, 0.5, math.nan], Column("x", statistic="tail", tail=3), 1.5),
        # not reported at first (an agent that has not begun to learn)
        ([math.nan, math.nan, math.nan, 1.0, 2.0], Column("x", statistic="tail", tail=4), 1.5),
        ([math.nan] * 5, Column("x"), math.nan),
    ],
)
def test_a_run_that_ended_as_nan_has_no_last_number(metric, column, expected):
    """Nor that of the round before; rounds that were not evaluated are no such end."""
    assert value(ROUNDS.assign(x=metric), column) == pytest.approx(expected, nan_ok=True)


def test_a_target_that_was_missed_is_no_number():
    assert math.isnan(value(ROUNDS, Column(statistic="steps_to", target=0.9)))


def test_a_metric_that_is_not_reported():
    with pytest.raises(
        UserError, match="do not report 'test_acuracy'; did you mean 'test_accuracy'"
    ):
        value(ROUNDS, Column("test_acuracy"))


def test_a_metric_without_an_accuracy_beside_it_ends_as_it_ended():
    """Of a regression, whose rounds have no accuracy, the number of a round before was taken."""
    nan = math.nan
    rounds = pd.DataFrame({"test_r2": [nan, 0.7, nan, nan, nan], "judged": [nan, 1, nan, 1, nan]})
    assert math.isnan(value(rounds, Column("test_r2")))
    assert math.isnan(value(rounds, Column("test_r2", statistic="tail", tail=2)))
    assert value(rounds.iloc[:3], Column("test_r2")) == 0.7
    assert value(rounds, Column("test_r2", statistic="best")) == 0.7


@pytest.mark.parametrize("low", [False, True])
def test_settings_that_lost_a_seed_stand_behind_the_others_and_in_order(low):
    values = {"a": [0.1], "b": [0.4], "c": [0.3, math.nan], "d": [0.2, 0.2]}
    trials = [
        SimpleNamespace(
            label=label, seed=seed, setting={"trial": label}, status="finished", diverged=False,
            broken=False, value=lambda column, number=number: number, beside=lambda *_, number=number: number,
        )
        for label, numbers in values.items()
        for seed, number in enumerate([*numbers, math.nan][:2])
    ]  # fmt: skip
    plan = Sweep(cells=[{"label": label} for label in values], mode="min" if low else "max")
    ordered = table_of(plan, trials)["trial"].tolist()
    assert ordered == ["d", *("acb" if low else "bca")]
