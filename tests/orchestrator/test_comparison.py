"""Runs side by side: those that differ in the seed alone are one column, and are tested in pairs."""

import json
import math
import os
import re
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest
from matplotlib import rc_context
from scipy import stats

from orchestrator.analysis import comparison
from orchestrator.analysis.comparison import Line, _for_print, _written, show_comparison
from orchestrator.analysis.names import by_difference, in_natural_order, without_seeds
from orchestrator.analysis.tested import Measured, PairedTests
from orchestrator.analysis.written import Written, _sentence
from orchestrator.results import provenance
from orchestrator.results.members import members
from orchestrator.results.pictures import write_picture
from orchestrator.results.plots import bands
from orchestrator.results.run_folder import RunFolder
from orchestrator.rounds.metrics import more_is_better
from orchestrator.terminal import console
from tests.configs import small
from tests.orchestrator.test_cli import here
from tests.running import run_into


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two rates on three seeds."""
    folder = tmp_path_factory.mktemp("runs")
    found = {}
    for rate in (0.1, 0.01):
        for seed in range(3):
            place = folder / f"{rate}-{seed}"
            run = RunFolder(place)
            run_into(run, small("rounds=2", f"local.lr={rate}", f"seed={seed}"))
            found[place] = run.result()
    return found


def test_seeds_are_one_column_with_their_spread(runs):
    code, text = here("compare", *runs)
    assert code == 0, text
    first = [r["metrics"]["test_accuracy"] for r in list(runs.values())[:3]]
    cell = f"{np.mean(first):.4f} ± {stats.sem(first):.4f}"
    assert cell in text
    assert "mean ± standard error over seeds 0, 1, 2" in re.sub(r"[\s│┃]+", " ", text)
    other = [r["metrics"]["test_accuracy"] for r in list(runs.values())[3:]]
    expected = stats.ttest_rel(other, first)
    interval = expected.confidence_interval(0.95)
    gap = np.mean(other) - np.mean(first)
    assert "test_accuracy minus that of lr 0.1, over 3 pairs of numbers; 95 % intervals" in text
    said = re.search(r"lr 0.01 +([+-][\d.]+) +(\[.*\]) +\S+ +([\d.]+) +not told apart", text)
    assert said[1] == f"{gap:+.4f}"
    assert said[2] == f"[{interval.low:+.4f}, {interval.high:+.4f}]"
    assert float(said[3]) == pytest.approx(expected.pvalue, abs=1e-4)


def numbers(folder, *words):
    """The table of ``compare`` as it is in a CSV."""
    code, text = here("compare", *words, "--format", "csv", "--file", folder / "numbers.csv")
    assert code == 0, text
    return pd.read_csv(folder / "numbers.csv")


def test_forms(runs, tmp_path):
    """Each says the same numbers; JSON is strict, and has where they are from."""
    first = [r["metrics"]["test_accuracy"] for r in list(runs.values())[:3]]
    cell = f"{np.mean(first):.4f} ± {stats.sem(first):.4f}"
    for form in ("markdown", "latex", "html"):
        code, text = here("compare", *runs, "--format", form)
        assert code == 0, text
        assert (cell.replace("±", r"$\pm$") if form == "latex" else cell) in text
        assert "two-sided paired t-tests" in text
    said = {}
    for form in ("csv", "json"):
        code, said[form] = here(
            "compare", *runs, "--format", form, "--file", tmp_path / f"a.{form}"
        )
        assert code == 0
    told = json.loads((tmp_path / "a.json").read_text(), parse_constant=pytest.fail)
    # where the file has no room for them, they are told beside it
    wrote = (f"wrote {tmp_path}/a.{form}" for form in said)
    assert said["csv"].splitlines() == [*(f"note: {one}" for one in told["notes"]), next(wrote)]
    assert (len(told["notes"]) > 0, said["json"].strip()) == (True, next(wrote))
    assert [run["seed"] for run in told["runs"]] == [0, 1, 2] * 2
    assert {run["place"] for run in told["runs"]} == {str(place) for place in runs}
    (line, other) = (c for c in told["cells"] if c["metric"] == "test accuracy")
    assert line["mean"] == pytest.approx(np.mean(first))
    assert (line["sem"], line["n"]) == (pytest.approx(stats.sem(first)), 3)
    (test,) = told["tests"]
    assert (test["group"], test["against"], test["pairs"]) == ("lr 0.01", "lr 0.1", 3)
    assert test["difference"] == pytest.approx(other["mean"] - line["mean"])
    table = pd.read_csv(tmp_path / "a.csv").set_index(["metric", "group"])
    assert table.loc["test accuracy", other["group"]]["mean"] == pytest.approx(other["mean"])


def test_forms_of_what_has_no_notes_and_odd_names():
    table = pd.DataFrame({"x|y": ["1|2"]}, index=pd.Index(["a|b"], name="m|n"))
    bare = Written("", table)
    assert bare.as_("markdown").splitlines()[0] == r"| m\|n | x\|y |"
    assert r"| a\|b | 1\|2 |" in bare.as_("markdown")
    assert "caption" not in bare.as_("latex")
    noted = Written("", table, ("means",), ("one is ahead",))
    assert noted.as_("markdown").startswith("Means.\n\n| m")
    assert r"\caption{Means.}" in noted.as_("latex")
    assert "% one is ahead\n" in noted.as_("latex")
    titled = Written("Table 1", table, said=("one is ahead",))
    assert titled.as_("markdown").startswith("**Table 1**.\n\n| m")
    assert r"\caption{Table 1.}" in titled.as_("latex")
    assert r"\label{tab:table-1}" in titled.as_("latex")


def test_latex_has_no_symbol_that_its_fonts_lack():
    table = pd.DataFrame({"Θ = 1e-5": ["0.9 ± 0.1"]}, index=["α_0 & 10 %"])
    text = Written("ε ≤ 1", table).as_("latex")
    assert r"$\alpha$\_0 \& 10 \% & 0.9 $\pm$ 0.1 \\" in text
    assert r"$\Theta$ = 1e-5" in text
    assert text.isascii()


def test_the_best_mean_is_bold_and_what_all_have_in_common_is_said(runs):
    """Of metrics whose better side is known: seconds and bytes have none."""
    code, text = here("compare", *runs, "--format", "latex")
    assert code == 0, text
    means = [
        np.mean([r["metrics"]["test_loss"] for r in list(runs.values())[some]])
        for some in (slice(3), slice(3, 6))
    ]
    (line,) = (line for line in text.splitlines() if line.startswith("test loss"))
    assert ["textbf" in cell for cell in line.split("&")[1:]] == [m == min(means) for m in means]
    assert not any("textbf" in x for x in text.splitlines() if x.startswith(("MB", "seconds")))
    assert "best means in bold" in text
    assert "in all: fedavg, model linear, fashion" in text
    assert "2 rounds" in text
    assert "learning rate" not in text  # in which they differ


def test_a_picture_may_be_written_in_another_form(runs, tmp_path):
    """The data beside it are those of the first."""
    for form in ("pdf", "svg"):
        code, text = here("compare", *runs, "--plot", tmp_path / f"both.{form}")
        assert code == 0, text
    (tmp_path / "other.csv").write_text("mine")
    code, text = here("compare", *runs, "--plot", tmp_path / "other.pdf")
    assert code == 2
    assert (tmp_path / "other.csv").read_text() == "mine"


def test_only_some_rows(runs):
    code, text = here("compare", *runs, "--format", "markdown", "--row", "MB up")
    assert code == 0, text
    assert "| MB up |" in text
    assert "| test accuracy |" not in text
    code, text = here("compare", *runs, "--row", "MB")
    assert code == 2
    assert "the table has no such row, but: test accuracy; test loss" in " ".join(text.split())


def test_columns_are_called_as_one_likes(runs, tmp_path):
    picture = tmp_path / "a.svg"
    more = ("--label", "lr 0.1=ours, η=0.1", "--plot", picture, "--format", "csv")
    code, text = here("compare", *runs, *more)
    assert code == 0, text
    drawn = picture.read_text()
    for name in ("ours, η=0.1", "lr 0.01"):
        assert name in text
        assert name in drawn
    assert "lr 0.1," not in text
    for wrong in ("lr 0.2=x", "lr 0.1", "lr 0.1= "):
        code, text = here("compare", *runs, "--label", wrong)
        assert code == 2
        assert "NAME is a run's folder or one of: lr 0.1; lr 0.01" in text
    code, text = here("compare", *runs, "--label", "lr 0.1=lr 0.01")
    assert (code, "two groups of runs would be called 'lr 0.01'" in text) == (2, True)
    first = next(iter(runs))
    code, text = here("plot", *runs, "--label", f"{first.name}=ours [1]", "--out", picture)
    assert code == 0, text
    assert ">ours [1]<" in picture.read_text()
    # as it was typed, and with the slash that a shell completes
    for name in (os.path.relpath(first), f"{os.path.relpath(first)}/"):
        code, text = here("compare", *runs, "--label", f"{name}=typed", "--format", "csv")
        assert (code, "typed" in text) == (0, True)
    code, text = here("plot", first, "--label", f"{first}=ours", "--out", picture)
    assert (code, "there is one run" in text) == (2, True)


def test_a_page_leads_to_the_runs_own_reports(runs, tmp_path):
    """Relative to where it stands; runs without a page have no link."""
    for place in [*runs][:2]:
        (place / "report.html").write_text("a page")
    (tmp_path / "some").mkdir()
    code, text = here("compare", *runs, "--report", tmp_path / "some" / "both.html")
    assert code == 0, text
    page = (tmp_path / "some" / "both.html").read_text()
    assert not re.search(r"<th[^>]*></th>", page)  # nothing to be read aloud
    labels = re.findall(r'<section class="wide"[^>]* aria-label="([^"]*)"', page)
    assert len(labels) == len({*labels}) == 2
    links = re.findall(r'<a href="([^"#]+)">seed', page)
    there = [place / "report.html" for place in runs if (place / "report.html").is_file()]
    assert [(tmp_path / "some" / link).resolve() for link in links] == there
    assert len(there) >= 2


def test_what_one_has_and_another_has_not_is_said_of_the_one():
    configs = [{"local": {"steps": s, "epochs": e}} for s, e in ((3, None), (None, 2))]
    assert by_difference(configs) == ["steps 3", "epochs 2"]
    configs = [{"local": {"clip": c}} for c in (None, 1.0)]
    assert by_difference(configs) == ["no clip", "clip 1.0"]


def test_means_over_other_clients_are_no_pairs(tmp_path):
    """Three clients that were just trained "beat" thirty of which most never were; equal models
    were "fairer" where each client had more test rows.
    """
    for name, settings in {
        "some": ["evaluation.local_models=true"], "all": ["algorithm=ditto"],
        "rows": ["data.client_test.least=800"], "few": ["data.clients=4"],
        "one": ["attack={name: sign_flip, fraction: 0.2}"],
        "two": ["attack={name: sign_flip, fraction: 0.4}"], "alike": ["local.lr=0.01"],
    }.items():  # fmt: skip
        for seed in (0, 1):
            work = ["rounds=1", "cohort=2", "data.clients=5", f"seed={seed}", *settings]
            run_into(RunFolder(tmp_path / name / f"seed-{seed}"), small(*work))

    def told(*names, metric):
        places = [tmp_path / name for name in names]
        return json.loads(here("compare", *places, "--metric", metric, "--format", "json")[1])

    several = told("some", "all", metric="personal_accuracy_mean")
    assert several["tests"] == []
    assert any("personal_... is of other clients" in note for note in several["notes"])
    assert any("2 clients with" in note and "5 clients with" in note for note in several["notes"])
    others = told("some", "rows", "few", "one", "alike", metric="client_accuracy_worst")
    assert [test["group"] for test in others["tests"]] == ["alike"]
    attacked = told("one", "two", metric="client_accuracy_mean")
    assert attacked["tests"] == []
    # of one test set, and tested as ever
    assert len(told("some", "all", metric="test_accuracy")["tests"]) == 1
    places = [tmp_path / name for name in ("some", "all")]
    tex = here("compare", *places, "--row", "personal accuracy, mean", "--format", "latex")[1]
    assert "textbf" not in tex


def test_little_is_said_with_more_digits():
    cells = [comparison._megabytes("MB", sent).cell([0]) for sent in ([12.3e6, 1e3], [123456789])]
    assert cells == ["12.30000", "123.5"]


def test_a_narrow_terminal_cuts_no_cell(runs, monkeypatch, capsys):
    monkeypatch.setattr(console, "_width", 60)
    show_comparison([RunFolder(place) for place in runs], None)
    text = capsys.readouterr().out
    assert "…" not in text
    assert "seconds at the server" not in text  # a name on two lines
    assert "; not told apart\n" in text
    for width in (1, 2, 20):  # 1 and 2 were a fault of ours
        monkeypatch.setattr(console, "_width", width)
        show_comparison([RunFolder(place) for place in runs], None)
    monkeypatch.setattr(console, "_width", 90)
    show_comparison([RunFolder(place) for place in runs], None)
    assert "  not told apart\n" in capsys.readouterr().out


def test_a_folder_of_trials_is_all_of_them(runs, tmp_path):
    for i, place in enumerate(runs):
        shutil.copytree(place, tmp_path / "trials" / f"t{i}")
    code, text = here("compare", tmp_path)
    assert code == 0, text
    assert re.search(r"lr 0.1 +┃ lr 0.01 ", text)
    assert "standard error over seeds 0, 1, 2" in text


def test_a_sweep_that_has_lost_trials_is_not_compared(runs, tmp_path):
    """As it has no table; nor is a seed left out without a word."""
    for i, place in enumerate(runs):
        shutil.copytree(place, tmp_path / "s" / "trials" / f"t{i}")
    RunFolder(tmp_path / "s").write_sealed("status.json", {"trials": ["t0", "t9"]})
    code, text = here("compare", tmp_path / "s")
    assert code == 2
    assert "it has lost the results of 1 trials (t9, ...)" in text
    for i, place in enumerate(list(runs)[:2]):
        shutil.copytree(place, tmp_path / "seeds" / f"seed-{i}")
    (tmp_path / "seeds" / "seed-1" / "config.yaml").unlink()
    code, text = here("compare", tmp_path / "seeds")
    assert code == 2
    assert "seed-1 is no run (it has no config.yaml)" in text


def test_a_folder_of_folders_of_seeds_is_all_of_them(runs, tmp_path):
    for number, place in enumerate(runs):
        method, seed = ("a", "b")[number // 3], number % 3
        shutil.copytree(place, tmp_path / method / f"seed-{seed}")
    assert members(str(tmp_path)) == [
        str(tmp_path / method / f"seed-{seed}") for method in "ab" for seed in range(3)
    ]
    code, text = here("compare", tmp_path)
    assert code == 0, text
    assert "over seeds 0, 1, 2" in " ".join(text.split())
    code, text = here("compare", tmp_path, "--label", "b=slow", "--format", "csv")
    assert (code, "slow" in text) == (0, True)


def test_single_runs_are_not_tested(runs):
    code, text = here("compare", *list(runs)[::3])
    assert code == 0
    assert "two-sided" not in text
    assert "±" not in text


def test_what_cannot_be_compared_is_said():
    """p was 1 where there is none, and the survivors' interval stood beside a test of all."""
    ends = {"A": [0.5, 0.5, 0.5, 0.5], "B": [0.6, 0.7, math.nan, 0.65]}
    values = {n: dict(enumerate(v)) for n, v in ends.items()}
    tests = PairedTests.of([Measured("test_accuracy", values, True)], "A")
    assert "over 3 pairs of numbers" in tests.about
    assert "signed ranks where a run has no number" in tests.about
    (line,) = tests.table().to_dict("records")
    assert line["difference"] == "+0.1500, missed 1 : 0"
    assert (line["95 % interval"], line["d_z"]) == ("", "")
    same = {"A": {0: 0.5, 1: 0.6}, "B": {0: 0.5, 1: 0.6}}
    (line,) = (
        PairedTests.of([Measured("test_accuracy", same, True)], "A").table().to_dict("records")
    )
    assert (line["p"], line[""]) == ("none", "too few pairs, or nothing differs")


def test_several_metrics_are_corrected_together():
    """Two tests of one group by Holm: the smaller p twice, the larger once and not below it."""
    values = {"A": {0: 0.5, 1: 0.61, 2: 0.7}, "B": {0: 0.61, 1: 0.7, 2: 0.81}}
    far = {"A": {0: 0.5, 1: 0.61, 2: 0.7}, "B": {0: 0.9, 1: 1.1, 2: 1.2}}
    measured = [Measured("test_accuracy", values, True), Measured("test_loss", far, False)]
    tests = PairedTests.of(measured, "A")
    alone = [PairedTests.of([one], "A").records()[0]["p"] for one in measured]
    least, most = sorted(alone)
    expected = [2 * least if p == least else max(most, 2 * least) for p in alone]
    assert [one["p_holm"] for one in tests.records()] == pytest.approx(expected)
    assert tests.about.startswith("metrics minus those of A, ")
    assert "p by Holm over 2" in tests.about
    assert [*tests.table()["metric"]] == ["test_accuracy", "test_loss"]
    assert [*tests.table()[""]] == ["better", "worse"]


def test_a_group_has_one_label(runs):
    first = next(iter(runs))
    twice = ("--label", f"{first}=A", "--label", f"{first}=B")
    code, text = here("compare", *runs, *twice)
    assert (code, "is to be called 'A' and 'B'" in text) == (2, True)


def test_a_label_hides_no_seeds(tmp_path):
    """Means of three seeds and of two stood side by side as "over seeds"."""
    places = {}
    for method, seeds in {"fedavg": 3, "fednova": 2}.items():
        for seed in range(seeds):
            place = places.setdefault(method, tmp_path / method) / f"seed-{seed}"
            run_into(RunFolder(place), small(f"algorithm={method}", f"seed={seed}", "rounds=1"))
    labels = [f"{places['fedavg'] / 'seed-0'}=A", f"{places['fednova'] / 'seed-0'}=B"]
    runs = [RunFolder.existing(place) for one in places.values() for place in sorted(one.iterdir())]
    text = show_comparison(runs, None, form="markdown", labels=labels)
    assert "over seeds 0, 1, 2 of A; 0, 1 of B" in text
    assert "over seeds 0, 1 of B" in show_comparison(runs, None, form="markdown", labels=labels[1:])


def test_what_algorithms_bring_along_for_the_server_is_told(tmp_path):
    """Rows that its clients had not were no word under a test that its method won by them."""
    for name in ("fedavg", "server_only"):
        run_into(RunFolder(tmp_path / name), small(f"algorithm={name}", "rounds=1"))
    runs = [RunFolder.existing(tmp_path / name) for name in ("fedavg", "server_only")]
    assert "data.heldout.per_class (0, 100)" in show_comparison(runs, None, form="markdown")


def test_what_names_do_not_say_stands_below(runs, tmp_path):
    code, text = here("compare", *runs, "--label", "lr 0.1=ours", "--metric", "accuracy")
    assert (code, "ours: learning rate 0.1; lr 0.01: learning rate 0.01" in text) == (0, True)
    assert "with 3 pairs it has to be 2.49 to be told apart" in " ".join(text.split())
    table = numbers(tmp_path, *runs, "--row", "client_accuracy_worst")
    assert set(table["metric"]) == {"client accuracy, worst"}


def test_runs_with_names_of_their_own_hide_nothing(runs, tmp_path):
    """SGD beside Adam had one learning rate "in all", and no word of either."""
    whole = {"local.optimizer": "adam", "server_optimizer.lr": 0.3, "data.limit": 300,
             "local.precision": "bf16"}  # fmt: skip
    places = [tmp_path / "ours"]
    run_into(RunFolder(places[0]), small("rounds=1", "name=ours"))
    for i, (key, value) in enumerate(whole.items()):
        places.append(tmp_path / f"theirs{i}")
        run_into(RunFolder(places[-1]), small("rounds=1", f"name=theirs{i}", f"{key}={value}"))
        text = " ".join(here("compare", places[0], places[-1])[1].split())
        assert f"they differ in {key}" in text.lower(), text
        assert ("learning rate" in text) == (key != "local.optimizer")
        assert ("fashion_mnist_10k" in text) == (key != "data.limit")
    for i in range(3):
        places.append(tmp_path / f"more{i}")
        run_into(RunFolder(places[-1]), small("rounds=1", f"name=more{i}", f"local.steps={4 + i}"))
    text = here("compare", *places)[1]
    for key in (*whole, "local.steps"):
        assert key in text


def test_what_an_algorithm_brings_along_is_in_no_name():
    """FedAdam was "fedadam, adam", and FedAvg "fedavg, sgd"."""
    chosen = [[f"algorithm={name}"] for name in ("fedavg", "fedadam", "scaffold")]
    configs = [small(*settings).model_dump(mode="json") for settings in chosen]
    assert by_difference(configs) == ["fedavg", "fedadam", "scaffold"]
    own = small("algorithm=fedadam", "local.lr=0.5").model_dump(mode="json")
    assert by_difference([configs[0], own])[1] == "fedadam, lr 0.5"
    # a part that another algorithm has not at all is said by its name
    attacked = ("attack={name: sign_flip}", "local.epochs=null")
    defended = [
        small(*attacked, "aggregator=median").model_dump(mode="json"),
        *(
            small(*attacked, f"algorithm={{name: fedaa, agent: {agent}}}").model_dump(mode="json")
            for agent in ("distance", "ddpg")
        ),
    ]
    sent = [
        small("compression.uplink=top_k").model_dump(mode="json"),
        small("compression.downlink=top_k").model_dump(mode="json"),
    ]
    assert by_difference(sent) == ["downlink none, uplink top_k", "downlink top_k, uplink none"]
    judged = [
        small("evaluation.metrics=[f1_macro, auroc]").model_dump(mode="json"),
        small().model_dump(mode="json"),
    ]
    assert by_difference(judged) == ["metrics f1_macro, auroc", "metrics none"]
    assert by_difference(defended) == [
        "fedavg, median", "fedaa, mean, agent distance", "fedaa, mean, agent ddpg",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [("drdm/table3: run", "drdm/table3: run"), ("mean of 3", "Mean of 3"), ("γ: x", "γ: x")],
)
def test_names_keep_their_first_letter(text, said):
    assert _sentence(text) == said


def test_a_picture_is_of_one_metric(runs, tmp_path):
    both = ("--metric", "test_accuracy", "--metric", "test_loss")
    code, text = here("compare", *runs, *both, "--plot", tmp_path / "a.pdf")
    assert (code, "give one --metric" in text) == (2, True)
    code, text = here("compare", *runs, *both)
    assert (code, "metrics minus those of lr 0.1" in text) == (0, True)


def test_of_a_loss_the_sign_is_the_losses_and_the_verdict_the_better_side():
    values = {"A": {0: 1.0, 1: 1.1, 2: 1.2}, "B": {0: 0.5, 1: 0.61, 2: 0.69}}
    tests = PairedTests.of([Measured("test_loss", values, False)], "A")
    (line,) = tests.table().to_dict("records")
    assert (line["difference"], line[""]) == ("-0.5000", "better")
    found = stats.ttest_rel([*values["B"].values()], [*values["A"].values()])
    (record,) = tests.records()
    assert record["p"] == pytest.approx(found.pvalue)
    assert [record["low"], record["high"]] == pytest.approx([*found.confidence_interval(0.95)])
    assert (
        PairedTests.of([Measured("test_loss", values, None)], "A").table()[""].item()
        == "told apart"
    )


def test_the_others_are_tested_against_whom_one_likes(runs):
    first, *_, last = runs
    for name in ("lr 0.01", last, last.name):
        code, text = here("compare", *runs, "--against", name)
        assert (code, "test_accuracy minus that of lr 0.01," in text) == (0, True)
    code, text = here("compare", *runs, "--against", "old", "--label", f"{first.name}=old")
    assert (code, "minus that of old," in text) == (0, True)
    code, text = here("compare", *runs, "--against", "lr 1")
    assert (code, "give a run's folder or one of: lr 0.1; lr 0.01" in text) == (2, True)


def test_a_star_is_at_what_the_tests_tell_apart():
    values = {"a<b": {0: 0.5, 1: 0.6, 2: 0.7}, "B": {0: 0.6, 1: 0.701, 2: 0.8}}
    tests = PairedTests.of([Measured("test_accuracy", values, True)], "a<b")
    lines = [Line("test accuracy", [0.6, 0.7], better=True), Line("rounds", [1, 1], 0)]
    columns = {"a<b": [0], "B": [1]}
    written = _written(lines, columns, (), tests, [*columns], whole=False)
    text = _for_print(written, tests, lines).as_("latex")
    assert r"B & \textbf{0.7000}$^{*}$ & 1 \\" in text
    assert r"*: test accuracy differs from that of a$<$b, p $<$ 0.05" in text
    assert "% B; +0.1003; [" in text


def test_many_groups_are_lines_in_the_order_of_their_names(runs, tmp_path):
    """What is the same of all is a note, and the seeds are said where they are others."""
    names = [f"lr {rate}" for rate in ("1e-05", "0.001", "0.01", "0.02", "0.1", "9", "10")]
    shuffled = {name: [0, 1] for name in sorted(names)}
    assert [*in_natural_order(shuffled)] == names
    same, other = Line("rounds", [2, 2], 0), Line("MB up", [1.0, 2.0], 1)
    columns = {name: [i % 2] for i, name in enumerate(names)}
    written = _written([same, other], columns, (), PairedTests(), [*columns], whole=False)
    assert [*written.table.index] == names
    assert [*written.table.columns] == ["MB up"]
    assert written.notes == ("rounds 2 of each",)
    kept = _written([same, other], columns, (), PairedTests(), [*columns], whole=True)
    assert [*kept.table.columns] == ["rounds", "MB up"]
    code, text = here("compare", *[*runs][:4])
    assert code == 0, text
    assert re.search(r"lr 0.1 \(seeds 0, 1, 2\) +┃ lr 0.01 \(seed 0\)", text)


def test_a_target_of_a_loss_says_from_which_side(runs):
    code, text = here("compare", *runs, "--metric", "test_loss", "--target", "0.1")
    assert (code, 'test_loss is to fall: say "<= 0.1"' in text) == (2, True)
    code, text = here("compare", *runs, "--metric", "test_loss", "--target", "<= 99")
    assert (code, "rounds to <= 99" in text) == (0, True)


def test_groups_that_share_no_seeds_and_threads_are_told(tmp_path):
    for name, seeds, settings in (
        ("a", (0, 1), []), ("b", (2, 3), ["local.lr=0.01"]),
        ("c", (0, 1), ["local.lr=0.02", "resources.threads=2"]),
    ):  # fmt: skip
        for seed in seeds:
            work = ["rounds=1", f"seed={seed}", *settings]
            run_into(RunFolder(tmp_path / name / f"seed-{seed}"), small(*work))
    places = [tmp_path / name for name in "abc"]
    text = " ".join(here("compare", *places)[1].split())
    assert "lr 0.01 (seeds 2, 3): fewer than two seeds of lr 0.1, and so no pairs to test" in text
    assert "runs had 1 and 2 threads, whose bits differ" in text
    edit(tmp_path / "b" / "seed-2", status="stopped", rounds=1)
    text = " ".join(here("compare", places[0], tmp_path / "b" / "seed-2")[1].split())
    assert "stopped: lr 0.01 (seed 2) after 1 of 1 rounds" in text


def test_how_often_runs_were_looked_at_is_told_with_what_they_needed(tmp_path):
    """The same weights, and "2.64 MB" against "3.01"."""
    for every in (1, 2):
        run_into(RunFolder(tmp_path / f"e{every}"), small("rounds=4", f"evaluation.every={every}"))
    both = [tmp_path / "e1", tmp_path / "e2"]
    told = "looked at every so many local steps: 3 in e1, 6 in e2"
    assert told.replace("e1", "every 1").replace("e2", "every 2") in " ".join(
        here("compare", *both, "--target", "0.1")[1].split()
    )
    assert "looked at" not in here("compare", *both)[1]
    assert "looked at" not in here("compare", both[0], "--target", "0.1")[1]


def test_a_target_says_what_it_cost(runs, tmp_path):
    """Rounds of FDA and of Synchronous are not the same; steps and bytes are."""
    table = numbers(tmp_path, *[*runs][:1], "--target", "0.01").set_index("metric")["mean"]
    rounds = RunFolder(next(iter(runs))).rounds().iloc[:1]
    assert table["rounds to 0.01"] == 1
    assert table["local steps to 0.01"] == rounds["steps_total"].item()
    sent = rounds[["bytes_up", "bytes_down"]].sum(axis=1).item() / 1e6
    assert table["MB to 0.01, both ways"] == pytest.approx(sent)
    code, text = here("compare", *[*runs][:1], "--target", "2")
    assert (code, len(re.findall(r"to 2.* │ never", text))) == (0, 4)


def test_what_attackers_had_is_a_row(tmp_path):
    folder = RunFolder(tmp_path / "a")
    run_into(folder, small("rounds=2", "attack={name: sign_flip, fraction: 0.5}"))
    code, text = here("compare", folder.path)
    assert code == 0, text
    mean = folder.rounds()["malicious_weight"].mean()
    assert re.search(rf"attackers' weight, mean over rounds +│ {mean:.3f}", text)
    assert "honest" not in text  # of all that are compared
    run_into(RunFolder(tmp_path / "b"), small("rounds=2"))
    both = here("compare", folder.path, tmp_path / "b", "--format", "markdown")[1]
    assert "eans over clients are over honest ones" in both


def test_how_far_apart_synchronisations_were(runs, tmp_path):
    """Of runs that are beside FDA; and whose seconds are of how many actors."""
    folder = RunFolder(tmp_path / "fda")
    run_into(folder, small("rounds=2", "round_end={name: fda, theta: 0}", "local.steps=6"))
    other = RunFolder(tmp_path / "plain")
    shutil.copytree(next(iter(runs)), other.path)
    table = numbers(tmp_path, folder.path, other.path)
    row = table.set_index("metric").loc["local steps a synchronisation"]
    steps = other.rounds()["steps_total"].iloc[-1] / 2
    assert row["mean"].tolist() == [folder.rounds()["round_steps"].mean(), steps]
    plain = here("compare", *runs)[1]
    assert "a synchronisation" not in plain
    assert "client actors" not in plain
    edit(other.path, actors=7)
    assert "seconds: of 1 and 7 client actors" in here("compare", folder.path, other.path)[1]
    told = here("compare", folder.path, other.path, "--row", "test accuracy")[1]
    assert "seconds: of" not in told  # no row has any


def test_seeds_of_most_are_said_once():
    groups = {"a (seeds 0, 1)": 1, "b (seed 0)": 2, "c (seeds 0, 1)": 3}
    assert without_seeds(groups) == ({"a": 1, "b (seed 0)": 2, "c": 3}, "0, 1")
    assert without_seeds({"a (seeds 0, 1)": 1, "b (seed 0)": 2})[1] == ""


@pytest.mark.parametrize(
    ("metric", "direction"),
    [
        ("test_accuracy", True), ("client_validation_accuracy_worst10", True),
        ("client_accuracy_jain", True), ("client_accuracy_angle", False), ("upper_gap", False),
        ("client_loss_worst", False), ("joules", False), ("seconds_client", False),
        ("malicious_weight", False), ("dual_effective", None), ("effective_clients", None),
        ("policy_correlation", None),
    ],
)  # fmt: skip
def test_which_way_a_metric_is_better(metric, direction):
    assert more_is_better(metric) is direction


def test_names_are_drawn_as_they_are(runs, tmp_path):
    """A dollar began a formula, which may be none, and an underscore left a run out of the legend."""
    rounds, names = RunFolder(next(iter(runs))).rounds(), ("_a", "$x", r"$\frac$")
    with rc_context({"svg.fonttype": "none"}):
        figure = bands({name: [rounds] for name in names}, "test_loss", "loss")
        write_picture(figure, tmp_path / "x.svg", rounds)
    drawn = (tmp_path / "x.svg").read_text()
    for name in names:
        assert name in drawn


@pytest.mark.parametrize("metric", ["test_acuracy", "gradient/"])
@pytest.mark.parametrize("more", [[], ["--plot", "x.png"], ["--target", "0.5"]])
def test_a_metric_that_nobody_reports(metric, more, runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, text = here("compare", *runs, "--metric", metric, *more)
    assert code == 2
    assert f"{metric!r}" in text
    assert not list(tmp_path.iterdir())


def test_any_column_of_the_rounds_is_tested(runs):
    """Bytes and seconds stand in no result.json."""
    code, text = here("compare", *runs, "--metric", "bytes_up")
    assert code == 0
    assert "bytes_up minus that of lr 0.1" in text
    assert "+0.0000" in text
    assert "without a number" not in text


def test_a_run_that_was_stopped_is_no_seed(runs, tmp_path):
    places = [tmp_path / str(n) for n in range(3)]
    for old, new in zip(runs, places, strict=False):
        shutil.copytree(old, new)
    edit(places[1], status="stopped", rounds=1)
    code, text = here("compare", *places)
    assert code == 2
    assert "stopped after round 1" in text
    code, text = here("compare", places[1], list(runs)[3], "--format", "markdown")
    assert code == 0, text
    assert "stopped: lr 0.1 (seed 1) after 1 of 2 rounds" in text
    assert "at most 2 rounds" in text


def test_what_one_side_does_not_report_is_not_lost_by_it(runs, tmp_path):
    """Clients that were not judged "missed" on all seeds, and their algorithm was "worse"."""
    places = [tmp_path / str(n) for n in range(3)]
    for seed, place in enumerate(places):
        run_into(RunFolder(place), small("rounds=2", "evaluation.clients=false", f"seed={seed}"))
    asked = ("client_accuracy_worst", "test_accuracy")
    words = [word for metric in asked for word in ("--metric", metric)]
    code, text = here("compare", *list(runs)[:3], *places, *words, "--format", "json")
    assert code == 0, text
    told = json.loads(text)
    assert [test["metric"] for test in told["tests"]] == ["test_accuracy"]
    assert any("client_accuracy_worst is not reported by" in note for note in told["notes"])


def test_runs_of_other_data_are_not_tested_against_one_another(runs, tmp_path):
    places = [tmp_path / str(n) for n in range(2)]
    for seed, place in enumerate(places):
        config = small("rounds=2", "data.dataset={name: synthetic}", f"seed={seed}")
        run_into(RunFolder(place), config)
    code, text = here("compare", *list(runs)[:2], *places, "--format", "json")
    assert code == 0, text
    told = json.loads(text)
    assert told["tests"] == []
    assert any("of different data, which are not tested" in note for note in told["notes"])


def test_edited_code_is_another(tmp_path):
    """Of a checkout whose files were changed, and not committed, the commit alone was told."""

    def git(*words):
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", "-C", tmp_path, *who, *words], check=True, capture_output=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "SOURCES", tmp_path)
        said = provenance.git_commit.__wrapped__
        assert said() is None
        git("init")
        (tmp_path / "a.py").write_text("1\n")
        git("add", "a.py")
        git("commit", "-m", "first")
        clean = said()
        (tmp_path / "note.md").write_text("not code\n")
        assert said() == clean
        found = []
        for text in ("2\n", "3\n"):
            (tmp_path / "a.py").write_text(text)
            found.append(said())
            (tmp_path / "site").mkdir(exist_ok=True)
            (tmp_path / "site" / "b.py").write_text("installed\n")
        patch.setattr(provenance, "SOURCES", tmp_path / "site")
        assert said() is None  # nobody's commit but its own
        patch.setattr(provenance, "SOURCES", tmp_path)
        patch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
        assert said() == found[-1]
    assert len({clean, *found}) == 3
    assert all(one.startswith(f"{clean}+") for one in found)
    (told,) = provenance.of_which_code([{"git_commit": one} for one in (clean, clean, found[0])])
    short = clean[:7]
    assert told == f"of 2 commits of fedorch: {short} (2), {short}{found[0][40:]} (1)"


def test_data_of_one_name_that_are_not_the_same(runs, tmp_path):
    shutil.copytree(next(iter(runs)), tmp_path / "a")
    edit(tmp_path / "a", data_sha256="0" * 64)
    code, text = here("compare", *list(runs)[1:4], tmp_path / "a")
    assert code == 2
    assert "its data are not those of" in text


def edit(place, **changes):
    """Change what a run says of its end."""
    said = json.loads((place / "result.json").read_text())
    (place / "result.json").write_text(json.dumps({**said, **changes}))
    RunFolder(place).seal()


def test_a_key_that_is_another_section_s_is_named_with_its_own():
    configs = [
        {"data": {"clients": 30, "validation": {"clients": part}}, "local": {"lr": rate}}
        for part, rate in ((0.1, 1), (0.0, 2))
    ]
    assert by_difference(configs) == [
        "validation.clients 0.1, lr 1",
        "validation.clients 0.0, lr 2",
    ]


def test_names_say_what_differs():
    """A part of another name has other options, which are not told."""
    base = {"algorithm": {"name": "fedavg"}, "local": {"lr": 0.1}, "data": {"alpha": 0.3}}
    scaffold = {**base, "algorithm": {"name": "scaffold", "option": 2}}
    assert by_difference([base, scaffold]) == ["fedavg", "scaffold"]
    both = {**scaffold, "local": {"lr": 0.5}}
    assert by_difference([base, scaffold, both]) == [
        "fedavg, lr 0.1", "scaffold, lr 0.1", "scaffold, lr 0.5"
    ]  # fmt: skip
    option = {**base, "algorithm": {"name": "scaffold", "option": 3}}
    assert by_difference([scaffold, option]) == ["option 2", "option 3"]
    assert by_difference([base, scaffold, option]) == [
        "fedavg", "scaffold, option 2", "scaffold, option 3"
    ]  # fmt: skip
    server = [{"a": {"lr": 1}, "b": {"lr": 2}}, {"a": {"lr": 2}, "b": {"lr": 3}}]
    assert by_difference(server) == ["a.lr 1, b.lr 2", "a.lr 2, b.lr 3"]
    assert by_difference([{str(i): 0 for i in range(4)}, {str(i): 1 for i in range(4)}]) == []


def test_what_makes_runs_unlike_is_told(tmp_path, monkeypatch):
    """Other numbers of clients under one cohort, other code, ends by what is compared."""
    work = ["rounds=3", "stop.test_accuracy=0.99"]
    run_into(RunFolder(tmp_path / "a"), small(*work, "algorithm=fedavg"))
    monkeypatch.setattr("orchestrator.rounds.drive.git_commit", lambda: "0123456789" * 4)
    run_into(RunFolder(tmp_path / "b"), small(*work, "algorithm=drfa"))
    code, text = here("compare", tmp_path / "a", tmp_path / "b", "--format", "markdown")
    assert code == 0, text
    assert re.search(r"\| clients trained a round +\| 4.0 +\| [23]\.\d ", text)
    assert "cohorts of 4" in text
    assert re.search(r"uns are of 2 commits of fedorch: [\w+]+ \(1\), [\w+]+ \(1\)", text)
    assert "0123456 (1)" in text
    assert "ended runs" not in text
    assert "at most 3 rounds, until test_accuracy 0.99" in text
    alike = here("compare", tmp_path / "a", "--format", "markdown")[1]
    assert "clients trained" not in alike
    assert "commits" not in alike
    run_into(RunFolder(tmp_path / "c"), small("rounds=3", "stop.test_accuracy=0.01"))
    early = here("compare", tmp_path / "a", tmp_path / "c", "--format", "markdown")[1]
    assert "test_accuracy ended runs (stop)" in early
    edit(tmp_path / "c", status="stopped")  # by somebody, before the goal
    stopped = here("compare", tmp_path / "a", tmp_path / "c", "--format", "markdown")[1]
    assert "ended runs" not in stopped
    assert "(seed 0) after 1 of 3 rounds" in stopped
