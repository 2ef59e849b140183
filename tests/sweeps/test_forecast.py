"""What a sweep will take: trials by kind, rounds up to their limits, and what is told of it."""

import json

import pytest

from orchestrator.clients.plane import InProcess
from orchestrator.config import load
from orchestrator.errors import UserError
from sweeps import cli, costs
from sweeps.forecast import Timed, forecast, kinds
from sweeps.papers import entry
from sweeps.reproduction import Reproduction
from tests.orchestrator.test_cli import here
from tests.running import finish
from tests.sweeps.plans import ENTRY, SMALL, sweep


def test_trials_of_rates_and_seeds_are_one_kind_and_of_other_work_another():
    plan = sweep(axes={"local.lr": [0.1, 0.2], "local.steps": [2, 3]}, seeds=[0, 1, 2])
    found = kinds([plan])
    assert [kind.trials for kind in found] == [6, 6]
    assert [kind.first.local.steps for kind in found] == [2, 3]
    drawn = sweep(axes={"local.lr": {"loguniform": [0.01, 1]}}, samples=5, seeds=[0, 1])
    assert [kind.trials for kind in kinds([drawn])] == [10]
    fda = sweep(axes={"round_end": [{"name": "fda", "theta": t} for t in (0.5, 2)]})
    assert [kind.first.round_end.theta for kind in kinds([fda])] == [0.5, 2]
    few, many = kinds([sweep(axes={"rounds": [2, 5]})])
    assert (few.first.rounds, many.first.rounds) == (2, 5)


def test_an_entry_is_told_with_what_it_is_tuned_by():
    one = Reproduction(ENTRY, "reduced")
    told = kinds([one.tuning_sweep(one.candidates()), one.final_sweep()])
    assert sum(kind.trials for kind in told) == one.trials


@pytest.mark.parametrize(
    ("stop", "rounds"), [("", 3), ("steps_total: 5", 2), ("steps_total: 99", 3)]
)
def test_rounds_end_where_the_run_would(stop, rounds):
    settings = [*SMALL, f"stop={{{stop}}}"]
    (timed,) = forecast(kinds([sweep(set=settings)]))
    assert timed.rounds == rounds == len(finish(load(None, settings), InProcess).records)


def test_seconds_are_of_all_trials():
    (kind,) = kinds([sweep(seeds=[0, 1])])
    assert Timed(kind, rounds=3, round_seconds=0.5).seconds == 3.0


def test_a_rate_at_which_it_diverges_is_timed():
    (timed,) = forecast(kinds([sweep(set=[*SMALL, "local.lr=1e30"])]))
    assert timed.round_seconds > 0


def test_it_is_told_before_it_is_run_and_listed_from_then_on(tmp_path, monkeypatch):
    assert cli.sweep  # which the command knows from then on
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    code, text = here("sweep", "drdm/figure4", "--budget", "smoke", "--time")
    assert code == 0, text
    assert "kinds: 6" in text
    assert "trials: 6; one after another" in text
    assert not (tmp_path / "runs").exists()
    code, text = here("sweep", "drdm/figure4", "--budget", "smoke", "--time", "--json")
    told, _ = json.JSONDecoder().raw_decode(text)  # what stderr has follows it
    assert told["trials"] == sum(one["trials"] for one in told["kinds"]) == 6
    assert told["seconds"] == pytest.approx(sum(one["seconds"] for one in told["kinds"]))
    code, text = here("sweep", "drdm/figure4", "--budget", "smoke", "--json")
    assert (code, "--json is for --list" in text) == (2, True)
    code, text = here("sweep", "drdm/figure3", "--budget", "smoke", "--set", "rounds=1", "--time")
    assert code == 0, text
    (key,) = costs.known()
    assert key == "drdm/figure4 smoke"
    code, text = here("sweep", "drdm", "--list")
    assert "drdm/figure4  6 (seconds), 18, 180" in text


def test_a_budget_that_is_another_has_its_time():
    """``reduced`` of Table 3 is ``full``."""
    one, other = (Reproduction(entry("drdm/table3"), budget) for budget in ("reduced", "full"))
    smoke = Reproduction(entry("drdm/table3"), "smoke")
    assert costs.key(one) == costs.key(other) == "drdm/table3 reduced"
    assert costs.key(smoke) == "drdm/table3 smoke"


def test_what_cannot_be_run_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDORCH_DATA", str(tmp_path))
    plan = sweep(set=[*SMALL, "data.dataset={name: npz, path: nowhere.npz}"])
    with pytest.raises(UserError, match=r"nowhere\.npz"):
        list(forecast(kinds([plan])))
