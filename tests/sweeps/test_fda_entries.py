"""The FDA thesis' entries compare like with like."""

import pytest

from algorithms.fda import FdaOpt
from orchestrator.config import load
from sweeps.papers import entries
from sweeps.papers.fda import chapter3, chapter4
from sweeps.reproduction import Reproduction

CHAPTER3 = [*chapter3.ENTRIES, *[e for n, e in entries().items() if n.startswith("fda/figureA")]]
TABLES = [e for e in chapter4.ENTRIES if e.id.startswith("fda/table4.4")]


@pytest.mark.parametrize("one", CHAPTER3, ids=lambda one: one.id)
def test_all_strategies_have_one_clock_and_the_thesis_epochs(one):
    full = Reproduction(one, "full")
    column = one.columns[full.columns[0]]
    last = one.columns[full.columns[-1]]
    for row in dict.fromkeys(row.split(" K=")[0] for row in full.rows):
        name = next(r for r in full.rows if r.split(" K=")[0] == row)
        for shown in (column, last):
            config = load(None, [*one.base, *one.rows[name], *shown.settings])
            assert config.evaluation.every_steps == "epoch"
            fed = any(word in row for word in ("FedAdam", "FedAvgM"))
            caps = {"lenet5": 100, "vgg16_star": 100, "convnext_large": 40}
            assert config.stop["epochs_total"] == (
                1001 if fed else caps.get(config.model.name, 300)
            )
            assert fed or "steps_total" not in config.stop


@pytest.mark.parametrize("one", TABLES, ids=lambda one: one.id)
def test_fda_opt_differs_from_fed_opt_in_when_a_round_ends_alone(one):
    for budget in ("reduced", "full"):
        half = Reproduction(one, budget)
        assert len(half.rows) == 10
        settings = (*one.base, *half.budget.settings)
        for fed, fda in zip(half.rows[::2], half.rows[1::2], strict=True):
            plain, ours = (load(None, [*settings, *one.rows[row]]) for row in (fed, fda))
            assert isinstance(ours.round_end, FdaOpt)
            assert plain.round_end.steps == "longest"
            assert plain.model_copy(update={"round_end": ours.round_end}) == ours
        assert (half.tuning is not None) == one.id.endswith("-tuned")


@pytest.mark.parametrize("one", TABLES, ids=lambda one: one.id)
def test_rounds_stand_beside_what_they_cost_and_are_claimed_alone(one):
    rounds = {n for n, c in one.columns.items() if c.statistic == "rounds_to"}
    for statistic, before in (("steps_to", "local steps to "), ("gigabytes_to", "GB to ")):
        found = {n: c.target for n, c in one.columns.items() if c.statistic == statistic}
        assert found == {f"{before}{n}": one.columns[n].target for n in rounds}
    assert {column for claim in one.claims for column in claim.columns} == rounds
    assert {column for _, column in one.published} <= rounds
