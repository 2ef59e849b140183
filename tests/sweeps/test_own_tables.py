"""A table of a sweep of one's own hides nothing that its methods were given, and tests its own numbers."""

import json
import math
import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import fedorch
from orchestrator.analysis import comparison
from orchestrator.analysis.compared import Runs
from orchestrator.config import load
from orchestrator.errors import UserError
from orchestrator.results.run_folder import RunFolder
from sweeps import edges
from sweeps.asked import require_metric
from sweeps.cells import Cells
from sweeps.entry import Column
from sweeps.home import Home
from sweeps.own_table import OVERSHOT, PICKED, SAME_RUNS, _alike, _given, _order, cells_as
from sweeps.plan import Sweep
from sweeps.results import by_trial, stored, table, table_of
from sweeps.status import Status
from sweeps.targets import Running, SweepFile, show_next
from tests.fuzz.tables import Tables
from tests.orchestrator.test_comparison import edit
from tests.sweeps.plans import SMALL, sweep
from tests.sweeps.trials import run_here

PLAIN = {"choose_on": "nothing", "seeds": [0, 1, 2]}


def cell(label, *settings):
    return {"label": label, "settings": settings}


@pytest.fixture(scope="module")
def unfair(tmp_path_factory, ray_session):
    """Labels that hide more work, attackers, another dataset, and what ends a run."""
    folder = tmp_path_factory.mktemp("own") / "unfair"
    cells = [
        cell("mine", "rounds=6", "cohort=6"),
        cell("rival", "attack={name: sign_flip, fraction: 0.4}"),
        cell("elsewhere", "data.dataset={name: synthetic}"),
        cell("quick", "rounds=9", "stop={test_accuracy: 0.01}"),
    ]
    run_here(sweep(cells=cells, seeds=[0, 1], choose_on="nothing"), folder)
    return folder


def test_what_rows_were_given_stands_below(unfair):
    """All that was printed were accuracies, and "worse"."""
    said = "\n".join(_given(Cells.read(unfair)))
    for line in (
        "mine: rounds=6, cohort=6",
        "rounds a run: 6 mine; 3 rival, elsewhere; 1 quick",
        "distinct clients that train a round: 6 mine; 4 rival",
        "of different data, which are not tested against one another: fashion_mnist_10k, synthetic",
        "means over clients are over honest ones",
        "test_accuracy ended runs (stop)",
    ):
        assert line in said
    for form in ("markdown", "latex", "html", "json"):
        assert "cohort=6" in cells_as(unfair, form)


def test_rows_of_other_data_are_not_tested(unfair):
    """Nor is a number that has ended a run."""
    assert [one.group for one in Cells.read(unfair).tests.each] == ["rival"]


def test_what_all_rows_were_given_is_not_repeated(finished):
    """Two methods that send different bytes: nothing else."""
    said = [*_given(Cells.read(finished))]
    assert len(said) == 1
    assert said[0].startswith("MB a run, both ways: ")
    assert "local.lr=0.02 algorithm=fedavg, local.lr=0.1 algorithm=fedavg;" in said[0]


def test_the_best_two_are_named_with_commands_that_run_them_again(tmp_path, ray_session, capsys):
    plan = sweep(
        axes={"local.lr": [0.02, 0.1, 0.3]}, metric="validation_accuracy", choose_on="validation"
    )
    run_here(plan, tmp_path / "s")
    capsys.readouterr()
    show_next(Home(tmp_path / "s"))
    said = capsys.readouterr().out
    runs = re.findall(r"^  fedorch run (\S+) --seeds 100-104 --out (\S+)$", said, re.MULTILINE)
    order = [folder.path / "config.yaml" for folder in Cells.read(tmp_path / "s").finished]
    assert [Path(config) for config, _ in runs] == order[:2]
    assert f"  fedorch compare {runs[0][1]} {runs[1][1]}" in said


def test_tests_are_of_the_table_s_own_numbers(tmp_path, ray_session):
    """Of best rounds, where the table has these: the last ones were tested below them."""
    plan = sweep(
        **PLAIN, axes={"local.lr": [3.0, 0.1]}, set=[*sweep().set, "rounds=6"], statistic="best"
    )
    run_here(plan, tmp_path / "s")
    best = {
        (label, seed): trial.folder.rounds()["test_accuracy"].max()
        for (label, seed), trial in by_trial(tmp_path / "s").items()
    }
    one, other = ([best[f"local.lr={lr}", s] for s in range(3)] for lr in ("3.0", "0.1"))
    last = [t.folder.rounds()["test_accuracy"].iloc[-1] for t in by_trial(tmp_path / "s").values()]
    assert [*one, *other] != last
    (test,) = Cells.read(tmp_path / "s").tests.each
    assert test.record()["difference"] == pytest.approx(np.mean(other) - np.mean(one))
    assert test.pair.p == pytest.approx(stats.ttest_rel(one, other).pvalue)


def _fail(sweep, label, seed, error, diverged):
    folder = by_trial(sweep)[label, seed].folder
    said = {"status": "failed", "error": error, "diverged": diverged}
    folder.write_json("result.json", said)
    RunFolder(folder.path).seal()


def test_trials_that_diverged_lose_and_broken_ones_are_not_tested(tmp_path, ray_session):
    """Those that were left of a setting were tested, as if the others had not been tried; and a
    machine without memory made a method worse.
    """
    cells = [cell("safe"), cell("risky", "rounds=2"), cell("large", "rounds=3"), cell("wide")]
    run_here(sweep(**PLAIN, cells=cells), tmp_path / "s")
    for seed in (0, 1):
        _fail(tmp_path / "s", "risky", seed, "NaN", True)
    _fail(tmp_path / "s", "large", 1, "no room in memory", False)
    for seed in range(3):
        _fail(tmp_path / "s", "wide", seed, "no such file", False)
    found = {one.group: one.pair for one in Cells.read(tmp_path / "s").tests.each}
    assert {name: (pair.n, pair.missed) for name, pair in found.items()} == {
        "risky": (3, (2, 0)),
        "large": (2, (0, 0)),
    }
    told = json.loads(cells_as(tmp_path / "s", "json"))
    assert [one["missed"] for one in told["tests"] if one["group"] == "risky"] == [[2, 0]]
    assert "risky: rounds=2" in told["notes"]
    assert (
        "compared as if they had not been run: large, seed 1; wide, seed 0; wide, seed 1; wide, "
        "seed 2 (the first: no room in memory)" in " ".join(told["notes"])
    )
    chosen = sweep(**{**PLAIN, "choose_on": "test"}, cells=cells)
    data = table_of(chosen, stored(tmp_path / "s")[1])
    assert data["trial"].tolist() == ["safe", "large", "risky", "wide"]
    cells_of = replace(Cells.read(tmp_path / "s"), plan=chosen, data=data)
    assert any("fewer seeds have finished stand below" in one for one in _order(cells_of))
    for seed in range(3):
        _fail(tmp_path / "s", "risky", seed, "NaN", True)
        _fail(tmp_path / "s", "safe", seed, "no room in memory", False)
    assert not Cells.read(tmp_path / "s").tests.each


def test_sweeps_of_before_say_in_words_that_a_trial_diverged(finished, tmp_path):
    folder = shutil.copytree(finished, tmp_path / "s")
    one, other, *_ = by_trial(folder).values()
    for trial, why in (
        (one, "round 5: the update of client 0 holds NaN or infinity"),
        (other, "no"),
    ):
        trial.folder.write_json("result.json", {"status": "failed", "error": why})
        RunFolder(trial.folder.path).seal()
    found = [r for r in by_trial(folder).values() if r.status == "failed"]
    assert sorted((r.diverged, r.broken) for r in found) == [(False, True), (True, False)]


def test_a_trial_that_ends_with_a_model_of_nan_has_diverged(tmp_path, ray_session, monkeypatch):
    """Whatever it was that could not go on with it: a metric's sentence was of something else."""

    def refuses(self, *about):
        self.algorithm.w = self.algorithm.w * math.nan
        raise UserError("a part that wants numbers")

    monkeypatch.setattr("orchestrator.rounds.experiment.Experiment._judge", refuses)
    run_here(sweep(**PLAIN, cells=[cell("one")]), tmp_path / "s")
    assert [(r.status, r.diverged) for r in by_trial(tmp_path / "s").values()] == (
        [("failed", True)] * 3
    )
    notes = [*_given(Cells.read(tmp_path / "s"))]
    assert not any("without having diverged" in one for one in notes)


def test_means_of_other_rounds_are_not_tested(tmp_path, ray_session):
    """Equal runs, of which one was looked at more often, were found better and worse."""
    plan = sweep(
        cells=[cell("often"), cell("seldom", "evaluation.every=3")], statistic="tail", tail=2,
        **PLAIN,
    )  # fmt: skip
    run_here(plan, tmp_path / "s")
    read = Cells.read(tmp_path / "s")
    assert not read.tests.each
    said = "\n".join(_given(read))
    assert (
        "the mean of other rounds than those of often, and not tested: seldom (rounds 3 against "
        "rounds 2, 3, seed 0)" in said
    )
    assert PICKED not in [*_order(read)]
    best = replace(read, plan=read.plan.model_copy(update={"statistic": "best"}))
    assert PICKED in [*_order(best)]

    def looked(*many):
        return [
            SimpleNamespace(
                seed=seed,
                status="finished",
                rounds=pd.DataFrame({"round": [*range(n)], read.plan.metric: 0.5}),
            )
            for seed, n in enumerate(many)
        ]

    # seed by seed: as many in all need not be as many on each
    vars(best)["groups"] = {"one": looked(1, 2, 3), "other": looked(1, 3, 2), "less": looked(1, 2)}
    assert best.looked_at_otherwise("one") == {"other": "3 rounds against 2 rounds, seed 1"}


@pytest.mark.parametrize(("loser", "when"), [(0.1, 2), (0.6, 2), (0.6, 0)])
@pytest.mark.parametrize("statistic", ["tail", "best"])
def test_who_has_diverged_was_looked_at_like_the_others(tmp_path, loser, when, statistic):
    """It lost, and was left out of the tests for having no numbers; as the first, with all others."""
    methods = [("method", name) for name in ("fedavg", "scaffold")]
    Tables().play(
        [("metric", "test_loss"), ("statistic", statistic), ("end", loser, "diverged", when),
         *methods, *(("seed", seed) for seed in range(3))],
        tmp_path,
    )  # fmt: skip
    (test,) = Cells.read(tmp_path).tests.each
    assert sum(test.pair.missed) == (statistic == "tail" or not when)


def test_order_in_which_seeds_are_added_up_is_none(tmp_path):
    """Three tenths in one order were better than in another."""
    methods = [("method", name) for name in ("fedavg", "scaffold", "feddyn")]
    values = {"feddyn": (0.1, 0.2, 0.3), "fedavg": (0.3, 0.2, 0.1), "scaffold": (0.2, 0.3, 0.1)}
    pieces = [("choose_on", "test"), *methods, *(("seed", seed) for seed in range(3))]
    Tables().play(pieces, tmp_path)
    for (label, seed), one in by_trial(tmp_path).items():
        mine = values[label.removeprefix("algorithm=")][seed]
        one.folder.write_table("rounds.parquet", one.rounds.assign(test_accuracy=mine))
        one.folder.seal()
    names = [name.removeprefix("algorithm=") for name in table(tmp_path)["trial"]]
    assert len({np.mean(some) for some in values.values()}) > 1
    assert names == ["fedavg", "feddyn", "scaffold"]


def test_seeds_that_a_scheduler_let_finish_are_no_sample(tmp_path, ray_session):
    """Means of two survivors stood as those of six seeds, the best first."""
    plan = sweep(
        axes={"local.lr": [0.02, 0.1]}, seeds=[0, 1, 2], scheduler="asha",
        metric="validation_accuracy", choose_on="validation",
    )  # fmt: skip
    run_here(plan, tmp_path / "s")
    first = table(tmp_path / "s")["trial"][0]
    whole = Cells.read(tmp_path / "s")
    # one of which one seed has ended may have the easy one
    early = [one for one in whole.results if one.seed == 0 or one.setting["trial"] != first]
    assert table_of(whole.plan, early)["count"].tolist() == [3, 1]
    cut = Cells(whole.plan, early, table_of(whole.plan, early))
    assert any("fewer seeds have finished stand below" in said for said in _order(cut))
    for (label, seed), one in by_trial(tmp_path / "s").items():
        if seed and (label == first or seed == 1):
            edit(one.folder.path, status="stopped", rounds=2)
    read = Cells.read(tmp_path / "s")
    # that of which more seeds finished, whatever its mean
    assert table(tmp_path / "s")["trial"][0] != first
    assert not read.tests.each
    assert "means are over the n seeds that it let finish" in "\n".join(_order(read))


def test_accuracy_of_labels_that_are_numbers(tmp_path, ray_session):
    """Several labels are right or wrong; what is measured is not."""
    numbers = {"name": "csv", "path": "t.csv", "label": ["u", "v"], "task": "numbers"}
    kept = ["data.validation.clients=0.1"]
    configs = [
        load(None, ["model=linear", f"loss={loss}", *kept]).model_copy(deep=True)
        for loss in ("bce", "mse")
    ]
    for config in configs:
        dataset = load(None, [f"data.dataset={json.dumps(numbers)}"]).data.dataset
        object.__setattr__(config.data, "dataset", dataset)
    plan = sweep(metric="validation_accuracy", choose_on="validation")
    require_metric(plan.metric, configs[0])
    with pytest.raises(UserError, match="none is right or wrong"):
        require_metric(plan.metric, configs[1])


def test_nobody_is_compared_by_a_model_that_it_does_not_make():
    """Trials of it were run to their ends, and failed there."""
    alone = load(None, ["algorithm=local"])
    with pytest.raises(UserError, match="algorithm local makes none but the clients' own"):
        require_metric("test_accuracy", alone)
    require_metric("personal_accuracy_mean", alone)


@pytest.mark.parametrize(
    ("metric", "settings", "why"),
    [
        ("client_validation_accuracy_worst", ["data.validation.server=0.1"], "validation.clients"),
        ("client_accuracy_mean", ["evaluation.clients=false"], "evaluation.clients is false"),
        ("validation_loss", [], "keeps no rows back"),
        ("client_validation_loss_worst", ["data.validation.clients=0.1"], ""),
        ("validation_accuracy", ["data.validation.server=0.1"], ""),
        ("heldout_accuracy", [], "data.heldout is unset"),
        ("heldout_accuracy", ["data.heldout.per_class=2"], ""),
        ("heldout_loss", ["algorithm=server_only"], ""),
        ("personal_accuracy_mean", [], "under algorithm fedavg no client has a model"),
        (
            "personal_loss_mean",
            ["algorithm=ditto", "evaluation.personal=false"],
            "evaluation.personal is false",
        ),
        ("personal_accuracy_mean", ["algorithm=ditto"], ""),
        ("personal_accuracy_mean", ["evaluation.local_models=true"], ""),
        ("personal_accuracy_mean", ["algorithm=clustered"], ""),
    ],
)
def test_a_metric_of_rows_that_nobody_looks_at_is_refused(metric, settings, why):
    """Trials ran to their ends, and what they had was thrown away."""
    choose_on = "validation" if "validation" in metric else "nothing"
    plan = sweep(metric=metric, choose_on=choose_on)
    if not why:
        require_metric(plan.metric, load(None, settings))
        return
    with pytest.raises(UserError, match=f"no trial would report {metric}: .*{why}"):
        require_metric(plan.metric, load(None, settings))


def test_draws_are_numbered_and_said_to_four_digits(tmp_path, ray_session):
    plan = sweep(axes={"local.lr": {"loguniform": [0.01, 0.5]}}, samples=3)
    run_here(plan, tmp_path / "s")
    names = [*Cells.read(tmp_path / "s").groups]
    assert [
        re.fullmatch(r"sweep #\d, local\.lr=0\.\d{1,5}", name) is not None for name in names
    ] == [True] * 3
    assert len({*names}) == 3


def test_that_tests_are_of_the_runs_that_chose_is_said_where_there_are_tests(tmp_path, ray_session):
    plan = sweep(
        axes={"local.lr": [0.02, 0.1]}, metric="validation_accuracy", choose_on="validation"
    )
    run_here(plan, tmp_path / "one")
    assert SAME_RUNS not in cells_as(tmp_path / "one", "markdown")
    run_here(plan.model_copy(update={"seeds": (0, 1)}), tmp_path / "two")
    assert SAME_RUNS in cells_as(tmp_path / "two", "markdown")


def test_what_a_scheduler_stopped_stands_below_what_finished(tmp_path, ray_session):
    """Numbers after 6 rounds were "best first" above one after 20."""
    plan = sweep(
        axes={"local.lr": [0.02, 0.1, 0.3]}, seeds=[0], scheduler="asha",
        metric="validation_accuracy", choose_on="validation",
    )  # fmt: skip
    run_here(plan, tmp_path / "s")
    before = table(tmp_path / "s")["trial"].tolist()
    (best,) = (one for (label, _), one in by_trial(tmp_path / "s").items() if label == before[0])
    edit(best.folder.path, status="stopped", rounds=2)
    assert table(tmp_path / "s")["trial"].tolist() == [*before[1:], before[0]]
    assert [*_order(Cells.read(tmp_path / "s"))][1] == (
        "trials that asha stopped stand below the others: their numbers are after 2 rounds"
    )
    # what it gave up was tried
    (largest,) = (one for (label, _), one in by_trial(tmp_path / "s").items() if "0.3" in label)
    edit(best.folder.path, status="finished", rounds=3)
    edit(largest.folder.path, status="stopped", rounds=2)
    ends = [one for one in _order(Cells.read(tmp_path / "s")) if "what lies beyond" in one]
    assert not any("0.1" in one or "that ran" in one for one in ends)


def test_what_a_goal_took_is_of_those_who_reached_it(tmp_path, ray_session):
    """Who gave up after few steps was the best, and told apart."""
    stop = "stop={train_loss: '<= 1.9'}"
    plan = sweep(
        axes={"local.lr": [1e-6, 0.01]}, metric="steps_total", choose_on="nothing", seeds=[0, 1, 2],
        set=[*SMALL, "rounds=4", stop],
    )  # fmt: skip
    run_here(plan, tmp_path / "s")
    cells = Cells.read(tmp_path / "s")
    assert cells.data["count"].tolist() == [0, 3]
    (one,) = cells.tests.each
    assert one.pair.missed == (0, 3)
    chosen = sweep(axes={"local.lr": [1e-6, 0.01]}, metric="steps_total", mode="min",
                   choose_on="validation", seeds=[0, 1], set=[*SMALL, "rounds=4", stop])  # fmt: skip
    run_here(chosen, tmp_path / "c")
    assert "local.lr=0.01" in Status.read(tmp_path / "c").best_trial
    with pytest.raises(ValueError, match="steps_total grows as a trial goes on, and asha"):
        sweep(axes={"local.lr": [0.1, 0.2]}, metric="steps_total", mode="min", scheduler={"name": "asha"},
              choose_on="validation")  # fmt: skip


def test_an_order_of_those_who_have_overshot_a_goal_is_none_of_the_best(
    tmp_path, ray_session, capsys
):
    """The largest of the grid was the best, and beyond it was more."""
    plan = sweep(
        axes={"local.lr": [0.002, 0.01]}, choose_on="validation", seeds=[0, 1, 2],
        metric="validation_accuracy", set=[*SMALL, "rounds=8", "stop={train_loss: '<= 1.9'}"],
    )  # fmt: skip
    run_here(plan, tmp_path / "s")
    cells = Cells.read(tmp_path / "s")
    assert [*_order(cells)] == [OVERSHOT]
    assert not cells.tests.each
    capsys.readouterr()
    show_next(Home(tmp_path / "s"))
    assert "best" not in capsys.readouterr().out


def test_nor_is_one_of_those_who_never_reached_it_beside_others_that_did(
    tmp_path, ray_session, capsys
):
    """Who had missed the goal had the most rounds, and was the best, at the end of its grid."""
    plan = sweep(
        axes={"local.lr": [1e-5, 0.01]}, choose_on="validation", metric="validation_loss", mode="max",
        set=[*SMALL, "rounds=8", "stop={train_loss: '<= 1.9'}"],
    )  # fmt: skip
    run_here(plan, tmp_path / "s")
    cells = Cells.read(tmp_path / "s")
    assert [cells.reached.missed[i] for i in cells.reached.columns[next(iter(cells.groups))]] == [
        True
    ]
    assert [*_order(cells)] == [OVERSHOT]
    capsys.readouterr()
    show_next(Home(tmp_path / "s"))
    assert "best" not in capsys.readouterr().out
    with pytest.raises(UserError, match="not which setting is the best"):
        fedorch.open_sweep(tmp_path / "s").best()


def test_what_lines_hold_at_the_server_is_told_in_comparisons_too(tmp_path, ray_session):
    """A thousand rows that clients of the other method had, or nobody."""
    plan = sweep(
        choose_on="nothing",
        cells=[cell("clients"), cell("server", "data.heldout.per_class=2")],
    )  # fmt: skip
    run_here(plan, tmp_path / "s")
    (said,) = [s for s in _order(Cells.read(tmp_path / "s")) if "problems" in s]
    assert "they differ in data.heldout.per_class (0, 2)" in said


def test_costs_are_of_all_rounds_and_less_is_better(tmp_path, ray_session):
    """The slowest was the best, and bytes were those of the last round."""
    plan = sweep(
        axes={"local.lr": [0.002, 0.01]}, metric="bytes_up", choose_on="nothing", seeds=[0, 1, 2],
        set=[*SMALL, "rounds=8", "stop={train_loss: '<= 1.9'}"],
    )  # fmt: skip
    run_here(plan, tmp_path / "s")
    cells = Cells.read(tmp_path / "s")
    assert "bytes_up, all rounds" in cells.title
    sent = {
        one.place: one.result()["bytes_up"] for results in cells.groups.values() for one in
        [result.folder for result in results]
    }  # fmt: skip
    assert cells.data["mean"].sum() == pytest.approx(sum(sent.values()) / 3)
    assert len({*cells.data["mean"]}) == 2
    (ours,) = cells.tests.each
    runs = Runs.read([result.folder for results in cells.groups.values() for result in results])
    (theirs,) = comparison.tests_of(runs, ["bytes_up"], next(iter(runs.columns))).each
    assert (ours.p, abs(ours.pair.difference)) == (theirs.p, abs(theirs.pair.difference))
    chosen = sweep(axes={"local.lr": [0.002, 0.01]}, metric="steps_total", choose_on="validation")
    assert chosen.direction == "min"


def test_a_goal_on_validation_rows_has_such_rows():
    plan = sweep(
        metric="round", choose_on="validation", set=[*SMALL, "stop={validation_loss: '<= 1'}"]
    )
    assert plan.raw()["data"]["validation"]
    assert "data" not in sweep(metric="round", choose_on="validation").raw()


def test_methods_are_what_their_parts_are_called(tmp_path, ray_session):
    rates = {"grid": [0.1, 0.2], "when": {"server_optimizer": "adam"}}
    plan = sweep(axes={"server_optimizer": ["sgd", "adam"], "server_optimizer.lr": rates},
                 choose_on="test", set=[*SMALL, "rounds=1"])  # fmt: skip
    run_here(plan, tmp_path / "s")
    text = cells_as(tmp_path / "s", "markdown")
    assert (
        "ettings tried: 1 of sgd; 2 of adam" in text or "ettings tried: 2 of adam; 1 of sgd" in text
    )


def test_how_alike_clients_are_says_nothing_of_a_model_that_is_nan(tmp_path, ray_session):
    """A paper's claim on the variance held, of rivals that had diverged."""
    plan = sweep(
        axes={"local.lr": [0.1, 1e38]}, choose_on="nothing", set=[*SMALL, "non_finite=keep"]
    )
    run_here(plan, tmp_path / "s")
    var, accuracy = Column("client_accuracy_var"), Column("client_accuracy_mean")
    for (label, _), one in by_trial(tmp_path / "s").items():
        assert math.isnan(one.value(var)) is ("e+38" in label)
        assert math.isfinite(one.value(accuracy))


def test_who_serves_all_alike_may_serve_them_badly(tmp_path, ray_session):
    """A model that had learnt nothing was the best, and nothing said so."""
    plan = sweep(
        axes={"local.lr": [1e-9, 0.1]}, set=[*SMALL, "rounds=6", "data.limit=1000"],
        metric="client_accuracy_std", choose_on="test",
    )  # fmt: skip
    run_here(plan, tmp_path / "s")
    cells = Cells.read(tmp_path / "s")
    levels = {
        one.label: one.folder.result()["metrics"]["client_accuracy_mean"] for one in cells.results
    }
    quiet, loud = cells.groups
    assert levels[quiet] < levels[loud]
    said = (
        f"client_accuracy_mean of {quiet} is {levels[quiet]:.4g}, and of {loud} {levels[loud]:.4g}"
    )
    assert said in cells_as(tmp_path / "s", "markdown")
    # of those that come first in both ways nothing is to be said
    assert not [*_alike(replace(cells, data=cells.data.iloc[::-1].reset_index(drop=True)))]


CELLS = """
name: two
metric: test_accuracy
choose_on: nothing
cells:
  - {label: plain, settings: [algorithm=fedavg, local.lr=0.05, cohort=3]}
  - {label: corrected, settings: ["algorithm={name: fedprox, mu: 1}", local.lr=0.1, cohort=3]}
"""


def test_cells_are_what_they_are_called(tmp_path):
    """With --set, and an axis, rows went by names of what was never run."""
    file = tmp_path / "two.yaml"
    file.write_text(CELLS)
    for setting, key in (
        ("local.lr=0.2", "local.lr"), ("local={lr: 1}", "local.lr"), ("algorithm=fedavg", "algorithm"),
        ("algorithm.name=fedavg", "algorithm"), ("algorithm.mu=2", "algorithm.mu"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=f"the cells of two differ in {key}, and would go by"):
            SweepFile(file).plans(Running(settings=(setting,)))
    varied = sweep(axes={"local.lr": [0.1]})
    (tmp_path / "axes.yaml").write_text(varied.model_dump_json())
    with pytest.raises(
        UserError, match=r"--set local: local\.lr is an axis of sweep, which varies"
    ):
        SweepFile(tmp_path / "axes.yaml").plans(Running(settings=("local={lr: 3}",)))
    (plan,) = SweepFile(file).plans(Running(settings=("cohort=2", "rounds=1")))
    assert plan.also == ("cohort=2", "rounds=1")
    file.write_text(f"{CELLS}\naxes: {{local.lr: [0.1]}}")
    with pytest.raises(UserError, match=r"axes\.local\.lr would win over what cells say"):
        SweepFile(file).check()


def test_who_does_not_report_the_metric_has_not_lost_by_it(tmp_path, ray_session):
    """It was worse, or another was better, at any p that the number of seeds gives."""
    # without batch normalisation nobody has a model of its own under fedbn
    plan = sweep(axes={"algorithm": ["ditto", "fedbn"]}, metric="personal_accuracy_mean", **PLAIN)
    run_here(plan, tmp_path / "s")
    cells = Cells.read(tmp_path / "s")
    assert not cells.tests.each
    silent = "personal_accuracy_mean is not reported by algorithm=fedbn, and not tested there"
    assert silent in [*_given(cells)]
    assert all(one.unreported for one in cells.groups["algorithm=fedbn"])


def test_what_was_drawn_twice_counts_once(tmp_path, ray_session):
    plan = sweep(axes={"local.lr": {"choice": [0.1]}}, samples=2, seeds=[0, 1], choose_on="nothing")
    run_here(plan, tmp_path / "s")
    cells = Cells.read(tmp_path / "s")
    assert cells.data["count"].tolist() == [2]
    assert [len(one) for one in cells.groups.values()] == [2]


def test_what_pbt_has_done_is_said_wherever_trials_are_shown(tmp_path, ray_session):
    run_here(sweep(seeds=[0, 1]), tmp_path / "s")
    folders = [one.folder for one in by_trial(tmp_path / "s").values()]
    assert not Runs.read(folders).pbt_said
    told = Sweep(scheduler="pbt", axes={"local.lr": {"uniform": (0.1, 1)}}).model_dump(mode="json")
    RunFolder(tmp_path / "s").write_sealed("sweep.json", told)
    runs = Runs.read(folders)
    said = comparison.notes_of(runs, [], ["test_accuracy"], next(iter(runs.columns)))
    assert any(one.startswith("pbt changes settings as trials run: a column has") for one in said)


def test_a_trial_without_a_config_takes_no_table_away(tmp_path, ray_session):
    """It failed before it had one, and all forms of the table with it."""
    plan = sweep(axes={"data.limit": [300, 10**6]}, seeds=[0], choose_on="nothing")
    run_here(plan, tmp_path / "s")
    cells = Cells.read(tmp_path / "s")
    assert [one.status for some in cells.groups.values() for one in some] == ["finished", "failed"]
    for form in ("markdown", "json"):
        assert "data.limit=1000000" in cells_as(tmp_path / "s", form)


def test_seeds_that_chose_are_no_new_ones(tmp_path, ray_session, capsys):
    plan = sweep(axes={"local.lr": [0.05, 0.1]}, seeds=[100, 107])
    run_here(plan, tmp_path / "s")
    show_next(Home(str(tmp_path / "s")))
    assert "--seeds 110-114" in capsys.readouterr().out


def test_what_all_were_run_with_is_said(tmp_path, ray_session):
    cells = [{"label": "a", "settings": ["cohort=3", "local.lr=0.05"]}]
    run_here(sweep(cells=cells, also=["cohort=2"], seeds=[0]), tmp_path / "x")
    said = [*_given(Cells.read(tmp_path / "x"))]
    assert said[:2] == ["a: local.lr=0.05", "all with cohort=2"]


def test_each_method_s_best_may_be_at_an_end_of_its_grid(tmp_path, ray_session):
    """Only that of the winner was told; and none where values are drawn."""
    plan = sweep(
        axes={"algorithm": ["fedavg", "scaffold"], "local.lr": [1e-4, 1e-2]}, seeds=[0],
        metric="validation_accuracy", choose_on="validation", set=[*SMALL, "rounds=3"],
    )  # fmt: skip
    run_here(plan, tmp_path / "s")
    said = [one for one in _order(Cells.read(tmp_path / "s")) if "what lies beyond" in one]
    end = "has local.lr = 0.01, the largest of its grid: what lies beyond may be better"
    assert sorted(said) == [f"the best of fedavg {end}", f"the best of scaffold {end}"]
    drawn = sweep(
        axes={"local.lr": {"choice": [1e-4, 1e-2]}}, samples=6, seeds=[0],
        metric="validation_accuracy", choose_on="validation", set=[*SMALL, "rounds=3"],
    )  # fmt: skip
    run_here(drawn, tmp_path / "d")
    said = [one for one in _order(Cells.read(tmp_path / "d")) if "what lies beyond" in one]
    assert said == [
        "the best has local.lr = 0.01, the largest of its values: what lies beyond may be better"
    ]


@pytest.mark.parametrize("largest", [1e-2, "1e-2"])
def test_tied_settings_that_are_all_at_an_end_are_told(tmp_path, ray_session, largest):
    """Of two that were tied at the end of an axis nothing was said; nor of a number without a
    point, which is a text to YAML.
    """
    plan = sweep(
        axes={"algorithm.mu": [1e-9, 2e-9], "local.lr": [1e-4, 1e-3, largest]}, seeds=[0],
        metric="validation_accuracy", choose_on="validation",
        set=[*SMALL, "rounds=3", "algorithm=fedprox"],
    )  # fmt: skip
    run_here(plan, tmp_path / "s")
    cells = Cells.read(tmp_path / "s")
    assert cells.tied([*cells.groups]) == 2
    said = [one for one in _order(cells) if "what lies beyond" in one]
    assert said == [
        "the best 2 (tied) have local.lr = 0.01, the largest of its grid: what lies beyond may be "
        "better"
    ]


@pytest.mark.parametrize(("outer", "told"), [(1.0, True), (0.0, False)])
def test_the_outermost_of_drawn_numbers_is_told(outer, told, tmp_path, ray_session, monkeypatch):
    """Where it is in the outer part of what it was drawn from, of whatever size that is here."""
    monkeypatch.setattr(edges, "OUTER", outer)
    plan = sweep(
        axes={"local.lr": {"loguniform": [1e-6, 1e-2]}}, samples=6, seeds=[0],
        metric="validation_loss", choose_on="validation", set=[*SMALL, "rounds=3"],
    )  # fmt: skip
    run_here(plan, tmp_path / "d")
    cells = Cells.read(tmp_path / "d")
    drawn = [float(one) for one in cells.data["local.lr"]]
    assert drawn[0] == max(drawn)
    said = [one for one in _order(cells) if "what lies beyond" in one]
    assert (
        said
        == [
            f"the best has local.lr = {drawn[0]:.4g}, the largest that was drawn from 1e-06 to 0.01: "
            "what lies beyond may be better"
        ]
        * told
    )


def test_who_is_judged_by_other_validation_rows_is_of_another_problem(tmp_path, ray_session):
    """18 rows and 202 stood in one order; by test rows they may."""
    for metric, choose_on, problems in (
        ("validation_accuracy", "validation", 2), ("test_accuracy", "test", 1)
    ):  # fmt: skip
        plan = sweep(
            axes={"data.validation.server": [0.1, 0.3]}, seeds=[0], metric=metric,
            choose_on=choose_on, set=[*SMALL, "rounds=2"],
        )  # fmt: skip
        run_here(plan, tmp_path / metric)
        cells = Cells.read(tmp_path / metric)
        assert len(cells.problems) == problems
        said = "\n".join(_order(cells))
        assert ("they differ in data.validation.server" in said) == (problems == 2)


def test_an_easier_problem_is_no_better_method(tmp_path, ray_session, capsys):
    """The largest alpha was the best setting, and beyond it was more."""
    plan = sweep(
        axes={"data.partition.alpha": [0.05, 50.0], "local.lr": [1e-4, 1e-2]}, seeds=[0, 1],
        metric="validation_accuracy", choose_on="validation",
        set=[*SMALL, "rounds=3", "data.partition=dirichlet"],
    )  # fmt: skip
    run_here(plan, tmp_path / "s")
    cells = Cells.read(tmp_path / "s")
    assert [len(its) for its in cells.problems.values()] == [2, 2]
    said = "\n".join(_order(cells))
    assert "the lines are of 2 problems: they differ in " in said
    assert "what lies beyond" not in said
    first = next(iter(cells.groups)).split(", ")[0]
    assert [one.group.split(", ")[0] for one in cells.tests.each] == [first]
    capsys.readouterr()
    show_next(Home(tmp_path / "s"))
    runs = re.findall(r"^  fedorch run (\S+) ", capsys.readouterr().out, re.MULTILINE)
    assert len(runs) == 2
    assert len({load(Path(one)).data.partition.alpha for one in runs}) == 1


def test_what_is_done_to_rows_is_no_other_problem(tmp_path, ray_session):
    """Rows that are judged are the same; and the sweep says what is better, whatever the name."""
    plan = sweep(
        axes={"data.augment": [[], ["flip"]]}, seeds=[0, 1], metric="validation_accuracy",
        mode="min", choose_on="validation", set=[*SMALL, "rounds=3"],
    )  # fmt: skip
    run_here(plan, tmp_path / "s")
    cells = Cells.read(tmp_path / "s")
    assert len(cells.problems) == 1
    (one,) = cells.tests.each
    means = cells.data["test"].tolist()
    assert one.pair.ahead == (means[1] < means[0])


def test_costs_of_a_goal_have_ends_of_their_grid(tmp_path, ray_session):
    plan = sweep(
        axes={"local.lr": [0.002, 0.01]}, metric="steps_total", choose_on="validation", seeds=[0],
        set=[*SMALL, "rounds=8", "stop={train_loss: '<= 1.9'}"],
    )  # fmt: skip
    run_here(plan, tmp_path / "s")
    said = "\n".join(_order(Cells.read(tmp_path / "s")))
    assert "what lies beyond may be better" in said
    assert plan.chooses
    assert not sweep(
        metric="validation_accuracy", choose_on="validation",
        set=[*SMALL, "stop={train_loss: '<= 1.9'}"],
    ).chooses  # fmt: skip


def test_who_ends_at_an_easier_goal_is_no_better(tmp_path, ray_session):
    plan = sweep(
        axes={"stop.train_loss": ["<= 2.1", "<= 1.9"]}, metric="steps_total", seeds=[0, 1],
        choose_on="validation", set=[*SMALL, "rounds=8", "local.lr=0.01"],
    )  # fmt: skip
    run_here(plan, tmp_path / "s")
    cells = Cells.read(tmp_path / "s")
    assert "2 problems: they differ in stop" in "\n".join(_order(cells))
    assert not cells.tests.each


def test_a_method_without_a_number_is_at_no_end(tmp_path, ray_session):
    """The table of a sweep in which a method had diverged was a traceback."""
    plan = sweep(
        axes={"algorithm": ["fedavg", "scaffold"], "local.lr": [0.1, 0.2]}, seeds=[0],
        metric="validation_loss", choose_on="validation", set=[*SMALL, "rounds=2"],
    )  # fmt: skip
    run_here(plan, tmp_path / "s")
    for (label, _), one in by_trial(tmp_path / "s").items():
        if "scaffold" in label:
            rounds = one.rounds.assign(validation_loss=math.nan)
            one.folder.write_table("rounds.parquet", rounds)
            edit(one.folder.path, diverged=True)
    told = [one for one in _order(Cells.read(tmp_path / "s")) if "what lies beyond" in one]
    assert len(told) == 1
    assert "of fedavg" in told[0]


def test_where_all_have_diverged_none_is_the_best(tmp_path, ray_session, capsys):
    """They were tied for the best, and the command ended in a fault of ours (IndexError)."""
    plan = sweep(axes={"local.lr": [0.1, 0.2]}, seeds=[0], set=[*SMALL, "rounds=2"])
    run_here(plan, tmp_path / "s")
    for one in by_trial(tmp_path / "s").values():
        edit(one.folder.path, diverged=True)
    cells = Cells.read(tmp_path / "s")
    assert not [one for one in _order(cells) if "tied" in one or "beyond" in one]
    show_next(Home(str(tmp_path / "s")))
    assert "new seeds" not in capsys.readouterr().out
    with pytest.raises(UserError, match="no trial of the first setting has ended in a model"):
        fedorch.open_sweep(tmp_path / "s").best()


def test_what_could_not_be_run_is_no_try(tmp_path, ray_session):
    """A method had had as many settings as the other, and its best was in the middle of them."""
    plan = sweep(
        axes={"algorithm": ["fedavg", "scaffold"], "local.lr": [1e-4, 1e-3, 1e-2]}, seeds=[0],
        metric="validation_accuracy", choose_on="validation", set=[*SMALL, "rounds=3"],
    )  # fmt: skip
    run_here(plan, tmp_path / "s")
    _fail(tmp_path / "s", "algorithm=fedavg, local.lr=0.01", 0, "no room in memory", False)
    cells = Cells.read(tmp_path / "s")
    assert any("settings tried: 2 of fedavg; 3 of scaffold" in one for one in _given(cells))
    (told,) = (one for one in _order(cells) if "of fedavg has local.lr" in one)
    assert "local.lr = 0.001, the largest of its grid that ran" in told
