"""What a choice may be made by, grids that are extended where a best setting is on an edge, and what is said of both."""

from dataclasses import replace

import pytest

from orchestrator.config import build
from sweeps import efforts
from sweeps.entry import Column, Tuning
from sweeps.plan import Sweep
from sweeps.reproduction import Reproduction
from sweeps.results import by_trial, plan_of, table
from sweeps.targets import PaperTarget, Running, show_cells
from sweeps.tuning import Candidate, Chosen, Scored, Search, Tuned
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
    assert "by data that is not tested on" in capsys.readouterr().out


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


def test_edges_and_what_is_tried_next():
    grid = {"local.lr": (0.1, 0.2, 0.5)}
    inside = found({0.1: 1.0, 0.2: 3.0, 0.5: 2.0})
    assert (inside.edges, inside.further(grid)) == ([], [])
    top = found({0.1: 1.0, 0.2: 2.0, 0.5: 3.0})
    assert [one.values for one in top.further(grid)] == [(("local.lr", 1.25),)]
    bottom = found({0.1: 1.0, 0.2: 2.0, 0.5: 3.0}, high=False)
    assert [one.values for one in bottom.further(grid)] == [(("local.lr", 0.05),)]
    assert [str(edge) for edge in bottom.edges] == ["local.lr = 0.1 is the smallest tried"]
    # an axis ends at zero; words have no order; one value is no grid
    assert found({0.0: 3.0, 0.1: 1.0}).edges == []
    assert found({"a": 3.0, "b": 1.0}).edges == []
    assert found({0.1: 3.0}).edges == []
    # beyond 4 local steps come 8, and not 8.0
    more = found({1: 0.0, 2: 1.0, 4: 2.0}).further({"local.lr": (1, 2, 4)})
    assert repr(more[0].values[0][1]) == "8"


def test_an_edge_is_extended_with_all_of_the_other_axes():
    values = [(a, b) for a in (1.0, 2.0) for b in (10.0, 20.0, 40.0)]
    scored = [Scored(Candidate("A", "", (("a", a), ("b", b))), a - abs(b - 20)) for a, b in values]
    further = Search(tuple(scored), True).further({"a": (1.0, 2.0), "b": (10.0, 20.0, 40.0)})
    assert [dict(one.values) for one in further] == [{"a": 4.0, "b": b} for b in (10.0, 20.0, 40.0)]


RATES = {"local.lr": (1e-6, 1e-5)}  # far below what learns best
EXTENDED = replace(
    ENTRY,
    budgets={"full": replace(ENTRY.budgets["reduced"], seeds=(0,), columns=("mean",))},
    tuning=Tuning({"FedAvg": RATES, "FedProx": RATES}, Column("test_loss", better="low")),
)


@pytest.mark.usefixtures("ray_session")
def test_a_grid_whose_best_is_on_its_edge_goes_on_at_the_full_budget(tmp_path, capsys):
    one = Reproduction(EXTENDED, "full")
    with trials_here():
        PaperTarget(one).run(str(tmp_path), Running())
    out = capsys.readouterr().out.replace("\n", " ")
    tuned = Tuned.read(tmp_path / "tuning")
    assert [c.settings for c in tuned.chosen] == [("local.lr=0.01",)] * 2
    assert [c.trials for c in tuned.chosen] == [5, 5]
    assert plan_of(tmp_path / "tuning" / "further-3").metric == "validation_loss"
    assert "local.lr = 0.01 is the largest tried" in out
    assert "with 5 settings a method" in out
    assert "distinct clients a round: 4 for all methods" in out
    configs = [r.folder.config() for r in by_trial(tmp_path).values()]
    assert {c.local.lr for c in configs} == {0.01}
    assert {c.data.validation.clients for c in configs} == {0.0}


def test_settings_that_make_no_config_are_not_tried():
    rates = {"cohort": (0.5, 1.0)}
    entry = replace(EXTENDED, tuning=Tuning({"FedAvg": rates, "FedProx": rates}, Column()))
    one = Reproduction(entry, "full")
    scored = tuple(Scored(c, dict(c.values)["cohort"]) for c in one.candidates()[:2])
    assert [str(e) for e in Search(scored, True).edges] == ["cohort = 1 is the largest tried"]
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
        Chosen("FedAvg", "mean", ("local.lr=1",), 0.5, 2, ()),
        Chosen("FedAvg", "few rounds", ("local.lr=2",), 0.5, 2, ()),
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


def test_the_efforts_of_trials(reproduced):
    found = efforts.sentences(REDUCED, reproduced)
    trials = [t for (label, _), t in by_trial(reproduced).items() if label == "FedAvg / mean"]
    steps = trials[0].folder.clients().groupby("round")["steps"].sum().iloc[-1]
    # three rounds, or two ("few rounds"), of four clients with two steps each
    assert steps == 3 * 4 * 2
    assert "local steps of all clients a run: 20 for all methods" in found
    assert "distinct clients a round: 4 for all methods" in found
