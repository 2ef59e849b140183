"""--reuse: trials that another sweep has finished are taken over, and no other ones."""

import json
import re
import shutil
from dataclasses import replace

import pandas as pd
import pytest
import yaml

from orchestrator.config import load
from orchestrator.errors import UserError
from orchestrator.results.contents import ROUNDS
from orchestrator.results.run_folder import RunFolder
from orchestrator.rounds.experiment import Experiment
from sweeps import efforts
from sweeps.own_table import cells_as
from sweeps.results import by_trial
from sweeps.reuse import Finished, work
from tests.sweeps.plans import ENTRY, REDUCED, SMALL, results, sweep, tuned
from tests.sweeps.trials import run_here, trials_here

RATES = {"local.lr": [0.02, 0.1]}


@pytest.fixture(scope="module")
def there(tmp_path_factory, ray_session):
    """A sweep of two trials."""
    folder = tmp_path_factory.mktemp("reuse") / "there"
    run_here(sweep(axes=RATES), folder)
    return folder


@pytest.fixture
def stepped(monkeypatch):
    """The configs of the rounds that are run."""
    seen, step = [], Experiment.step
    monkeypatch.setattr(Experiment, "step", lambda self: seen.append(self.config) or step(self))
    return seen


def run_again(there, folder, **changes):
    run_here(sweep(**{"axes": RATES, **changes}), folder, Finished.of([str(there)]))
    return results(folder)


def test_only_what_is_new_is_run(there, tmp_path, stepped, capsys):
    """Another name, another seed, a third rate: two of six trials are there."""
    rates = {"local.lr": [0.02, 0.1, 0.5]}
    named = [*SMALL, "name=again"]
    again = run_again(there, tmp_path / "s", set=named, axes=rates, seeds=[0, 1])
    assert len(again) == 6
    assert len({(c.local.lr, c.seed) for c in stepped}) == 4
    assert f"2 of 6 trials were taken from {there}" in capsys.readouterr().out.replace("\n", "")
    for (label, seed), first in results(there).items():
        assert again[label, seed]["weights_sha256"] == first["weights_sha256"]
        taken, old = (by_trial(f)[label, seed].folder for f in (tmp_path / "s", there))
        pd.testing.assert_frame_equal(taken.rounds(), old.rounds())
        pd.testing.assert_frame_equal(taken.clients(), old.clients())
        assert taken.config().name == "again"
    anew = again["local.lr=0.02", 1]
    assert "taken_from" not in anew


def test_what_makes_another_trial():
    """All that changes what is left of it, and nothing else."""
    one = work(load(None, SMALL))
    for free in ("name=other", "checkpoint.every=1", "resources.actors=2", "local.steps=3"):
        assert work(load(None, [*SMALL, free])) == one, free
    for other in ("evaluation.every=2", "rounds=2", "energy.step_joules=2", "resources.threads=2"):
        assert work(load(None, [*SMALL, other])) != one, other


def test_who_was_left_out_by_a_clock_is_no_twin(there, tmp_path, stepped):
    """Nor is a trial one that says in its config that nobody is."""
    old = tmp_path / "old"
    shutil.copytree(there, old)
    dropping = {"on_timeout": "drop", "client_timeout": 9}
    for path, late in zip(sorted((old / "trials").iterdir()), (0, 1), strict=True):
        folder = RunFolder(path)
        raw = yaml.safe_load((path / "config.yaml").read_text())
        (path / "config.yaml").write_text(yaml.safe_dump(raw | {"resources": dropping}))
        folder.write_table(ROUNDS, folder.rounds().assign(dropped=float(late)))
        folder.seal()
    run_again(old, tmp_path / "s")
    assert len({c.local.lr for c in stepped}) == 1


@pytest.mark.parametrize("what", ["data_sha256", "initial_sha256", "versions"])
def test_other_data_weights_or_versions_are_run(what, there, tmp_path, stepped):
    old = tmp_path / "old"
    shutil.copytree(there, old)
    for path in (old / "trials").iterdir():
        said = json.loads((path / "result.json").read_text())
        said[what] = {**said[what], "torch": "0.1"} if what == "versions" else "0" * 64
        (path / "result.json").write_text(json.dumps(said))
        RunFolder(path).seal()
    run_again(old, tmp_path / "s")
    assert {c.local.lr for c in stepped} == {0.02, 0.1}


def test_a_twin_of_a_twin_is_from_where_it_was_run(there, tmp_path, stepped):
    run_again(there, tmp_path / "a")
    again = run_again(tmp_path / "a", tmp_path / "b")
    assert not stepped
    assert {r["taken_from"].rpartition("/trials/")[0] for r in again.values()} == {str(there)}


def test_a_damaged_twin_is_run_again(there, tmp_path, capsys):
    """It was this sweep's trial that failed, for a file of another."""
    old = tmp_path / "old"
    shutil.copytree(there, old)
    one, other = sorted((old / "trials").iterdir())
    weights = one / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    (other / "holdings.parquet").unlink()
    run_here(sweep(axes=RATES), tmp_path / "s", Finished.of([str(old)]))
    found = by_trial(tmp_path / "s").values()
    assert [r.status for r in found] == ["finished", "finished"]
    assert not any("taken_from" in r.folder.result() for r in found)
    said = capsys.readouterr().out
    assert f"it is run again, for {weights} is damaged" in " ".join(said.split())
    assert "holdings.parquet" in said


def test_trials_of_a_paper_s_tuning_are_found(reproduced, tmp_path, stepped):
    """Both stages of the same table again: nothing is left to run."""
    before, again = Finished.of([str(reproduced)]), tmp_path / "again"
    run_here(REDUCED.tuning_sweep(REDUCED.candidates()), again / "tuning", before)
    run_here(REDUCED.final_sweep(tuned(REDUCED, again / "tuning")), again, before)
    assert not stepped
    assert repr(REDUCED.measured(again)) == repr(REDUCED.measured(reproduced))


def test_what_is_refused(there, tmp_path):
    with pytest.raises(UserError, match="is not the folder of a sweep"):
        Finished.of([str(tmp_path)])
    with pytest.raises(UserError, match="on a disk that all nodes share"):
        Finished.of(["s3://bucket/sweep"])
    pbt = sweep(axes={"local.lr": {"uniform": (0.1, 1)}}, scheduler="pbt")
    RunFolder.at(tmp_path / "p").make()
    RunFolder(tmp_path / "p").write_sealed("sweep.json", pbt.model_dump(mode="json"))
    with pytest.raises(UserError, match="have taken over from one another"):
        Finished.of([str(tmp_path / "p")])
    assert Finished.at(tmp_path / "p") == Finished()
    asha = sweep(axes=RATES, scheduler="asha")
    with trials_here(), pytest.raises(UserError, match="take the scheduler fifo"):
        run_here(asha, tmp_path / "s", Finished.of([str(there)]))
    assert not (tmp_path / "s").exists()


def test_seconds_of_elsewhere_are_told(there, tmp_path):
    """A trial that was taken over was tested against one that had the machine to itself."""
    rates = {"local.lr": [0.02, 0.1, 0.2]}
    run_again(there, tmp_path / "a", axes=rates, metric="seconds", choose_on="nothing")
    told = " ".join(json.loads(cells_as(tmp_path / "a", "json"))["notes"])
    assert "seconds: 2 of 3 runs are taken over from another sweep" in told
    by_accuracy = {"choose_on": "nothing", "metric": "test_accuracy"}
    run_again(there, tmp_path / "b", axes=rates, **by_accuracy)
    assert "taken over" not in cells_as(tmp_path / "b", "json")


def test_what_methods_had_of_their_own_is_told_of_a_paper_s_table(reproduced, tmp_path):
    """ "Contradicted (p < 0.05)" stood under seconds of two sweeps, and under steps to a target of
    runs that were looked at after other numbers of steps.
    """
    folder = tmp_path / "entry"
    shutil.copytree(reproduced, folder)
    one = next(iter(by_trial(folder).values())).folder
    said = json.loads((one.path / "result.json").read_text()) | {"taken_from": "elsewhere"}
    (one.path / "result.json").write_text(json.dumps(said))
    RunFolder(one.path).seal()
    timed = replace(ENTRY.columns["mean"], metric="seconds", statistic="sum", better="low")
    entry = replace(ENTRY, columns={**ENTRY.columns, "mean": timed})
    said = " ".join(efforts.sentences(replace(REDUCED, entry=entry), folder))
    assert re.search(r"seconds: 1 of \d+ runs are taken over from another sweep", said)
    quiet = " ".join(efforts.sentences(REDUCED, folder))
    assert "taken over" not in quiet
    assert "looked at" not in quiet
    assert "teach" not in quiet
    for path in (folder / "trials").glob("FedAvg-*"):
        config = yaml.safe_load((path / "config.yaml").read_text())
        config["aggregator"] = {"name": "fltrust"}
        config["data"]["heldout"]["per_class"] = 5
        (path / "config.yaml").write_text(yaml.safe_dump(config))
        rounds = pd.read_parquet(path / ROUNDS)
        rounds["steps_total"] *= 3
        rounds.to_parquet(path / ROUNDS)
        RunFolder(path).seal()
    soon = replace(ENTRY.columns["mean"], statistic="steps_to", target=0.1)
    entry = replace(ENTRY, columns={**ENTRY.columns, "mean": soon})
    said = efforts.sentences(replace(REDUCED, entry=entry), folder)
    assert "labelled rows that the server holds out teach FedAvg, and not the others" in said
    assert any(re.match("looked at every so many local steps: .* in FedAvg, ", one) for one in said)
