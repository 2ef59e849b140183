"""Results of sweeps as tables, claims and figures, and what the first of two stages chooses from them."""

import io
import json
import math
import re
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from orchestrator.config import load
from orchestrator.errors import UserError
from sweeps import commands, efforts, tables
from sweeps.cells import Cells, judged_by
from sweeps.claims import differences, summaries, verdicts
from sweeps.entry import Claim, Column, Published, Tuning
from sweeps.figures import draw
from sweeps.own_table import cells_as
from sweeps.papers import entry
from sweeps.reproduction import Reproduction
from sweeps.results import by_trial, plan_of, table
from sweeps.tables import conditions
from sweeps.targets import PaperTarget, SweepFile, _leading, of_folder, resolve
from sweeps.tuning import Tuned
from tests.running import finish
from tests.sweeps.plans import ENTRY, REDUCED, SMALL, not_yet, results, sweep, tuned
from tests.sweeps.trials import run_here

pytestmark = pytest.mark.usefixtures("ray_session")


def test_the_cells_are_means_over_seeds(finished):
    data = table(finished)
    for _, line in data.iterrows():
        values = [
            r["metrics"]["test_accuracy"]
            for (label, _), r in results(finished).items()
            if label == line["trial"]
        ]
        assert line["mean"] == pytest.approx(np.mean(values))
        assert line["sem"] == pytest.approx(np.std(values, ddof=1) / np.sqrt(2))
    assert data["mean"].is_monotonic_decreasing


def test_status_from_another_shell(finished, capsys):
    commands.show_status(finished)
    assert "trials 8/8: best test_accuracy" in capsys.readouterr().out


def test_a_method_without_such_a_number_need_not_report_it(reproduced):
    """No agent, no policy: its cells are empty, the others as ever."""
    nobodys = Column("policy_effective", ENTRY.columns["mean"].settings)
    one = replace(ENTRY, columns={**ENTRY.columns, "policy": nobodys})
    with pytest.raises(UserError, match="the runs do not report 'policy_effective'"):
        Reproduction(one, "reduced").measured(reproduced)
    nothing = {(row, "policy"): Published(None, note="no agent", exists=False) for row in one.rows}
    one = replace(one, published={**one.published, **nothing})
    found = Reproduction(one, "reduced").measured(reproduced)
    assert {row: found.pop((row, "policy")) for row in one.rows} == {"FedAvg": {}, "FedProx": {}}
    usual = Reproduction(ENTRY, "reduced").measured(reproduced)
    assert str(found) == str(usual)  # NaN is no number's equal


def test_a_row_whose_tuning_failed_keeps_its_first_settings(reproduced, tmp_path, capsys):
    shutil.copytree(reproduced / "tuning", tmp_path / "tuning")
    trials = sorted((tmp_path / "tuning" / "trials").iterdir())
    not_yet([path for path in trials if "FedProx" in (path / "trial.json").read_text()])
    found = tuned(REDUCED, tmp_path / "tuning")
    assert [found.of(row, "mean") for row in ("FedAvg", "FedProx")] == [("local.lr=0.1",)] * 2
    assert "no trial that tunes 'FedProx' has succeeded" in capsys.readouterr().out.replace(
        "\n", " "
    )
    not_yet(path for path in trials if path.exists())
    with pytest.raises(UserError, match="no trial of the tuning"):
        tuned(REDUCED, tmp_path / "tuning")


def test_the_first_stage_chooses_what_learns(reproduced):
    """By rows that nobody is tested on; of two rates the larger is on an edge, which is said."""
    found = Tuned.read(reproduced / "tuning").chosen
    assert [(one.row, one.settings, one.trials) for one in found] == [
        ("FedAvg", ("local.lr=0.1",), 2), ("FedProx", ("local.lr=0.1",), 2),
    ]  # fmt: skip
    assert found[0].edges == ("local.lr = 0.1, with nothing tried above",)
    for (label, _), trial in by_trial(reproduced / "tuning").items():
        rounds = trial.folder.rounds()
        if label == "FedAvg / local.lr=0.1":
            assert found[0].score == rounds["validation_accuracy"].iloc[-1]
            assert found[0].score != rounds["test_accuracy"].iloc[-1]
    seeds = {seed for _, seed in by_trial(reproduced / "tuning")} | {
        seed for _, seed in by_trial(reproduced)
    }
    assert seeds == {0, 1, 2, 77}


def test_columns_of_equal_settings_share_their_trials(reproduced):
    assert len(by_trial(reproduced)) == 2 * 2 * 3


def test_cells_are_the_runs_own_numbers(reproduced):
    values = REDUCED.measured(reproduced)
    alone = finish(
        load(None, [*SMALL, "local.steps=2", "algorithm=fedavg", "local.lr=0.1", "seed=2"])
    )
    assert values["FedAvg", "worst"][2] == pytest.approx(
        100 * alone.records[-1]["client_accuracy_worst"]
    )
    data = tables.numbers(REDUCED, values).set_index(["row", "column"])
    three = list(values["FedAvg", "mean"].values())
    cell = data.loc["FedAvg", "mean"]
    assert cell["mean"] == pytest.approx(np.mean(three))
    assert cell["standard_error"] == pytest.approx(stats.sem(three))
    assert cell["difference"] == pytest.approx(np.mean(three) - 50.0)
    assert data.loc["FedAvg", "rounds to 99 %"]["missed"] == 3


def test_a_number_that_a_method_does_not_have_is_not_shown(reproduced):
    """Whatever its runs say."""
    none = replace(
        ENTRY, published={("FedAvg", "mean"): Published(None, note="has no mean", exists=False)}
    )
    text = tables.render(Reproduction(none, "reduced"), REDUCED.measured(reproduced), "markdown")
    assert "| · (has no mean) |" in text


def test_what_is_to_be_known_of_a_published_number_stands_below(reproduced):
    """It stood nowhere, unless there was no number."""
    first = Published(0.5, note="of other data")
    cells = {
        ("FedAvg", "mean"): first,
        ("FedProx", "mean"): first,
        ("FedAvg", "few rounds"): Published(0.6),
    }
    one = Reproduction(replace(ENTRY, published=cells), "reduced")
    text = tables.render(one, REDUCED.measured(reproduced), "markdown")
    assert text.count("(0.50, note 1)") == sum(
        row in one.rows for row, column in cells if column == "mean"
    )
    assert "(0.60)" in text
    assert "note 1: of other data" in text.casefold()


def test_claims_are_paired_tests():
    values = {
        ("FedAvg", "mean"): {0: 10.0, 1: 11.0, 2: 12.0}, ("FedProx", "mean"): {0: 9.1, 1: 10.0, 2: 11.0},
        ("FedAvg", "worst"): {0: 5.0, 1: 5.0}, ("FedProx", "worst"): {0: 6.0, 1: 6.0},
    }  # fmt: skip
    mean, worst = verdicts(ENTRY, values)["FedAvg above FedProx"]
    a, b = ([*values[row, "mean"].values()] for row in ("FedAvg", "FedProx"))
    assert mean.paired.p == pytest.approx(stats.ttest_rel(a, b, alternative="two-sided").pvalue)
    assert (mean.word, worst.word) == ("holds", "behind")
    assert (
        "holds (p < 0.05) in 1, behind but not told apart in 1 of 2 cells"
        in summaries(ENTRY, values)[0]
    )
    assert "not measured yet" in summaries(ENTRY, {key: {} for key in values})[0]
    assert "not run at this budget" in summaries(ENTRY, {})[0]


def test_cells_that_are_still_to_be_run_are_corrected_for():
    """A table that is looked at in mid-sweep has no verdict that the whole one takes back."""
    a, b = {0: 10.0, 1: 11.0, 2: 12.0}, {0: 9.1, 1: 10.0, 2: 11.0}
    values = {("FedAvg", "mean"): a, ("FedProx", "mean"): b}
    (alone,) = verdicts(ENTRY, values)["FedAvg above FedProx"]
    for other in ({}, {0: 5.0}):
        rest = {("FedAvg", "worst"): other, ("FedProx", "worst"): other}
        early = verdicts(ENTRY, values | rest)["FedAvg above FedProx"][0]
        assert early.adjusted == pytest.approx(2 * alone.adjusted)


def test_counts_of_rounds_are_tested_also_where_seeds_agree():
    column = replace(ENTRY.columns["mean"], statistic="rounds_to", better="low", target=0.5)
    counts = {
        ("FedAvg", "mean"): dict.fromkeys(range(6), 45.0),
        ("FedProx", "mean"): dict.fromkeys(range(6), 50.0),
    }
    claim = Claim("sooner", "FedAvg", ("FedProx",), ("mean",))
    counted = replace(ENTRY, claims=(claim,), columns={**ENTRY.columns, "mean": column})
    assert verdicts(counted, counts)["sooner"][0].word == "holds"
    assert verdicts(replace(ENTRY, claims=(claim,)), counts)["sooner"][0].word == "behind"


def test_what_is_said_of_two_rows_in_the_same_words_is_judged_for_each():
    """The thesis' "a larger Θ saves bytes" is of both monitors; the last was the only one."""
    said = Claim("more is better", "FedAvg", ("FedProx",), ("mean",))
    both = replace(ENTRY, claims=(said, replace(said, better="FedProx", worse=("FedAvg",))))
    seeds = range(4)
    values = {
        ("FedAvg", "mean"): {s: 10.0 + s for s in seeds},
        ("FedProx", "mean"): {s: 9.0 + 1.01 * s for s in seeds},
    }
    first, second = summaries(both, values)
    assert first == "more is better (FedAvg): holds (p < 0.05) in 1 of 1 cells"
    assert second == "more is better (FedProx): contradicted (p < 0.05) in 1 of 1 cells"
    assert len(differences(both, values)) == 2


def test_ahead_of_all_is_counted_by_columns():
    """However many weak rivals there are: one that is not told apart, and the column does not
    hold. An opposite is held to the same level as what is claimed.
    """
    far, near = {s: 5.0 + s * 1.01 for s in range(4)}, {s: 8.99 + s * 1.1 for s in range(4)}
    ours = {s: 9.0 + s for s in range(4)}
    rows = dict.fromkeys(("ours", "far", "near"), ENTRY.rows["FedAvg"])
    claim = Claim("ours ahead", "ours", ("far", "near"), ("mean", "worst"))
    entry = replace(ENTRY, rows=rows, claims=(claim,))
    values = {
        ("ours", "mean"): ours, ("far", "mean"): far, ("near", "mean"): near,
        ("ours", "worst"): ours, ("far", "worst"): far, ("near", "worst"): {s: v - 3 for s, v in far.items()},
    }  # fmt: skip
    said = summaries(entry, values)[0]
    assert "holds against all rivals in 1 of 2 columns; holds (p < 0.05) in 3" in said
    turned = replace(entry, claims=(replace(claim, better="far", worse=("ours",)),))
    assert "contradicted (p < 0.05) in 2 of 2 cells" in summaries(turned, values)[0]
    assert set(differences(entry, values)["verdict"]) == {"holds", "not told apart"}


@pytest.mark.parametrize("form", ["markdown", "csv", "html", "latex", "terminal"])
def test_every_form_of_the_table(reproduced, form, capsys):
    about = tables.About(how=["MB a run: 3"])
    changed = replace(REDUCED, also=("local.batch_size=7",))
    text = tables.render(changed, REDUCED.measured(reproduced), form, about)
    text += capsys.readouterr().out
    assert "FedProx" in text
    assert "50.0" in text
    assert "missed" in text
    assert form == "csv" or "failed" in text
    assert form == "csv" or "MB a run: 3" in text
    assert form == "csv" or "standard error of it, 3 seeds" in text.replace("\n", " ")
    assert "and with local.batch_size=7" in text.replace("\n", " ").replace(r"\_", "_")
    typeset = re.sub(r"^%.*$", "", text, flags=re.M)
    assert form != "latex" or not re.search(r"(?<!\\)[%_]", typeset)


def test_what_columns_show_is_said_of_each_where_it_differs():
    """Seconds stood beside accuracies under heads that name neither."""
    seconds = Column("seconds", ENTRY.columns["mean"].settings, "sum")
    entry = replace(ENTRY, columns={**ENTRY.columns, "runtime": seconds})
    text = tables.render(Reproduction(entry, "reduced"), {}, "markdown")
    assert "; runtime: seconds, summed" in text
    assert f"mean: {ENTRY.columns['mean'].shows}" in text


def test_published_numbers_of_other_data_or_work_do_not_stand_beside_ours():
    """They did where --set said so, and not the budget."""
    seconds = Column("seconds", statistic="sum", better="low")
    published = {("FedAvg", "mean"): Published(50.0), ("FedAvg", "runtime"): Published(5173.0)}
    entry = replace(ENTRY, columns={**ENTRY.columns, "runtime": seconds}, published=published)
    one = Reproduction(entry, "reduced")
    values = {(row, column): {0: 1.0} for row in ENTRY.rows for column in ("mean", "runtime")}

    def text(*also):
        return tables.render(replace(one, also=also), values, "markdown")

    def shown(text):
        return ["(50" in text, "(5173" in text]

    assert shown(text()) == [True, True]
    assert shown(text("local.epochs=1")) == [True, False]
    elsewhere = text("data.dataset=mnist")
    assert "— run on mnist" in elsewhere
    assert shown(elsewhere) == [False, False]


def test_what_could_not_be_had_stands_under_the_table():
    lacking = replace(REDUCED, entry=replace(ENTRY, unavailable="Its images are nowhere."))
    assert "; Its images are nowhere." in tables.render(lacking, {}, "markdown")


def test_a_cell_says_which_seeds_diverged():
    """With a number and without: it must not pass for a target that was missed."""
    values = {
        ("FedAvg", "mean"): {0: 50.0, 1: math.nan, 2: math.nan},
        ("FedProx", "mean"): {0: math.nan},
        ("FedProx", "worst"): {0: 10.0},
    }
    gone = {("FedAvg", "mean"): [1], ("FedProx", "mean"): [0], ("FedProx", "worst"): [0]}
    cells = tables.wide(ENTRY, tables.numbers(REDUCED, values, gone))
    assert cells.loc["FedAvg", "mean"] == "50.00, 1 missed, 1 diverged (50.00)"
    assert cells.loc["FedProx", "mean"] == "diverged, n = 1 (failed)"
    assert cells.loc["FedProx", "worst"] == "10.00, 1 diverged, n = 1"
    csv = tables.render(REDUCED, values, "csv", tables.About(diverged=gone))
    assert "diverged" in csv.splitlines()[0]


def test_what_a_machine_could_not_do_is_no_part_of_a_claim(reproduced, tmp_path):
    """Seeds that had no memory counted as targets that were missed, and lost."""
    folder = tmp_path / "entry"
    shutil.copytree(reproduced, folder)
    label = REDUCED.labels["FedAvg", "mean"]
    for seed, diverged in ((0, True), (1, False)):
        one = by_trial(folder)[label, seed].folder
        one.leave_failure({"error": "no room in memory", "diverged": diverged})
    values = REDUCED.measured(folder)["FedAvg", "mean"]
    assert math.isnan(values[0])
    assert sorted(values) == [0, 2]
    said = efforts.sentences(REDUCED, folder)
    assert (
        f"failed without having diverged, and compared as if they had not been run: {label}, "
        "seed 1 (the first: no room in memory)" in said
    )


def test_a_folder_of_another_sweep_has_no_such_table(finished, tmp_path):
    """It was an empty one."""
    with pytest.raises(UserError, match="holds the sweep 'sweep', and not 'drdm-table1-smoke'"):
        resolve("drdm/table1", "smoke").show(finished, "terminal", None)
    (tmp_path / "mine.yaml").write_text("{name: mine}")
    with pytest.raises(UserError, match="and not 'mine'; choose another --out"):
        resolve(str(tmp_path / "mine.yaml"), "reduced").show(finished, "terminal", None)


def test_a_file_s_cells_can_be_printed_again(finished, tmp_path, capsys):
    (tmp_path / "mine.yaml").write_text("{name: sweep, axes: {local.lr: [0.1]}}")
    mine = resolve(str(tmp_path / "mine.yaml"), "reduced")
    mine.show(finished, "terminal", None)
    assert "8 trials ended" in " ".join(capsys.readouterr().out.split())
    mine.show(finished, "latex", None)
    assert r"\begin{tabular}" in capsys.readouterr().out
    mine.show(finished, "terminal", tmp_path / "t.md")
    text = (tmp_path / "t.md").read_text()
    assert "| trial | n | " in text
    assert " minus " not in text  # what was chosen by the metric is not tested on it
    with pytest.raises(UserError, match="a sweep's file has none"):
        SweepFile(tmp_path / "mine.yaml", ("accuracy",)).check()
    of_folder(finished).show(finished, "terminal", None)
    assert "8 trials ended" in " ".join(capsys.readouterr().out.split())


def test_cells_in_other_forms_are_the_table_s(finished):
    """They were another table: by settings, and tested against the first of these."""
    data = table(finished)
    pd.testing.assert_frame_equal(pd.read_csv(io.StringIO(cells_as(finished, "csv"))), data)
    told = json.loads(cells_as(finished, "json"))
    assert [cell["mean"] for cell in told["cells"]] == pytest.approx([*data["mean"]])
    lines = cells_as(finished, "markdown").splitlines()
    rows = [
        line.split(" | ")[0].removeprefix("| ") for line in lines if line.startswith("| local.lr=")
    ]
    assert rows == [*data["trial"]]


def test_the_best_of_many_is_tested_on_other_numbers_than_it_was_chosen_by(finished):
    runs = [result.rounds for result in by_trial(finished).values()]
    assert judged_by(sweep(), runs) == ("test_accuracy", False)
    assert judged_by(sweep(choose_on="nothing"), runs) == ("test_accuracy", True)
    by_validation = sweep(choose_on="validation", metric="validation_accuracy")
    assert judged_by(by_validation, runs) == ("test_accuracy", True)
    assert judged_by(sweep(choose_on="validation", metric="train_loss"), runs)[1] is False


def test_a_folder_says_whose_table_it_is(finished, monkeypatch):
    with pytest.raises(UserError, match="no sweep"):
        of_folder(finished / "trials")
    target = resolve("fda/table4.4-rte", "full")
    plan = target.one.final_sweep()
    monkeypatch.setattr("sweeps.targets.plan_of", lambda _: plan)
    assert of_folder(finished) == target
    # a sweep of one's own of that name was shown as that table, empty
    plan = sweep(name=plan.name)
    assert isinstance(of_folder(finished), SweepFile)


def test_a_table_of_a_sweep_that_still_runs(reproduced, tmp_path):
    """Without most of its trials."""
    shutil.copytree(reproduced, tmp_path / "half")
    not_yet(sorted((tmp_path / "half" / "trials").iterdir())[:9])
    text = tables.render(REDUCED, REDUCED.measured(tmp_path / "half"), "markdown")
    assert "·" in text


def test_a_copy_of_a_trial_s_folder_is_no_other_seed(finished, tmp_path, capsys):
    shutil.copytree(finished, tmp_path / "s")
    one = next(iter(sorted((tmp_path / "s" / "trials").iterdir())))
    shutil.copytree(one, one.with_name(f"{one.name} (copy)"))
    assert table(tmp_path / "s").equals(table(finished))
    assert "is left out" in capsys.readouterr().err


@pytest.mark.parametrize("figure", ["curves", "axis", "scatter", "clouds"])
def test_figures(reproduced, figure):
    one = replace(REDUCED, entry=replace(ENTRY, figure=figure))
    drawn, data = draw(one, REDUCED.measured(reproduced), reproduced)
    assert drawn.axes
    # the picture was of what the paper has, for all that it said
    said = "; ".join(conditions(one))
    assert said
    assert " ".join(drawn.get_supxlabel().split()) == " ".join(said.split())
    assert set(data["conditions"]) == {said}
    if figure == "curves":
        one = data[(data["row"] == "FedAvg") & (data["column"] == "mean") & (data["round"] == 3)]
        last = [
            r.folder.rounds()["client_accuracy_mean"].iloc[-1]
            for (label, _), r in by_trial(reproduced).items()
            if label == "FedAvg / mean"
        ]
        assert float(one["mean"].iloc[0]) == pytest.approx(100 * np.mean(last))


def test_a_figure_s_table_is_written_where_nobody_else_s_files_are(reproduced, tmp_path, capsys):
    """Its picture and its data went over the table that was asked for, and over others' files."""
    shutil.copytree(reproduced, tmp_path / "s")
    target = PaperTarget(replace(REDUCED, entry=replace(ENTRY, figure="axis")))
    table_of, own = tmp_path / "t.csv", tmp_path / "own.png"
    target.show(tmp_path / "s", "csv", table_of)
    wanted = table_of.read_text()
    assert "published" in wanted.splitlines()[0]
    assert [one.name for one in tmp_path.glob("t.*")] == ["t.csv"]
    with pytest.raises(UserError, match="it is there without"):
        target.show(tmp_path / "s", "markdown", tmp_path / "t.md")
    with pytest.raises(UserError, match="choose another ending"):
        target.show(tmp_path / "s", "markdown", tmp_path / "u.csv")
    own.write_text("mine")
    with pytest.raises(UserError, match="the figure would replace it"):
        target.show(tmp_path / "s", "markdown", tmp_path / "own.md")
    assert (table_of.read_text(), own.read_text()) == (wanted, "mine")
    assert not (tmp_path / "own.md").exists()
    for _ in range(2):  # over an earlier one of its own
        target.show(tmp_path / "s", "markdown", tmp_path / "v.md")
    assert sorted(one.name for one in tmp_path.glob("v.*")) == ["v.csv", "v.md", "v.png"]
    with pytest.raises(UserError, match="whose data it is"):
        target.show(tmp_path / "s", "csv", tmp_path / "v.csv")
    target.show(tmp_path / "s", "json", tmp_path / "v.json")
    (tmp_path / "s" / "figure.png").mkdir()  # nobody asks for this one
    capsys.readouterr()
    target.show(tmp_path / "s", "terminal", None)
    assert "note: no picture" in capsys.readouterr().err


@pytest.mark.parametrize("figure", ["curves", "axis", "scatter"])
def test_a_figure_says_which_means_are_of_fewer_seeds(figure, reproduced, tmp_path):
    """One of FedAvg's three runs failed: its mean is that of the others, and its title says so."""
    folder = shutil.copytree(reproduced, tmp_path / "s")
    first = next(r for (label, _), r in by_trial(folder).items() if label == "FedAvg / mean")
    first.folder.leave_failure({"error": "no"})
    fewer = replace(ENTRY, figure=figure, columns=dict(list(ENTRY.columns.items())[:2]))
    one = Reproduction(fewer, "reduced")
    drawn, data = draw(one, one.measured(folder), folder)
    assert all("fewer seeds: FedAvg (2 of 3)" in place.get_title().replace("\n", " ")
               for place in drawn.axes)  # fmt: skip
    known = data.groupby("row")["known"].max()
    assert known.to_dict() == {"FedAvg": 2, "FedProx": 3}
    for result in by_trial(folder).values():
        if result.label.startswith("FedAvg"):
            result.folder.leave_failure({"error": "no"})
    none, data = draw(one, one.measured(folder), folder)
    assert all("fewer seeds: FedAvg (0 of 3)" in place.get_title().replace("\n", " ")
               for place in none.axes)  # fmt: skip
    assert data.groupby("row")["known"].max().to_dict() == {"FedAvg": 0, "FedProx": 3}
    whole, _ = draw(one, one.measured(reproduced), reproduced)
    assert not any("fewer seeds" in place.get_title() for place in whole.axes)


def test_an_axis_has_a_panel_for_each_quantity(tmp_path):
    one = entry("fda/figure3.8")
    full = Reproduction(one, "full")
    drawn, _ = draw(full, {(r, c): {0: float(len(r))} for r, c in full.labels}, tmp_path)
    names = [
        f"{split}, {what}"
        for split in ("IID", "label 0", "60 % sorted")
        for what in ("GB", "steps")
    ]
    assert [place.get_title() for place in drawn.axes] == names
    first = drawn.axes[0]
    assert (first.get_xlabel(), first.get_yscale()) == ("K", "log")
    assert first.lines[0].get_xdata().tolist() == list(range(5, 65, 5))
    assert len(drawn.legends[0].get_texts()) == len(one.rows)


def test_curves_may_be_drawn_over_the_steps_done(reproduced):
    one = replace(ENTRY, figure="curves", over="steps_total", logarithmic=True)
    drawn, data = draw(Reproduction(one, "reduced"), REDUCED.measured(reproduced), reproduced)
    assert drawn.axes[0].get_xlabel() == "steps total"
    assert drawn.axes[0].get_yscale() == "log"
    assert (data["over"] == data["round"] * data["over"].min()).all()


def test_clouds_show_where_a_strategy_s_runs_are(tmp_path):
    """A density for strategies with enough runs, from the runs that reached the target."""
    one = entry("fda/figure3.3")
    full = Reproduction(one, "full")
    rng = np.random.default_rng(0)
    values = {
        (row, column): {
            0: float(np.exp(rng.normal(3 if "Synchronous" in row else 0)))
            * (1 if "GB" in column else 1000)
        }
        for row, column in full.labels
    }
    values["Synchronous K=5", next(iter(one.columns))] = {0: float("nan")}
    drawn, _ = draw(full, values, tmp_path)
    assert len(drawn.axes) == len(one.columns) // 2
    first = drawn.axes[0]
    names = [text.get_text() for text in drawn.legends[0].get_texts()]
    assert set(names) == {"Synchronous", "FedAdam", "LinearFDA", "SketchFDA"}
    points = [c for c in first.collections if len(c.get_offsets()) > 1]
    densities = len(first.collections) - len(points)
    assert sum(len(c.get_offsets()) for c in points) == len(one.rows) - 1
    assert densities == 4
    drawn.savefig(tmp_path / "x.png", dpi=60)


def test_unequal_tuning_is_refused():
    unfair = replace(
        ENTRY,
        tuning=Tuning(
            {"FedAvg": {"local.lr": (0.1,)}, "FedProx": {"local.lr": (0.1, 0.2)}}, Column()
        ),
    )
    with pytest.raises(UserError, match="as many trials to be tuned with"):
        Reproduction(unfair, "reduced").candidates()


def test_a_plan_keeps_the_order_of_its_axes(tmp_path):
    """By their names a condition stood before what it is about, and the table could not be read."""
    axes = {
        "round_end": [{"name": "fixed"}, {"name": "fda", "theta": 0.1}],
        "local.steps": {"grid": [3, 2], "when": {"round_end": {"name": "fda", "theta": 0.1}}},
    }
    run_here(sweep(axes=axes, choose_on="nothing"), tmp_path)
    labels = [one.label for one in plan_of(tmp_path).planned()]
    assert [*table(tmp_path)["trial"]] == labels
    assert [*plan_of(tmp_path).axes] == [*axes]


def test_labels_are_texts_and_copies_are_no_fault(tmp_path):
    """Two of eight digits looked the same, one that is "nan" was nothing, and of two settings that
    are one config the second's label was refused."""
    cells = [
        {"label": "12345678", "settings": ["local.lr=0.1"]},
        {"label": "12345679", "settings": ["cohort=4", "local.lr=0.1"]},
        {"label": "nan", "settings": ["local.lr=0.3"]},
    ]
    run_here(sweep(cells=cells, seeds=[0, 1], choose_on="nothing"), tmp_path)
    leading = [run.config() for run in _leading(Cells.read(tmp_path))]
    # the second label is the same config as the first; not its second seed
    assert [config.local.lr for config in leading] == [0.1, 0.3]
    text = cells_as(tmp_path, "markdown")
    for label in ("12345678", "12345679", "nan"):
        assert f"| {label} | 2 |" in text


def test_columns_that_are_shown_are_no_others_that_are_tested(reproduced):
    """With fewer of them Holm's correction was over fewer, and verdicts were others."""
    some = replace(REDUCED, only=("worst",))
    assert some.whole.columns == REDUCED.columns
    assert {*some.labels.values()} < {*REDUCED.labels.values()}  # trials that columns share
    values = some.whole.measured(reproduced)
    assert summaries(ENTRY, values) == summaries(ENTRY, REDUCED.measured(reproduced))
    text = tables.render(some, values, "markdown")
    assert "1 of 4 columns; claims are tested over all that the budget has" in text
    assert "columns; claims" not in tables.render(REDUCED, values, "markdown")
