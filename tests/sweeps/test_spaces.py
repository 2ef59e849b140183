"""Search spaces and sweep files."""

import itertools

import pytest
from pydantic import ValidationError

from orchestrator.config import load
from orchestrator.errors import UserError
from sweeps.choice import Planned
from sweeps.plan import Scheduler, Sweep, read_sweep
from sweeps.spaces import Axis, as_settings, bounds_of, cells, mutations, within

AXES = {
    "local.lr": Axis(grid=(0.01, 0.1)),
    "algorithm": Axis(grid=("fedavg", {"name": "fedprox"}, "drdm")),
    "algorithm.mu": Axis(grid=(0.1, 1.0), when={"algorithm": "fedprox"}),
}


def test_a_grid_is_the_product_without_what_a_condition_leaves_out():
    found = cells(AXES)
    expected = []
    for lr, algorithm in itertools.product((0.01, 0.1), ("fedavg", {"name": "fedprox"}, "drdm")):
        cell = {"local.lr": lr, "algorithm": algorithm}
        expected += (
            [{**cell, "algorithm.mu": mu} for mu in (0.1, 1.0)]
            if isinstance(algorithm, dict)
            else [cell]
        )
    assert found == expected
    assert cells({}) == [{}]


def test_a_condition_leaves_a_cell_there_once_though_values_are_equal():
    """1 == 1.0: a cell was there for each value that equals the axis' first."""
    axes = {
        "algorithm": Axis(grid=("fedavg", "fedprox")),
        "algorithm.mu": Axis(grid=(1, 1.0, True, 2), when={"algorithm": "fedprox"}),
    }
    assert [c for c in cells(axes) if c["algorithm"] == "fedavg"] == [{"algorithm": "fedavg"}]
    assert len(cells(axes)) == 5


def test_a_condition_on_an_axis_that_is_itself_conditional():
    axes = {**AXES, "local.clip": Axis(grid=(1.0, 2.0), when={"algorithm.mu": 1.0})}
    assert sum("local.clip" in cell for cell in cells(axes)) == 4
    assert len(cells(axes)) == len(cells(AXES)) + 2


def test_settings_are_read_back_as_they_were():
    cell = {
        "algorithm": {"name": "fedprox", "mu": 0.5},
        "local.lr": 1e-05,
        "data.partition": "iid",
        "local.clip": None,
    }
    config = load(None, as_settings(cell))
    assert (config.algorithm.mu, config.local.lr, config.data.partition.name) == (0.5, 1e-5, "iid")
    assert config.local.clip is None


@pytest.mark.parametrize(
    ("axis", "problem"),
    [
        ({}, "one of grid"),
        ({"grid": [1], "choice": [2]}, "one of grid"),
        ({"loguniform": [0, 1]}, "must ascend"),
        ({"uniform": [2, 1]}, "must ascend"),
        ({"grid": []}, "at least 1"),
    ],
)
def test_axes_that_make_no_sense(axis, problem):
    with pytest.raises(ValidationError, match=problem):
        Axis.model_validate(axis)


def sweep(**changes):
    return Sweep.model_validate(
        {"set": ["model=linear"], "axes": {"local.lr": [0.1, 0.2]}, **changes}
    )


def test_a_number_without_a_point_is_the_same_number():
    """To YAML it is a text: two settings were one."""
    with pytest.raises(ValidationError, match="a value is there twice"):
        Sweep(axes={"local.lr": ["1e-3", 0.001]})
    Sweep(axes={"local.lr": ["1e-3", 0.002], "algorithm": ["fedavg", "scaffold"]})


def test_trials_are_cells_times_seeds():
    planned = sweep(
        seeds=[3, 4], cells=[{"label": "a"}, {"label": "b", "settings": ["cohort=2"]}]
    ).planned()
    assert len(planned) == 8
    settings = ("model=linear", "cohort=2", "local.lr=0.2")
    assert planned[-1] == Planned("b, local.lr=0.2", settings, 4)
    assert [c.seed for c in sweep(seeds=[3, 4]).configs()] == [3, 4, 3, 4]


def test_further_settings_win():
    changed = sweep(cells=[{"label": "a", "settings": ["rounds=7"]}]).changed(["rounds=3"], 2)
    assert {c.rounds for c in changed.configs()} == {3}
    assert changed.at_once == 2


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"axes": {"local.lrr": [1]}}, "local.lrr: there is no such key; did you mean 'lr'"),
        ({"axes": {"local.lr": {"uniform": [-1.0, 1.0]}}}, "local.lr: must be greater than 0"),
        ({"axes": {"local.batch_size": {"uniform": [8, 64]}}}, "local.batch_size: "),
        ({"set": ["cohort=99"]}, "cohort 99 is larger than the 30 clients"),
    ],
)
def test_wrong_trials_are_found_before_anything_runs(changes, problem):
    with pytest.raises(UserError, match=problem):
        list(sweep(**changes).configs())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("- a", "is a mapping"),
        ("axes: {local.lr: {grid: [1], uniform: [0, 1]}}", r"axes\.local\.lr: an axis is one of"),
        ("searcher: optuna\nseeds: [1, 2]", "give it one seed"),
        ("searcher: optuna\ncells: [{label: a}, {label: b}]", "cells: optuna searches in one"),
        ("scheduler: {name: pbt}", "this sweep has none"),
        (
            "scheduler: pbt\naxes: {local.lr: {uniform: [0, 1]}}\nseeds: [0, 1]",
            "whatever seed or cell they are of",
        ),
        *(
            (
                f"scheduler: pbt\naxes: {{{path}: {{choice: {some}}}}}",
                "take over the state of others",
            )
            for path, some in (
                ("data.partition.alpha", "[0.1, 1.0]"),
                ("data.clients", "[3, 4]"),
                ("model", "[linear, lenet5]"),
                ("algorithm", "[fedavg, scaffold]"),
            )
        ),
        (
            "scheduler: pbt\naxes: {local.lr: {uniform: [0, 1]}, algorithm: [fedavg, fedprox]}",
            "whatever value of the grid they are of",
        ),
        ("scheduler: {name: hyperband}", "scheduler.name"),
        ("base: nowhere.yaml", "cannot read"),
        ("metrik: x", "metrik: there is no such key; did you mean 'metric'"),
        ("seeds: [0, 0]", "seeds: a seed is there twice"),
        ("axes: {seed: [1, 2]}", r"axes\.seed: the seeds of a sweep"),
        ("set: [seed=7]", "seed: the seeds of a sweep"),
        ("axes: {local.lr: [0.1, 0.1]}", r"axes\.local\.lr: a value is there twice"),
        # in JSON both were null, and the stored sweep had a value twice
        ("axes: {local: [.nan, .inf]}", r"axes\.local: nan is no value of a setting"),
        ("axes: {local: [{lr: .inf}, {lr: 1}]}", r"axes\.local: .* is no value of a setting"),
        ("cells: [{label: a}, {label: a}]", "the same label"),
        (
            "axes: {algorithm.mu: {grid: [1], when: {algorithm: fedprox}}, algorithm: [fedprox]}",
            "no grid above it",
        ),
        (
            "axes: {algorithm: [fedprox], algorithm.mu: {grid: [1], when: {algoritm: fedprox}}}",
            "no grid above it",
        ),
        (
            "axes: {algorithm: [fedprox], algorithm.mu: {uniform: [0, 1], when: {algorithm: fedprox}}}",
            "cannot have a when",
        ),
        ("seeds: 3", r"seeds: must be a valid tuple \(got 3\)"),
        ("scheduler: later", r"scheduler\.name: must be 'fifo', 'asha'"),
        ("a: [", "cannot read"),
    ],
)
def test_bad_files(tmp_path, text, problem):
    (tmp_path / "s.yaml").write_text(text)
    with pytest.raises(UserError, match=problem):
        read_sweep(tmp_path / "s.yaml")


def test_the_seed_of_the_base_is_the_sweep_s():
    assert Sweep(base={"seed": 7}).seeds == (7,)
    assert Sweep(base={"seed": 7}, seeds=(1, 2)).seeds == (1, 2)
    with pytest.raises(UserError, match="--set seed"):
        Sweep().changed(["seed=3"], None)


def test_a_scheduler_by_its_name(tmp_path):
    (tmp_path / "s.yaml").write_text("scheduler: asha")
    assert read_sweep(tmp_path / "s.yaml").scheduler == Scheduler(name="asha")


def test_a_base_beside_the_sweep(tmp_path):
    (tmp_path / "base.yaml").write_text("rounds: 5\nlocal: {lr: 0.3}")
    (tmp_path / "s.yaml").write_text("base: base.yaml\naxes: {cohort: [2, 3]}")
    configs = list(read_sweep(tmp_path / "s.yaml").configs())
    assert [(c.rounds, c.local.lr, c.cohort) for c in configs] == [(5, 0.3, 2), (5, 0.3, 3)]


@pytest.mark.parametrize(
    "metric", ["validation_loss", "validation_auroc", "client_validation_auroc_mean"]
)
def test_nobody_is_chosen_by_what_its_own_loss_says(metric):
    """AUROC is of a softmax where the loss trains one: the same models were the best and the last."""
    plan = {"axes": {"loss": ["cross_entropy", "bce"]}, "metric": metric}
    # those that have run are read all the same
    with pytest.raises(UserError, match="trials have losses of their own"):
        next(Sweep.model_validate(plan).configs())
    asked = {"set": ["evaluation.metrics=[f1_macro, auroc]"]}
    next(Sweep.model_validate(plan | asked | {"metric": "validation_f1_macro"}).configs())
    compared = {"metric": "test_auroc", "choose_on": "nothing"}
    next(Sweep.model_validate(plan | asked | compared).configs())


def test_a_base_that_says_that_nothing_is_kept_back():
    """As a run's own config.yaml does: there were no rows to choose by."""
    none = {"data": {"validation": {"clients": 0.0, "server": 0.0}}}
    (config,) = Sweep(base=none).configs()
    assert config.data.validation.clients == 0.1
    (config,) = Sweep(base=none, set=["data.validation.server=0.2"]).configs()
    assert (config.data.validation.clients, config.data.validation.server) == (0, 0.2)
    some = {"data": {"validation": {"clients": 0.0, "server": 0.2}}}
    (config,) = Sweep(base=some).configs()
    assert (config.data.validation.clients, config.data.validation.server) == (0, 0.2)


def test_a_plan_is_counted_before_it_is_built():
    """A grid of 10⁹ cells took all memory before anything was said."""
    values = [i / 1000 for i in range(1, 1001)]
    for plan in (
        {"axes": {"local.lr": values, "local.clip": values, "algorithm.mu": values}},
        {"axes": {"local.lr": {"uniform": [0.1, 0.2]}}, "samples": 10**9},
        {"axes": {"local.lr": values}, "seeds": list(range(11))},
    ):
        with pytest.raises(ValidationError, match="a sweep has at most 10,000"):
            Sweep.model_validate(plan)
    assert len(Sweep.model_validate({"axes": {"local.lr": values}}).planned()) == 1000


@pytest.mark.parametrize(
    ("metric", "mode"),
    [
        ("validation_loss", "min"), ("client_validation_loss_worst", "min"),
        ("validation_accuracy", "max"), ("client_validation_accuracy_std", "min"),
    ],
)  # fmt: skip
def test_what_is_best_is_a_matter_of_the_metric(metric, mode):
    """A sweep on a loss called its worst setting the best."""
    assert Sweep.model_validate({"metric": metric}).direction == mode
    assert Sweep.model_validate({"metric": metric, "mode": "max"}).mode == "max"


def test_options_may_be_set_before_the_part_that_has_them():
    """They were dropped without a word, and the table said that they had been run."""
    plan = Sweep.model_validate(
        {"axes": {"algorithm.mu": [0.5, 0.1], "algorithm": ["fedprox"]}, "set": ["rounds=1"]}
    )
    assert [config.algorithm.mu for config in plan.configs()] == [0.5, 0.1]
    base = {"algorithm": {"name": "fedprox", "mu": 0.3}}
    one = Sweep.model_validate({"base": base, "axes": {"algorithm": ["fedprox", "fedavg"]}})
    assert [getattr(config.algorithm, "mu", None) for config in one.configs()] == [0.3, None]
    with pytest.raises(UserError, match=r"takes away what --set algorithm.mu=0.2 has set"):
        load(None, ["algorithm=fedprox", "algorithm.mu=0.2", "algorithm=scaffold"])


def test_a_run_s_config_is_no_sweep(tmp_path):
    (tmp_path / "c.yaml").write_text("rounds: 3\n")
    with pytest.raises(UserError, match="a config's of a run: fedorch run FILE"):
        read_sweep(tmp_path / "c.yaml")


def test_what_pbt_makes_of_settings_is_of_their_axes():
    """It trained rates beyond both ends, and batches of 10 where 8 and 16 were asked for."""
    plan = Sweep(
        axes={
            "local.lr": {"uniform": [0.05, 0.06]}, "local.batch_size": {"choice": [8, 16]},
            "algorithm.mu": {"loguniform": [0.1, 10]},
        },
        samples=2, scheduler="pbt",
    )  # fmt: skip
    drawn = plan.drawn()
    assert mutations(drawn)["local.batch_size"] == [8, 16]
    bounds = bounds_of(drawn)
    assert bounds == {"local.lr": (0.05, 0.06), "algorithm.mu": (0.1, 10)}
    made = within(bounds, {"local.lr": 0.072, "local.batch_size": 8, "algorithm.mu": 0.05})
    assert made == {"local.lr": 0.06, "local.batch_size": 8, "algorithm.mu": 0.1}
    assert within(bounds, {"local.lr": 0.055}) == {"local.lr": 0.055}
