"""FDA, compression and optimiser policies in whole runs: bytes, bits and equivalences."""

import shutil
from io import StringIO

import numpy as np
import pandas as pd
import pytest
import torch
from rich.console import Console

from algorithms.fda import threshold
from algorithms.parts.compressors import TopK
from orchestrator.analysis.wallclock import communication_seconds, show_wallclock
from orchestrator.clients.session import Session
from orchestrator.config.goal import Goal, up_to
from orchestrator.conformance.forgetful import Forgetful
from orchestrator.errors import UserError
from orchestrator.results.run_folder import RunFolder
from orchestrator.rounds.drive import begin, drive
from orchestrator.rounds.experiment import Experiment
from orchestrator.training.block import Block
from orchestrator.training.messages import Ask
from tests.configs import small
from tests.orchestrator.test_comparison import edit
from tests.running import finish, resumed

ALL = ["cohort=1.0", "data.partition=iid", "local.steps=6"]
D, K = 7850, 6


def run(*settings):
    names = {s.split("=")[0] for s in settings}
    return finish(small(*settings, *[s for s in ALL if s.split("=")[0] not in names]))


@pytest.mark.parametrize(
    ("monitor", "state"),
    [
        ("linear", 8),
        ("sketch", 5004),
        ("naive", 4),
        ("{name: sketch, rows: 3, columns: 500}", 6004),
    ],
)
def test_bytes_are_the_published_formula(monitor, state):
    """rounds · 4 d K · 2 + state · steps · K, to the byte."""
    e = run(f"round_end={{name: fda, theta: 2.0, monitor: {monitor}}}", "rounds=4")
    steps = sum(r["round_steps"] for r in e.records)
    total = sum(r["bytes_up"] + r["bytes_down"] for r in e.records)
    assert total == 4 * 4 * D * K * 2 + state * steps * K
    assert sum(r["bytes_questions"] for r in e.records) == state * steps * K


def test_a_zero_threshold_is_synchronous_training_bitwise():
    fda = run("round_end={name: fda, theta: 0}", "local.optimizer_state=keep", "rounds=5")
    bsp = run("algorithm=synchronous", "local.steps=1", "rounds=5")
    assert fda.weights_sha256() == bsp.weights_sha256()
    assert [r["round_steps"] for r in fda.records] == [1] * 5


@pytest.mark.parametrize("work", [["local.steps=6"], ["local.steps=null", "local.epochs=2"]])
@pytest.mark.parametrize("name", ["fedavg", "fedadam", "scaffold", "fedprox", "feddyn"])
def test_an_infinite_threshold_is_the_algorithm_itself_bitwise(name, work):
    settings = [f"algorithm={name}", "data.limit=384", *work]  # equal clients: FDA is in lock step
    assert (
        run(*settings, "round_end={name: fda, theta: 1e30}").weights_sha256()
        == run(*settings).weights_sha256()
    )


CASES = [
    ["round_end={name: fda, theta: 2.0}"],
    ["round_end={name: fda, theta: 2.0, monitor: sketch}", "algorithm=scaffold"],
    ["round_end=fda_opt", "algorithm=fedadamw"],
    ["round_end={name: fda_async, theta: 1.0, stragglers: 0.4}"],
    [
        "round_end={name: fda, theta: 2.0}",
        "compression.uplink={name: top_k, fraction: 0.05}",
        "compression.downlink=qsgd",
    ],
    ["compression.uplink={name: random_k, fraction: 0.2}", "algorithm=scaffold", "cohort=4"],
    [
        "compression.uplink=qsgd",
        "algorithm={name: scallion, scale: 0.5, momentum: 0.5}",
        "cohort=4",
    ],
    ["local.optimizer=adam", "local.lr=0.001", "local.optimizer_state=average"],
]


@pytest.mark.parametrize("settings", CASES, ids=lambda c: c[0])
def test_planes_and_restarts_agree(settings, company, tmp_path):
    here = run(*settings)
    config = here.config.model_copy(
        update={"resources": here.config.resources.model_copy(update={"actors": 2})}
    )
    assert finish(config, company.plane(config)).state_sha256() == here.state_sha256()
    assert finish(config, Forgetful).state_sha256() == here.state_sha256()
    assert resumed(config, tmp_path, 1).state_sha256() == here.state_sha256()


def test_compressed_bytes_reach_the_ledger():
    plain = run("rounds=1").records[0]
    up = run("rounds=1", "compression.uplink={name: top_k, fraction: 0.1}").records[0]
    assert (plain["bytes_up"], up["bytes_up"]) == (4 * D * K, 8 * 785 * K)
    both = run("rounds=2", "compression.downlink=bf16").records
    assert [r["bytes_down"] for r in both] == [4 * D * K, 2 * D * K]


def test_a_client_that_missed_a_broadcast_is_sent_the_whole_model():
    """One of six clients a round, in turn: each must learn the model, and only then a change of
    it."""
    turns = [
        "sampler=cyclic",
        "cohort=1",
        "rounds=7",
        "compression.downlink={name: top_k, fraction: 0.01}",
    ]
    assert [r["bytes_down"] for r in run(*turns).records] == [4 * D] * 7
    often = ["cohort=1.0", "rounds=3", "compression.downlink={name: top_k, fraction: 0.01}"]
    assert [r["bytes_down"] for r in run(*often).records] == [4 * D * K, 8 * 78 * K, 8 * 78 * K]


def test_a_direction_that_some_cannot_know_is_sent():
    """LinearFDA's ξ is the last step of the model; with a part of the clients it is one more
    vector, but not at first.
    """
    end = "round_end={name: fda, theta: 1.0, monitor: linear}"
    assert [r["bytes_down"] for r in run(end, "cohort=4", "rounds=2").records] == [
        4 * D * 4,
        2 * 4 * D * 4,
    ]
    assert run(end, "rounds=2").records[1]["bytes_down"] == 4 * D * K
    # of a compressed broadcast nobody can work it out
    half = "compression.downlink=bf16"
    assert run(end, half, "rounds=2").records[1]["bytes_down"] == (2 + 4) * D * K
    seeded = "round_end={name: fda, theta: 1.0, monitor: {name: linear, direction: random}}"
    assert run(seeded, "cohort=4", "rounds=2").records[1]["bytes_down"] == 4 * D * 4


def test_the_server_is_no_client_to_a_monitor(monkeypatch):
    """FLTrust's server trains beside five of six clients: ξ is sent to the five, and H is theirs
    alone.
    """
    trust = ["aggregator=fltrust", "data.heldout={per_class: 10}", "cohort=5", "rounds=2"]
    e = run("round_end={name: fda, theta: 1e9, monitor: linear}", *trust)
    assert [r["bytes_down"] for r in e.records] == [4 * D * 5, 2 * 4 * D * 5]
    assert {r["bytes_questions"] for r in e.records} == {8 * 5 * 6}
    assert {r["exceeded"] for r in e.records} == {0.0}
    at_once = run("round_end={name: fda, theta: 0, monitor: linear}", *trust)
    assert {(r["exceeded"], r["round_steps"]) for r in at_once.records} == {(1.0, 1.0)}
    collected, collect = [], Session.collect
    monkeypatch.setattr(
        Session, "collect", lambda self, w=None: collected.append(collect(self, w)) or collected[-1]
    )
    last = run("round_end={name: fda, theta: 1e9, monitor: naive}", *trust).records[-1]
    clients = collected[-1].clients < K
    assert clients.sum() == 5 == len(clients) - 1
    lengths = collected[-1].rows("delta")[torch.from_numpy(clients)].square().sum(1)
    assert last["variance_estimate"] == pytest.approx(float(lengths.mean()), rel=1e-5)


def test_only_clients_that_have_something_to_say_are_asked(monkeypatch):
    asked = []
    answer = Block.run
    monkeypatch.setattr(
        Block,
        "run",
        lambda self, c: (isinstance(c, Ask) and asked.append(self), answer(self, c))[1],
    )
    e = run("round_end={name: fda_async, theta: 0.5, stragglers: 0.5}", "local.block=1", "rounds=2")
    messages = sum(r["bytes_up"] for r in e.records) - 2 * 4 * D * K
    assert len(asked) == messages / 8


def test_a_server_that_trains_has_no_part_in_the_clock(monkeypatch):
    """Neither steps nor time of the clients are other ones where FLTrust's server trains beside
    them, whose update is of as many steps as theirs.
    """
    asynchronous = "round_end={name: fda_async, theta: 1e9, stragglers: 0.5, jitter: 0.5}"
    trust = ["aggregator=fltrust", "data.heldout={per_class: 5}", "local.lr=1e-9"]
    alone = run(asynchronous, "rounds=2")
    steps, advance = np.zeros(K + 1), Session.advance
    monkeypatch.setattr(
        Session, "advance", lambda self, n: (np.add(steps, n, steps), advance(self, n))[1]
    )
    beside = run(asynchronous, "rounds=2", *trust)
    for name in ("round_steps", "virtual_time", "lock_step_time", "bytes_questions"):
        assert [r[name] for r in beside.records] == [r[name] for r in alone.records]
    *done, at_the_server = steps / 2
    assert at_the_server == round(np.mean(done)) > min(done)


def test_private_entries_take_no_room_in_a_compressed_message():
    """FedBN's batch norm stays at home; what is sent of the rest is what is counted."""
    resnet = [
        "data.limit=120",
        "data.clients=3",
        "model={name: fedaa_resnet}",
        "local.batch_size=8",
        "local.block=1",
        "evaluation.every=2",
    ]
    top = "compression={uplink: {name: top_k, fraction: 0.01}, downlink: {name: top_k, fraction: 0.01}}"
    e = Experiment(
        small(*resnet, "algorithm=fedbn", "cohort=1.0", "local.steps=1", top, "rounds=2")
    )
    private = sum(s.stop - s.start for s in e.algorithm.rule().private)
    assert private > 0
    sent = []
    original = TopK.compress
    e.step()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            TopK,
            "compress",
            lambda self, rows, draws: sent.append(rows.shape[1]) or original(self, rows, draws),
        )
        e.step()
    assert set(sent) == {e.net.spec.size - private}
    assert len(e.federation.store.states[0]["error/delta"]) == e.net.spec.size - private


def test_error_feedback_sends_later_what_it_left_out():
    """Sent and kept add up to the whole, message after message."""
    e = Experiment(
        small("compression.uplink={name: top_k, fraction: 0.02}", "rounds=4", "cohort=1.0")
    )
    whole = Experiment(small("rounds=4", "cohort=1.0"))
    e.step()
    whole.step()
    left = torch.stack([e.federation.store.states[k]["error/delta"] for k in range(6)])
    moved = e.algorithm.w - whole.algorithm.w
    torch.testing.assert_close(-left.mean(0), moved, atol=1e-6, rtol=1e-4)
    without = Experiment(
        small(
            "compression.uplink={name: top_k, fraction: 0.02, error_feedback: false}", "cohort=1.0"
        )
    )
    without.step()
    assert not without.federation.store.states


def test_compressed_training_still_learns():
    plain = run("rounds=12").records[-1]["test_accuracy"]
    for how in ("{name: top_k, fraction: 0.05}", "qsgd", "bf16"):
        assert (
            run("rounds=12", f"compression.uplink={how}").records[-1]["test_accuracy"]
            > plain - 0.12
        )


def test_averaged_optimiser_state_is_the_mean_of_the_clients():
    settings = ["local.optimizer=adam", "local.lr=0.001", "rounds=1"]
    average = run(*settings, "local.optimizer_state=average")
    kept = run(*settings, "local.optimizer_state=keep")
    for name in ("first", "second"):
        mean = torch.stack(
            [kept.federation.store.states[k][f"optimizer/{name}"] for k in range(K)]
        ).mean(0)
        torch.testing.assert_close(
            average.federation.store.optimizer[f"optimizer/{name}"], mean, atol=1e-8, rtol=1e-4
        )
    sent = 3 * 4 * D + 8
    assert average.records[0]["bytes_up"] == sent * K
    assert average.weights_sha256() == kept.weights_sha256()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["round_end=fda_async", "local.execution=vectorized"], "clients of their own pace"),
        (
            ["round_end=fda_async", "resources={client_timeout: 9, on_timeout: drop}"],
            "fda_async keeps the last state of every client .*set resources.on_timeout to redo",
        ),
        (["algorithm=local", "round_end=fda"], "leave round_end at fixed"),
        (["algorithm=drfa", "round_end=fda"], "leave round_end at fixed"),
        (["algorithm=clustered", "compression.downlink=bf16", "cohort=1.0"], "different models"),
        (
            ["algorithm=scallion", "compression.uplink=top_k"],
            "set compression.uplink.error_feedback to false",
        ),
        (["round_end={name: fda, theta: -1}"], "round_end.theta"),
        (["round_end={name: fda, at: [0, 3]}"], "round_end.at"),
        (["round_end={name: fda, at: [3], every: 2}"], "give at or every"),
        (
            ["algorithm=synchronous", "local.steps=1", "cohort=1.0", "round_end=fda"],
            "--set round_end=fixed",
        ),
        (["compression.uplink={name: random_k, scale: true}"], "loses more than it sends"),
        (["compression.downlink={name: qsgd, bucket: null}"], "loses more than it sends"),
        (
            ["compression.downlink={name: random_k, scale: true, error_feedback: false}"],
            "loses more than it sends",
        ),
    ],
)
def test_what_makes_no_sense_is_a_sentence(settings, message):
    with pytest.raises(UserError, match=message):
        Experiment(small(*settings))


def test_a_run_stops_at_its_target(tmp_path):
    e = run("rounds=30", "stop={test_accuracy: 0.65, steps_total: 1000}")
    assert e.t < 30
    assert e.records[-1]["test_accuracy"] >= 0.65 > e.records[-2]["test_accuracy"]
    assert e.records[-1]["steps_total"] == 6 * e.t
    early = run("rounds=30", "stop={steps_total: 18}", "evaluation.every=5")
    assert early.t == 3
    assert "test_accuracy" in early.records[-1]
    partial = run("cohort=2", "sampler=cyclic", "rounds=6", "local.steps=1")
    assert partial.records[-1]["steps_total"] == 6


@pytest.mark.parametrize("stop", ["bytes_up: 1", "seconds: 0.0", "bytes_questions: 0"])
def test_the_round_that_ends_a_run_is_judged_whatever_ends_it(stop):
    """What a round has spent is known after all else, and its local models are gone by then."""
    e = run(f"stop={{{stop}}}", "evaluation={every: 5, local_models: true}", "rounds=30")
    assert e.t == 1
    assert e.reached
    assert {"test_accuracy", "personal_accuracy_mean"} <= set(e.records[0])
    assert e.client_rows[0]["round"][0] == 1


def test_a_metric_may_have_to_fall():
    e = run("rounds=30", 'stop={test_loss: "<= 1.5"}')
    assert 1 < e.t < 30
    assert e.records[-1]["test_loss"] <= 1.5 < e.records[-2]["test_loss"]
    assert Goal.read("0.5") == Goal.read(0.5) == Goal.read(">= 0.5")
    assert small('stop={test_loss: ">= 9"}').stop == {"test_loss": ">= 9"}
    assert not Goal.read("<= 0.5").met(float("nan"))
    with pytest.raises(UserError, match=r"stop\.test_loss.* is not a (finite )?number"):
        small('stop={test_loss: "below 1"}')


def test_a_misspelt_metric_ends_the_run_and_not_never():
    with pytest.raises(UserError, match="did you mean 'test_accuracy'"):
        run("stop={test_acuracy: 0.9}")


def test_a_misspelt_metric_that_is_known_when_all_is_done_takes_nothing():
    """Nothing was evaluated before the last round, and its results were thrown away."""
    e = run("stop={test_acuracy: 0.9}", "rounds=2", "evaluation.every=2")
    assert e.t == 2
    assert any("test_acuracy" in note for note in e.notes)


def test_suggested_thresholds():
    record = run("round_end={name: fda, theta: fl}", "rounds=1").records[0]
    assert record["theta"] == pytest.approx(4.91e-5 * D)
    for text in ("4.91e-5 d", "4.91e-5d"):
        theta = small(f"round_end={{name: fda, theta: {text}}}").round_end.theta
        assert threshold(theta, D) == record["theta"]
    for wrong in ("fast", "-1", "-1 d", "1.2.3d", ".nan"):
        with pytest.raises(
            UserError,
            match=r"round_end.theta: must be a (finite number|number from 0 on, one with a d)",
        ):
            small(f"round_end={{name: fda, theta: {wrong}}}")


def test_wallclock_by_hand(tmp_path):
    """The thesis' formula for LeNet-5, K = 5: 2.5 GB over a shared 0.5 Gbit/s channel take 4/5 ·
    20/0.5 s.
    """
    assert communication_seconds(2.5e9, 5, "shared", 0.5) == pytest.approx(32.0)
    assert communication_seconds(2.5e9, 5, "hypercube", 100.0) == pytest.approx(20 * 2 / 5 / 100)
    for arguments in ((1.0, 5, "pigeon", 1.0), (1.0, 5, "shared", 0.0)):
        with pytest.raises(UserError):
            communication_seconds(*arguments)
    rounds = pd.DataFrame({"test_accuracy": [0.1, np.nan, 0.6, 0.7]})
    assert len(up_to(rounds, "test_accuracy", Goal(0.6))) == 3
    assert up_to(rounds, "test_accuracy", Goal(0.9)) is None
    assert len(up_to(rounds, "test_accuracy", None)) == 4


def test_wallclock_from_the_command_line(tmp_path, monkeypatch):
    page = Console(file=StringIO(), width=200)
    monkeypatch.setattr("orchestrator.analysis.wallclock.console", page)
    folder = RunFolder.new(tmp_path / "run")
    e = Experiment(small("rounds=2", *ALL))
    begin(e, folder, False)
    drive(e, folder)
    show_wallclock([folder], 10.0, "shared", 0.5, "test_accuracy", Goal(2.0))
    show_wallclock([folder], 10.0, "shared", 0.5, "test_accuracy", None)
    shown = page.file.getvalue()
    assert "never reached" in shown
    assert f"{2 * 4 * D * K * 2 / 1e9:.3f}" in shown
    slow = RunFolder.existing(shutil.copytree(folder.path, tmp_path / "slow"))
    edit(slow.path, status="stopped", rounds=1)
    known = folder.rounds()
    slower = known.assign(seconds_client=3 * known["seconds_client"])
    monkeypatch.setattr(RunFolder, "rounds", lambda one: slower if one is slow else known)
    for step_ms, said in ((None, True), (10.0, False)):
        page.file.truncate(0)
        show_wallclock([folder, slow], step_ms, "shared", 0.5, "test_accuracy", None)
        assert ("give all of them one --step-ms" in page.file.getvalue()) == said
        assert "stopped: slow after 1 of 2 rounds" in page.file.getvalue()
