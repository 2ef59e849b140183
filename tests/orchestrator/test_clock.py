"""Evaluation on a clock of local steps: the same moments for all, and no other bits."""

import pandas as pd
import pytest
import torch

from orchestrator.analysis.goals import hidden_said, looks_said
from orchestrator.config.goal import Goal, steps_of, up_to
from orchestrator.conformance.forgetful import Forgetful
from orchestrator.errors import UserError
from orchestrator.results.run_folder import RunFolder
from orchestrator.rounds.experiment import Experiment
from tests.configs import small
from tests.running import finish, resumed, run_into

COMMON = ["cohort=1.0", "data.partition=iid", "local.lr=0.05"]
FDA = [*COMMON, "local.steps=20", "round_end={name: fda, theta: 1.0}", "rounds=6"]
CLOCK = "evaluation.every_steps=4"


def moments(e):
    return [r["evaluated_steps"] for r in e.records if "evaluated_steps" in r]


def test_a_look_in_mid_round_is_at_the_mean_that_fixed_work_gives():
    """So many steps of FDA's first round are as many of fixed local work, and then an average."""
    first = Experiment(small(*FDA, "evaluation.every_steps=3"))
    seen = []
    first.judge.of, judge = lambda w, b: seen.append(w.clone()) or judge(w, b), first.judge.of
    record = first.step()
    steps = int(record["evaluated_steps"])
    assert 0 < steps < record["round_steps"]
    plain = finish(small(*COMMON, f"local.steps={steps}", "rounds=1"))
    torch.testing.assert_close(seen[-1], plain.algorithm.w, rtol=0, atol=0)
    assert record["test_accuracy"] == plain.records[0]["test_accuracy"]
    assert len(seen) == steps / 3


@pytest.mark.parametrize("weights", ["mean", "weighted_mean"])
def test_a_look_at_the_end_of_a_round_is_at_the_servers_model(weights):
    """Bit by bit: nothing but the synchronisation makes the difference."""
    work = [*COMMON[:1], "local.steps=4", "round_end={name: fda, theta: 1e30}", "rounds=1"]
    e = Experiment(small(*work, "data.partition={name: zipf, sigma: 1.0}", f"aggregator={weights}"))
    seen = {}
    e.clock.steps = 4
    e._notice = lambda steps, mean: seen.update({steps: e.algorithm.w + mean["delta"]}) or False
    e.step()
    assert list(seen) == [4]
    assert torch.equal(seen[4], e.algorithm.w)


@pytest.mark.parametrize(
    "settings",
    [
        FDA,
        [*FDA, "round_end={name: fda, theta: 1.0, every: 3}"],
        [*COMMON, "round_end={name: fixed, steps: longest}", "local.steps=null", "local.epochs=2"],
        [*FDA, "local.execution=vectorized", "local.block=3", "local.optimizer_state=average"],
    ],
)
def test_looking_changes_no_bit(settings):
    plain, looked = finish(small(*settings)), finish(small(*settings, CLOCK))
    assert looked.state_sha256() == plain.state_sha256()
    for name in ("steps_total", "bytes_up", "bytes_down", "train_loss"):
        assert [r[name] for r in looked.records] == [r[name] for r in plain.records]
    assert any(m % 4 == 0 and m not in {r["steps_total"] for r in plain.records}
               for m in moments(looked))  # fmt: skip


def test_planes_and_restarts_agree(company, tmp_path):
    here = finish(small(*FDA, CLOCK))
    config = here.config.model_copy(
        update={"resources": here.config.resources.model_copy(update={"actors": 2})}
    )
    kept = [name for name in here.records[-1] if not name.startswith("seconds")]
    for other in (
        finish(config, company.plane(config)),
        finish(config, Forgetful),
        resumed(config, tmp_path, 2),
    ):
        assert other.state_sha256() == here.state_sha256()
        assert [[r.get(n) for n in kept] for r in other.records] == [
            [r.get(n) for n in kept] for r in here.records
        ]


def test_all_are_evaluated_at_the_same_steps():
    """Rounds of one step, of whatever FDA takes, and of six: between its ends, each is judged at
    the multiples of six, and nowhere else.
    """
    six = "evaluation.every_steps=6"
    fda = finish(small(*FDA, six, "rounds=100", "stop={steps_total: 60}"))
    one = finish(small(*COMMON, "algorithm=synchronous", six, "rounds=30"))
    adam = finish(small(*COMMON, "algorithm=fedadam", six, "rounds=5", "local.steps=6"))
    assert moments(one) == moments(adam) == [6, 12, 18, 24, 30]
    assert {m % 6 for m in moments(fda)[:-1]} == {0}
    assert moments(one)[0] not in {r["steps_total"] for r in fda.records}


def test_one_clock_is_one_however_long_rounds_are():
    """Looks within a round were one, and who had long rounds was said to be looked at rarely."""
    stop = "stop={test_accuracy: 0.5}"
    each = [
        (one.config, pd.DataFrame(one.records))
        for one in (
            finish(small(*FDA, CLOCK, stop, "rounds=30")),
            finish(small(*COMMON, CLOCK, stop, "local.steps=12", "rounds=3")),
            finish(small(*COMMON, CLOCK, stop, "local.steps=1", "rounds=30")),
        )
    ]
    assert each[1][1]["judged"].max() > 1
    groups = {str(n): [one] for n, one in enumerate(each)}
    assert looks_said(groups, "test_accuracy") == ""
    assert hidden_said(each, "test_accuracy", Goal(0.5)) == ""
    assert "test_accuracy may have been at 0.3 earlier" in hidden_said(
        each, "test_accuracy", Goal(0.3)
    )
    # by a round before the first that hides a look
    seen = pd.DataFrame({"round": [1, 2], "judged": [1.0, 2.0], "test_accuracy": [0.4, 0.5]})
    assert hidden_said([(each[0][0], seen)], "test_accuracy", Goal(0.3)) == ""
    assert hidden_said([(each[0][0], seen)], "test_accuracy", Goal(0.45)) != ""


def test_the_last_look_is_no_tick_of_the_clock():
    often = [
        (one.config, pd.DataFrame(one.records))
        for one in (
            finish(small(*COMMON, "evaluation.every=2", "rounds=7")),
            finish(small(*COMMON, "evaluation.every=2", "rounds=2")),
            finish(small(*COMMON, "evaluation.every=2", "rounds=1")),
        )
    ]
    assert looks_said({str(n): [one] for n, one in enumerate(often)}, "test_accuracy") == ""


def test_looks_by_another_clock_of_before_are_looks():
    """A run that was looked at in every round, and went on with every fourth, counted as one of
    the second kind throughout.
    """
    before, after = small(*COMMON, "rounds=3"), small(*COMMON, "rounds=4", "evaluation.every=4")
    mixed = pd.DataFrame(finish(before.model_copy(update={"rounds": 4})).records)
    seldom = pd.DataFrame(finish(after).records)
    said = looks_said({"a": [(after, mixed)], "b": [(after, seldom)]}, "test_accuracy")
    steps = seldom["steps_total"].iloc[-1]
    assert f"{steps / 4:.3g} in a, {steps:.3g} in b" in said


def test_a_server_that_steps_is_judged_after_the_round():
    for more in (
        ["algorithm=fedadam"],
        ["server_optimizer={name: sgd, lr: 0.5}"],
        ["aggregator=median"],
        ["attack={name: sign_flip, fraction: 0.2}"],
        ["compression.uplink={name: top_k, fraction: 0.1}"],
        ["evaluation.local_models=true"],
    ):
        e = finish(small(*FDA, CLOCK, *more, "rounds=3"))
        ends = {r["steps_total"] for r in e.records}
        assert moments(e), more
        assert set(moments(e)) <= ends, more


def test_a_target_that_is_met_in_mid_round_counts_then(tmp_path):
    """The round goes on, so that no bit depends on what was asked; steps are those of the look."""
    free = finish(small(*FDA, CLOCK))
    inside = [r for r in free.records[1:-1] if r.get("evaluated_steps", 0) % 4 == 0
              and r["evaluated_steps"] < r["steps_total"]]  # fmt: skip
    best = max(inside, key=lambda r: r["test_accuracy"])
    goal = best["test_accuracy"]
    folder = RunFolder(tmp_path)
    e, _ = run_into(folder, small(*FDA, CLOCK, f"stop={{test_accuracy: {goal}}}"))
    assert e.reached
    assert e.weights_sha256() == finish(small(*FDA, f"rounds={e.t}")).weights_sha256()
    spent = up_to(folder.rounds(), "test_accuracy", Goal(goal))
    assert steps_of(spent) == e.records[-1]["evaluated_steps"] <= best["evaluated_steps"]
    assert steps_of(spent) % 4 == 0
    assert len(spent) == e.t


@pytest.mark.parametrize("end", ["rounds=3", "stop={steps_total: 15}"])
def test_a_run_that_ends_as_it_is_resumed_is_judged_at_its_end(end, tmp_path):
    """A look in the middle of its last round stood for it."""
    one_round = [*COMMON, "local.steps=5", "round_end={name: fda, theta: 1e9}", "rounds=9", CLOCK]
    folder, whole = RunFolder(tmp_path / "a"), RunFolder(tmp_path / "b")
    run_into(folder, small(*one_round, "checkpoint.every=1"), stop_at=3)
    assert folder.rounds()["evaluated_steps"].iloc[-1] < folder.rounds()["steps_total"].iloc[-1]
    folder.open(small(*one_round, "checkpoint.every=1", end))
    e, _ = run_into(folder, resuming=True)
    alone, _ = run_into(whole, small(*one_round, "rounds=3"))
    assert e.t == 3
    keys = [k for k in alone.records[-1] if not k.startswith("seconds")]
    assert {k: e.records[-1][k] for k in keys} == {k: alone.records[-1][k] for k in keys}
    assert len(e.client_rows) == len(alone.client_rows)
    pd.testing.assert_frame_equal(folder.clients(), whole.clients())


def test_a_run_that_met_its_target_in_mid_round_keeps_that(tmp_path):
    """When it is resumed, there is nothing left to do or to judge."""
    folder = RunFolder(tmp_path)
    stop = "stop={test_accuracy: 0.2}"
    run_into(folder, small(*FDA, CLOCK, stop, "checkpoint.every=1"))
    before = folder.rounds()
    run_into(folder, resuming=True)
    pd.testing.assert_frame_equal(folder.rounds(), before)


@pytest.mark.parametrize("rounds", [3, 9])
def test_a_goal_that_the_last_rounds_look_meets_ends_the_run_there_on_resume(rounds, tmp_path):
    """It went on, with a last round that was judged at its end."""
    each = [*COMMON, "local.steps=5", "round_end={name: fda, theta: 1e9}", "checkpoint.every=1"]
    folder, whole = RunFolder(tmp_path / "a"), RunFolder(tmp_path / "b")
    e, _ = run_into(folder, small(*each, "rounds=3", CLOCK))
    met = f"stop={{test_loss: '<= {e.longer['record']['test_loss']}'}}"
    folder.open(small(*each, f"rounds={rounds}", CLOCK, met))
    run_into(folder, resuming=True)
    run_into(whole, small(*each, f"rounds={rounds}", CLOCK, met))
    assert len(whole.rounds()) == 3
    found, wanted = (
        one.rounds().drop(columns=[c for c in one.rounds() if c.startswith("seconds")])
        for one in (folder, whole)
    )
    pd.testing.assert_frame_equal(found, wanted)
    pd.testing.assert_frame_equal(folder.clients(), whole.clients())


@pytest.mark.parametrize("told", [True, False])
def test_looks_of_which_nothing_is_left_leave_no_new_goal(told, tmp_path, monkeypatch):
    """One that an earlier look had met ended a run that was begun with it, and not this one; of
    checkpoints that do not say what was asked for the folder's config does.
    """
    if not told:
        whole = Experiment.state
        monkeypatch.setattr(Experiment, "state", lambda self: whole(self) | {"asked": {}})
    each = [*COMMON, "local.steps=5", "round_end={name: fda, theta: 1e9}", "checkpoint.every=1"]
    clock, folder = "evaluation.every_steps=2", RunFolder(tmp_path)
    run_into(folder, small(*each, "rounds=3", clock))
    goal = small(*each, "rounds=5", clock, "stop={test_accuracy: 0.999}")
    with pytest.raises(UserError, match="of several looks within round 1 only the last is known"):
        run_into(folder, goal, resuming=True)
    folder.open(small(*each, "rounds=5", clock, "stop={steps_total: 20}"))
    e, _ = run_into(folder, resuming=True)
    assert e.t == 4


def test_a_round_that_is_not_looked_at_to_its_end_is_told(tmp_path):
    """Its goal was met in mid-round, and the run goes on without it."""
    each = [*COMMON, "local.steps=5", "round_end={name: fda, theta: 1e9}", "checkpoint.every=1"]
    clock, folder = "evaluation.every_steps=1", RunFolder(tmp_path)
    e, _ = run_into(folder, small(*each, "rounds=3", clock, "stop={test_accuracy: 0}"))
    assert (e.t, e.records[-1]["evaluated_steps"]) == (1, 1)
    folder.open(small(*each, "rounds=3", clock))
    e, _ = run_into(folder, resuming=True)
    assert "round 1: looked at up to step 1 alone, which met the stop of then" in e.notes[0]


def test_an_epoch_is_the_longest_clients():
    skewed = ["cohort=1.0", "data.partition={name: zipf, sigma: 1.0}", "local.batch_size=8"]
    e = Experiment(small(*skewed, "evaluation.every_steps=epoch"))
    most = max(len(e.data.train[k]) for k in range(6))
    assert e.clock.steps == -(-most // 8)
    record = e.step()
    assert record["epochs_total"] == record["steps_total"] / e.clock.steps
    assert "test_accuracy" not in record
    stopped = finish(small(*skewed, "rounds=50", "stop={epochs_total: 2}"))
    assert stopped.records[-1]["epochs_total"] >= 2 > stopped.records[-2]["epochs_total"]


def test_batch_norm_statistics_are_those_of_a_synchronisation():
    """Where clients keep them, they are averaged to evaluate, in mid-round as at the end."""
    normed = ["model=fedaa_resnet", "data.limit=60", "cohort=1.0", "buffers=local", "rounds=1"]
    e = Experiment(small(*normed, "local.steps=2", "round_end={name: fda, theta: 1e30}"))
    seen = {}
    e.clock.steps = 2
    e._notice = lambda steps, mean: seen.update(mean) or False
    e.step()
    assert torch.equal(seen["buffers"], e.algorithm.buffers)
    assert torch.equal(e.net.initial + seen["delta"], e.algorithm.w)


def test_two_clocks_are_refused():
    with pytest.raises(UserError, match="not both"):
        small("evaluation={every: 5, every_steps: 10}")
    with pytest.raises(UserError, match="every_steps"):
        small("evaluation.every_steps=0")


@pytest.mark.parametrize("local", [["local.epochs=2"], ["local.steps=3"]])
def test_all_clients_of_a_round_can_do_as_many_steps(local):
    """FedOpt's clients beside FDA-Opt's: the longest client's number, as in the ledger."""
    skewed = ["data.partition={name: zipf, sigma: 1.0}", "cohort=1.0", "local.batch_size=8"]
    e = finish(small(*skewed, "local.steps=null", *local, "rounds=2", "round_end.steps=longest"))
    own = finish(small(*skewed, "local.steps=null", *local, "rounds=2"))
    most = int(own.federation.ledger.steps.max())
    assert e.federation.ledger.steps.tolist() == [most] * 6
    fda = "round_end={name: fda, theta: 1e30}"  # in lock step up to the same number
    other = finish(small(*skewed, "local.steps=null", *local, "rounds=2", fda))
    assert other.weights_sha256() == e.weights_sha256()


def test_a_server_that_trains_alone_has_steps_that_the_clock_counts():
    """It was looked at at the very end, and a budget of steps never ended it."""
    alone = ["algorithm=server_only", "data.heldout.per_class=10", "rounds=4", "local.steps=3"]
    assert moments(finish(small(*alone, "evaluation.every_steps=6"))) == [6, 12]
    assert finish(small(*alone, "stop.steps_total=6")).t == 2
