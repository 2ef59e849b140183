"""Attacks, defences and FedAA in whole runs: who is hurt, who is measured, and that no bit depends
on where it ran.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from algorithms.contract import Cohort
from algorithms.draws import torch_generator
from algorithms.local import LocalRule
from orchestrator.clients.adversary import Adversary
from orchestrator.clients.session import Session
from orchestrator.config import build, load
from orchestrator.errors import UserError
from orchestrator.results.run_folder import RunFolder
from orchestrator.rounds.drive import begin, drive
from orchestrator.rounds.experiment import Experiment
from orchestrator.training.messages import Role, role
from tests.configs import small
from tests.running import finish
from tests.sets import quick

FORGED = (Role.model, Role.control)
"""What malicious clients forge of an upload."""
# not a linear model: its logits do not mind a same-value attack
TEN = [
    "model={name: mlp, hidden: [16]}",
    "data.clients=10",
    "data.limit=1000",
    "data.partition=iid",
    "cohort=1.0",
    "local.steps=5",
    "rounds=6",
    "seed=2",
]


def ten(*settings):
    return small(
        *settings, *[s for s in TEN if s.split("=")[0] not in {x.split("=")[0] for x in settings}]
    )


@pytest.mark.parametrize(
    "attack", ["same_value", "sign_flip", "gaussian", "{name: ipm, epsilon: 100}"]
)
def test_fedavg_breaks_and_the_defences_hold(attack):
    clean = finish(ten()).records[-1]["test_accuracy"]
    broken = finish(ten(f"attack={attack}", "non_finite=keep")).records[-1]["test_accuracy"]
    assert broken < clean - 0.15
    for aggregator in ("median", "multi_krum", "geometric_median"):
        held = finish(ten(f"attack={attack}", f"aggregator={aggregator}")).records[-1][
            "test_accuracy"
        ]
        assert held > clean - 0.08, aggregator


FORGING = ["same_value", "sign_flip", "scale", "gaussian", "ipm", "alie", "min_max", "min_sum"]
UPLOADS = ["fedavg", "scaffold", "drdm", "ditto", "lp_proj", "qfedavg", "fedadam", "fednova"]


def forgeries(config):
    """Each time that malicious clients had their turn in a run: (round, session), what everybody
    was to send, what was sent, and the units of changes of the model.
    """
    seen, forge = [], Adversary.forge

    def watched(self, when, cohort, uploads, start, unit=None, *about):
        sent = forge(self, when, cohort, uploads, start, unit, *about)
        factors = torch.ones(len(cohort)) if unit is None else unit
        seen.append((when, {n: v.clone() for n, v in uploads.items()}, sent, factors[:, None]))
        return sent

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Adversary, "forge", watched)
        finish(config)
    return seen


def what_it_must_be(attack, own, benign, draws):
    """The forged rows [2, d] of two malicious clients by the attacks' definitions; None for those
    that are noise, or the largest of what is allowed.
    """
    mean = benign.mean(0)
    numbers = [torch.randn((), generator=g, dtype=torch.float64).to(own) for g in draws]
    if attack == "same_value":
        return torch.stack([100 * m * torch.ones_like(own[0]) for m in numbers])
    if attack in ("sign_flip", "scale"):
        sign = -1 if attack == "sign_flip" else 1
        return torch.stack([sign * abs(10 * m) * row for m, row in zip(numbers, own, strict=True)])
    if attack == "ipm":
        return (-0.5 * mean).expand(2, -1)
    if attack == "alie":
        return (mean - 1.5 * benign.std(0, correction=0)).expand(2, -1)
    return None


@pytest.mark.parametrize("name", UPLOADS)
@pytest.mark.parametrize("attack", FORGING)
def test_every_attack_composes_with_every_kind_of_upload(attack, name):
    """The malicious rows of everything that is sent are what the attack says, and no others are
    touched, whatever the algorithm uploads.
    """
    ids = [1, 4]
    options = ", z: 1.5" if attack == "alie" else ""
    chosen = f"{{name: {attack}, ids: {ids}, target: update{options}}}"
    config = small(f"algorithm={name}", "rounds=1", "cohort=6", f"attack={chosen}", "non_finite=keep",
                   "local.block=6")  # fmt: skip
    sessions = forgeries(config)
    assert sessions
    others = np.setdiff1d(np.arange(6), ids)
    for when, meant, sent, unit in sessions:
        for part, rows in meant.items():
            assert torch.equal(sent[part][others], rows[others]), part
        touched = [n for n, rows in meant.items() if role(n, rows[0]) in FORGED]
        assert touched
        for part in touched:
            model = role(part, meant[part][0]) is Role.model
            purpose, scale = ("attack", unit) if model else (f"attack {part}", torch.ones(6, 1))
            draws = [torch_generator(config.seed, purpose, *when, k) for k in ids]
            check_forged(attack, meant[part] * scale, sent[part] * scale, ids, draws)


def check_forged(attack, before, after, ids, draws):
    own, benign, forged = before[ids], np.delete(before, ids, 0), after[ids]
    expected = what_it_must_be(attack, own, benign, draws)
    if expected is not None:
        torch.testing.assert_close(forged, expected, rtol=1e-4, atol=1e-6)
        return
    if attack == "gaussian":
        assert not torch.equal(forged[0], forged[1])
        assert float(forged.std()) == pytest.approx(100.0, rel=0.05)
        return
    # the colluders: one row for both, on one line from the benign mean against the deviations
    assert torch.equal(forged[0], forged[1])
    moved, spread = forged[0] - benign.mean(0), benign.std(0, correction=0)
    known = spread > 1e-4 * spread.max()
    factors = (moved / spread)[known]
    assert float(factors.median()) <= 0
    torch.testing.assert_close(
        moved,
        float(factors.median()) * spread,
        rtol=2e-2,
        atol=2e-2 * float(moved.abs().max()),
    )
    far = torch.cdist(benign.double(), benign.double())
    mine = torch.linalg.vector_norm(forged[0] - benign, dim=1).double()
    if attack == "min_max":
        assert float(mine.max()) <= float(far.max()) * 1.001
    if attack == "min_sum":
        assert float(mine.square().sum()) <= float(far.square().sum(1).max()) * 1.001


def test_label_flips_compose_with_every_kind_of_upload():
    """They forge no row: the malicious clients' training is at fault, and shows in their loss."""
    for name in UPLOADS:
        runs = [Experiment(small(f"algorithm={name}", "cohort=6", *attack)) for attack in
                ([], ["attack={name: label_flip, ids: [1, 4]}"])]  # fmt: skip
        for run in runs:
            run.step()
        honest, flipped = (run.federation.log.diagnostics["train_loss"] for run in runs)
        assert (honest != flipped).nonzero()[0].tolist() == [1, 4], name


def test_malicious_clients_are_not_measured():
    e = finish(ten("attack={name: same_value, ids: [1, 7]}", "aggregator=median", "rounds=1"))
    rows = e.client_rows[-1]
    assert np.flatnonzero(rows["malicious"]).tolist() == [1, 7]
    honest = np.delete(rows["accuracy"], [1, 7])
    assert e.records[-1]["client_accuracy_mean"] == pytest.approx(honest.mean())
    assert e.records[-1]["client_accuracy_worst"] == honest.min()


def test_the_share_of_the_malicious_is_recorded():
    mean = finish(ten("attack={name: alie, ids: [1, 7]}", "rounds=1")).records[-1]
    assert mean["malicious_weight"] == pytest.approx(0.2)
    assert mean["effective_clients"] == pytest.approx(10)
    krum = finish(
        ten("attack={name: same_value, ids: [1, 7]}", "aggregator=multi_krum", "rounds=1")
    ).records[-1]
    assert krum["malicious_weight"] == 0
    assert krum["effective_clients"] == pytest.approx(8)


def test_a_same_value_model_shrinks_the_mean_of_a_linear_one():
    """It shifts all logits alike, and yet takes a third of what has been learnt: docs/fedaa.md said
    that it does nothing.
    """
    collected, collect = [], Session.collect
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "collect", lambda self, w=None: collected.append(collect(self)))
        with pytest.raises(AttributeError):  # of None, where the algorithm goes on
            Experiment(small("cohort=6", "rounds=1")).step()
    attacked = Experiment(small("cohort=6", "attack={name: same_value, ids: [1, 4]}"))
    start = attacked.algorithm.w
    attacked.step()
    honest = (start + collected[0].rows("delta"))[[0, 2, 3, 5]]

    def told_apart(w):
        """What of the weights [10, 784] tells classes apart."""
        rows = w[..., : 10 * 784].view(*w.shape[:-1], 10, 784)
        return rows - rows.mean(-2, keepdim=True)

    torch.testing.assert_close(
        told_apart(attacked.algorithm.w), told_apart(honest).sum(0) / 6, atol=1e-5, rtol=1e-4
    )


def test_an_attack_by_nobody_changes_nothing():
    a, b = finish(ten("attack=none")), finish(ten("attack={name: gaussian, fraction: 0}"))
    assert a.weights_sha256() == b.weights_sha256()


def test_weighted_sums_with_attackers_are_those_of_the_rows():
    """FedAvg under attack equals the mean over honest updates and forged rows, put together by
    hand.
    """
    config = ten("attack={name: gaussian, ids: [3], tau: 0.5, target: update}", "rounds=1")
    e = Experiment(config)
    start = e.algorithm.w.clone()
    e.step()
    honest = finish(ten("rounds=1"))
    moved = honest.algorithm.w - start
    noise = 0.5 * torch.randn(len(start), generator=torch_generator(2, "attack", 1, 0, 3))
    third = solo_update(3)
    torch.testing.assert_close(
        e.algorithm.w - start, moved + (noise - third) / 10, atol=1e-6, rtol=1e-4
    )


def solo_update(k):
    """Client k's own update in round 1, from a run that aggregates nobody else."""
    e = Experiment(ten("rounds=1"))
    e.federation.begin_round(1)
    received = {"w": e.algorithm.w, "buffers": e.algorithm.buffers}
    with e.federation.train(Cohort.of(np.arange(10)), LocalRule(), received) as training:
        training.advance()
        return training.collect().rows("delta")[k]


def test_label_flipping_trains_on_mirrored_labels():
    """One client with flipped labels is the client of a dataset whose labels are mirrored."""
    flipped = finish(ten("attack={name: label_flip, ids: [0]}", "rounds=1"))
    honest = finish(ten("rounds=1"))
    assert flipped.weights_sha256() != honest.weights_sha256()
    a = Experiment(ten("attack={name: label_flip, ids: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]}"))
    b = Experiment(ten())
    mirrored = replace(b.data.samples, y=9 - b.data.samples.y)
    object.__setattr__(b.data, "samples", mirrored)
    a.step()
    b.step()
    assert torch.equal(a.algorithm.w, b.algorithm.w)


@pytest.mark.parametrize(
    "settings",
    [
        ["attack=gaussian", "aggregator=krum"],
        ["attack=min_max", "algorithm=scaffold"],
        ["attack=label_flip", "algorithm=ditto"],
        [
            "aggregator=fltrust",
            "data.heldout.per_class=20",
            "resources={actors: null, clients_per_actor: 5}",
            "local.block=1",
        ],
        ["algorithm=server_only"],
        [
            "algorithm={name: fedaa, select: 0.5, agent: {name: ddpg, hidden: [16, 16]}}",
            "attack=same_value",
        ],
    ],
    ids=lambda s: s[0],
)
def test_ray_gives_the_same_bits(settings, company):
    config = ten("resources.actors=2", *settings, "rounds=2", "evaluation.local_models=true")
    there, here = finish(config, company.plane(config)), finish(config)
    assert there.state_sha256() == here.state_sha256()
    own = [
        {k: v for k, v in r.items() if not k.startswith("seconds")}
        for r in (there.records[-1], here.records[-1])
    ]
    assert own[0] == own[1]


AGENTS = ["{name: ddpg, hidden: [16, 16]}", "{name: ddpg, preset: authors, hidden: [16, 16]}",
          "{name: td3, preset: robust, hidden: [16, 16], warmup: 2, learning_starts: 3}", "{name: ppo, hidden: [16, 16], collect: 3}",
          "random", "greedy"]  # fmt: skip


@pytest.mark.parametrize("agent", quick(AGENTS, AGENTS[2], "random"))
def test_fedaa_resumes_bitwise(agent, tmp_path):
    """Through the checkpoint on disk, with each agent; also from a checkpoint between two PPO
    updates.
    """
    settings = [
        f"algorithm={{name: fedaa, select: 0.5, agent: {agent}}}",
        "attack=same_value",
        "rounds=7",
        "checkpoint.every=4",
    ]
    whole = finish(ten(*settings))
    folder = RunFolder.new(tmp_path / "run")
    first = Experiment(ten(*settings))
    begin(first, folder, False)
    drive(first, folder, stopping=lambda: first.t >= 4)
    second = Experiment(ten(*settings))
    begin(second, RunFolder.existing(tmp_path / "run"), True)
    assert second.t == 4
    result = drive(second, folder)
    assert result["state_sha256"] == whole.state_sha256()
    assert result["weights_sha256"] == whole.weights_sha256()


def test_fedaa_never_takes_the_attackers_it_can_leave_out():
    e = finish(
        ten(
            "algorithm={name: fedaa, select: 0.7, agent: uniform}",
            "attack={name: same_value, fraction: 0.3}",
        )
    )
    assert all(r["malicious_selected"] == 0 for r in e.records)
    over = finish(
        ten(
            "algorithm={name: fedaa, select: 0.8, agent: uniform}",
            "attack={name: same_value, fraction: 0.3}",
            "non_finite=keep",
        )
    )
    assert all(r["malicious_selected"] == pytest.approx(1 / 8) for r in over.records)
    assert e.records[-1]["test_accuracy"] > over.records[-1]["test_accuracy"] + 0.2


def test_local_models_are_judged_only_when_asked_and_evaluated():
    e = finish(ten("evaluation.local_models=true", "evaluation.every=3"))
    assert [("personal_accuracy_mean" in r) for r in e.records] == [False, False, True] * 2
    rows = pd.DataFrame(e.client_rows[-1])
    assert e.records[-1]["personal_accuracy_mean"] == pytest.approx(rows.personal_accuracy.mean())
    assert "personal_accuracy_mean" not in finish(ten("rounds=1")).records[-1]


def test_per_class_rewards_and_an_unfair_held_out_set():
    e = finish(
        ten(
            "algorithm={name: fedaa, agent: uniform, per_class: true}",
            "data.heldout.per_class={0: 30, 1: 30, 4: 2}",
            "rounds=1",
        )
    )
    assert len(e.data.heldout_rows) == 62
    record = e.records[-1]
    assert {k for k in record if k.startswith("heldout_class_")} == {
        f"heldout_class_{c}" for c in (0, 1, 4)
    }
    parts = (
        30 * record["heldout_class_0"]
        + 30 * record["heldout_class_1"]
        + 2 * record["heldout_class_4"]
    )
    assert record["reward"] == pytest.approx(parts / 62)
    assert record["reward"] == pytest.approx(record["heldout_accuracy"])


def test_presets_fill_in_what_is_left_open():
    c = load(None, ["algorithm={name: fedaa, preset: authors}"])
    assert (c.local.drop_last, c.local.clip, c.buffers, c.local.epochs) == (
        True,
        60.0,
        "exclude",
        20,
    )
    assert (c.algorithm.agent.preset, c.algorithm.agent.noise, c.algorithm.agent.train_noise) == (
        "authors",
        "hidden",
        True,
    )
    c = load(None, ["algorithm=fedaa", "local.steps=3", "algorithm.agent=td3"])
    assert (c.local.steps, c.local.epochs, c.cohort) == (3, None, 1.0)
    assert (c.algorithm.agent.name, c.algorithm.agent.soft_period, c.data.heldout.per_class) == (
        "td3",
        2,
        100,
    )
    again = json.loads(c.model_dump_json())
    assert build(again) == c


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["aggregator={name: krum, byzantine: 0.45}"], "needs a cohort of at least"),
        (["algorithm=fedaa", "data.heldout.per_class=0"], "held out at the server"),
        (["aggregator=fltrust"], "held out at the server"),
        (["algorithm=fedaa", "aggregator=median"], "leave aggregator at mean"),
        (["attack={name: ipm, ids: [99]}"], "numbered 0 to"),
        (
            ["algorithm={name: fedaa, agent: {name: ddpg, policy: /nowhere}}"],
            "no policy in /nowhere",
        ),
        (["algorithm={name: fedaa, layers: zzz}"], "no tensor matches"),
        (["attack={name: ipm, target: model}"], "attack.target"),
        (["algorithm=scaffold", "aggregator=median"], "averages uniformly"),
        (["data.heldout.per_class={11: 3}"], "not one of the 10 classes"),
        (["data.heldout.per_class=-1"], "per_class: must be greater than or equal to 0"),
    ],
)
def test_what_makes_no_sense_is_a_sentence(settings, message):
    with pytest.raises(UserError, match=message):
        Experiment(small(*settings))


def test_training_metrics_are_those_of_honest_clients():
    e = finish(ten("attack={name: label_flip, ids: [1, 7]}", "rounds=1"))
    losses = e.federation.log.diagnostics["train_loss"]
    assert e.records[0]["train_loss"] == pytest.approx(np.delete(losses, [1, 7]).mean())
    assert abs(e.records[0]["train_loss"] - losses.mean()) > 1e-6


def test_statistics_of_a_diverged_client_are_left_out():
    """Batch-norm buffers under a coordinate-wise aggregator: the median over the clients that sent
    numbers.
    """
    from algorithms.contract import Updates

    alg = finish(ten("aggregator=median", "rounds=1")).algorithm
    alg.influence = None
    rows = torch.tensor([[torch.nan, 1.0], [2.0, 3.0], [4.0, 5.0], [6.0, 100.0]])
    alg.take_buffers(Updates(np.arange(4), np.ones(4), None, {"buffers": rows}, {}))
    assert alg.buffers.tolist() == [4.0, 5.0]


@pytest.mark.parametrize("aggregator", ["median", "multi_krum", "fltrust", "trimmed_mean"])
def test_batch_norm_models_under_attack(aggregator):
    settings = [
        "model=fedaa_resnet",
        "data.limit=200",
        "data.clients=5",
        "local.steps=1",
        "cohort=1.0",
        "rounds=2",
        "evaluation.every=2",
        "data.heldout.per_class=2",
    ]
    e = finish(
        small(
            *settings,
            f"aggregator={{name: {aggregator}}}",
            "attack={name: gaussian, buffers: true}",
        )
    )
    assert e.algorithm.buffers.isfinite().all()
    assert e.algorithm.buffers.abs().max() < 50
    assert e.algorithm.w.isfinite().all()


@pytest.mark.parametrize(
    ("method", "times"),
    [
        ("algorithm.agent=uniform", 1),
        ("algorithm=ditto", 2),
        ("algorithm=lp_proj", 1),
        ("algorithm=fedavg", 1),
    ],
)
def test_what_each_method_of_the_example_computes(method, times):
    """Steps that the ledger counts, against FedAvg's epochs over the same data: the same of all but
    Ditto, which trains two models and so does twice as many, unless it is told otherwise.
    """
    path = Path("examples/fedaa/mnist.yaml")
    little = ["data.dataset=fashion_mnist_10k", "data.limit=300", "data.clients=6", "rounds=1",
              "local.epochs=2", "data.heldout.per_class=2", "attack=none"]  # fmt: skip
    experiment = finish(load(path, [method, *little]))
    local, sizes = experiment.config.local, experiment.data.train.sizes
    batches = -(-sizes // local.batch_size)
    assert experiment.federation.ledger.steps.tolist() == (times * 2 * batches).tolist()


def test_ditto_steps_on_both_of_its_models():
    """By the ledger: with half the steps on each it does its rivals' work, as in fedaa/agent-mnist;
    with all of them twice as much, as in the paper's tables.
    """

    def steps(*settings):
        return finish(ten("rounds=1", *settings)).records[-1]["steps"]

    assert steps("algorithm=fedavg", "local.steps=4") == 4
    assert steps("algorithm=ditto", "local.steps=2") == 4
    assert steps("algorithm=ditto", "local.steps=4") == 8


def test_a_partial_agent_keeps_the_preset():
    c = load(None, ["algorithm={name: fedaa, preset: authors}", "algorithm.agent.hidden=[64, 64]"])
    assert (c.algorithm.agent.name, c.algorithm.agent.preset, c.algorithm.agent.hidden) == (
        "ddpg",
        "authors",
        (64, 64),
    )


@pytest.mark.parametrize(
    "attack", ["same_value", "sign_flip", "scale", "gaussian", "alie", "min_max"]
)
def test_malicious_clients_that_were_too_late_forge_nothing(attack):
    """A cohort that has lost them goes on without them."""
    adversary = Experiment(ten(f"attack={attack}", "cohort=10")).adversary
    left = np.setdiff1d(np.arange(10), adversary.ids)
    rows = torch.randn(len(left), 5)
    sent = adversary.forge((1, 0), left, {"delta": rows}, torch.zeros(5))
    assert torch.equal(sent["delta"], rows)


@pytest.mark.parametrize(
    "algorithm", ["afl", "drdm", "drfa", "scaffpd", "qfedavg", "feddyn", "fednova"]
)
def test_methods_with_sums_of_their_own_say_who_counted(algorithm):
    """They said nothing of it, whatever the attackers had in their model."""
    work = ["local.steps=1", "cohort=1.0"] if algorithm == "afl" else ["local.steps=2"]
    e = finish(small(f"algorithm={algorithm}", "attack={name: ipm, ids: [1, 4]}", *work))
    shares = np.nan_to_num(e.client_rows[-1]["weight"])
    assert shares.sum() == pytest.approx(1)
    last = e.records[-1]
    assert last["effective_clients"] == pytest.approx(1 / np.square(shares).sum())
    assert last["malicious_weight"] == pytest.approx(shares[[1, 4]].sum())
