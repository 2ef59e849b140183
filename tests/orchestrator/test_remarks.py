"""What is told before the first round: what is done as it was asked, and can hardly be meant."""

import numpy as np
import pytest
import torch
from torch import nn

import fedorch
from orchestrator.config import build
from orchestrator.models.net import Net
from orchestrator.models.tried import called
from orchestrator.results.checkpoint import load_latest, save
from orchestrator.rounds.experiment import Experiment
from tests.configs import small

PLAIN = {"rounds": 2, "data.clients": 2, "cohort": 2, "local.steps": 2, "resources.threads": 1}


def data():
    x = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
    return x, np.arange(40) % 2


def trained(net, **settings):
    torch.manual_seed(0)
    e = fedorch.Experiment(model=net(), data=data(), **{**PLAIN, **settings})
    e.run()
    return e


def notes(e):
    return "\n".join(e.inner.alarm.notes)


def plain():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))


class HeadOfItsOwn(nn.Module):
    """With a head that is a bare parameter of the whole, which is called first."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(6, 8), nn.Parameter(torch.randn(2, 8))

    def forward(self, x):
        return nn.functional.linear(torch.tanh(self.body(x)), self.head)


class OfFunctions(nn.Module):
    """No module that owns weights is called."""

    def __init__(self):
        super().__init__()
        self.weights = nn.ParameterList([torch.randn(8, 6), torch.randn(2, 8)])

    def forward(self, x):
        for w in self.weights:
            x = nn.functional.linear(x, w)
        return x


class HeadFirst(nn.Module):
    """Declares its layers in another order than it calls them."""

    def __init__(self):
        super().__init__()
        self.head, self.body = nn.Linear(8, 2), nn.Linear(6, 8)

    def forward(self, x):
        return self.head(torch.tanh(self.body(x)))


@pytest.mark.parametrize("execution", ["sequential", "vectorized"])
def test_features_that_no_weight_makes_are_told(execution):
    """MOON was FedAvg, whatever its μ, and nothing was said."""
    how = {"local.execution": execution, "algorithm.name": "moon"}
    a, b = (trained(HeadOfItsOwn, **how, **{"algorithm.mu": mu}) for mu in (0.1, 5.0))
    assert torch.equal(a.weights, b.weights)
    assert "moon: what enters the last layer does not depend on the weights" in notes(a)
    a, b = (trained(plain, **how, **{"algorithm.mu": mu}) for mu in (0.1, 5.0))
    assert not torch.equal(a.weights, b.weights)
    assert notes(a) == ""


def test_a_network_without_layers_has_no_features():
    assert notes(trained(OfFunctions)) == ""
    with pytest.raises(fedorch.UserError, match="make its head a layer"):
        trained(OfFunctions, algorithm="moon")


@pytest.mark.parametrize(
    "settings",
    [{"algorithm.name": "fedpvr", "algorithm.layers": 1},
     {"aggregator": {"name": "barycenter", "layers": 1}}],
)  # fmt: skip
def test_layers_that_are_last_in_one_order_alone_are_told(settings):
    said = notes(trained(HeadFirst, **settings))
    assert (
        "those that the network declares last (body), and not those that it calls last (head)"
        in said
    )
    assert notes(trained(plain, **settings)) == ""


def test_our_networks_declare_their_last_layers_last():
    """Published results of FedDUAL and FedPVR are by this order."""
    for name, shape in (
        ("mlp", (1, 28, 28)), ("lenet5", (1, 28, 28)), ("drdm_cnn", (1, 28, 28)), ("leaf_cnn", (1, 28, 28)),
        ("feddual_lenet", (1, 28, 28)), ("fedaa_cnn", (3, 32, 32)), ("fedaa_resnet", (3, 32, 32)),
        ("resnet18_gn", (3, 32, 32)), ("vgg11", (3, 32, 32)), ("pfl_cnn", (3, 32, 32)),
    ):  # fmt: skip
        net = Net.of(build({"model": name}).model, shape, 10, 0)
        order = called(net, torch.rand(2, *shape))
        assert {*order} == {*net.spec.layers}
        assert {*order[-2:]} == {*net.spec.layers[-2:]}


def test_a_schedule_that_has_ended_is_told():
    cosine = {"name": "cosine", "over": 1}
    assert "learning rate of the last round (2) is 0" in notes(
        trained(plain, **{"local.schedule": cosine})
    )
    assert "learning rate of the last step (2) is 0" in notes(
        trained(plain, **{"local.within": cosine})
    )
    epochs = {"local.steps": None, "local.epochs": 3, "local.within": cosine}
    assert "learning rate of the last step (" in notes(trained(plain, **epochs))


@pytest.mark.parametrize(("algorithm", "told"), [("local", True), ("ditto", False)])
def test_metrics_of_a_model_that_nobody_makes_are_told(algorithm, told):
    found = notes(trained(plain, algorithm=algorithm, **{"evaluation.metrics": ["f1_macro"]}))
    assert ("none of them is reported" in found) == told
    whole = {"local.schedule": {"name": "cosine", "over": 2}}
    assert notes(trained(plain, **whole)) == ""


def test_a_run_that_goes_beyond_its_schedule_is_told(tmp_path):
    """Its notes are those of a run of so many rounds, and what it has said is no news."""
    over = ("local.schedule={name: cosine, over: 2}", "model=linear")
    first = Experiment(small(*over, "rounds=2"))
    while not first.finished:
        first.step()
    first.alarm.note("round 2: something")
    assert first.alarm.news() == ["round 2: something"]
    save(tmp_path, 2, first.state(), 1)
    second = Experiment(small(*over, "rounds=4"))
    second.restore(*load_latest(tmp_path)[:2])
    (ended, something) = second.notes
    assert "the last round (4) is 0" in ended
    assert something == "round 2: something"
    assert second.alarm.news() == [ended]
    save(tmp_path, 3, second.state(), 1)
    third = Experiment(small(*over, "rounds=4"))
    third.restore(*load_latest(tmp_path)[:2])
    assert third.notes == second.notes
    assert third.alarm.news() == []


def test_fedbn_without_batch_normalisation_is_told():
    assert "so this is fedavg" in notes(trained(plain, algorithm="fedbn"))

    def normalised():
        return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))

    assert notes(trained(normalised, algorithm="fedbn")) == ""
