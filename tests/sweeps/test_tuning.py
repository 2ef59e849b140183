"""What a choice may be made by, grids that are extended where a best setting is on an edge, and what is said of both."""

import math
import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from orchestrator.analysis.tested import Measured, PairedTests
from orchestrator.config import build
from orchestrator.errors import UserError
from orchestrator.results.provenance import of_which_code
from orchestrator.results.run_folder import RunFolder
from sweeps import edges, efforts, own_table, statistics, targets, tuning
from sweeps.cells import Cells
from sweeps.choice import Choice
from sweeps.entry import Budget, Column, Entry, Tuning
from sweeps.own_table import sentences, show_cells, show_tests
from sweeps.papers import entries
from sweeps.plan import Sweep
from sweeps.reproduction import Reproduction
from sweeps.results import by_trial, plan_of, stored, table, table_of
from sweeps.targets import PaperTarget, Running
from sweeps.tuning import EXTENSIONS, Candidate, Chosen, Scored, Search, Tuned
from tests.sweeps.plans import ENTRY, REDUCED, SMALL
from tests.sweeps.trials import run_here, trials_here


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"metric": "test_accuracy"}, "on which nothing is to be chosen; take validation_accuracy"),
        ({"metric": "client_accuracy_worst"}, "take client_validation_accuracy_worst"),
        ({"metric": "personal_accuracy_mean"}, "take personal_validation_accuracy_mean"),
        ({"choose_on": "test"}, "metric validation_accuracy is not of test data"),
        (
            {"metric": "test_loss", "choose_on": "nothing", "scheduler": "asha"},
            "asha chooses by the metric",
        ),
    ],
)
def test_what_is_chosen_by_test_data_says_so(given, word):
    with pytest.raises(ValueError, match=word):
        Sweep.model_validate(given)


@pytest.mark.usefixtures("ray_session")
def test_a_sweep_chooses_by_rows_that_it_keeps_back(tmp_path, capsys):
    plan = Sweep(set=tuple(SMALL), axes={"local.lr": {"grid": (1e-6, 0.1)}}, loggers=())
    run_here(plan, tmp_path)
    trials = by_trial(tmp_path)
    assert {t.folder.config().data.validation.clients for t in trials.values()} == {0.1}
    data = table(tmp_path).set_index("trial")
    for (label, _), trial in trials.items():
        last = trial.folder.rounds().iloc[-1]
        assert data.loc[label, "mean"] == last["validation_accuracy"]
        assert data.loc[label, "test"] == last["test_accuracy"]
    show_cells(tmp_path)
    said = capsys.readouterr().out
    assert "by data that is not tested on" in said
    assert "the best has local.lr = 0.1, the largest of its grid" in said
    measured = Cells.read(tmp_path)
    tied = replace(measured, data=measured.data.assign(mean=0.5))
    early = replace(measured, plan=plan.model_copy(update={"seeds": (0, 1)}))
    for open_ in (tied, early):
        assert "of its grid" not in "".join(sentences(open_))
    assert early.title.endswith("2 of 4 trials ended")


@pytest.mark.parametrize(
    ("path", "end", "way", "more"),
    [
        ("algorithm.mu", 0.0, -1, False), ("algorithm.mu", 0, 1, True), ("cohort", 6, 1, False),
        ("cohort", 1.0, 1, False), ("local.lr", 1, -1, True), ("local.lr", 1e-7, -1, True),
        ("local.steps", 1, -1, False), ("local.steps", 5, 1, True),
    ],
)  # fmt: skip
def test_beyond_some_ends_of_a_grid_there_is_nothing(path, end, way, more):
    plan = Sweep(set=(*SMALL, "algorithm=fedprox"), choose_on="nothing", axes={path: (end, 3)})
    assert edges._goes_on(plan, Choice(plan.planned()[0]), path, (end, way)) is more


def test_a_sweep_in_which_none_has_ended_says_so(finished, tmp_path, capsys):
    shutil.copytree(
        finished, tmp_path / "s", ignore=shutil.ignore_patterns("trials", "status.json")
    )
    show_cells(tmp_path / "s")
    said = capsys.readouterr().out
    assert "no trial has ended yet" in said
    assert "best first" not in said


def _tested(many):
    values = {f"lr={i}": {s: i + 0.1 * s * (i + 1) for s in range(4)} for i in range(many + 1)}
    return PairedTests.of([Measured("test_accuracy", values, True)], "lr=0")


def test_tests_stand_below_the_table_or_it_is_said_where(capsys):
    show_tests(_tested(2), Path("runs/a sweep"))
    said = capsys.readouterr().out
    assert "test_accuracy minus that of lr=0" in said
    assert re.search(r"lr=2 +\+2\.3000", said)
    show_tests(_tested(20), Path("runs/a sweep"))
    said = capsys.readouterr().out
    assert "tests of 20 settings against the first: fedorch table 'runs/a sweep'" in said
    show_tests(_tested(0), Path("runs/a sweep"))
    assert not capsys.readouterr().out


@pytest.mark.parametrize(
    ("mean", "error", "text"),
    [
        (0.43678, 0.059432, "0.4368 ± 0.0594"),
        (1234.5, 6.789, "1234 ± 7"),
        (-0.002, 0.0001, "-0.002000 ± 0.000100"),
        (3e-7, 1e-8, "3e-07 ± 1e-08"),
        (0.0, 0.1, "0.0000 ± 0.1000"),
        (0.5, math.nan, "0.5"),
        (math.nan, 0.1, ""),
    ],
)
def test_a_mean_and_its_error_end_at_the_same_place(mean, error, text):
    assert own_table._with_error(mean, error) == text


def test_rows_that_a_sweep_names_are_kept_back_instead():
    kept = {"data": {"clients": 5, "validation": {"server": 0.2}}}
    assert build(Sweep(base=kept).raw()).data.validation.clients == 0
    assert build(Sweep(base={"data": {"clients": 5}}).raw()).data.validation.clients == 0.1
    alone = Sweep(metric="train_loss", mode="min")
    assert build(alone.raw()).data.validation.clients == 0


def found(scores, high=True):
    """A search over the rates ``scores`` (rate -> score)."""
    scored = [Scored(Candidate("A", "", (("local.lr", v),)), s) for v, s in scores.items()]
    return Search(tuple(scored), high)


def beside(search):
    """What is tried next."""
    return [edge.candidate.values for edge in search.edges]


def test_edges_and_what_is_tried_next():
    assert beside(found({0.1: 1.0, 0.2: 3.0, 0.5: 2.0})) == []
    assert beside(found({0.1: 1.0, 0.2: 2.0, 0.5: 3.0})) == [(("local.lr", 1.25),)]
    bottom = found({0.1: 1.0, 0.2: 2.0, 0.5: 3.0}, high=False)
    assert beside(bottom) == [(("local.lr", 0.05),)]
    assert [str(edge) for edge in bottom.edges] == ["local.lr = 0.1, with nothing tried below"]
    # an axis ends at zero; words have no order; one value is no grid
    assert found({0.0: 3.0, 0.1: 1.0}).edges == []
    assert found({"a": 3.0, "b": 1.0}).edges == []
    assert found({0.1: 3.0}).edges == []
    # beyond 4 local steps come 8, and not 8.0; below 1 there is none
    (up,) = beside(found({1: 0.0, 2: 1.0, 4: 2.0}))
    assert repr(up[0][1]) == "8"
    assert beside(found({1: 3.0, 2: 1.0, 4: 2.0})) == []


def climbed(objective, grid, steps):
    """The best of a grid, and of what is tried beside the best, so many times."""
    tried = [(("a", a), ("b", b)) for a in grid["a"] for b in grid["b"]]
    for _ in range(steps + 1):
        scored = [Scored(Candidate("A", "", v), objective(**dict(v))) for v in tried]
        search = Search(tuple(scored), True)
        tried += [values for values in beside(search) if values not in tried]
    return search


def test_an_optimum_outside_the_corner_of_a_grid_is_found():
    """The rate had been tried beyond its end with another μ only, and passed for bracketed."""

    def objective(a, b):
        return -(math.log(a / 16) ** 2) - math.log(b / 0.125) ** 2

    grid = {"a": (1.0, 2.0, 4.0), "b": (1.0, 2.0, 4.0)}
    assert climbed(objective, grid, 2).edges
    search = climbed(objective, grid, EXTENSIONS)
    assert dict(search.best.candidate.values) == {"a": 16.0, "b": 0.125}
    assert search.edges == []


RATES = {"local.lr": (1e-6, 1e-5)}  # far below what learns best
EXTENDED = replace(
    ENTRY,
    budgets={"full": replace(ENTRY.budgets["reduced"], seeds=(0,), columns=("mean",))},
    tuning=Tuning({"FedAvg": RATES, "FedProx": RATES}, Column("test_loss", better="low")),
)


@pytest.mark.usefixtures("ray_session")
def test_a_grid_whose_best_is_on_its_edge_goes_on_at_the_full_budget(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(targets, "EXTENSIONS", 3)
    one = Reproduction(EXTENDED, "full")
    with trials_here():
        PaperTarget(one).run(str(tmp_path), Running())
    out = re.sub(r"\s+", " ", capsys.readouterr().out)
    tuned = Tuned.read(tmp_path / "tuning")
    assert [c.settings for c in tuned.chosen] == [("local.lr=0.01",)] * 2
    assert [c.trials for c in tuned.chosen] == [5, 5]
    assert plan_of(tmp_path / "tuning" / "further-3").metric == "validation_loss"
    assert "local.lr = 0.01, with nothing tried above" in out
    assert "FedProx: local.lr=0.01 (5 settings; local.lr 1e-06 to 0.01)" in out
    assert "distinct clients that train a round: 4 for all methods" in out
    configs = [r.folder.config() for r in by_trial(tmp_path).values()]
    assert {c.local.lr for c in configs} == {0.01}
    assert {c.data.validation.clients for c in configs} == {0.0}


def test_settings_that_make_no_config_are_not_tried():
    rates = {"cohort": (0.5, 1.0)}
    entry = replace(EXTENDED, tuning=Tuning({"FedAvg": rates, "FedProx": rates}, Column()))
    one = Reproduction(entry, "full")
    scored = tuple(Scored(c, dict(c.values)["cohort"]) for c in one.candidates()[:2])
    assert [e.value for e in Search(scored, True).edges] == [2.0]
    assert one.further([Search(scored, True)]) == []
    assert Reproduction(ENTRY, "reduced").further([found({0.1: 1.0, 0.2: 3.0})]) == []


def test_columns_may_have_settings_of_their_own():
    entry = replace(ENTRY, tuning=replace(ENTRY.tuning, each_column=True))
    one = Reproduction(entry, "reduced")
    tried = one.candidates()
    # three of the four columns have equal settings
    assert {(c.row, c.column) for c in tried} == {
        (row, column) for row in ENTRY.rows for column in ("mean", "few rounds")
    }
    cells = {cell.label: cell.settings for cell in one.tuning_sweep(tried).cells}
    assert "rounds=2" in cells["FedAvg / local.lr=0.1 @ few rounds"]
    assert "rounds=2" not in cells["FedAvg / local.lr=0.1 @ mean"]
    chosen = [
        Chosen("FedAvg", "mean", ("local.lr=1",), 0.5, 2, (), ()),
        Chosen("FedAvg", "few rounds", ("local.lr=2",), 0.5, 2, (), ()),
    ]
    final = {c.label: c.settings for c in one.final_sweep(Tuned(tuple(chosen))).cells}
    assert "local.lr=1" in final["FedAvg / mean"]
    assert "local.lr=2" in final["FedAvg / few rounds"]


def test_a_difference_in_effort_is_a_sentence():
    """By hand: what one of two methods alone is given."""
    same = efforts._said("rounds a run", {"A": 100.0, "B": 100.4})
    assert same == "rounds a run: 100 for all methods"
    other = efforts._said("distinct clients a round", {"A": 14.5, "B": 20.0, "C": 20.0})
    assert other == "distinct clients a round: 14.5 A; 20 B, C"


def test_settings_stand_under_a_table_that_tunes_nothing(tmp_path, monkeypatch):
    """A claim about the dual step was of rows with other rates, which the table did not say."""
    monkeypatch.setattr(efforts, "sentences", lambda *_: [])
    again = targets.resolve("drdm/table3-again", "smoke", ()).one
    said = targets._how(again, tmp_path)
    assert said[0].startswith("nothing was tuned in this sweep")
    assert "SCAFFOLD: algorithm=scaffold, local.lr=0.458" in said
    assert "DRDM γ = 0: algorithm={name: drdm, mu: 0.1, gamma: 0}, local.lr=0.146" in said
    assert len(said) == 1 + len(again.entry.rows)
    many = targets.resolve("fda/figure3.3", "smoke", ()).one
    assert len(many.rows) > efforts.MOST
    assert len(targets._how(many, tmp_path)) == 1


def test_of_the_settings_of_rows_those_that_ran_are_told():
    """It named the method of the entry where --set had another, and rows that had not run."""
    figure = Reproduction(entries()["feddual/figure2"], "smoke")
    assert any("algorithm=fedavg" in said for said in efforts.given(figure))
    changed = efforts.given(replace(figure, also=("algorithm=fedprox",)))
    assert [said for said in changed if "algorithm" in said] == []
    few = Reproduction(entries()["fedaa/agent-mnist"], "reduced")
    assert len(efforts.given(few)) == len(few.rows) < len(few.entry.rows)
    # each of its columns has a rate of its own, so that none of the rows' own is in effect
    beaten = Entry("x/y", "", {"A": ("algorithm=fedavg", "local.lr=1"), "B": ("local.lr=2",)},
                   {f"{rate}": Column(settings=(f"local.lr={rate}",)) for rate in (3, 4)},
                   (), {"smoke": Budget()})  # fmt: skip
    assert efforts.given(Reproduction(beaten, "smoke")) == ["A: algorithm=fedavg"]


def test_the_efforts_of_trials(reproduced):
    found = efforts.sentences(REDUCED, reproduced)
    trials = [t for (label, _), t in by_trial(reproduced).items() if label == "FedAvg / mean"]
    steps = trials[0].folder.clients().groupby("round")["steps"].sum().iloc[-1]
    # three rounds, or two ("few rounds"), of four clients with two steps each
    assert steps == 3 * 4 * 2
    assert "local steps of all clients a run: 20 for all methods" in found
    assert "distinct clients that train a round: 4 for all methods" in found
    assert "distinct clients that send or are sent anything a round: 4 for all methods" in found


def test_efforts_are_of_the_seeds_that_all_rows_have(monkeypatch):
    """A seed that was missing made an unequal effort."""
    monkeypatch.setattr(efforts, "_spent", lambda trial: {"steps": trial.steps})

    def trials(*steps):
        return [SimpleNamespace(seed=s, steps=n) for s, n in enumerate(steps) if n]

    both = {"A": trials(100, 200, 300), "B": trials(100, 0, 300), "not run": []}
    assert efforts._measured(both) == {"steps": {"A": 200, "B": 200}}
    apart = {"A": trials(100), "B": trials(0, 200)}
    assert efforts._measured(apart) == {"steps": {"A": 100, "B": 200}}


def test_efforts_are_of_the_columns_that_all_rows_have():
    """A row that lacked the columns of little work seemed to be given more."""
    few, many = SimpleNamespace(label="a", seed=0), SimpleNamespace(label="b", seed=0)
    whole = {"little": [few], "much": [many], "much, too": [many]}
    half = {"little": [], "much": [many], "much, too": [many]}
    columns = efforts._common({"FedAvg": whole, "FedDUAL": half, "not run": {"much": []}})
    assert columns == {"much", "much, too"}
    assert efforts._distinct(whole, columns) == [many]
    assert efforts._distinct(whole, set()) == [few, many]
    assert efforts._common({"not run": {"much": []}}) == set()


def test_trials_of_several_commits_are_told():
    one, other = {"git_commit": "a" * 40}, {"git_commit": "b" * 40}
    assert of_which_code([one, one]) == []
    (said,) = of_which_code([one, other, one, {"git_commit": None}])
    assert said == "of 3 commits of fedorch: aaaaaaa (2), bbbbbbb (1), unknown (1)"


def test_ties_and_failures_of_a_grid_are_told():
    """ "4 settings" hid that none, or not all, had a number."""

    def said(*scores):
        found = [
            Scored(Candidate("A", "", (("local.lr", rate),)), score)
            for rate, score in zip((0.1, 0.2, 0.4, 0.8), scores, strict=True)
        ]
        return tuning._said(Chosen.of(Search(tuple(found), True)))

    nan = math.nan
    assert said(1, 2, 3, 4).startswith("A: local.lr=0.8 (4 settings; ")
    assert "(4 settings, 1 without a number, the first of 2 that are tied; " in said(1, 4, nan, 4)
    assert said(nan, nan, nan, nan) == (
        "A: local.lr=0.1, not tuned: none of 4 settings has a number"
    )


def test_what_rows_and_columns_are_is_not_set():
    """Seven rows under seven names were one method."""
    apart = {
        "drdm/table3": ("algorithm=fedavg", "algorithm.name=fedavg", "data.partition=iid"),
        "fedaa/table8-mnist": ("attack=none",),
        "fda/table3.2": ("data.clients=5",),
        "drdm/figure3": ("local.steps=5",),
        "drdm/dual-step": ("local.lr=0.1",),
    }
    for name, settings in apart.items():
        for setting in settings:
            with pytest.raises(UserError, match=r"the rows or columns of .* differ in"):
                targets.resolve(name, "smoke", ()).plans(Running(settings=(setting,)))
        targets.resolve(name, "smoke", ()).plans(Running(settings=("data.limit=500",)))
    table = targets.resolve("feddual/table1", "smoke", ())
    # two columns would be of the same runs
    with pytest.raises(UserError, match="differ in rounds"):
        targets.resolve("drdm/dual-step-again", "full", ()).plans(Running(settings=("rounds=30",)))
    for free in ("rounds=3", "stop.steps_total=9", "stop={round: 2}"):
        table.plans(Running(settings=(free,)))
    for goal in ("stop.validation_accuracy=0.3", "stop={test_loss: '<= 1'}"):
        with pytest.raises(UserError, match="would end each trial where it happened to overshoot"):
            table.plans(Running(settings=("rounds=3", goal)))


def test_how_far_a_mixture_went_is_a_sentence():
    """Beside "20 distinct clients" it says that λ was mostly not executed."""

    def trial(**columns):
        return SimpleNamespace(rounds=pd.DataFrame(columns))

    rows = {
        "DRDM": [trial(dual_max=[0.2, 0.4]), trial(dual_max=[0.3, 0.5])],
        "FedAvg": [trial(cohort=[20.0])],
        "DRFA": [],
    }
    (said,) = efforts._mixtures(rows)
    assert said.endswith("mean over rounds: 0.35 for all methods")
    assert efforts._mixtures({"FedAvg": rows["FedAvg"]}) == []


def test_a_setting_that_is_tuned_is_not_set(tmp_path):
    """It won over all candidates, which then stood under names that were none of theirs."""
    target = PaperTarget(REDUCED)
    for setting in ("local.lr=0.1", "local={lr: 0.1}"):
        with pytest.raises(UserError, match=r"tunes local\.lr for each method"):
            target.run(str(tmp_path / "s"), Running(settings=(setting,)))


def test_rounds_that_end_by_test_data_choose_by_it():
    plan = Sweep(set=("stop={test_accuracy: 0.9}",))
    with pytest.raises(UserError, match="chosen on test data; take validation_accuracy"):
        list(plan.configs())
    assert list(plan.model_copy(update={"choose_on": "nothing"}).configs())
    assert list(Sweep(set=("stop={validation_accuracy: 0.9}",)).configs())


def test_what_stands_beside_the_best_is_of_the_same_round():
    """It was the best of the test data, whenever that was."""
    rounds = pd.DataFrame({"v": [0.1, 0.9, 0.5], "t": [0.95, 0.6, 0.2]})
    best = Column("v", statistic="best")
    assert statistics.beside(rounds, best, "t") == 0.6
    assert statistics.beside(rounds, replace(best, better="low"), "t") == 0.95
    assert statistics.beside(rounds, Column("v"), "t") == 0.2


def test_of_several_seeds_one_that_was_stopped_has_no_number(finished, tmp_path):
    """A mean of what was reached in other rounds is of no round."""
    plan, found = stored(finished)
    whole = table_of(plan, found)
    best = whole["trial"][0]
    ended = [replace(r, status="stopped") if (r.label, r.seed) == (best, 0) else r for r in found]
    data = table_of(plan, ended)
    line = data[data["trial"] == best].iloc[0]
    assert (data["trial"].iloc[-1], line["count"], line["stopped"]) == (best, 1, 1)
    (alone,) = [r for r in ended if (r.label, r.seed) == (best, 1)]
    assert line["mean"] == alone.value(plan.column)
    single = plan.model_copy(update={"seeds": (0,)})
    kept = table_of(single, [r for r in ended if r.seed == 0])
    assert kept["count"].tolist() == [1] * len(kept)


def test_a_setting_that_not_all_seeds_survive_is_not_the_best(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "s")
    best = table(tmp_path / "s")["trial"][0]
    one = next(t for (label, _), t in by_trial(tmp_path / "s").items() if label == best)
    choice = Choice.read(one.folder.path)
    choice.leave_failed(RunFolder(one.folder.path), "lost")
    data = table(tmp_path / "s")
    assert data["trial"].iloc[-1] == best
    assert data["count"].iloc[-1] == 1
