"""The trainer against hand-written PyTorch loops, and its two executions against each other."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from algorithms.local import LocalRule
from algorithms.local_config import LocalConfig
from orchestrator.data import FederatedData
from orchestrator.data.federated import DataConfig
from orchestrator.models.images import DrdmCnn, FedAAResNet, LeNet5, Linear, Mlp
from orchestrator.training.batches import Batches
from orchestrator.training.block import Block, engines
from orchestrator.training.messages import Advance, BlockSpec, Collect
from orchestrator.training.world import World
from tests.configs import small

DATA = FederatedData.build(
    DataConfig(clients=4, limit=330, partition={"name": "zipf", "alpha": 1.0, "sigma": 0.8}), 0
)


def world(model, **local):
    return World(
        DATA, model, LocalConfig(**{"batch_size": 16, "lr": 0.1, **local}), "aggregate", 0, 1
    )


def train(w, ids, vectorized, t=1, rule=None, states=None):
    """Local training of ``ids`` -> (deltas [C, d], Collected)."""
    e = engines(w)
    net = e[False].net
    received = {"w": net.initial, "buffers": net.initial_buffers}
    block = Block(
        w,
        e[vectorized],
        BlockSpec(np.array(ids), rule or LocalRule(), states or {}, {}, t, 0, vectorized),
        received,
    )
    block.run(Advance(None))
    collected = block.run(Collect(None, False))
    return collected.vectors["delta"], collected


def by_hand(w, k, make_optimizer, clip=None, t=1):
    """An ordinary PyTorch loop for client k, on batches drawn as documented."""
    net = w.net()
    module, n = net.module.train(), len(DATA.train[k])
    before = [p.detach().clone() for p in module.parameters()]
    optimizer = make_optimizer(module.parameters())
    steps = w.local.planned(n)
    for rows in Batches(DATA.train[k], w.local, 0, t, k).take(steps):
        x = (torch.tensor(DATA.samples.x[rows]).float() / 255 - 0.2860) / 0.3530
        loss = F.cross_entropy(module(x), torch.tensor(DATA.samples.y[rows]))
        optimizer.zero_grad()
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(module.parameters(), clip)
        optimizer.step()
    deltas = {
        n: p.detach() - b for (n, p), b in zip(module.named_parameters(), before, strict=True)
    }
    return net.spec.flatten(deltas), net.buffer_spec.flatten(net.buffers)


OPTIMIZERS = [
    ({}, lambda p: torch.optim.SGD(p, 0.1)),
    ({"optimizer": {"name": "sgd", "momentum": 0.9, "nesterov": True}}, lambda p: torch.optim.SGD(p, 0.1, 0.9, nesterov=True)),
    ({"optimizer": "adam", "lr": 0.01}, lambda p: torch.optim.Adam(p, 0.01)),
    ({"optimizer": "adamw", "lr": 0.01}, lambda p: torch.optim.AdamW(p, 0.01)),
]  # fmt: skip


@pytest.mark.parametrize("vectorized", [False, True])
@pytest.mark.parametrize(
    ("local", "optimizer"), OPTIMIZERS, ids=["sgd", "nesterov", "adam", "adamw"]
)
def test_local_training_is_what_pytorch_does(local, optimizer, vectorized):
    w = world(Mlp(hidden=(20,)), epochs=2, **local)
    deltas, _ = train(w, [0, 1, 2, 3], vectorized)
    for k in range(4):
        torch.testing.assert_close(deltas[k], by_hand(w, k, optimizer)[0], rtol=2e-3, atol=2e-5)


def test_clipping_is_pytorchs():
    w = world(LeNet5(), steps=4, clip=0.05)
    deltas, _ = train(w, [1], False)
    want, _ = by_hand(w, 1, lambda p: torch.optim.SGD(p, 0.1), clip=0.05)
    torch.testing.assert_close(deltas[0], want, rtol=1e-3, atol=1e-6)
    vectorized, _ = train(w, [1, 2], True)
    torch.testing.assert_close(vectorized[0], want, rtol=1e-3, atol=1e-5)


def test_batch_norm_statistics_are_trained_and_sent():
    w = world(FedAAResNet(), steps=2)
    deltas, collected = train(w, [0], False)
    want, buffers = by_hand(w, 0, lambda p: torch.optim.SGD(p, 0.1))
    torch.testing.assert_close(deltas[0], want, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(collected.vectors["buffers"][0], buffers, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "model", [Linear(), Mlp(hidden=(30,)), LeNet5(), DrdmCnn()], ids=lambda m: m.name
)
@pytest.mark.parametrize(
    "work", [{"steps": 3}, {"epochs": 1}, {"epochs": 1, "drop_last": True}], ids=str
)
def test_vectorised_equals_sequential(model, work):
    w = world(model, **work)
    one, a = train(w, [0, 1, 2, 3], False)
    many, b = train(w, [0, 1, 2, 3], True)
    torch.testing.assert_close(one, many, rtol=1e-3, atol=2e-5)
    for name in ("train_loss", "steps", "update_norm"):
        torch.testing.assert_close(a.diagnostics[name], b.diagnostics[name], rtol=1e-3, atol=1e-5)


def test_the_planned_work_is_done_by_everyone():
    w = world(Linear(), epochs=2)
    _, collected = train(w, [0, 1, 2, 3], True)
    assert collected.diagnostics["steps"].tolist() == [
        2 * -(-len(DATA.train[k]) // 16) for k in range(4)
    ]
    _, fewer = train(world(Linear(), epochs=2, drop_last=True), [0, 1, 2, 3], True)
    assert fewer.diagnostics["steps"].tolist() == [2 * (len(DATA.train[k]) // 16) for k in range(4)]


def test_a_client_below_one_batch_does_not_train_with_drop_last():
    least = int(DATA.train.sizes.min())
    w = world(Linear(), steps=3, batch_size=least + 1, drop_last=True)
    deltas, _ = train(w, [0, 3], True)
    assert deltas[1].abs().max() == 0 < deltas[0].abs().max()


def test_an_epoch_visits_every_row_once():
    stream = Batches(np.arange(50), LocalConfig(epochs=1, batch_size=16), 0, 1, 0)
    batches = stream.take(8)
    assert [len(rows) for rows in batches] == [16, 16, 16, 2] * 2
    assert sorted(np.concatenate(batches[:4])) == list(range(50))
    assert sorted(np.concatenate(batches[4:])) == list(range(50))


def test_batches_do_not_depend_on_how_they_are_taken():
    local = LocalConfig(steps=60, batch_size=8)
    whole = Batches(np.arange(30), local, 5, 2, 3).take(60)
    stream = Batches(np.arange(30), local, 5, 2, 3)
    parts = [rows for steps in (1, 1, 30, 1, 7, 20) for rows in stream.take(steps)]
    assert all(np.array_equal(*pair) for pair in zip(whole, parts, strict=True))


def test_independent_sampling_repeats_rows_between_batches():
    local = LocalConfig(steps=40, batch_size=8, sampling="independent")
    rows = Batches(np.arange(10), local, 0, 1, 0).take(40)
    assert all(len(set(r)) == 8 for r in rows)
    assert len(set(map(tuple, rows))) > 30


def test_dropout_is_keyed_by_client_and_round():
    class DropoutNet(Mlp):
        name: str = "test_dropout"

        def build(self, shape, classes):
            return torch.nn.Sequential(
                torch.nn.Flatten(), torch.nn.Dropout(0.5), torch.nn.Linear(784, classes)
            )

    w = world(DropoutNet(), steps=3)
    torch.manual_seed(0)
    a, _ = train(w, [0, 1], False)
    torch.manual_seed(1)
    alone, _ = train(w, [1], False)
    assert torch.equal(a[1], alone[0])
    later, _ = train(w, [1], False, t=2)
    assert not torch.equal(alone, later)


def test_kept_optimizer_state_goes_on():
    """Two rounds of 3 steps with kept Adam state, on fixed batches, are 6 steps of Adam."""
    local = {
        "steps": 3,
        "optimizer": "adam",
        "lr": 0.01,
        "optimizer_state": "keep",
        "batch_size": 1000,
    }
    w = world(Linear(), **local)
    first, collected = train(w, [0], False)
    assert set(collected.states[0]) == {"optimizer/first", "optimizer/second", "optimizer/t"}
    reset, _ = train(world(Linear(), **{**local, "optimizer_state": "reset"}), [0], False)
    again, _ = train(w, [0], False, states=collected.states)
    assert torch.equal(first, reset)
    assert not torch.equal(again, first)


def test_execution_rules():
    from orchestrator.errors import UserError
    from orchestrator.rounds.experiment import Experiment

    assert Experiment(small()).config.local.execution == "vectorized"
    assert (
        Experiment(small("model=drdm_cnn", "local.block=null")).config.local.execution
        == "sequential"
    )
    with pytest.raises(UserError, match="batch-norm"):
        Experiment(small("model=fedaa_resnet", "local.execution=vectorized"))
