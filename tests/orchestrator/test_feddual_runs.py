"""FedDUAL and the baselines that came with it, on the real trainer."""

import copy

import pytest
import torch
import torch.nn.functional as F

from algorithms.feddual import DualRule, kl_gradient
from algorithms.local import LocalRule, Work
from algorithms.parts.losses import CrossEntropy
from orchestrator.config import load
from orchestrator.errors import UserError
from orchestrator.rounds.experiment import Experiment
from orchestrator.training.engines import Contrast, Sequential, Vectorized
from tests.configs import small
from tests.running import finish, resumed

LENET = [
    "model=feddual_lenet",
    "local.steps=null",
    "local.epochs=2",
    "local.lr=0.05",
    "data.limit=200",
    "rounds=2",
]
RESNET = ["model=fedaa_resnet", "data.limit=60", "data.clients=3", "cohort=3", "rounds=2", "local.steps=2",
          "local.batch_size=8", "evaluation.every=2"]  # fmt: skip


def test_the_gradient_of_kl_is_the_finite_difference():
    generator = torch.Generator().manual_seed(0)
    w, q = (torch.randn(1, 7, generator=generator, dtype=torch.float64) for _ in range(2))

    def kl(v):
        p = torch.softmax(v, 0)
        return float((p * (p.log() - torch.softmax(q[0], 0).log())).sum())

    step = 1e-6 * torch.eye(7, dtype=torch.float64)
    expected = torch.tensor(
        [(kl(w[0] + e) - kl(w[0] - e)) / 2e-6 for e in step], dtype=torch.float64
    )
    torch.testing.assert_close(kl_gradient(w, q)[0], expected, rtol=1e-6, atol=1e-9)
    assert not kl_gradient(q, q).abs().max() > 1e-15


def lenet_run(*settings):
    return finish(small(*LENET, *settings))


def test_with_the_linear_barycenter_and_plain_loss_it_is_fedavg_bitwise():
    one_block = ["local.block=4", "aggregator={name: barycenter, method: linear, layers: 1}"]
    fedavg = lenet_run("algorithm=fedavg", "local.block=4")
    dual = lenet_run("algorithm={name: feddual, adaptive_loss: false}", *one_block)
    assert dual.weights_sha256() == fedavg.weights_sha256()
    assert lenet_run("algorithm=feddual", *one_block).weights_sha256() != fedavg.weights_sha256()


def test_the_published_code_is_a_head_that_stays():
    """Half the loss and a collapsed barycenter: under SGD, FedAvg at half the rate whose head never
    moves.
    """
    with pytest.warns(RuntimeWarning, match="barycenter_collapsed"):
        authors = lenet_run(
            "algorithm={name: feddual, reading: authors}", "aggregator.layers=1", "local.lr=0.1"
        )
    frozen = lenet_run(
        "algorithm=fedavg",
        "aggregator={name: barycenter, method: unmoved, layers: 1}",
        "local.lr=0.05",
    )
    torch.testing.assert_close(authors.algorithm.w, frozen.algorithm.w, rtol=1e-4, atol=1e-6)
    assert [r["barycenter_collapsed"] for r in authors.records] == [2.0, 2.0]
    head = authors.net.spec.chosen(1)
    assert torch.equal(authors.algorithm.w[head[0].start :], authors.net.initial[head[0].start :])


class Recording(DualRule):
    """Notes β of the clients as each epoch begins."""

    def epoch(self, work: Work, starting, accuracy):
        super().epoch(work, starting, accuracy)
        seen = work.extras.setdefault("seen", torch.zeros(len(work.clients), 0))
        work.extras["seen"] = torch.cat([seen, accuracy[:, None], work.extras["beta"][:, None]], 1)

    def upload(self, work):
        return {"delta": work.w - work.start, "seen": work.extras["seen"]}


@pytest.mark.parametrize("execution", ["sequential", "vectorized"])
def test_beta_follows_the_accuracy_on_the_clients_own_data(execution):
    config = small(
        *LENET,
        "algorithm=feddual",
        f"local.execution={execution}",
        "local.epochs=3",
        "local.lr=0.2",
    )
    experiment = Experiment(config)
    algorithm = experiment.algorithm
    experiment.federation.begin_round(1, False)
    cohort, rule = algorithm.draw(1), Recording(True, 1.0, True)
    with experiment.federation.train(cohort, rule, algorithm.broadcast()) as training:
        training.advance()
        seen = training.collect().rows("seen")
    models = []  # the same training, stopped after each epoch
    for epochs in range(3):
        experiment.federation.begin_round(1, False)
        with experiment.federation.train(
            cohort, DualRule(True, 1.0, True), algorithm.broadcast()
        ) as training:
            steps = epochs * -(-int(experiment.data.train.sizes[0]) // 32)
            if steps:
                training.advance(steps)
            models.append(algorithm.w + training.collect().rows("delta"))
    samples = experiment.data.samples
    assert len(set(-(-experiment.data.train.sizes[cohort.ids] // 32))) == 1
    for c, k in enumerate(cohort.ids):
        rows = experiment.data.train[k]
        x = (
            torch.from_numpy(samples.x[rows])
            .float()
            .sub(experiment.data.shift[0])
            .mul(experiment.data.scale[0])
        )
        first = None
        for epoch in range(3):
            net = copy.deepcopy(experiment.net)
            net.bind(models[epoch][c].clone(), algorithm.buffers)
            accuracy = float(
                (net.module.eval()(x).argmax(1) == torch.from_numpy(samples.y[rows])).float().mean()
            )
            first = accuracy if first is None else first
            assert float(seen[c, 2 * epoch]) == pytest.approx(accuracy, abs=1e-6)
            assert float(seen[c, 2 * epoch + 1]) == pytest.approx(
                float(torch.sigmoid(torch.tensor(accuracy - first)))
            )


def test_the_summed_gradient_is_that_of_all_local_data():
    class Asks(LocalRule):
        asks_gradient = True

        def upload(self, work):
            return {"delta": work.w - work.start, "gradient": work.extras["gradient"]}

    experiment = Experiment(small(*LENET, "algorithm=feddual"))
    algorithm = experiment.algorithm
    experiment.federation.begin_round(1, False)
    cohort = algorithm.draw(1)
    with experiment.federation.train(cohort, Asks(), algorithm.broadcast()) as training:
        training.advance()
        updates = training.collect()
    k, net = int(cohort.ids[1]), experiment.net
    rows = experiment.data.train[k]
    net.bind((algorithm.w + updates.rows("delta")[1]).clone(), algorithm.buffers)
    x = torch.from_numpy(experiment.data.samples.x[rows]).float().sub(experiment.data.shift[0])
    loss = F.cross_entropy(
        net.module(x.mul(experiment.data.scale[0])),
        torch.from_numpy(experiment.data.samples.y[rows]),
        reduction="sum",
    )
    expected = net.gradient(loss, torch.empty_like(algorithm.w))
    torch.testing.assert_close(updates.rows("gradient")[1], expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("engine", [Sequential, Vectorized])
def test_moons_gradient_is_that_of_its_loss(engine):
    """ℓ_con written out with softmax, its gradient by autograd through a plain copy of the
    network."""
    experiment = Experiment(small(*LENET, "algorithm={name: moon, mu: 2.0, temperature: 0.3}"))
    net, rule = experiment.net, experiment.algorithm.rule()
    generator = torch.Generator().manual_seed(0)
    models = [net.initial + 0.1 * torch.randn(net.spec.size, generator=generator) for _ in range(3)]
    x, y = (
        torch.randn(5, 1, 28, 28, generator=generator),
        torch.randint(10, (5,), generator=generator),
    )

    def features(w):
        module = copy.deepcopy(net.module)
        for p, view in zip(module.parameters(), net.spec.views(w).values(), strict=True):
            p.data = view.clone()
        z = module[:-1](x)
        return module, z, module[-1](z)

    module, z, logits = features(models[0])
    (_, near, _), (_, far, _) = features(models[1]), features(models[2])
    similar = (
        torch.stack([F.cosine_similarity(z, near.detach()), F.cosine_similarity(z, far.detach())])
        / 0.3
    )
    loss = F.cross_entropy(logits, y) - 2.0 * torch.log_softmax(similar, 0)[0].mean()
    grads = torch.autograd.grad(loss, list(module.parameters()))
    expected = net.spec.write([g.detach() for g in grads], torch.empty(net.spec.size))
    w, buffers = models[0][None].clone(), torch.zeros(1, 0)
    made = engine(copy.deepcopy(net), CrossEntropy())
    made.attach(made.views(w, buffers))
    out = torch.empty_like(w)
    contrast = Contrast([models[1][None], models[2][None]], buffers, rule.contrast)
    value = made.gradients(w, x[None], y[None], torch.tensor([5]), out, contrast)
    assert float(value[0]) == pytest.approx(loss.item(), rel=1e-5)
    torch.testing.assert_close(out[0], expected, rtol=1e-3, atol=1e-5)


def test_moon_leaves_statistics_of_batch_norm_alone():
    """The reference models' passes do not touch the local statistics: μ → 0 gives FedAvg's."""
    fedavg, moon = (
        finish(small(*RESNET, f"algorithm={a}")) for a in ("fedavg", "{name: moon, mu: 1e-30}")
    )
    torch.testing.assert_close(moon.algorithm.buffers, fedavg.algorithm.buffers)


def test_a_projection_head_is_what_moon_compares():
    experiment = finish(small(*LENET, "algorithm=moon", "model.projection=32"))
    assert [tuple(e.shape) for e in experiment.net.spec.segments[-6:]] == [
        (84, 84), (84,), (32, 84), (32,), (10, 32), (10,)
    ]  # fmt: skip
    _, z = experiment.net.featured(torch.zeros(3, 1, 28, 28))
    assert z.shape == (3, 32)


def test_fedbn_without_batch_norm_is_fedavg_bitwise():
    fedbn, fedavg = lenet_run("algorithm=fedbn"), lenet_run("algorithm=fedavg")
    assert fedbn.weights_sha256() == fedavg.weights_sha256()
    assert fedbn.federation.ledger.up.tolist() == fedavg.federation.ledger.up.tolist()


def test_fedbn_keeps_batch_norm_with_the_clients(tmp_path):
    experiment = finish(small(*RESNET, "algorithm=fedbn"))
    spec = experiment.net.spec
    normalising = [e for e in spec.segments if e.layer in experiment.net.buffer_spec.layers]
    kept = sum(e.stop - e.start for e in normalising)
    states = experiment.federation.store.states
    assert all(len(s["kept"]) == kept for s in states.values())
    assert not torch.equal(states[0]["kept"], states[1]["kept"])
    assert (
        experiment.records[0]["bytes_up"]
        == 3 * 4 * (spec.size - kept)
        == experiment.records[0]["bytes_down"]
    )
    own = torch.stack([s["kept"] for s in states.values()]).mean(0)
    server = torch.cat([experiment.algorithm.w[e.start : e.stop] for e in normalising])
    torch.testing.assert_close(server, own, rtol=1e-4, atol=1e-6)
    assert "personal_accuracy_mean" in experiment.records[-1]
    assert resumed(experiment.config, tmp_path, 1).state_sha256() == experiment.state_sha256()


def test_a_fedbn_clients_next_round_starts_from_its_own_batch_norm():
    """A client that trains alone on plain averaging of itself: FedBN of one client is FedAvg of one
    client.
    """
    alone = ["data.clients=1", "cohort=1", *RESNET[:2], *RESNET[4:], "buffers=local"]
    fedbn, fedavg = (finish(small(*alone, f"algorithm={a}")) for a in ("fedbn", "fedavg"))
    torch.testing.assert_close(fedbn.algorithm.w, fedavg.algorithm.w, rtol=1e-5, atol=1e-6)


def test_fedpvr_of_all_layers_is_scaffold_bitwise():
    three = ["rounds=3"]
    pvr = lenet_run("algorithm={name: fedpvr, layers: 5}", *three)
    scaffold = lenet_run("algorithm=scaffold", *three)
    assert pvr.weights_sha256() == scaffold.weights_sha256()
    assert pvr.federation.ledger.up.tolist() == scaffold.federation.ledger.up.tolist()


def test_fedpvr_corrects_the_last_layer_only():
    pvr = lenet_run("algorithm=fedpvr", "rounds=3")
    scaffold, fedavg = (lenet_run(f"algorithm={a}", "rounds=3") for a in ("scaffold", "fedavg"))
    last = pvr.net.spec.chosen(1)[0].start
    assert len(pvr.algorithm.control) == pvr.net.spec.size - last == 850
    assert pvr.records[-1]["bytes_up"] == fedavg.records[-1]["bytes_up"] + 4 * 4 * 850
    assert len({e.weights_sha256() for e in (pvr, scaffold, fedavg)}) == 3


def test_layers_that_are_no_neighbours():
    with pytest.raises(UserError, match="must be neighbours"):
        Experiment(small(*LENET, "algorithm={name: fedpvr, layers: bias}"))


def test_too_few_layers_are_refused_before_the_first_round():
    with pytest.raises(UserError, match="has 1 layers, so the last 2 cannot be taken"):
        Experiment(small("algorithm=feddual", "aggregator.layers=2"))


def test_readings_choose_the_barycenter():
    chosen = {
        r: load(None, [f"algorithm={{name: feddual, reading: {r}}}"])
        for r in ("ot", "paper_eq", "authors")
    }
    assert {r: c.aggregator.method.name for r, c in chosen.items()} == {
        "ot": "exact", "paper_eq": "iterated", "authors": "authors"
    }  # fmt: skip
    assert (chosen["authors"].algorithm.signal, chosen["authors"].algorithm.beta) == (
        "gradient",
        "half",
    )
    with pytest.raises(UserError, match="sends summed gradients only to a barycenter"):
        load(None, ["algorithm={name: feddual, signal: gradient}", "aggregator=mean"])


def test_gradient_norms_per_layer():
    """One client, one step: the recorded norm is that of the mini-batch gradient, which SGD
    shows."""
    one = finish(small("model=mlp", "data.clients=1", "cohort=1", "rounds=1", "local.steps=1", "local.lr=0.5",
                       "evaluation.gradient_norms=true"))  # fmt: skip
    step = (one.net.initial - one.algorithm.w) / 0.5
    for layer in one.net.spec.layers:
        parts = [step[e.start : e.stop] for e in one.net.spec.segments if e.layer == layer]
        assert one.records[0][f"gradient_norm/{layer}"] == pytest.approx(
            float(torch.cat(parts).norm()), rel=1e-4
        )


@pytest.mark.parametrize(("model", "shape", "size"), [("feddual_lenet", (1, 28, 28), 164_116)])
def test_model_sizes(model, shape, size):
    from algorithms.part import variants
    from orchestrator.models.base import Model

    module = variants(Model)[model]().create(shape, 10)
    assert sum(p.numel() for p in module.parameters()) == size


def test_the_frozen_vgg_trains_its_head_only():
    from orchestrator.models.deep import FedDualVgg16
    from orchestrator.models.net import Net

    net = Net.of(FedDualVgg16(weights="none"), (3, 32, 32), 10, 0)
    assert net.spec.size == 33_482
    assert net.module(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
