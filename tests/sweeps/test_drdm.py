"""DRDM's tables compare what is equal: trials, cohorts, and DRDM itself without its dual step."""

import pytest

from orchestrator.config import load
from sweeps.papers import drdm, entry

TUNED = {entry.id: entry for entry in drdm.ENTRIES if entry.tuning is not None}


def test_which_are_tuned():
    assert {name for name in TUNED if "table" in name} == {
        *(f"drdm/table{n}" for n in range(1, 7)), "drdm/table1-disjoint", "drdm/table3-disjoint",
    }  # fmt: skip
    assert {name for name in TUNED if "figure" in name} == {f"drdm/figure{n}" for n in (1, 2, 5, 6)}


@pytest.mark.parametrize("name", TUNED)
def test_every_method_has_as_many_trials_and_a_bracket_for_each_parameter(name):
    grids = TUNED[name].tuning.grids
    assert set(grids) == set(TUNED[name].rows)
    for grid in grids.values():
        trials = 1
        for values in grid.values():
            assert len(set(values)) == len(values) >= 3
            assert list(values) == sorted(values)
            trials *= len(values)
        assert trials == 81
    shortest = min((grid["local.lr"] for grid in grids.values()), key=len)
    assert all(set(shortest) <= set(grid["local.lr"]) for grid in grids.values())
    ends = {(grid["local.lr"][0], grid["local.lr"][-1]) for grid in grids.values()}
    assert len(ends) == 1
    for row in ("DRDM γ = 0", "FedDyn"):
        for key in ("local.lr", "algorithm.mu"):
            assert set(grids["DRDM"][key]) <= set(grids[row][key])


@pytest.mark.parametrize("name", TUNED)
def test_all_methods_train_as_many_distinct_clients(name):
    one = TUNED[name]
    column = next(iter(one.columns.values()))
    algorithms = {}
    for row, settings in one.rows.items():
        config = load(None, [*one.base, *settings, *column.settings])
        assert config.cohort == 20
        assert config.sampler.distinct
        # DRFA and DRDM draw by λ themselves
        assert not getattr(config.algorithm, "replace", False)
        algorithms[row] = config.algorithm
    assert algorithms["DRDM γ = 0"] == algorithms["DRDM"].model_copy(update={"gamma": 0})
    assert algorithms["FedDyn"].mu == algorithms["DRDM"].mu


@pytest.mark.parametrize("name", TUNED)
def test_the_disjoint_tables_are_the_others_but_for_that(name):
    for column in TUNED[name].columns.values():
        config = load(None, [*TUNED[name].base, *column.settings])
        assert config.data.partition.disjoint == name.endswith("-disjoint")


def test_the_dual_step_alone_differs_at_equal_rates():
    one = entry("drdm/dual-step")
    for claim in one.claims:
        ours, theirs = ({*one.rows[row]} for row in (claim.better, *claim.worse))
        assert {s for s in ours ^ theirs if not s.startswith("algorithm")} == set()
        configs = [load(None, [*one.base, *one.rows[row]]) for row in (claim.better, *claim.worse)]
        dumped = [c.model_dump(exclude={"algorithm"}) for c in configs]
        assert dumped[0] == dumped[1]
        if configs[1].algorithm.name != "scaffold":
            assert configs[0].algorithm.mu == configs[1].algorithm.mu
        assert claim.better.startswith(f"DRDM γ = {configs[0].algorithm.gamma},")
