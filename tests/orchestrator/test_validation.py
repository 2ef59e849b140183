"""Models judged by rows that were kept back for choices."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from orchestrator.config import load
from orchestrator.errors import UserError
from orchestrator.rounds.experiment import Experiment
from tests.running import finish

SMALL = [
    "data.limit=400", "data.clients=6", "model=linear", "rounds=2", "cohort=4", "local.steps=3",
]  # fmt: skip


def right(e, w, rows):
    """Whether a linear model's answers on ``rows`` are right, by its weights alone."""
    x, y = e.world.batch(np.asarray(rows))
    weight, bias = w[:7840].view(10, 784), w[7840:]
    return (x.flatten(1) @ weight.T + bias).argmax(1) == y


@pytest.mark.parametrize("kept", ["{clients: 0.2}", "{clients: 0.2, server: 0.1}"])
def test_the_server_s_model_and_each_client(kept):
    e = finish(load(None, [*SMALL, f"data.validation={kept}"]))
    last, rows, w = e.records[-1], e.client_rows[-1], e.algorithm.model()
    expected = right(e, w, e.data.validation_rows).double().mean()
    assert last["validation_accuracy"] == pytest.approx(float(expected), abs=1e-12)
    each = [float(right(e, w, e.data.validation[k]).double().mean()) for k in range(6)]
    assert rows["accuracy_validation"].tolist() == pytest.approx(each, abs=1e-12)
    assert last["client_validation_accuracy_worst"] == pytest.approx(min(each), abs=1e-12)
    assert last["client_validation_accuracy_mean"] == pytest.approx(np.mean(each), abs=1e-12)
    assert rows["validation_rows"].tolist() == e.data.validation.sizes.tolist()
    tests = [float(right(e, w, e.data.test[k]).double().mean()) for k in range(6)]
    assert rows["accuracy"].tolist() == pytest.approx(tests, abs=1e-12)


def test_personal_models():
    e = finish(load(None, [*SMALL, "data.validation.clients=0.2", "algorithm=ditto"]))
    models = e.federation.store.states
    each = []
    for k in range(6):
        if k in models:
            w = next(
                v for v in models[k].values() if isinstance(v, torch.Tensor) and v.numel() == 7850
            )
            each.append(float(right(e, w, e.data.validation[k]).double().mean()))
    found = e.client_rows[-1]["personal_accuracy_validation"]
    joined = [found[k] for k in sorted(models)]
    assert joined == pytest.approx(each, abs=1e-12)


def test_without_such_rows_nothing_is_said_of_them():
    last = finish(load(None, SMALL)).records[-1]
    assert not [name for name in last if "validation" in name]


def test_rows_kept_back_are_not_trained_on():
    """The model is that of a federation in which they have other labels."""
    config = load(None, [*SMALL, "data.validation={clients: 0.2, server: 0.1}"])
    one = finish(config)
    kept = np.concatenate([one.data.validation.rows, one.data.validation_rows])
    labels = one.data.samples.y.copy()
    labels[kept] = (labels[kept] + 1) % 10
    other = Experiment(config, data=replace(one.data, samples=replace(one.data.samples, y=labels)))
    while not other.finished:
        other.step()
    assert one.weights_sha256() == other.weights_sha256()
    assert one.records[-1]["validation_accuracy"] != other.records[-1]["validation_accuracy"]


@pytest.mark.parametrize("dealt", ["iid", "feddual"])
def test_rows_that_nobody_can_keep_back_are_told(dealt):
    """A run went on without the validation that it was asked for."""
    few = ["data.limit=6", "data.clients=6", "cohort=6", f"data.partition={dealt}"]
    both = ["data.validation={clients: 0.5, server: 0.0}"]
    if dealt == "feddual":
        few, both = ["data.limit=40"], ["data.validation={clients: 0.95, server: 0.9}"]
    with pytest.raises(UserError, match=r"data.validation"):
        Experiment(load(None, [*few, *both]))
