"""The energy and channel model."""

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

from orchestrator.analysis.energy import (
    Channels,
    Reached,
    _edges,
    _left_out,
    _on_seeds_of_all,
    best_steps,
    energies,
    energy_map,
    reached,
)
from orchestrator.config import load
from orchestrator.config.energy import Energy
from orchestrator.errors import UserError
from orchestrator.results import plots
from orchestrator.results.run_folder import RunFolder
from orchestrator.rounds.drive import client_table
from tests.configs import small
from tests.orchestrator.test_cli import here
from tests.orchestrator.test_comparison import edit
from tests.running import finish, run_into


def test_shannon_rate():
    assert Energy(bandwidth_hz=1e6, snr_db=0.0).rate() == pytest.approx(1e6)
    assert Energy(bandwidth_hz=2e6, snr_db=10 * np.log10(3)).rate() == pytest.approx(4e6)


def test_joules_by_hand():
    """Client 0: 10 steps of 2 mJ and 1 MB at 1 Mb/s and 0.5 W = 0.02 + 4 J; client 1 spends half on
    both.
    """
    model = Energy(
        step_joules=(0.002, 0.001), transmit_watts=(0.5, 0.25), bandwidth_hz=1e6, snr_db=0.0
    )
    np.testing.assert_allclose(
        model.joules(np.array([10, 10]), np.array([1_000_000, 1_000_000])), [4.02, 2.01]
    )


@pytest.mark.parametrize(
    "bad",
    [
        {"bandwidth_hz": 0},
        {"step_joules": -1.0},
        {"transmit_watts": (0.1, -1)},
        {"snr_db": -400},
        {"snr_db": float("nan")},
        {"step_joules": float("inf")},
    ],
)
def test_impossible_values(bad):
    with pytest.raises(ValidationError, match=r"should be (greater than|a finite)"):
        Energy(**bad)


def test_joules_are_finite_within_the_bounds():
    """At the worst channel that is allowed, and free at the best: 1 + SNR is 1 in float64 there."""
    worst = Energy(step_joules=1e9, transmit_watts=1e9, bandwidth_hz=1e-3, snr_db=-100)
    assert np.isfinite(worst.joules(np.array([1e9]), np.array([1e18]))).all()
    assert Energy(bandwidth_hz=1.0, snr_db=-100).rate() == pytest.approx(1e-10 / np.log(2))


def test_lists_must_fit_the_clients():
    with pytest.raises(UserError, match=r"energy\.snr_db has 2 values for 30 clients"):
        load(None, ["energy.snr_db=[1, 2]"])


def test_an_experiment_spends_what_its_ledger_says():
    experiment = finish(
        small("energy={snr_db: 0, bandwidth_hz: 1000000, step_joules: 0.01, transmit_watts: 1.0}")
    )
    rows = client_table(experiment).query("round == 3")
    assert rows["steps"].sum() == 3 * 4 * 3
    np.testing.assert_allclose(rows["joules"], 0.01 * rows["steps"] + 8e-6 * rows["bytes_up"])


def test_best_local_steps_by_channel(tmp_path):
    runs = []
    for steps in (2, 30):
        out = tmp_path / f"tau{steps}"
        words = [
            "--set",
            "data.limit=2000",
            "--set",
            "model=linear",
            "--set",
            f"local.steps={steps}",
            "--set",
            "rounds=40",
            "--set",
            "local.lr=0.02",
            "--set",
            "data.partition=iid",
        ]
        assert here("run", *words, "--in-process", "--out", out)[0] == 0
        runs.append(out)
    code, text = here(
        "energy",
        *runs,
        "--target",
        0.55,
        "--snr",
        "0,20",
        "--bandwidth",
        "1e3,1e9",
        "--plot",
        tmp_path / "map.png",
    )
    assert code == 0, text
    table = pd.read_csv(tmp_path / "map.csv")
    assert len(table) == 8
    best = table.loc[table.groupby(["snr_db", "bandwidth_hz"])["joules"].idxmin()].set_index(
        ["snr_db", "bandwidth_hz"]
    )["steps"]
    assert best[0, 1e3] == 30, "sending is dear: compute more, talk less"
    assert best[20, 1e9] == 2, "sending is cheap: stop computing"
    assert (tmp_path / "map.png").exists()
    assert here("energy", *runs, "--target", 0.999)[0] == 2
    assert here("energy", runs[0], runs[0])[0] == 2
    assert here("energy", *runs, "--snr", "a")[0] == 2
    code, text = here("energy", *runs, "--target", 0.55, "--snr", "nan")
    assert (code, "--snr: 'nan' has a number that is not finite" in text) == (2, True)


class Ran:
    """A run of one client and ``tau`` local steps, whose client is at 0.9 after ``rounds`` rounds
    (None: never); a round is a megabyte.
    """

    def __init__(self, tau, seed, rounds, epochs=False, more=()):
        self.tau, self.rounds, self.place = tau, rounds, f"runs/{tau}-{seed}"
        amount = "local.epochs=1" if epochs else f"local.steps={tau}"
        clear = ["local.steps=null"] if epochs else []
        model = "energy={step_joules: 1.0, transmit_watts: 1.0}"
        self.made = small(*clear, amount, f"seed={seed}", model, *more)

    def config(self):
        return self.made

    def result(self):
        return {}

    def clients(self):
        t = np.arange(1, 11)
        good = np.zeros(10, bool) if self.rounds is None else t >= self.rounds
        return pd.DataFrame(
            {"round": t, "client": 0, "accuracy": np.where(good, 0.9, 0.1)}
            | {"steps": t * self.tau, "bytes_up": t * 1_000_000}
        )


ONE = Channels(target=0.8, snrs=(0.0,), bandwidths=(1e6, 1e6))
"""1 Mb/s: a megabyte is 8 s, at 1 W 8 J."""


def test_that_a_run_ended_before_it_could_reach_the_target_is_said(tmp_path):
    """It "never" did."""
    for steps in (1, 2):
        run_into(RunFolder(tmp_path / f"tau{steps}"), small(f"local.steps={steps}", "rounds=2"))
    edit(tmp_path / "tau1", status="stopped", rounds=1)
    code, text = here("energy", tmp_path / "tau1", tmp_path / "tau2", "--target", 0.999)
    assert code == 2
    assert "runs with τ = 1 ended before their last round" in text


def test_what_diverged_or_went_on_without_clients_is_told(tmp_path):
    """Times and joules of such runs stood beside sound ones without a word."""
    for steps in (1, 2):
        work = [f"local.steps={steps}", "rounds=2", "non_finite=drop"]
        run_into(RunFolder(tmp_path / f"tau{steps}"), small(*work))
    runs = tmp_path / "tau1", tmp_path / "tau2"

    def told(command, *words):
        code, text = here(command, *runs, *words)
        return code, " ".join(text.split())

    picture = "--target", 0.0, "--plot", tmp_path / "map.png"
    look = "--dims", 1, "--points", 3, "--rows", 20, "--plot"
    commands = ("wallclock", ("--step-ms", 1)), ("energy", picture)
    landscape = "landscape", (*look, tmp_path / "a.png")
    for command, words in (*commands, landscape):
        code, text = told(command, *words)
        assert (code, "diverged (" in text, "left out" in text) == (0, False, False)
    folder = RunFolder(runs[1])
    folder.write_table("rounds.parquet", folder.rounds().assign(dropped=[1.0, 2.0]))
    edit(runs[1], diverged=True)
    for command, words in (*commands, ("landscape", (*look, tmp_path / "b.png"))):
        code, text = told(command, *words)
        assert code == 0
        if command != "landscape":  # which of a model that is NaN has nothing to show
            assert "diverged (a model, or a loss, that is no number): " in text
        left = (
            "clients were left out, which came to NaN or infinity (non_finite: drop): 1.5 a round"
        )
        assert f"{left} in " in text


def test_that_a_run_was_looked_at_more_seldom_once_is_said(tmp_path, capsys):
    """Its config says how often it was in the end."""
    kept = ["evaluation.clients=true", "checkpoint.every=1"]
    late, steady = RunFolder(tmp_path / "late"), RunFolder(tmp_path / "steady")
    run_into(late, small("local.steps=1", "rounds=4", "evaluation.every=4", *kept))
    late.open(small("local.steps=1", "rounds=6", *kept))
    run_into(late, resuming=True)
    run_into(steady, small("local.steps=2", "rounds=6", *kept))
    energy_map([late, steady], Channels(target=0.0))
    said = " ".join(capsys.readouterr().out.split())
    assert "may have reached it before: τ = 1, seed 0" in said
    assert "τ = 2, seed 0" not in said


def test_that_a_run_was_looked_at_more_often_once_is_said(tmp_path, capsys):
    """And so had reached its target in its first round, beside one that nobody looked at then."""
    kept = ["evaluation.clients=true", "checkpoint.every=1"]
    early, steady = RunFolder(tmp_path / "early"), RunFolder(tmp_path / "steady")
    run_into(early, small("local.steps=1", "rounds=3", *kept))
    early.open(small("local.steps=1", "rounds=4", "evaluation.every=4", *kept))
    run_into(early, resuming=True)
    run_into(steady, small("local.steps=2", "rounds=4", "evaluation.every=4", *kept))
    energy_map([early, steady], Channels(target=0.0))
    said = " ".join(capsys.readouterr().out.split())
    assert "are seen to reach it earlier: τ = 1, seed 0" in said
    assert "τ = 2, seed 0" not in said


def test_looks_that_wait_for_the_end_of_a_round_are_not_seldom(tmp_path):
    """On a clock of steps: the first multiple of 5 is passed by step 6."""
    waits = ["algorithm=drdm", "local.steps=3", "evaluation.every_steps=5", "rounds=2"]
    folder = RunFolder(tmp_path)
    e, _ = run_into(folder, small(*waits, "evaluation.clients=true"))
    assert e.records[-1]["evaluated_steps"] == 6
    assert Reached.of(folder, 0.0).looked_at(folder.config(), folder.rounds()) == ""


def test_runs_of_one_number_of_steps_are_seeds():
    """τ = 2 takes 4 and 6 rounds of 2 + 8 J, τ = 10 takes 3 and 3 of 10 + 8 J."""
    found = reached([Ran(2, 0, 4), Ran(10, 1, 3), Ran(2, 1, 6), Ran(10, 0, 3)], 0.8)
    table = energies(found, ONE).set_index("steps")
    assert table["joules"].to_dict() == {2: 50.0, 10: 54.0}
    assert table["standard_deviation"].to_dict() == {2: pytest.approx(14.142136), 10: 0.0}
    assert table["seeds"].to_dict() == {2: 2, 10: 2}
    assert best_steps(table.reset_index()).to_numpy().tolist() == [[2]]


def test_means_are_over_the_seeds_that_all_have():
    """Of τ = 10 the hard seed was missing, and it was the cheaper one."""
    found = reached([Ran(2, 0, 4), Ran(2, 1, 9), Ran(10, 0, 3)], 0.8)
    table = energies(_on_seeds_of_all(found), ONE).set_index("steps")
    assert table["joules"].to_dict() == {2: 40.0, 10: 54.0}
    apart = reached([Ran(2, 0, 4), Ran(10, 1, 3)], 0.8)
    assert _on_seeds_of_all(apart) == apart


def test_a_seed_that_misses_the_target_loses():
    """The other one would have been the cheapest of all."""
    found = reached([Ran(2, 0, 1), Ran(2, 1, None), Ran(10, 0, 3), Ran(10, 1, 3)], 0.8)
    table = energies(found, ONE)
    assert table.set_index("steps")["missed"].to_dict() == {2: 1, 10: 0}
    assert best_steps(table).to_numpy().tolist() == [[10]]
    assert best_steps(energies(found[:2], ONE)).empty
    said = _left_out(table)
    assert said == "the map leaves out τ = 2: not reached on every seed"
    assert _left_out(table[table["steps"] == 10]) == ""
    assert plots.steps_map(best_steps(table), said).axes[0].get_title() == said


def test_what_is_no_seed_of_another_run():
    with pytest.raises(UserError, match=r"another run has 2 local\.steps on seed 0"):
        reached([Ran(2, 0, 1), Ran(2, 0, 2)], 0.8)
    with pytest.raises(UserError, match=r"needs a number of local\.steps"):
        reached([Ran(2, 0, 1, epochs=True)], 0.8)


@pytest.mark.parametrize(
    "other", ["local.lr=0.3", "energy={step_joules: 9.0, transmit_watts: 1.0}", "rounds=7"]
)
def test_runs_that_differ_in_more_are_not_compared(other):
    """The first run's energy was taken for all, and what else they differed in went unsaid."""
    key = other.partition("=")[0]
    with pytest.raises(UserError, match=rf"runs/10-0: differs from runs/2-0 in {key}"):
        reached([Ran(2, 0, 4), Ran(10, 0, 3, more=[other])], 0.8)
    assert len(reached([Ran(2, 0, 4), Ran(10, 0, 3, more=["name=b"])], 0.8)) == 2


def test_the_worst_client_is_an_honest_one(monkeypatch):
    """A malicious client's accuracy is no goal of anybody's."""
    one = Ran(2, 0, 4)
    both = pd.concat(
        [one.clients().assign(malicious=False), one.clients().assign(accuracy=0.0, malicious=True)]
    )
    monkeypatch.setattr(one, "clients", lambda: both)
    (found,) = reached([one], 0.8)
    assert found.when == "4"
    assert found.joules(0.0, 1e6) == 80.0, "of both: what they spend is spent"


def test_a_best_at_the_end_of_what_was_tried_is_marked():
    best = pd.DataFrame({1e5: [5, 10]})
    assert _edges(best, [5, 10, 30]).startswith("τ = 5, the smallest that was tried, is the best")
    assert _edges(best, [2, 5, 10, 30]) == ""
    assert _edges(best[:1], [5, 5]) == ""
