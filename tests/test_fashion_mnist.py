"""Full Fashion-MNIST: the same bits whatever runs them, and learning."""

import pytest

from orchestrator.config import load
from orchestrator.rounds.experiment import Experiment
from tests.full_data import needs_data
from tests.running import finish

pytestmark = needs_data
BASE = [
    "data.dataset=fashion_mnist",
    "rounds=2",
    "local.steps=3",
    "evaluation.every=2",
    "local.epochs=null",
]


@pytest.mark.parametrize(
    "model",
    [
        pytest.param("lenet5", marks=pytest.mark.long),
        pytest.param("mlp", marks=pytest.mark.slow),
    ],
)
def test_actors_and_planes_agree(model, company):
    settings = [*BASE, f"model={model}"]
    reference = finish(load(None, settings)).weights_sha256()
    for actors in (1, 2, 5):
        config = load(None, [*settings, f"resources.actors={actors}"])
        assert finish(config, company.plane(config)).weights_sha256() == reference


def test_a_linear_model_learns_fashion_mnist():
    config = load(
        None,
        [
            *BASE,
            "model=linear",
            "rounds=20",
            "local.steps=20",
            "local.lr=0.02",
            "evaluation.every=20",
        ],
    )
    experiment = Experiment(config)
    while not experiment.finished:
        experiment.step()
    assert experiment.records[-1]["test_accuracy"] > 0.65
