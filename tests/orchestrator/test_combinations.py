"""Combinations that once meant something else than their config says (each by an example)."""

import numpy as np
import pytest
import torch
from torch import nn

from algorithms.parts.compressors import TopK
from algorithms.parts.monitors import Drift
from orchestrator.clients.adversary import Adversary
from orchestrator.errors import UserError
from orchestrator.models.base import Model
from orchestrator.rounds.experiment import Experiment
from orchestrator.training import lane
from orchestrator.training.evaluation import per_sample, summed_gradient
from orchestrator.training.lane import Lane
from tests.configs import small

TOP = "{name: top_k, fraction: 0.01}"


class Normed(Model):
    """A tiny network with batch normalisation."""

    name: str = "normed_for_tests"

    def build(self, shape, classes):
        return nn.Sequential(
            nn.AvgPool2d(4), nn.Conv2d(shape[0], 4, 3), nn.BatchNorm2d(4), nn.Flatten(),
            nn.Linear(100, classes),
        )  # fmt: skip


NORMED = ("model=normed_for_tests", "local.batch_size=8", "local.block=1", "data.limit=120")


def normed(*settings, clients=3):
    return Experiment(
        small(*NORMED, f"data.clients={clients}", "cohort=1.0", "rounds=3", *settings)
    )


def inner(experiment):
    """Mask [d] of the batch-norm entries."""
    mask = torch.zeros(experiment.net.spec.size, dtype=torch.bool)
    for part in experiment.algorithm.private:
        mask[part] = True
    assert mask.any()
    assert not mask[: int(mask.nonzero()[0])].any()
    assert int(mask.nonzero()[0]) > 0, "a prefix would be no test"
    return mask


def accuracy(experiment, w, buffers, k):
    hit = per_sample(experiment.world, experiment.net, w, buffers, experiment.data.test[k]).hit
    return float(hit.double().mean())


# FedBN


def test_fedbn_keeps_batch_norm_out_of_compression():
    e = normed("algorithm=fedbn", f"compression.uplink={TOP}", "evaluation.every=3")
    e.step()
    mask, states = inner(e), e.federation.store.states
    kept = torch.stack([states[k]["kept"] for k in range(3)])
    # the server's own is the mean of what the clients have, to the last digit but the sum's
    torch.testing.assert_close(e.algorithm.w[mask], kept.mean(0))
    assert len(states[0]["error/delta"]) == int((~mask).sum())


def test_the_variance_is_of_what_is_synchronised(monkeypatch):
    """FDA's H counted batch-norm weights, which stay with the clients and never come together."""
    seen = []
    answer = Drift.answer
    monkeypatch.setattr(Drift, "answer", lambda self, work: seen.append(work) or answer(self, work))
    fda = "round_end={name: fda, theta: 1e9, at: [3], monitor: exact}"
    e = normed("algorithm=fedbn", fda, "local.steps=3", "local.lr=0.5", "local.block=3")
    seen.clear()  # of what is tried before the run
    record = e.step()
    drift = torch.cat([work.w - work.start for work in seen]).double()
    assert len(drift) == 3
    assert drift[:, inner(e)].any()
    sent = drift[:, ~inner(e)]
    weights = torch.from_numpy(e.data.train.sizes / e.data.train.sizes.sum())
    meant = [weights @ (sent - center).square().sum(1) for center in (weights @ sent, 0)]
    assert record["variance_estimate"] in (
        pytest.approx(float((sent - sent.mean(0)).square().sum(1).mean()), rel=1e-4),
        pytest.approx(float(meant[0]), rel=1e-4),
    )


def test_fedbn_is_judged_by_the_models_that_the_clients_have_now():
    """Not by the replica that they were left with by the compressed broadcast before."""
    e = normed("algorithm=fedbn", f"compression.downlink={TOP}", "rounds=2")
    e.step()
    e.step()
    mask = inner(e)
    for k in range(3):
        own = e.algorithm.w.clone()
        own[mask] = e.federation.store.states[k]["kept"]
        statistics = e.federation.store.states[k]["buffers"]
        found = e.client_rows[-1]["personal_accuracy"][k]
        assert found == pytest.approx(accuracy(e, own, statistics, k))


@pytest.mark.parametrize("algorithm", ["fedavg", "fedbn"])
def test_who_joins_late_starts_from_the_first_statistics(algorithm, monkeypatch):
    """They stay with the clients, so nobody has sent it the server's averages."""
    begun, original = [], Lane.__init__

    def watched(self, world, engine, spec, ids, *rest):
        original(self, world, engine, spec, ids, *rest)
        fresh = [k for k in ids if int(k) not in spec.states]
        begun.extend(
            (spec.t, self.buffers[c].clone()) for c, k in enumerate(self.ids) if k in fresh
        )

    monkeypatch.setattr(Lane, "__init__", watched)
    e = normed(f"algorithm={algorithm}", "buffers=local", "cohort=1", "evaluation.every=3")
    e.step()
    e.step()
    late = [buffers for t, buffers in begun if t == 2]
    assert late
    assert not torch.equal(e.algorithm.buffers, e.net.initial_buffers)
    assert all(torch.equal(buffers, e.net.initial_buffers) for buffers in late)


@pytest.mark.parametrize("state", ["reset", "average"])
def test_evaluations_are_in_no_account(state):
    moments = ("algorithm=fedbn", f"local.optimizer_state={state}", "local.optimizer=adam")
    judged, not_judged = (
        normed(*moments, f"evaluation.personal={wish}", "rounds=2") for wish in ("true", "false")
    )
    for e in (judged, not_judged):
        e.step()
        e.step()
    assert judged.federation.ledger.down.tolist() == not_judged.federation.ledger.down.tolist()


def test_no_aggregator_sees_what_stays_with_the_clients(monkeypatch):
    e = normed("algorithm=fedbn", "aggregator=krum", "evaluation.every=3", clients=5)
    seen, cls = [], type(e.config.aggregator)
    original = cls.combine
    monkeypatch.setattr(
        cls, "combine", lambda self, rows: seen.append(rows) or original(self, rows)
    )
    e.step()
    mask = inner(e)
    assert not seen[0].updates[:, mask].any()
    assert seen[0].updates[:, ~mask].any()
    kept = torch.stack([e.federation.store.states[k]["kept"] for k in range(5)])
    torch.testing.assert_close(e.algorithm.w[mask], kept.mean(0))


# Whose statistics


def test_ditto_keeps_two_kinds_of_statistics():
    e = normed("algorithm=ditto", "rounds=2")
    e.step()
    e.step()
    for k in range(3):
        state = e.federation.store.states[k]
        assert "buffers" not in state  # the common model's are the server's
        assert not torch.equal(state["personal/buffers"], e.algorithm.buffers)
        found = e.client_rows[-1]["personal_accuracy"][k]
        assert found == pytest.approx(accuracy(e, state["model"], state["personal/buffers"], k))


@pytest.mark.parametrize("algorithm", ["local", "lp_proj", "drdsgd"])
def test_statistics_of_models_that_stay_are_not_averaged(algorithm):
    with pytest.raises(UserError, match="leaves every model with its client"):
        small(f"algorithm={algorithm}", "buffers=aggregate")


@pytest.mark.parametrize("algorithm", ["drdsgd", "{name: drdm, control: lambda_weighted}"])
def test_statistics_are_weighted_as_the_model_is(algorithm, monkeypatch):
    """And not the coordinate-wise median, which is for aggregators that choose coordinates."""
    from algorithms import algorithm as module

    monkeypatch.setattr(module, "coordinate_median", lambda rows: 1 / 0)
    e = normed(f"algorithm={algorithm}", "evaluation.every=3")
    before = e.algorithm.buffers.clone()
    e.step()
    assert not torch.equal(e.algorithm.buffers, before)


# Attacks


def test_flipped_labels_are_flipped_for_every_question(monkeypatch):
    e = Experiment(
        small(
            "algorithm={name: feddual, signal: gradient}",
            "attack={name: label_flip, ids: [1]}",
            "cohort=1.0",
        )
    )
    asked = {}

    def watched(world, net, w, b, rows, flip):
        asked[rows.tobytes()] = flip
        return summed_gradient(world, net, w, b, rows, flip)

    monkeypatch.setattr(lane, "summed_gradient", watched)
    e.step()
    flips = {k: asked[e.data.holdings[k].tobytes()] for k in range(6)}
    assert flips == {k: k == 1 for k in range(6)}


def test_the_flipped_gradient_is_that_of_the_other_labels():
    e = Experiment(small())
    rows, (w, buffers) = e.data.train[0], (e.net.initial, e.net.initial_buffers)
    found = summed_gradient(e.world, e.net, w, buffers, rows, True)
    x, y = e.world.batch(rows)
    module = e.config.model.build(e.data.samples.shape, 10)
    module.load_state_dict(e.net.spec.tensors(w))
    nn.functional.cross_entropy(module(x), 9 - y, reduction="sum").backward()
    by_hand = torch.cat([p.grad.flatten() for p in module.parameters()])
    torch.testing.assert_close(found, by_hand, rtol=1e-4, atol=1e-4)


def test_moments_of_optimisers_are_not_forged():
    settings = ["local.optimizer=adam", "local.optimizer_state=average", "cohort=1.0", "rounds=1"]
    honest, attacked = (
        Experiment(small(*settings)),
        Experiment(small(*settings, "attack={name: gaussian, fraction: 0.4}")),
    )
    honest.step()
    attacked.step()
    moments = honest.federation.store.optimizer
    assert moments
    for name, one in moments.items():
        torch.testing.assert_close(attacked.federation.store.optimizer[name], one)


def adversary(attack, **options):
    config = small(
        f"attack={{name: {attack}, ids: [1], {', '.join(f'{k}: {v}' for k, v in options.items())}}}"
    )
    return Adversary.of(config.attack, 0, 4)


def test_every_upload_is_forged_by_draws_of_its_own():
    rows = torch.zeros(3, 50)
    sent = adversary("gaussian", target="update").forge(
        (1, 0), np.arange(3), {"delta": rows, "control": rows}, torch.zeros(50)
    )
    assert sent["delta"][1].any()
    assert not torch.allclose(sent["delta"][1], sent["control"][1])


def test_what_is_forged_is_compressed_and_counted_like_the_rest(monkeypatch):
    """The forger has a memory of what compression left out, too."""
    e = Experiment(
        small(
            "attack={name: gaussian, ids: [1], tau: 5.0, target: update}", "cohort=1.0",
            f"compression.uplink={TOP}", "aggregator=median",
        )
    )  # fmt: skip
    seen, cls = [], type(e.config.aggregator)
    original = cls.combine
    monkeypatch.setattr(
        cls, "combine", lambda self, rows: seen.append(rows) or original(self, rows)
    )
    for _ in range(2):
        e.step()
    d = e.net.spec.size
    most = round(0.01 * d) + 1
    assert all(int((row != 0).sum()) <= most for rows in seen for row in rows.updates)
    draw = Adversary.of(e.config.attack, 0, 6).forge(
        (1, 0), np.array([1]), {"delta": torch.zeros(1, d)}, torch.zeros(d)
    )["delta"]
    torch.testing.assert_close(seen[0].updates[1], TopK(fraction=0.01).compress(draw, [])[0])
    assert e.federation.store.states[1]["error/delta"].abs().max() > 1
    assert len(set(e.federation.ledger.up.tolist())) == 1


def test_a_forged_model_is_divided_like_an_honest_one():
    """Of FedNova's (w_k − w)/a_k it is w_k that is forged."""
    rows, start, unit = torch.randn(3, 8), torch.randn(8), torch.tensor([2.0, 4.0, 0.0])
    mean = adversary("sign_flip", target="model")
    out = mean.forge((1, 0), np.arange(3), {"delta": rows}, start, unit)["delta"]
    plain = mean.forge((1, 0), np.arange(3), {"delta": rows * 4.0}, start)["delta"]
    torch.testing.assert_close(out[1] * 4.0, plain[1], rtol=1e-4, atol=1e-4)
    assert torch.equal(out[[0, 2]], rows[[0, 2]])


@pytest.mark.parametrize("algorithm", ["qfedavg", "afl"])
def test_forged_answers(algorithm):
    losses = {}
    for probes in ("false", "true"):
        e = Experiment(
            small(f"algorithm={algorithm}", f"attack={{name: scale, ids: [1], probes: {probes}}}")
        )
        e.federation.begin_round(1)
        ids = np.arange(4)
        losses[probes] = e.federation.loss(ids, e.algorithm.w, e.algorithm.buffers)
    honest = np.array([0, 2, 3])
    assert torch.equal(losses["false"][honest], losses["true"][honest])
    assert losses["false"][1] != losses["true"][1]


@pytest.mark.parametrize("monitor", ["linear", "sketch", "exact"])
def test_forged_states_of_monitors(monitor):
    fda = f"round_end={{name: fda, theta: 1.0e9, monitor: {monitor}}}"
    attack = "attack={name: scale, ids: [1], tau: 100.0, probes: %s}"
    settings = ["cohort=1.0", "rounds=1", "local.block=2", fda]
    plain, lied = (
        Experiment(small(*settings, attack % probes)).step() for probes in ("false", "true")
    )
    assert abs(lied["variance_estimate"]) > 10 * abs(plain["variance_estimate"])
    assert lied["bytes_questions"] == plain["bytes_questions"]


# Compressed broadcasts, repeats


@pytest.mark.parametrize("algorithm", ["qfedavg", "afl", "scaffpd"])
def test_losses_are_those_of_the_model_that_clients_have(algorithm, monkeypatch):
    e = Experiment(small(f"algorithm={algorithm}", f"compression.downlink={TOP}", "rounds=2"))
    e.step()
    at, original = [], e.federation.per_sample

    def watched(w, buffers, rows):
        at.append(w.clone())
        return original(w, buffers, rows)

    monkeypatch.setattr(e.federation, "per_sample", watched)
    exact = e.algorithm.w.clone()
    e.step()
    assert torch.equal(at[0], e.federation.mailroom.replicas["w"])
    assert not torch.equal(at[0], exact)


@pytest.mark.parametrize("algorithm", ["drfa", "drdm", "{name: drdm, control: lambda_weighted}"])
def test_the_snapshot_of_the_last_step_is_the_next_model(algorithm, monkeypatch):
    """With one local step t' is the last, and lines 17-20 of DRDM are the same twice."""
    steps = ("local.steps=1", "local.lr=0.5", "rounds=3")
    e = Experiment(small(f"algorithm={algorithm}", f"compression.downlink={TOP}", *steps))
    snapshots, apply = [], e.algorithm.apply
    monkeypatch.setattr(
        e.algorithm, "apply", lambda *a: snapshots.append(apply(*a)) or snapshots[-1]
    )
    while not e.finished:
        sent = e.algorithm.w.clone()
        e.step()
        torch.testing.assert_close(snapshots[-1], e.algorithm.w, atol=1e-6, rtol=1e-5)
    assert (e.federation.mailroom.replicas["w"] - sent).norm() > 0.01


def test_a_client_that_is_drawn_twice_is_refused_where_it_counts_once():
    repeated = "sampler={name: weighted, replace: true}"
    assert small(repeated)
    for aggregator in ("median", "krum", "geometric_median"):
        with pytest.raises(UserError, match="counts a client once"):
            small(repeated, f"aggregator={aggregator}")


def test_losses_are_by_the_labels_that_a_client_has():
    e = Experiment(small("algorithm=afl", "attack={name: label_flip, ids: [1]}"))
    honest = Experiment(small("algorithm=afl"))
    ids = np.arange(4)
    for one in (e, honest):
        one.federation.begin_round(1)
    a, b = (o.federation.loss(ids, o.algorithm.w, o.algorithm.buffers) for o in (e, honest))
    x, y = e.world.batch(e.data.train[1])
    module = e.config.model.build(e.data.samples.shape, 10)
    module.load_state_dict(e.net.spec.tensors(e.net.initial))
    torch.testing.assert_close(a[1], nn.functional.cross_entropy(module(x), 9 - y))
    torch.testing.assert_close(a[[0, 2, 3]], b[[0, 2, 3]])


def test_losses_are_with_the_statistics_that_a_client_has():
    e = normed("algorithm=qfedavg", "buffers=local", "evaluation.every=3")
    e.step()
    e.federation.begin_round(2)
    losses = e.federation.loss(np.arange(3), e.algorithm.w, e.algorithm.buffers, known=True)
    for k in range(3):
        own = e.federation.store.states[k]["buffers"]
        by_hand = per_sample(e.world, e.net, e.algorithm.w, own, e.data.train[k]).loss
        torch.testing.assert_close(losses[k], by_hand.mean())


@pytest.mark.parametrize("more", ["algorithm=fedbn", "buffers=local"])
def test_nobody_forges_what_never_leaves(more):
    """The server's own batch-norm layers, or statistics, are the honest ones' mean, and finite."""
    attack = "attack={name: same_value, ids: [1], tau: 1.0e6, buffers: true}"
    plain, attacked = normed(more, "evaluation.every=3"), normed(more, attack, "evaluation.every=3")
    plain.step()
    attacked.step()
    torch.testing.assert_close(plain.algorithm.buffers, attacked.algorithm.buffers)
    if attacked.algorithm.private:
        mask = inner(attacked)
        torch.testing.assert_close(plain.algorithm.w[mask], attacked.algorithm.w[mask])


def test_a_forger_whose_own_training_diverged_is_judged_by_its_message():
    """And remembers nothing of it: its NaN control would be its end some rounds later."""
    e = Experiment(
        small(
            "algorithm=scaffold", "attack={name: same_value, ids: [1], tau: 1.0}", "cohort=1.0",
            "non_finite=drop",
        )
    )  # fmt: skip
    e.step()
    before = e.federation.store.states[1]["control"].clone()
    poisoned = Lane.upload

    def upload(self):
        for row in np.flatnonzero(self.ids == 1):
            self.work.w[row] = torch.nan
        return poisoned(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Lane, "upload", upload)
        record = e.step()
    assert record["dropped"] == 0
    assert torch.equal(e.federation.store.states[1]["control"], before)
