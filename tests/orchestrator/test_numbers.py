"""Numbers that are none: found where they begin, told once with round and cause, never finished
over in silence.
"""

import json
import math
import warnings

import numpy as np
import pandas as pd
import pytest
import torch

import fedorch
from algorithms.finite import all_finite, finite_rows
from algorithms.local import LocalRule
from algorithms.parts.attacks import SignFlip
from orchestrator.analysis.comparison import _metrics, _of_a_client
from orchestrator.clients import inbox
from orchestrator.clients.plane import InProcess
from orchestrator.config import load
from orchestrator.errors import Diverged, UserError
from orchestrator.results.checkpoint import load_latest, save
from orchestrator.rounds.alarm import Alarm
from orchestrator.rounds.experiment import Experiment
from orchestrator.rounds.judge import _means
from orchestrator.training.messages import Ask
from tests.configs import small
from tests.orchestrator.test_cli import here
from tests.running import finish

TRUSTED = ["aggregator=fltrust", "data.heldout.per_class=5", "local.block=1", "cohort=6"]


def poisoned(*settings, ids):
    """An experiment in which the images of clients ``ids`` (N: the server) are NaN."""
    experiment = Experiment(small(*settings))
    world, holdings = experiment.federation.plane.host.world, experiment.data.holdings
    bad, batch = np.concatenate([holdings[k] for k in ids]), world.batch

    def spoilt(rows, changes=()):
        x, y = batch(rows, changes)
        x[torch.from_numpy(np.isin(rows, bad))] = math.nan
        return x, y

    object.__setattr__(world, "batch", spoilt)
    return experiment


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        (["algorithm={name: qfedavg, q: 1000}"], "the server's model became"),
        (
            ["server_optimizer={name: sgd, lr: 1.0e+38}", "local.lr=100"],
            "the server's model became",
        ),
        (["algorithm=fedavgm", "server_optimizer.lr=1e38", "local.lr=100"], "the server's model"),
        (["algorithm={name: feddyn, mu: 1.0e+30}", "local.steps=2", "local.lr=1"], "the update of"),
    ],
)
def test_a_server_step_that_overflows_ends_the_run(settings, what):
    """All uploads are finite: only a look at server and memories finds it, in the round where it
    happens (rounds=1: nobody would meet the model again).
    """
    with pytest.raises(Diverged, match=f"round 1: {what}"):
        Experiment(small("rounds=1", *settings)).step()


def test_every_part_of_the_servers_state_is_looked_at():
    """Not the model alone: a second moment of infinity ends training without a NaN anywhere."""
    experiment = Experiment(small("algorithm=fedadam"))
    experiment.algorithm.optimizer["second"][3] = math.inf
    with pytest.raises(Diverged, match="the server's optimizer became NaN or infinite"):
        experiment.step()


@pytest.mark.parametrize("algorithm", ["drfa", "drdm", "afl", "scaffpd"])
def test_a_dual_step_that_overflows_is_a_sentence(algorithm, monkeypatch):
    """The projection refuses what it is given, and was a traceback with any policy."""
    experiment = Experiment(small(f"algorithm={algorithm}", "non_finite=keep"))
    monkeypatch.setattr(
        experiment.federation, "loss", lambda ids, *rest, **more: torch.full((len(ids),), math.inf)
    )
    with (
        warnings.catch_warnings(action="error"),
        pytest.raises(Diverged, match="round 1: the dual variable λ is NaN"),
    ):
        experiment.step()


def test_what_is_kept_is_told_once_and_not_again_after_a_resume(tmp_path):
    """An all-NaN model under keep: who began it, and when, although later rounds know no better."""
    config = small("local.lr=1e38", "non_finite=keep", "cohort=6", "rounds=4")
    experiment = Experiment(config)
    experiment.step()
    first = experiment.alarm.news()
    assert (
        "round 1: the update of client 0, 1, 2, 3, 4, ... holds NaN or infinity and co" in first[0]
    )
    assert "the server's model became NaN or infinite by the update of client 0" in first[1]
    assert (
        "test_loss and client_loss_worst became NaN or infinite by the update of client 0"
        in (first[2])
    )
    experiment.step()
    assert experiment.diverged
    assert experiment.alarm.news() == []
    save(tmp_path, 2, experiment.state(), 1)
    again = Experiment(config)
    again.restore(*load_latest(tmp_path)[:2])
    again.step()
    assert (again.notes, again.alarm.news()) == (first, [])


def test_a_metric_that_overflows_is_told_though_the_run_is_well():
    """Steps of 10³⁰ have a length whose square float32 cannot hold."""
    experiment = finish(small("local.lr=1e30", "rounds=2"))
    assert [n[:38] for n in experiment.notes] == ["round 1: update_norm became NaN or inf"]
    assert not experiment.diverged


def test_the_cause_of_a_metric_is_forgotten_with_it():
    """A client that was NaN in round 1 is not blamed for what overflows in round 3."""
    alarm = Alarm("keep")
    alarm.aggregated(1, "client 3", {"w": torch.zeros(2)})
    alarm.metrics(1, {"train_loss": math.nan})
    alarm.aggregated(2, "", {"w": torch.zeros(2)})
    alarm.metrics(2, {f"gradient_norm/{n}": math.inf for n in range(6)})
    _, first, second = alarm.news()
    assert (
        first == "round 1: train_loss became NaN or infinite by the update of client 3 in round 1"
    )
    assert "gradient_norm/3 and 2 more became NaN or infinite by numbers too large" in second


def test_what_was_infinite_before_the_first_round_may_stay():
    """The best loss so far, say, which an algorithm of one's own keeps."""
    alarm = Alarm("fail", {"best": math.inf, "w": torch.zeros(2)})
    alarm.aggregated(1, "", {"best": math.inf, "w": torch.zeros(2)})
    alarm.aggregated(2, "", {"by client": {3: math.inf}, "best": 1.0})
    for best in (math.nan, {"best": 1.0, "v": torch.full((1,), math.inf)}):
        with pytest.raises(Diverged, match="the server's best became"):
            alarm.aggregated(2, "", {"best": best})
    with pytest.raises(Diverged, match="the server's model became"):
        alarm.aggregated(2, "", {"best": math.inf, "w": torch.full((2,), math.inf)})


def test_the_terminal_and_result_json_say_it(tmp_path):
    """The way of a note through the command: printed as it comes, kept, and the title marked."""
    words = ["--set", "local.lr=1e38", "--set", "non_finite=keep", "--set", "data.limit=300"]
    words += ["--set", "model=linear", "--set", "data.clients=4", "--set", "rounds=2"]
    code, text = here("run", *words, "--in-process", "--out", tmp_path / "a")
    result = json.loads((tmp_path / "a" / "result.json").read_text())
    assert code == 0
    assert "after 2 rounds, diverged" in text
    assert text.count("note: round 1: the server's model became NaN") == 1
    assert result["diverged"] is True
    assert len(result["notes"]) == 3
    code, text = here(
        "run", *words, "--set", "non_finite=fail", "--in-process", "--out", tmp_path / "b"
    )
    result = json.loads((tmp_path / "b" / "result.json").read_text())
    assert (code, result["status"], result["diverged"]) == (2, "failed", True)


def test_finite_is_judged_exactly():
    """Not by a sum in float32: ten entries of 3·10³⁸ are finite, ∞ − ∞ is not."""
    rows = torch.full((4, 10), 3e38)
    rows[1, 4], rows[2, :2] = math.nan, torch.tensor([math.inf, -math.inf])
    assert finite_rows(rows).tolist() == [True, False, False, True]
    assert finite_rows(torch.ones(2, 0)).all()
    assert finite_rows(torch.tensor([1.0, math.inf])).tolist() == [True, False]
    state = {"w": rows[:1], "n": 3, "t": torch.ones(2, dtype=torch.int64), "m": [{"x": 1.0}, None]}
    assert all_finite(state)
    for bad in (math.inf, np.float64("nan"), np.array([1, math.nan]), torch.tensor(math.nan)):
        assert not all_finite({**state, "deep": [{"x": (0.0, bad)}]})


def test_a_huge_update_counts():
    """One step of 10³⁸ gradients: their sum overflows, and the client was blamed for NaN."""
    experiment = Experiment(small("cohort=6", "local.steps=1", "local.lr=1e38"))
    experiment.step()
    assert experiment.algorithm.w.isfinite().all()
    assert experiment.algorithm.w.abs().max() > 1e36


def test_forging_hides_nobody_elses_nan():
    """With a forger in the cohort rows are judged anew, but what else a client sends or keeps is
    not in the rows.
    """
    experiment = Experiment(small("cohort=6", "attack={name: gaussian, ids: [1]}"))
    here = inbox.Arrived(
        ids=np.arange(6), blocks=(6,), vectors={"delta": [torch.zeros(6, 3)]},
        scalars={"weight": torch.tensor([1, 1, 1, 1, math.nan, 1])}, diagnostics={},
        finite=np.array([True, False, False, True, False, True]), counts=np.ones(6, bool),
        states={}, upload_bytes=0,
    )  # fmt: skip
    found = inbox.forged(here, experiment.federation.terms, LocalRule(), (1, 0), torch.zeros(3))
    assert found.finite.tolist() == [True, True, False, True, False, True]


@pytest.mark.parametrize(
    ("ids", "message"),
    [([6], "the server itself"), (range(6), "client 0, 1, 2, 3, 4, ...")],
)
def test_fltrust_without_anybody_to_compare(ids, message):
    """Dropping leaves it without a reference, or without anything to hold against it."""
    with pytest.raises(Diverged, match=f"round 1: the update of ({message}) holds NaN"):
        poisoned(*TRUSTED, "non_finite=drop", ids=ids).step()


def test_fltrust_goes_on_without_one_client_and_stays_where_it_cannot_judge():
    dropped = poisoned(*TRUSTED, "non_finite=drop", ids=[2])
    assert dropped.step()["dropped"] == 1
    kept = poisoned(*TRUSTED, "non_finite=keep", ids=[6])
    before = kept.algorithm.w.clone()
    kept.step()
    assert torch.equal(kept.algorithm.w, before)
    assert "the update of the server itself holds NaN" in kept.notes[0]


@pytest.mark.parametrize(
    ("slow", "message"),
    [(6, "the server's own training took too long"), (2, "5 clients are left without 2")],
)
def test_a_server_that_trains_is_not_one_of_the_clients(slow, message):
    """Who is left out for slowness: the server must not be, and does not fill the cohort."""

    class Late(InProcess):
        def run(self, assignments):
            answers = super().run(assignments)
            return [
                None if slow in one.spec.ids else answer
                for one, answer in zip(assignments, answers, strict=True)
            ]

    limits = ["on_timeout=drop", "client_timeout=9", "minimum_cohort=6"]
    config = small(*TRUSTED, *[f"resources.{limit}" for limit in limits])
    with pytest.raises(UserError, match=message):
        Experiment(config, Late).step()


def test_who_was_late_twice_is_dropped_and_not_judged():
    """The same slow client in training and when its own model is judged; it counted once."""

    class Late(InProcess):
        def run(self, assignments):
            late = [2 in one.spec.ids and one.spec.t == 2 for one in assignments]
            answers = super().run(assignments)
            return [None if slow else one for slow, one in zip(late, answers, strict=True)]

    limits = ["on_timeout=drop", "client_timeout=9"]
    run = finish(
        small("algorithm=ditto", "local.block=1", "rounds=2", "cohort=6", "evaluation.every=1",
              *[f"resources.{limit}" for limit in limits]),
        Late,
    )  # fmt: skip
    first, second = run.records
    assert "unjudged" not in first
    assert (second["dropped"], second["unjudged"]) == (1.0, 1.0)
    assert np.isnan(run.client_rows[-1]["personal_accuracy"][2])


class LateAgain(InProcess):
    """The blocks of clients 2 and 3 are late in the round's last session."""

    def run(self, assignments):
        answers = super().run(assignments)
        return [
            None if one.spec.session == 1 and {2, 3} & {*one.spec.ids.tolist()} else answer
            for one, answer in zip(assignments, answers, strict=True)
        ]


def test_who_is_late_with_its_own_model_has_sent_an_update():
    """It counted, and the round's means were without it; the cohort was of who had answered."""
    limits = ["resources.on_timeout=drop", "resources.client_timeout=9", "local.block=1"]
    whole = ["rounds=1", "cohort=6", "algorithm={name: ditto, personal_steps: 2}"]
    (late,) = finish(small(*whole, *limits, "evaluation.personal=false"), LateAgain).records
    (plain,) = finish(small(*whole, "evaluation.personal=false")).records
    assert (late["cohort"], late["dropped"]) == (6, 2)
    assert late["update_norm"] == plain["update_norm"]
    assert late["steps"] == pytest.approx((4 * 5 + 2 * 3) / 6)
    assert late["effective_clients"] == pytest.approx(6)


def test_whose_own_model_is_none_has_sent_an_update():
    """The round's means were without it, and the loss of its own model is no number."""
    rng = np.random.default_rng(0)
    x, owner = rng.normal(size=(100, 6)).astype(np.float32), np.arange(100) % 5
    x[owner == 1] *= 60
    work = {"rounds": 2, "cohort": 1.0, "local.steps": 1, "local.batch_size": 100,
            "local.lr": 5e-4, "loss": "mse"}  # fmt: skip

    def run(algorithm, **more):
        torch.manual_seed(0)
        data, test = (x, np.arange(100) % 3, owner), np.arange(100) >= 90
        return fedorch.Experiment(
            model=torch.nn.Linear(6, 3), data=data, test=test, algorithm=algorithm, **work, **more
        ).run()

    plain = run("fedavg")
    lost = run({"name": "ditto", "strength": 0.1, "personal_steps": 400}, non_finite="drop")
    assert lost["dropped"].iloc[-1] == 1
    assert lost["update_norm"].tolist() == pytest.approx(plain["update_norm"].tolist())
    assert np.isfinite(lost["train_loss"].iloc[-1])
    assert lost["train_loss"].iloc[-1] > plain["train_loss"].iloc[-1] / 5


@pytest.mark.parametrize("least", [1, 4])
def test_nobody_trains_alone_with_fewer_than_the_least(least):
    """All who were late was an IndexError, and fewer than minimum_cohort a round."""

    class Late(InProcess):
        def run(self, assignments):
            answers = super().run(assignments)
            there = {0, 1, 2} if least == 4 else set()
            return [
                answer if there & {*one.spec.ids.tolist()} else None
                for one, answer in zip(assignments, answers, strict=True)
            ]

    limits = ["resources.on_timeout=drop", "resources.client_timeout=9", "local.block=1"]
    few = f"resources.minimum_cohort={least}"
    with pytest.raises(UserError, match=f"resources.minimum_cohort is {least}"):
        Experiment(small("algorithm=local", "cohort=6", *limits, few), Late).step()


def test_who_is_late_with_a_forged_answer_is_left_out(monkeypatch):
    """Attackers that send what is true: the variance is that of the same run without them."""

    class Late(InProcess):
        def run(self, assignments):
            answers = super().run(assignments)
            asked = [isinstance(one.commands[-1], Ask) for one in assignments]
            return [
                None if question and 2 in one.spec.ids else answer
                for question, one, answer in zip(asked, assignments, answers, strict=True)
            ]

    monkeypatch.setattr(SignFlip, "forge", lambda self, honest, benign, draws: honest)
    settings = ["round_end={name: fda, theta: 0, at: [2]}", "local.block=1", "cohort=6",
                "rounds=1", "resources.on_timeout=drop", "resources.client_timeout=9"]  # fmt: skip
    lying = "attack={name: sign_flip, ids: [0, 5], probes: true}"
    found = [finish(small(*settings, *more), Late).records[0] for more in ([], [lying])]
    assert found[0]["dropped"] == found[1]["dropped"] == 1
    first, second = (record["variance_estimate"] for record in found)
    assert 0 < first == pytest.approx(second, rel=1e-5)


def test_a_client_without_test_rows_has_no_accuracy():
    """NaN, without NumPy's warning in the middle of a run."""
    with warnings.catch_warnings(action="error"):
        table = _means(np.array([[1.0, 2.0, 4.0], [0.0, 0.0, 0.0]]), "test")
    np.testing.assert_array_equal(table["accuracy"], [0.25, math.nan])


def test_compare_where_nobody_took_part_and_where_a_number_is_none():
    """server_only has no client with seconds; JSON's null stands for NaN."""
    rounds = pd.DataFrame({"seconds_train": [1.0, 3.0]})
    assert _of_a_client(rounds) is None
    assert _of_a_client(rounds.assign(seconds_client=[0.25, 0.75])) == 0.5
    result = {"metrics": {"test_loss": None, "train_loss": 0.5}, "diverged": True}
    runs = [result, {"metrics": {"train_loss": 1.0}}]
    lines = _metrics(runs, [True, False], lambda metric: None)
    assert [(line.label, line.cell([0]), line.cell([1])) for line in lines] == [
        ("test loss", "nan", ""), ("local training loss", "0.5000", "1.0000"), ("diverged", "1", "0"),
    ]  # fmt: skip
    assert [line.cell([0, 1]) for line in lines[:2]] == ["nan", "0.7500 ± 0.2500"]


def test_a_metric_in_stop_that_no_round_reports_is_told_once():
    """It was taken in silence: the run went on to its last round."""
    e = finish(load(None, ["data.limit=400", "data.clients=4", "cohort=2", "model=linear", "rounds=3",
                           "local.steps=1", "stop={foo: 1}"]))  # fmt: skip
    assert e.notes == ["stop: up to round 1 no round has reported 'foo'"]


def test_a_look_in_mid_round_leaves_out_whose_numbers_are_none():
    """As the synchronisation does: one client's NaN was all that was seen of the others' model."""

    def losses(*settings):
        work = ["cohort=1.0", "local.steps=4", "rounds=2", "non_finite=drop"]
        e = poisoned(*work, *settings, ids=[0])
        return [e.step()["test_loss"] for _ in range(2)]

    seen = losses("evaluation.every_steps=2")
    assert seen == losses()
    assert all(map(math.isfinite, seen))


def test_who_is_finite_counts_in_h_whatever_its_square_is():
    """It was left out of H, and synchronised: H is of the models of which the mean is made."""
    end = ["round_end={name: fda, theta: 1, monitor: exact}", "non_finite=drop", "cohort=1.0"]
    e = Experiment(small(*end, "local.lr=1e25", "local.steps=1", "rounds=1"))
    record = e.step()
    assert (record["dropped"], record["exceeded"]) == (0, 1)
    assert record["variance_estimate"] == math.inf
    assert all_finite(e.algorithm.w)
