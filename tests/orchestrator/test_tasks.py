"""Runs with other losses, metrics and targets: in effect, the same on actors, and refused where
they make no sense."""

import numpy as np
import pytest
import torch

from orchestrator.cli.run_shown import headline
from orchestrator.config import load
from orchestrator.errors import Diverged, UserError
from orchestrator.pages.figures import ACCURACY
from orchestrator.results.run_folder import RunFolder
from orchestrator.rounds.experiment import Experiment
from orchestrator.rounds.metrics import more_is_better
from orchestrator.training.own import OwnMetric
from tests.running import run_into

OWN = """
import torch

def smooth(outputs, targets, /, part=0.1):
    return torch.nn.functional.cross_entropy(
        outputs, targets, reduction="none", label_smoothing=part
    )

def margin(outputs, targets):
    top = outputs.topk(2, 1).values
    return (top[:, 0] - top[:, 1]).mean()

def in_turn(labels, clients):
    import numpy as np
    return np.arange(len(labels)) % clients

def of_all(outputs, targets):
    return (outputs - outputs.mean(0)).square().mean(1)

def one(outputs, targets):
    return outputs.mean()

def detached(outputs, targets):
    return outputs.detach().mean(1)

def wide(outputs, targets):
    return outputs.double().mean(1)

def text(outputs, targets):
    return "good"

def strict(outputs, targets):
    if not outputs.isfinite().all():
        raise ValueError("input contains NaN")
    return 1.0

def never(outputs, targets):
    if len(outputs) > 100:
        raise ValueError("no")
    return 1.0

def huge(outputs, targets):
    return -10**400

def too_far(labels, clients):
    return labels * 0 + clients

def short(labels):
    return labels[1:]

def broken(outputs, targets):
    return outputs[:, 999]
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


SMALL = (
    "model=linear",
    "rounds=2",
    "data.clients=6",
    "cohort=4",
    "local.steps=2",
    "data.limit=600",
)


def finish(*settings, company=None):
    config = load(None, [*SMALL, *settings])
    e = Experiment(config, company.plane(config)) if company else Experiment(config)
    for _ in range(config.rounds):
        e.step()
    return e


def test_a_loss_and_a_partition_of_one_s_own_are_in_effect(own):
    mine = finish("loss=./own.py:smooth", "data.partition=./own.py:in_turn")
    same = finish("loss.label_smoothing=0.1", "data.partition=./own.py:in_turn")
    other = finish("data.partition=./own.py:in_turn")
    torch.testing.assert_close(mine.algorithm.w, same.algorithm.w)
    assert not torch.allclose(mine.algorithm.w, other.algorithm.w)
    rows = np.sort(np.concatenate([mine.data.train[k] for k in range(6)]))
    np.testing.assert_array_equal(mine.data.train[1], rows[1::6])
    stronger = finish("loss={name: ./own.py:smooth, part: 0.5}", "data.partition=./own.py:in_turn")
    assert not torch.allclose(stronger.algorithm.w, mine.algorithm.w)


@pytest.mark.parametrize("execution", ["sequential", "vectorized"])
def test_vectorised_losses_are_each_client_s(own, execution):
    settings = ("loss=focal", f"local.execution={execution}", "local.block=4")
    one = finish("loss=focal", "local.execution=sequential", "local.block=1")
    torch.testing.assert_close(finish(*settings).algorithm.w, one.algorithm.w, rtol=1e-4, atol=1e-5)


def test_metrics_are_of_the_rows_that_are_judged(own):
    e = finish(
        "evaluation.metrics=[f1_macro, {name: ./own.py:margin, better: more}]",
        "data.validation.clients=0.2",
    )
    record, table = e.records[-1], e.client_rows[-1]
    e.net.bind(e.algorithm.w, e.algorithm.buffers)
    e.net.module.eval()

    def margin(rows):
        with torch.no_grad():
            out = e.net.module(e.world.batch(rows)[0]).sort(1).values
        return float((out[:, -1] - out[:, -2]).mean())

    assert record["test_margin"] == pytest.approx(margin(e.data.test_rows), rel=1e-5)
    each = [margin(e.data.test[k]) for k in range(6)]
    np.testing.assert_allclose(table["margin"], each, rtol=1e-5)
    assert record["client_margin_worst"] == pytest.approx(min(each), rel=1e-5)
    assert record["client_margin_worst10"] == record["client_margin_worst"]
    assert record["client_validation_margin_mean"] == pytest.approx(
        np.mean([margin(e.data.validation[k]) for k in range(6)]), rel=1e-5
    )
    assert {"test_f1_macro", "validation_f1_macro", "client_f1_macro_std"} <= {*record}
    assert "f1 macro" in headline(record, {})
    less = finish("evaluation.metrics=[{name: ./own.py:margin, better: less}]")
    found = less.records[-1]
    assert found["client_margin_worst"] >= found["client_margin_mean"]
    # what is measured beside changes nothing else
    assert less.weights_sha256() == finish().weights_sha256()


@pytest.mark.parametrize(
    ("name", "side"),
    [
        ("log_loss", False), ("error", False), ("top_error_rate", False), ("mse", False),
        ("MSE", False), ("brier", False), ("perplexity", False), ("accuracy", True),
        ("top5_accuracy", True), ("F1", True), ("margin", None), ("loss_of_others", None),
        ("neg_mse", None), ("negative_log_loss", None),
    ],
)  # fmt: skip
def test_a_name_says_which_side_is_better_or_nobody_does(name, side):
    assert OwnMetric(of=f"own:{name}").side is side
    assert OwnMetric(of=f"own:{name}", better="more").side is True
    assert more_is_better(f"client_{name}_worst", [OwnMetric(of=f"own:{name}")]) is side


def test_of_a_metric_without_a_better_side_no_client_is_the_worst(own):
    record = finish("evaluation.metrics=[./own.py:margin]").records[-1]
    assert {"test_margin", "client_margin_mean", "client_margin_std"} <= {*record}
    assert not {"client_margin_worst", "client_margin_worst10"} & {*record}


def test_a_run_that_has_begun_means_by_its_goals_what_it_says(own, tmp_path):
    """One of before, whose bare number was at least that, could not be read any more."""
    metrics = "evaluation.metrics=[./own.py:margin]"
    run_into(
        RunFolder(tmp_path / "run"), load(None, [*SMALL, metrics, 'stop={test_margin: ">= 9"}'])
    )
    there = tmp_path / "run" / "config.yaml"
    there.write_text(there.read_text().replace("'>= 9'", "9.0"))
    assert RunFolder(tmp_path / "run").config().stop == {"test_margin": 9.0}
    with pytest.raises(UserError, match="nobody has said which way"):
        RunFolder(tmp_path / "run").config(settings=["stop={test_margin: 0.1}"])


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        ("./own.py:margin", "nobody has said which way"),
        ("{name: ./own.py:margin, better: less}", "to fall"),
    ],
)
def test_a_bare_goal_is_of_what_is_to_rise(own, metric, said):
    metrics = f"evaluation.metrics=[{metric}]"
    with pytest.raises(UserError, match=said):
        finish(metrics, "stop={test_margin: 0.1}")
    finish(metrics, 'stop={test_margin: "<= 100"}')


def table(path, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(120, 3))
    a, b = x @ [1, -2, 0.5] + 0.1 * rng.normal(size=120), x[:, 0] > 0
    rows = [f"{'pqrs'[i % 4]},{u:.4f},{v:.4f},{w:.4f},{a[i]:.4f},{int(b[i])},{int(a[i] > 0)}"
            for i, (u, v, w) in enumerate(x)]  # fmt: skip
    path.write_text("\n".join(["who,u,v,w,a,b,c", *rows]) + "\n")


NUMBERS = ("data.dataset={name: csv, path: ./t.csv, label: a, features: [u, v, w], task: numbers, client: who}",
           "data.partition=natural", "data.clients=4", "loss=mse", "data.limit=null",
           "evaluation.metrics=[mae, r2]", "rounds=40", "local.lr=0.1")  # fmt: skip


def test_numbers_are_learnt_as_least_squares_has_it(own):
    table(own / "t.csv")
    e = finish(*NUMBERS)
    record = e.records[-1]
    assert not any("accuracy" in name for name in record)
    assert not {*ACCURACY} & {*record}
    samples = e.data.samples
    design = np.c_[samples.x, np.ones(len(samples.x))].astype(float)
    exact, *_ = np.linalg.lstsq(
        design[: samples.train], samples.targets[: samples.train], rcond=None
    )
    residual = (design @ exact - samples.targets)[samples.train :]
    # of a step size that does not fall, as near as its noise
    assert record["test_loss"] == pytest.approx(float((residual**2).mean()), rel=0.2)
    assert record["test_r2"] > 0.99
    assert record["test_mae"] == pytest.approx(float(np.abs(residual).mean()), rel=0.1)
    assert {"client_loss_mean", "client_loss_worst", "client_mae_worst"} <= {*record}
    assert record["client_mae_worst"] >= record["client_mae_mean"]
    assert more_is_better("client_mae_mean") is False
    assert more_is_better("test_r2") is True
    assert "test loss" in headline(record, {})


def test_several_labels_a_sample(own):
    table(own / "t.csv")
    e = finish(
        "data.dataset={name: csv, path: ./t.csv, label: [b, c], features: [u, v, w], task: numbers}",
        "data.limit=null", "data.clients=3", "cohort=3", "loss=bce", "rounds=40", "local.lr=1",
    )  # fmt: skip
    record = e.records[-1]
    assert record["test_accuracy"] > 0.8  # all labels of a row
    assert e.net.module(torch.zeros(1, 3)).shape == (1, 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["loss=./own.py:of_all"], "a sample's loss depends on the other samples"),
        (["loss=./own.py:one"], "returns () for 5 samples"),
        (["loss=./own.py:detached"], "has no gradient"),
        (["loss=./own.py:wide"], "returns torch.float64"),
        (["loss=./own.py:text"], "returns str for 5 samples"),
        (["loss=./own.py:broken"], "loss: own_"),
        (["loss=./own.py:nothing"], "has no 'nothing'"),
        (["loss={name: ./own.py:smooth, parts: 1}"], "takes no 'parts'; did you mean 'part'"),
        (["loss={name: own, of: os:getcwd}"], "there is no plugin 'os'"),
        (["evaluation.metrics=[./own.py:text]"], "returns a str, and no number"),
        (["evaluation.metrics=[./own.py:huge]"], "huge is infinite"),
        (["evaluation.metrics=[./own.py:margin, ./own.py:margin]"], "'margin' twice"),
        (["evaluation.metrics=[r2]"], "r2 is of numbers, and the data's targets are classes"),
        (["evaluation.metrics=[f2]"], "there is no 'f2'"),
        (["loss=bce", "evaluation.metrics=[calibration_error]"], "of probabilities, and a model"),
        (["data.partition=./own.py:too_far"], "names client 6; there are 0 to 5"),
        (["data.partition=./own.py:short"], "a client, for each of"),
        ([*NUMBERS, "loss=cross_entropy"], "the data's targets are numbers"),
        ([*NUMBERS, "loss=bce"], "each 0 or 1"),
        ([*NUMBERS, "evaluation.metrics=[auroc]"], "auroc is of classes"),
        ([*NUMBERS, "attack=label_flip"], "flips classes"),
        ([*NUMBERS, "algorithm=feddual"], "feddual goes by accuracy"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_a_sentence(own, settings, message):
    table(own / "t.csv")
    with pytest.raises(UserError) as told:
        finish(*settings)
    assert message in str(told.value)


def test_actors_have_the_same_bits(own, company):
    table(own / "t.csv")
    for settings in (
        [*NUMBERS, "rounds=2"],
        ["loss=./own.py:smooth", "evaluation.metrics=[f1_macro, ./own.py:margin]"],
    ):
        here = finish(*settings)
        there = finish(*settings, "resources.actors=2", company=company)
        assert here.weights_sha256() == there.weights_sha256()
        assert _measured(here) == _measured(there)


def _measured(e):
    return {n: v for n, v in e.records[-1].items() if not n.startswith("seconds")}


@pytest.mark.parametrize("loss", ["cross_entropy", "bce", "mse"])
def test_a_class_s_score_is_what_the_loss_trains(loss):
    """AUROC was by a softmax of outputs that are no logits: another order of rows."""
    e = finish(f"loss={loss}", "evaluation.metrics=[auroc]", "local.lr=0.5")
    rows = e.data.test_rows
    outputs = e.federation.per_sample(e.algorithm.w, e.algorithm.buffers, rows).outputs.double()
    y = e.data.samples.y[rows]
    scores = (outputs.softmax(1) if loss == "cross_entropy" else outputs).numpy()
    areas = [np.mean(scores[y == c, c][:, None] > scores[y != c, c]) for c in sorted({*y.tolist()})]
    assert e.records[-1]["test_auroc"] == pytest.approx(np.mean(areas), abs=1e-4)


def test_a_metric_that_refuses_nan_says_that_the_run_diverged(own):
    """Its sentence was of no divergence, and a sweep took the trial for one that was never run."""
    lost = ["local.lr=1e38", "rounds=6", "non_finite=keep", "evaluation.metrics=[./own.py:strict]"]
    with pytest.raises(Diverged, match="strict"):
        finish(*lost)
    with pytest.raises(UserError) as caught:
        finish("evaluation.metrics=[./own.py:never]")
    assert not isinstance(caught.value, Diverged)
