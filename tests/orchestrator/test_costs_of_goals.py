"""What runs have spent until they reached a goal (``stop``) is compared where it is known."""

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import fedorch
from orchestrator.analysis import comparison
from orchestrator.analysis.compared import Runs
from orchestrator.analysis.comparison import show_comparison
from orchestrator.analysis.goals import Spent, goals_of, is_cut_short, missed
from orchestrator.analysis.reached import Reached
from orchestrator.analysis.wallclock import show_wallclock
from orchestrator.config import load
from orchestrator.config.goal import Goal, sound
from orchestrator.errors import UserError
from orchestrator.rounds.metrics import is_budget, is_cost, more_is_better
from tests.orchestrator.test_like_with_like import runs_of
from tests.sweeps.plans import SMALL

GOAL = "stop={train_loss: '<= 1.9'}"


@pytest.fixture(scope="module")
def fast(tmp_path_factory):
    """It reaches the goal within four rounds, after more than one."""
    return runs_of(tmp_path_factory.mktemp("fast"), "rounds=6", GOAL, "local.lr=0.002")


@pytest.mark.parametrize(
    ("metric", "cost", "budget"),
    [
        ("round", True, True), ("virtual_time", True, True), ("evaluated_steps", True, True),
        ("bytes_up", True, True), ("bytes_questions", False, True), ("round_steps", False, True),
        ("seconds_client", False, True), ("test_accuracy", False, False), ("joules", False, False),
    ],
)  # fmt: skip
def test_what_adds_up_is_a_cost(metric, cost, budget):
    assert (is_cost(metric), is_budget(metric)) == (cost, budget)
    assert not (cost and more_is_better(metric) is not False)


def test_limits_and_budgets_are_no_goals():
    stop = "{test_accuracy: 0.75, test_loss: '>= 8', virtual_time: 60, steps_total: 9}"
    config = load(None, [*SMALL, f"stop={stop}"])
    assert goals_of(config) == {"test_accuracy": Goal(0.75)}

    def rounds(accuracy, loss):
        return pd.DataFrame({"test_accuracy": [accuracy], "test_loss": [loss], "steps_total": [9]})

    assert [missed(config, rounds(*one)) for one in ((0.8, 1), (0.7, 1), (0.8, 9))] == [
        False, True, True,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("one", "other", "short"),
    [
        (Spent(3, True), Spent(7, False), True),
        (Spent(7, True), Spent(7, False), False),
        (Spent(7, False), Spent(3, True), True),
        (Spent(3, True), Spent(7, True), False),
        (Spent(3, False), Spent(7, False), False),
    ],
)
def test_who_missed_after_less_has_not_lost(one, other, short):
    assert is_cut_short({0: one, 1: Spent(1, False)}, {0: other}) is short
    assert not is_cut_short({0: one}, {1: other})


def test_a_goal_that_was_missed_for_want_of_rounds_is_no_loss(fast, tmp_path):
    """The same method with fewer rounds was called worse."""
    brief = runs_of(tmp_path, "rounds=1", GOAL, "local.lr=0.002")
    runs = Runs.read([*fast, *brief])
    one, two = runs.columns
    assert comparison.tests_of(runs, ["bytes_up", "round"], one).each == ()
    text = show_comparison([*fast, *brief], None, ["round"], form="markdown")
    assert f"ot tested against {one}: round of {two}, as a run has missed its goal" in text
    # what a round takes says something of both
    (each,) = comparison.tests_of(runs, ["seconds_aggregate"], one).each
    assert each.pair.missed == (0, 0)


def test_how_good_models_are_that_a_goal_has_ended_says_how_far_each_overshot(tmp_path):
    """Of two that train alike, who is looked at less often was better by every other metric."""
    goal = "stop={train_loss: '<= 1.9'}"
    often = runs_of(tmp_path / "a", "rounds=8", goal, "evaluation.every=1")
    seldom = runs_of(tmp_path / "b", "rounds=8", "local.lr=0.002")
    runs = Runs.read([*often, *seldom])
    for first in runs.columns:
        asked = ["test_accuracy", "client_loss_worst", "train_loss"]
        assert not comparison.tests_of(runs, asked, first).each
    text = show_comparison([*often, *seldom], None, ["test_accuracy"], form="markdown")
    assert "how good their models are says how far each overshot, and is not tested" in text
    # what budgets have ended is of equal rounds
    budget = "stop={steps_total: 6}"
    equal = [
        *runs_of(tmp_path / "c", "rounds=8", budget),
        *runs_of(tmp_path / "d", "rounds=8", budget, "local.lr=0.002"),
    ]
    runs = Runs.read(equal)
    assert comparison.tests_of(runs, ["test_accuracy"], next(iter(runs.columns))).each


def test_who_never_looks_for_a_goal_has_not_missed_it(tmp_path):
    """It was worse, and had a part of 0.00 that reached it."""
    stop = "stop={client_accuracy_mean: 0.2}"
    seeing = runs_of(tmp_path / "a", "rounds=6", stop)
    blind = runs_of(tmp_path / "b", "rounds=6", stop, "evaluation.clients=false")
    runs = Runs.read([*seeing, *blind])
    first = next(name for name, some in runs.columns.items() if runs.early[some[0]])
    assert not comparison.tests_of(runs, ["round"], first).each
    said = show_comparison([*seeing, *blind], None, ["round"], form="markdown", against=first)
    assert "a goal that was never looked for, and so neither reached nor missed: " in said.lower()
    assert "0 of 3" not in said
    assert "0.00" not in next(
        (line for line in said.splitlines() if "part that reached" in line), ""
    )


def test_who_is_looked_at_more_often_is_said(fast, tmp_path, capsys):
    stop = "stop={test_accuracy: 0.3}"
    often = runs_of(tmp_path / "often", "rounds=9", stop)
    rarely = runs_of(tmp_path / "rarely", "rounds=9", stop, "evaluation.every=3")
    said = "looked at every so many local steps: "
    assert said not in show_comparison([*fast], None, ["bytes_up"], form="markdown")
    for metrics in (["bytes_up"], ["round"], []):
        assert said in show_comparison([*often, *rarely], None, metrics, form="markdown").lower()
    capsys.readouterr()
    for target in (Goal(0.3), None):
        show_wallclock([*often, *rarely], 1.0, "shared", 1.0, "test_accuracy", target)
        assert said in capsys.readouterr().out


def test_a_budget_is_counted_by_nobody(tmp_path):
    """A fixed number of steps, said as ``stop``, made constants tests, and all p larger."""
    ends = {}
    for name, settings in {
        "rounds": ["rounds=2"],
        "stop": ["rounds=4", "stop={steps_total: 6}"],
    }.items():
        pair = [
            one
            for algorithm in ("fedavg", "scaffold")
            for one in runs_of(tmp_path / name / algorithm, *settings, f"algorithm={algorithm}")
        ]
        runs = Runs.read(pair)
        first, _ = runs.columns
        bytes_up, accuracy = comparison.tests_of(runs, ["bytes_up", "test_accuracy"], first).each
        ends[name] = accuracy.p
        assert np.isnan(bytes_up.p), name
    assert ends["rounds"] == ends["stop"]


def test_who_was_given_up_has_no_cost(fast, tmp_path):
    """A run that ended because its loss had grown was the cheapest."""
    stop = "stop={train_loss: '<= 1.9', test_loss: '>= 5'}"
    gone = runs_of(tmp_path / "gone", "rounds=6", stop, "local.lr=50")
    well = runs_of(tmp_path / "well", "rounds=6", stop, "local.lr=0.002")
    runs = Runs.read([*well, *gone])
    first, second = runs.columns
    assert runs.reached.missed == [False] * 3 + [True] * 3
    assert comparison.tests_of(runs, ["bytes_up"], first).each == ()  # it had sent less
    text = "; ".join(runs.reached.said())
    assert (
        f"given up (stop), which is no goal that was reached: 3 of 3 of {second} (test_loss >= 5)"
        in text
    )


def test_rounds_have_no_curve(fast, tmp_path):
    """Of several seeds it was a traceback."""
    for draw in (
        lambda: show_comparison([*fast], tmp_path / "p.png", ["round"]),
        lambda: fedorch.compare([folder.place for folder in fast]).plot("round"),
    ):
        with pytest.raises(UserError, match="round is what curves are drawn over"):
            draw()


def test_of_several_goals_the_one_that_was_reached_counts(fast, tmp_path):
    """Who blew up had reached a goal, too; and one of one goal was compared with one of another."""
    two = "stop={train_loss: '<= 1.9', update_norm: 20}"
    well = runs_of(tmp_path / "well", "rounds=6", two, "local.lr=0.002")
    gone = runs_of(tmp_path / "gone", "rounds=6", two, "local.lr=50")
    runs = Runs.read([*well, *gone])
    assert runs.reached.missed == [False] * 3 + [True] * 3
    config = load(None, [*SMALL, "stop={test_accuracy: 0.6, test_loss: '<= 1.8'}"])
    ends = [pd.DataFrame([{"test_accuracy": a, "test_loss": b}]) for a, b in ((0.7, 2), (0.4, 1))]
    same_for_all = SimpleNamespace(others=lambda *about: [])
    reached = Reached([config] * 2, ends, [True] * 2, [0, 0], {"a": [0], "b": [1]}, same_for_all)
    assert reached.missed == [False, False]
    assert reached.other_goals("a") == ["b"]
    (said,) = [one for one in reached.said() if one.startswith("the goal")]
    assert said == (
        "the goal was reached by 1 of 1 of a (test_accuracy 0.6: 1, test_loss <= 1.8: 0), "
        "1 of 1 of b (test_accuracy 0.6: 0, test_loss <= 1.8: 1)"
    )


def test_a_goal_that_is_measured_otherwise_is_another(fast, tmp_path, capsys):
    focal = runs_of(tmp_path, "rounds=6", GOAL, "local.lr=0.002", "loss={name: focal, gamma: 2}")
    runs = Runs.read([*fast, *focal])
    first, second = runs.columns
    assert runs.reached.other_goals(first) == [second]
    assert comparison.tests_of(runs, ["steps_total"], first).each == ()
    show_wallclock([fast[0], focal[0]], 1.0, "shared", 1.0, "test_loss", Goal(1.9, falling=True))
    assert "test_loss is by another formula, or of other rows, in" in capsys.readouterr().out
    show_wallclock([fast[0], focal[0]], 1.0, "shared", 1.0, "test_loss", None)
    assert "or at one that is measured otherwise, or at none: " in capsys.readouterr().out
    show_wallclock([*fast], 1.0, "shared", 1.0, "test_loss", None)
    assert "measured otherwise" not in capsys.readouterr().out


def test_a_third_group_makes_no_test_of_two_constants(fast, tmp_path):
    plain = [runs_of(tmp_path / str(n), f"rounds={n}") for n in (1, 2)]
    alone, beside = Runs.read([*plain[0], *plain[1]]), Runs.read([*plain[0], *plain[1], *fast])
    for runs in (alone, beside):
        first, second, *_ = runs.columns
        (one,) = [
            one for one in comparison.tests_of(runs, ["round"], first).each if one.group == second
        ]
        assert np.isnan(one.p)


def test_who_is_nan_has_reached_no_evenness(tmp_path):
    """A model of NaN is as good for all, and was the first to be even."""
    stop = "stop={client_accuracy_std: '<= 0.22'}"
    gone = runs_of(tmp_path / "gone", "rounds=3", "non_finite=keep", "local.lr=1e38", stop)
    assert [len(one.rounds()) for one in gone] == [3] * 3
    runs = Runs.read(gone)
    assert runs.reached.missed == [True] * 3
    free = runs_of(tmp_path / "free", "rounds=3", "non_finite=keep", "local.lr=1e38")
    text = show_comparison(free, None, ["client_accuracy_std"], "<= 0.22", form="markdown")
    assert "never" in text
    column = runs.groups("client_accuracy_std")
    assert all(one["client_accuracy_std"].isna().all() for some in column.values() for one in some)


def test_rounds_that_are_not_judged_are_no_divergence():
    """An aggregator's own number of each round was hidden between evaluations."""
    rounds = pd.DataFrame({
        "norm_std": [0.1, 0.2, 0.3], "personal_accuracy_std": [0.1, 0.2, 0.3],
        "test_loss": [math.nan, 1.0, math.nan], "judged": [math.nan, 1.0, 1.0],
        "personal_loss_worst": [1.0, math.inf, 1.0],
    })  # fmt: skip
    assert sound(rounds, "norm_std").isna().tolist() == [False, False, True]
    assert sound(rounds, "personal_accuracy_std").isna().tolist() == [False, True, False]
    assert sound(rounds, "test_loss").equals(rounds["test_loss"])


def test_the_table_has_no_number_of_how_alike_clients_are_either(tmp_path):
    gone = runs_of(tmp_path, "non_finite=keep", "local.lr=1e38")
    text = show_comparison(gone, None, form="markdown")
    (line,) = [line for line in text.splitlines() if "accuracy, std" in line]
    assert "nan" in line


def test_a_link_that_there_is_not_is_refused_whoever_has_missed(fast):
    """It ended in a KeyError where no run had anything to send over it; seed 82, case 905."""
    with pytest.raises(UserError, match="--link 'local': use one of shared, hypercube"):
        show_wallclock(fast, 1.0, "local", 0.5, "test_accuracy", Goal(2.0))
