"""The model that a run is judged by and leaves, where that is a mean over rounds."""

import pytest
import torch

import fedorch
from orchestrator.config import load
from orchestrator.errors import UserError
from orchestrator.results.digests import digest
from orchestrator.results.run_folder import RunFolder
from orchestrator.rounds.experiment import Experiment
from tests.running import finish, run_into

SMALL = [
    "data.limit=400",
    "data.clients=6",
    "cohort=3",
    "rounds=4",
    "local.steps=3",
    "local.lr=0.02",
]
EMA = "output={name: ema, decay: 0.6}"


def stepped(*settings):
    """Every round's model and statistics, and the experiment."""
    experiment = Experiment(load(None, [*SMALL, *settings]))
    models = []
    while not experiment.finished:
        experiment.step()
        models.append((experiment.algorithm.w, experiment.algorithm.buffers))
    return experiment, models


@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold", "fedadam"])
def test_training_goes_on_from_the_last_model(algorithm):
    plain, models = stepped(f"algorithm={algorithm}", "model=linear")
    mean, same = stepped(f"algorithm={algorithm}", "model=linear", EMA)
    for (w, _), (v, _) in zip(models, same, strict=True):
        assert torch.equal(w, v)
    weights = torch.tensor([0.6**3, 0.6**2, 0.6, 1.0], dtype=torch.float64)
    wanted = (weights[:, None] * torch.stack([w.double() for w, _ in models])).sum(
        0
    ) / weights.sum()
    torch.testing.assert_close(mean.algorithm.model().double(), wanted, rtol=1e-5, atol=1e-7)
    assert mean.weights_sha256() != plain.weights_sha256()
    assert mean.records[-1]["test_loss"] != plain.records[-1]["test_loss"]


def test_statistics_are_averaged_as_the_model_is():
    mean, models = stepped("output=average", "model=fedaa_resnet", "rounds=2", "data.limit=60",
                           "local.steps=1", "local.batch_size=8", "evaluation.every=9")  # fmt: skip
    assert len(models[0][1])
    torch.testing.assert_close(mean.algorithm.statistics(), (models[0][1] + models[1][1]) / 2)
    torch.testing.assert_close(mean.algorithm.model(), (models[0][0] + models[1][0]) / 2)


def test_a_run_has_it_and_goes_on_with_it(tmp_path):
    config = load(None, [*SMALL, "model=linear", EMA, "checkpoint.every=1"])
    whole = finish(config)
    folder = RunFolder(tmp_path / "run")
    run_into(folder, config, stop_at=2)
    resumed, _ = run_into(folder, resuming=True)
    assert resumed.weights_sha256() == whole.weights_sha256()
    assert torch.equal(whole.net.spec.flatten(folder.model()), whole.algorithm.model())


def test_no_mean_of_what_nobody_has_in_common():
    with pytest.raises(UserError, match="local has no common model to take a mean of"):
        load(None, ["algorithm=local", "output=average"])
    with pytest.raises(UserError, match=r"output\.decay"):
        load(None, ["output={name: ema, decay: 1}"])


def test_all_that_tells_of_the_model_tells_of_the_mean(tmp_path):
    """File, digest, judge, facade: with statistics of batch norm, which differ from the last ones."""
    settings = ["output=average", "model=fedaa_resnet", "rounds=2", "data.limit=24", "cohort=2",
                "data.clients=2", "local.steps=1", "local.batch_size=4", "evaluation.every=2",
                "evaluation.clients=false"]  # fmt: skip
    folder = RunFolder(tmp_path / "run")
    experiment, _ = run_into(folder, load(None, settings))
    algorithm, net = experiment.algorithm, experiment.net
    assert (algorithm.statistics() - algorithm.buffers).abs().max() > 1e-4
    tensors = folder.model()
    assert torch.equal(net.spec.flatten(tensors), algorithm.model())
    assert torch.equal(net.buffer_spec.flatten(tensors), algorithm.statistics())
    wanted = digest({"w": algorithm.model(), "buffers": algorithm.statistics()})
    assert experiment.weights_sha256() == folder.result()["weights_sha256"] == wanted
    rows = experiment.data.test_rows
    loss, *_ = experiment.federation.per_sample(algorithm.model(), algorithm.statistics(), rows)
    assert experiment.records[-1]["test_loss"] == pytest.approx(float(loss.double().mean()))
    stepped = fedorch.Experiment(load(None, settings))
    stepped.run()
    module = stepped.model()
    assert torch.equal(
        net.buffer_spec.flatten(dict(module.named_buffers())), algorithm.statistics()
    )


def test_nobody_looks_in_mid_round_where_the_mean_is_of_rounds():
    """The mean of the local models would be the model without it."""
    settings = [*SMALL, "model=linear", "evaluation.every_steps=2"]
    assert Experiment(load(None, settings))._watch() is not None
    assert Experiment(load(None, [*settings, "output=average"]))._watch() is None


def test_a_mean_that_is_nan_has_diverged():
    """Though the last model may be finite again."""
    experiment = Experiment(load(None, [*SMALL, "model=linear", "output=average"]))
    experiment.step()
    assert not experiment.diverged
    experiment.algorithm.past["mean"] = experiment.algorithm.past["mean"] * torch.nan
    assert experiment.diverged
