"""Numbers that are of other rows, by other formulas or of no repetitions are not tested, nor in bold."""

import math
import re
import shutil

import numpy as np
import pandas as pd
import pytest

from algorithms.part import retire
from algorithms.parts.losses import CrossEntropy
from orchestrator.analysis import comparison
from orchestrator.analysis.compared import Runs
from orchestrator.analysis.comparison import show_comparison
from orchestrator.analysis.judged import Basis
from orchestrator.analysis.left_out import failed_said, left_out_said
from orchestrator.analysis.names import by_config
from orchestrator.analysis.paired import compare
from orchestrator.analysis.tested import Measured, PairedTests
from orchestrator.cli.plotting import draw
from orchestrator.config import load
from orchestrator.config.schema import ResourcesConfig
from orchestrator.results import storage
from orchestrator.results.contents import TRIAL
from orchestrator.results.run_folder import RunFolder
from sweeps.cells import Cells
from sweeps.efforts import methods
from sweeps.own_table import cells_as
from tests.orchestrator.test_comparison import edit
from tests.running import run_into
from tests.sweeps.plans import SMALL, sweep
from tests.sweeps.trials import run_here


def runs_of(place, *settings, seeds=(0, 1, 2)):
    folders = [RunFolder(place / f"seed-{seed}") for seed in seeds]
    for seed, folder in zip(seeds, folders, strict=True):
        run_into(folder, load(None, [*SMALL, *settings, f"seed={seed}"]))
    return [RunFolder.viewed(str(folder.path)) for folder in folders]


@pytest.fixture(scope="module")
def groups(tmp_path_factory):
    """Few rows each: how they were made is what matters."""
    place = tmp_path_factory.mktemp("like")
    own = ["data.pool=all", "data.client_test.source=local"]
    return {
        "plain": runs_of(place / "plain"),
        "mixed": runs_of(place / "mixed", "data.partition={name: dirichlet, alpha: 0.9}"),
        "even": runs_of(place / "even", "data.partition={name: zipf, alpha: 2}"),
        "uneven": runs_of(place / "uneven", "data.partition={name: zipf, alpha: 8}"),
        "focal": runs_of(place / "focal", "loss={name: focal, gamma: 2}"),
        "few": runs_of(place / "few", *own, "data.client_test.fraction=0.1"),
        "many": runs_of(place / "many", *own, "data.client_test.fraction=0.4"),
        "kept": runs_of(place / "kept", "data.validation.clients=0.1"),
        "more": runs_of(place / "more", "data.validation.clients=0.4"),
    }


@pytest.mark.parametrize(
    ("one", "other", "metric", "tested"),
    [
        ("plain", "mixed", "test_accuracy", True),
        ("plain", "mixed", "client_accuracy_worst", False),
        # as many rows each, in other mixes of classes
        ("even", "uneven", "client_accuracy_worst", False),
        ("plain", "focal", "test_accuracy", True),
        ("plain", "focal", "client_accuracy_worst", True),
        ("plain", "focal", "test_loss", False),
        ("plain", "focal", "client_loss_worst", False),
        ("few", "many", "test_accuracy", False),
        ("kept", "more", "test_accuracy", True),
        ("kept", "more", "validation_accuracy", False),
        ("kept", "more", "client_validation_accuracy_worst", False),
    ],
)
def test_what_is_of_something_else_is_not_tested(groups, one, other, metric, tested):
    runs = Runs.read([*groups[one], *groups[other]])
    first = next(iter(runs.columns))
    assert bool(comparison.tests_of(runs, [metric], first).each) == tested
    assert (metric in runs.judged.said([metric], first)) == (not tested) or not tested
    assert bool(runs.judged.said([metric], first)) == (not tested)


def test_the_same_rows_were_as_many(groups):
    """Else the case above would be told apart by their number."""
    rows = [
        groups[name][0].clients().groupby("client")["test_rows"].last().tolist()
        for name in ("even", "uneven")
    ]
    assert rows[0] == rows[1]


def test_where_seeds_decide_nothing_there_is_no_p():
    """One run each, however often: with seeds enough any p could be had."""
    one, other = dict.fromkeys(range(9), 0.7), dict.fromkeys(range(9), 0.71)
    assert np.isnan(compare(one, other, True).p)
    # all differences are the same, and the values are not
    # nor does the order in which float32 numbers are added up
    summed = {seed: 1.575015 + 1e-7 * (seed % 3) for seed in range(9)}
    assert np.isnan(compare(summed, {s: v + 0.0015 for s, v in summed.items()}, False).p)
    varied = {seed: 0.1 * seed for seed in range(9)}
    shifted = {seed: 0.1 * seed + 0.01 for seed in range(9)}
    assert compare(varied, shifted, True).p == 2**-8


def test_series_that_share_seeds_are_not_mixed(tmp_path):
    """The longer one's other seeds were those of the shorter one's group."""
    one = runs_of(tmp_path / "one", seeds=(0, 1))
    other = runs_of(tmp_path / "other", "resources.threads=2", seeds=(0, 1, 2))
    found = [[folder.path.parent.name for folder in group] for group in by_config([*one, *other])]
    assert found == [["one"] * 2, ["other"] * 3]
    # nor are trials that another sweep has run, too
    for folder in (*one, *other[:2]):
        (folder.path / TRIAL).write_text("{}")
    alike = [RunFolder.viewed(str(folder.path)) for folder in (*one, *other[:2])]
    assert [len(group) for group in by_config(alike)] == [2]
    for folder in (*one, *other[:2]):
        (folder.path / TRIAL).unlink()
    # one series in two places is one group
    more = runs_of(tmp_path / "more", seeds=(3,))
    assert [len(group) for group in by_config([*one, *more])] == [3]


def test_what_two_parts_both_have_is_said(groups, tmp_path):
    """Fifty times as much was sent, and all that was said was "top_k" and "random_k"."""
    few = runs_of(tmp_path / "a", "compression.uplink={name: top_k, fraction: 0.5}")
    many = runs_of(tmp_path / "b", "compression.uplink={name: random_k, fraction: 0.01}")
    for runs in ([*few, *many], [*groups["plain"], *few, *many]):
        assert "they differ in compression.uplink.fraction" in Runs.read(runs).apart_said
    # what one of them has alone, its name says
    assert "fraction" not in Runs.read([*groups["plain"], *few]).apart_said


def test_formulas_of_plugins_are_what_their_code_is(groups):
    """Of one name and one set of options they were one formula."""
    metrics = [load(None, ["evaluation.metrics=[f1_macro]"]), load(None, ["loss=cross_entropy"])]
    one = Basis(metrics[0], {}, {}, "a")
    assert one.yardstick("test_loss") == Basis(metrics[1], {}, {}, "b").yardstick("test_loss")

    class Own(CrossEntropy):
        """As code of a session, or a plugin's."""

        name: str = "own_formula"

    mine = metrics[1].model_copy(update={"loss": Own()})
    assert Basis(mine, {}, {}, "a").yardstick("test_loss") != (
        Basis(mine, {}, {}, "b").yardstick("test_loss")
    )
    retire(Own.__module__)


def test_scores_of_classes_are_by_two_formulas():
    """Two runs of the same weights were told apart by their AUROC: one's was of a softmax."""
    metrics = "evaluation.metrics=[auroc, f1_macro]"
    softmax, focal, bce, mse = (
        Basis(load(None, [metrics, f"loss={loss}"]), {}, {}, "")
        for loss in ("cross_entropy", "focal", "bce", "mse")
    )
    assert softmax.yardstick("test_auroc") == focal.yardstick("test_auroc")
    assert softmax.yardstick("test_auroc") != bce.yardstick("test_auroc")
    assert bce.yardstick("test_auroc") == mse.yardstick("test_auroc")
    assert softmax.yardstick("test_f1_macro") == bce.yardstick("test_f1_macro")


def test_columns_say_by_which_modules_they_are(groups, tmp_path):
    folders = []
    for name in "ab":
        for one in groups["plain"]:
            there = shutil.copytree(one.path, tmp_path / name / one.path.name)
            edit(there, imports_sha256=64 * name)
            folders.append(RunFolder.viewed(str(there)))
    first, second = (runs := Runs.read(folders)).columns
    said = f"plugins imported other modules: {8 * 'a'} in {first}, {8 * 'b'} in {second}"
    assert said in runs.code_said


def test_no_side_no_verdict():
    """Runs without a number "lost" as if more were better, of a metric without a side."""
    values = {"a": {0: 1.0, 1: 2.0, 2: 3.0}, "b": {0: 1.5, 1: np.nan, 2: 3.5}}
    (one,) = PairedTests.of([Measured("train_loss", values, None)], "a").each
    assert np.isnan(one.p)


def test_counts_until_a_goal_are_tested_where_seeds_agree():
    values = {"a": dict.fromkeys(range(6), 40.0), "b": dict.fromkeys(range(6), 60.0)}
    (alike,) = PairedTests.of([Measured("steps_total", values, False)], "a").each
    (ended,) = PairedTests.of([Measured("steps_total", values, False, counted={"b"})], "a").each
    assert np.isnan(alike.p)
    assert ended.p == 2 / 2**6


def test_seeds_that_are_not_the_same_have_no_best(groups):
    text = show_comparison([*groups["plain"], *groups["mixed"][:2]], None, form="latex")
    assert "textbf" not in text


def test_latex_of_a_metric_that_is_no_row(groups):
    folders = [*groups["plain"], *groups["mixed"]]
    text = show_comparison(folders, None, ["test_accuracy"], form="latex", only=["test_loss"])
    assert "Test loss" in text or "test loss" in text


def test_nothing_is_the_best_of_other_data(groups, tmp_path):
    elsewhere = runs_of(tmp_path / "s", "data.dataset={name: synthetic}")
    text = show_comparison([*groups["plain"], *elsewhere], None, form="latex")
    rows = [line for line in text.splitlines() if line.startswith(("test accuracy", "test loss"))]
    assert rows
    assert not any("textbf" in line for line in rows)


def test_who_never_reached_the_goal_has_no_cost_of_it(tmp_path):
    """Rounds and bytes of runs that went to their last round were in the mean of what the goal had
    cost; and nothing said so.
    """
    work = ("rounds=4", "stop={train_loss: '<= 1.9', steps_total: 99}")
    slow = runs_of(tmp_path / "slow", *work, "local.lr=1e-6", "name=slow")
    fast = runs_of(tmp_path / "fast", *work, "local.lr=0.01", "name=fast")
    runs = Runs.read([*slow, *fast])
    assert runs.reached.missed == [True] * 3 + [False] * 3
    assert runs.reached.ended_by == ["train_loss"]
    first, second = runs.columns
    reached = f"0 of 3 of {first} (train_loss <= 1.9), 3 of 3 of {second} (train_loss <= 1.9)"
    assert f"the goal was reached by {reached}" in "; ".join(runs.reached.said())
    (one,) = comparison.tests_of(runs, ["bytes_up"], first).each
    assert one.pair.missed == (0, 3)
    (one,) = comparison.tests_of(runs, ["steps_total"], first).each
    assert (one.pair.missed, one.verdict) == ((0, 3), "not told apart")  # of three pairs
    assert comparison.tests_of(runs, ["train_loss"], first).each == ()  # it is as good as the goal
    other = runs_of(tmp_path / "other", "rounds=4", "stop={train_loss: '<= 1.8'}", "local.lr=0.01")
    more = Runs.read([*fast, *other])
    one, two = more.columns
    assert comparison.tests_of(more, ["bytes_up"], one).each == ()
    said = more.reached.untested_said(one, {"bytes_up": []})
    assert next(said).startswith(f"not tested: bytes_up of {two}, whose runs end at another goal")
    late = show_comparison([*slow, *fast], None, ["train_loss"], "<= 0.1", form="markdown")
    assert "top ended 3 of 6 runs: of one that had not reached the target of train_loss" in late
    text = show_comparison([*slow, *fast], None, form="markdown")
    assert re.search(r"part that reached its goal \| 0.00 +\| 1.00", text)


def test_who_has_diverged_is_not_the_best(tmp_path):
    """A model of NaN says one class to all, and is as good for all clients."""
    keep = ("non_finite=keep", "rounds=2")
    gone = runs_of(tmp_path / "gone", *keep, "local.lr=1e38")
    well = runs_of(tmp_path / "well", *keep, "local.lr=0.1")
    runs = Runs.read([*gone, *well])
    first, second = runs.columns
    assert [*runs.survivors] == [second]
    (one,) = comparison.tests_of(runs, ["client_accuracy_std"], second).each
    assert one.pair.missed == (3, 0)
    (one,) = comparison.tests_of(runs, ["test_accuracy"], second).each
    assert one.pair.missed == (0, 0)
    text = show_comparison(
        [*gone, *well], None, ["client_accuracy_std"], form="latex", only=["client_accuracy_std"]
    )
    assert f"3 of 3 of {first}" in text.replace("$", "")
    assert not re.search(rf"{first}[^\n]*textbf", text)


def test_single_runs_of_other_seeds_and_weights_that_come_with_a_method_are_told(tmp_path):
    (one,) = runs_of(tmp_path / "a", seeds=(0,))
    (other,) = runs_of(tmp_path / "b", "algorithm=fednova", seeds=(1,))
    text = show_comparison([one, other], None, form="markdown")
    assert "| fedavg (seed 0) | fednova (seed 1) |" in text
    assert "ingle runs of other seeds, in which they differ, too" in text
    assert "they differ in aggregator (mean, weighted_mean)" in text


def test_a_model_that_need_be_nobody_s_is_told(groups, tmp_path):
    """Clusters were ranked by the mean of their models, and the clients' first weights by theirs."""
    clusters = runs_of(tmp_path / "clusters", "algorithm=clustered", "cohort=1.0")
    text = show_comparison([*groups["plain"], *clusters], None, form="markdown")
    assert "judge a model that need be no client's: the mean of the clients' clusters' models" in (
        text.replace("\\", "")
    )
    assert "need be no client's" not in show_comparison(groups["plain"], None, form="markdown")
    alone = runs_of(tmp_path / "alone", "algorithm=local")
    text = show_comparison([*groups["plain"], *alone], None, form="latex")
    assert "test\\_accuracy is not reported by" in text
    tests = comparison.tests_of(Runs.read([*groups["plain"], *alone]), ["test_loss"], "fedavg")
    assert not [one for one in tests.each if one.group == "local"]


def test_methods_are_called_by_those_parts_of_theirs_that_differ():
    """A compressor was "top_k none"."""
    settings = [], ["compression.uplink=top_k"], ["algorithm=scaffold"], ["local.lr=0.2"]
    configs = [load(None, ["algorithm=fedavg", *some]) for some in settings]
    found = methods([0, 1, 2, 3], configs.__getitem__)
    assert found == {"fedavg": [0, 3], "fedavg, top_k": [1], "scaffold": [2]}
    both = [load(None, [f"compression.{way}=top_k"]) for way in ("uplink", "downlink")]
    assert [*methods([0, 1], both.__getitem__)] == [
        "compression.uplink top_k, compression.downlink none",
        "compression.uplink none, compression.downlink top_k",
    ]
    assert [*methods([0, 3], configs.__getitem__)] == ["it"]
    assert [*methods([0, 1], configs.__getitem__)] == ["none", "top_k"]


def test_who_has_more_tries_is_told(tmp_path, ray_session):
    plan = sweep(
        axes={"algorithm": ["fedavg", "fedprox"], "local.lr": {"grid": [0.1, 1e38], "when": {"algorithm": "fedprox"}}},
        metric="client_validation_accuracy_std", choose_on="validation", set=[*SMALL, "non_finite=keep"],
    )  # fmt: skip
    run_here(plan, tmp_path / "s")
    text = cells_as(tmp_path / "s", "markdown")
    assert "settings tried: " in text
    assert "2 of fedprox" in text
    *_, last = Cells.read(tmp_path / "s").data["trial"]
    assert "1e+38" in last.replace(".0", "")


def test_who_learns_by_rows_of_the_server_s_is_told(tmp_path):
    """FedAA and FLTrust have labelled rows that FedAvg never sees."""
    held = ["data.heldout.per_class=5", "rounds=1"]
    plain = runs_of(tmp_path / "a", *held)
    trusting = runs_of(tmp_path / "b", *held, "aggregator=fltrust", "local.block=6")
    alone = runs_of(tmp_path / "c", *held, "algorithm=server_only")
    told = Runs.read([*plain, *trusting, *alone]).heldout_said
    assert re.search("rows that the server holds out teach .*fltrust.*server_only.*, and not", told)
    assert Runs.read([*trusting, *alone]).heldout_said == ""
    assert Runs.read(plain).heldout_said == ""


@pytest.mark.parametrize(("agent", "learns"), [("distance", False), ("greedy", True)])
def test_a_weigher_that_never_looks_at_them_does_not_learn_by_them(tmp_path, agent, learns):
    """FedAA's own controls were told to."""
    held = ["data.heldout.per_class=5", "rounds=1", "cohort=4"]
    plain = runs_of(tmp_path / "a", *held)
    weighed = runs_of(tmp_path / "b", *held, f"algorithm={{name: fedaa, agent: {agent}}}")
    assert bool(Runs.read([*plain, *weighed]).heldout_said) == learns


def test_a_picture_of_curves_tells_what_a_table_tells(tmp_path, capsys):
    """Curves over seconds, of one actor and of two, were drawn without a word."""
    held = ["data.heldout.per_class=5", "rounds=1"]
    plain = runs_of(tmp_path / "a", *held, seeds=[0])
    trusting = runs_of(tmp_path / "b", *held, "aggregator=fltrust", "local.block=6", seeds=[0])
    edit(trusting[0].path, actors=2)
    draw([*plain, *trusting], "accuracy", "seconds", tmp_path / "a.svg", (3, 2))
    said = " ".join(capsys.readouterr().err.split())
    assert "rows that the server holds out teach" in said
    assert "seconds: of 1 and 2 client actors" in said
    draw([*plain, *trusting], "accuracy", "", tmp_path / "b.svg", (3, 2))
    assert "client actors" not in capsys.readouterr().err


def test_seeds_that_failed_beside_those_that_are_compared_are_told(tmp_path, monkeypatch):
    """Whoever named the others had the easier seeds, and nobody said it."""
    run = RunFolder(tmp_path / "a" / "seed-0")
    run_into(run, load(None, [*SMALL]))
    lost = RunFolder(shutil.copytree(run.path, run.path.with_name("seed-1")))
    assert failed_said([run]) == ""
    lost.leave_failure({"error": "no"})
    said = f"failed, and in no mean: {lost.path}"
    assert failed_said([run]) == said
    there = RunFolder.viewed(run.path.as_uri())
    assert failed_said([there]) == f"failed, and in no mean: {lost.path.as_uri()}"
    looks = storage._names

    def seen(files, base):
        if base.endswith("/a"):  # it may be another's, or a bucket of a million files
            raise PermissionError("Cannot list directory")
        return looks(files, base)

    monkeypatch.setattr(storage, "_names", seen)
    assert failed_said([there]) == f"failed, and in no mean: {lost.path.as_uri()}"
    monkeypatch.setattr(storage.fs, "FileSelector", lambda *_, **__: seen(None, "/a"))
    assert failed_said([there]) == ""
    assert said in comparison.notes_of(Runs.read([run]), [], ["test_accuracy"], "fedavg")


def test_who_was_left_out_is_told_with_the_reason(tmp_path):
    """Those whose numbers had become NaN were put down to a clock."""
    config = load(None, [*SMALL, "non_finite=drop"])
    clock = config.model_copy(
        update={"resources": ResourcesConfig(on_timeout="drop", client_timeout=1.0)}
    )
    late = clock.model_copy(update={"non_finite": "fail"})
    rounds = pd.DataFrame({"dropped": [1.0, 0.0, 2.0]})
    whole = pd.DataFrame({"dropped": [0.0, 0.0]})
    said = left_out_said({
        "a": [(config, rounds), (config, whole)], "b": [(late, rounds)], "c": [(clock, rounds)],
        "d": [(clock, whole), (clock, whole.drop(columns="dropped"))],
        "e": [(clock, whole.assign(unjudged=[1.0, math.nan]))],
    })  # fmt: skip
    assert said == [
        "clients were left out, which came to NaN or infinity (non_finite: drop): 0.5 a round in a",
        "clients were left out, which were too late, or lost (client_timeout): 1 a round in b",
        "clients were left out, which came to NaN or infinity (non_finite: drop), or were too late, "
        "or lost (client_timeout): 1 a round in c",
        "clients' own models were not judged, which were too late (client_timeout): 0.5 a round in e",
    ]
