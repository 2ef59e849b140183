"""FedDUAL's entries tune all methods alike."""

import pytest

from orchestrator.config import load
from sweeps.papers import entries

TUNED = {n: e for n, e in entries().items() if n.startswith("feddual/") and e.tuning is not None}
MU = {"FedProx", "FedNova", "FedDyn", "MOON"}


@pytest.mark.parametrize("name", TUNED)
def test_twelve_trials_between_the_same_rates_and_a_bracket_for_each_mu(name):
    grids, optimisers = TUNED[name].tuning.grids, {}
    assert set(grids) == set(TUNED[name].rows)
    for row, grid in grids.items():
        trials = 1
        for values in grid.values():
            assert list(values) == sorted(set(values))
            assert len(values) >= 3
            trials *= len(values)
        assert trials == 12
        assert ("algorithm.mu" in grid) == (row in MU)
        sgd = "local.optimizer=sgd" in TUNED[name].rows[row]
        optimisers.setdefault(sgd, set()).add((grid["local.lr"][0], grid["local.lr"][-1]))
    assert all(len(ends) == 1 for ends in optimisers.values())


@pytest.mark.parametrize("name", ["feddual/readings", "feddual/readings-again"])
def test_the_readings_are_compared_at_equal_rates(name):
    one = entries()[name]
    for column in one.columns.values():
        configs = [load(None, [*one.base, *row, *column.settings]) for row in one.rows.values()]
        dumped = [c.model_dump(exclude={"algorithm", "aggregator"}) for c in configs]
        assert all(each == dumped[0] for each in dumped)
        assert configs[0].local.optimizer.name == "adam"
