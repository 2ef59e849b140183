"""Numbers over some of the clients, or of some of the seeds, are compared with like ones alone."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import fedorch
from algorithms.part import retire
from algorithms.parts.metrics import Metric
from orchestrator.analysis import comparison
from orchestrator.analysis.compared import Runs
from orchestrator.analysis.judged import COLUMNS
from orchestrator.errors import UserError
from orchestrator.rounds.metrics import is_of_its_own, over_clients, spread
from sweeps.plan import Sweep
from tests.orchestrator.test_like_with_like import runs_of

METRICS = ["client_sure_mean", "client_accuracy_mean"]


@pytest.fixture(scope="module")
def groups(tmp_path_factory):
    """With a metric that a client has only where the model is sure of some of its rows."""

    class Sure(Metric):
        name: str = "sure"

        def value(self, outputs, targets):
            sure = outputs.softmax(1).max(1).values > 0.5
            return float((outputs.argmax(1) == targets)[sure].float().mean())

    place = tmp_path_factory.mktemp("sure")
    yield {
        rate: runs_of(place / rate, "evaluation.metrics=[sure]", f"local.lr={rate}")
        for rate in ("0.01", "0.05", "1.0")
    }
    retire(Sure.__module__)


def test_metrics_that_some_clients_do_not_define_are_over_the_same_clients(groups):
    def compared(*rates):
        runs = Runs.read([run for rate in rates for run in groups[rate]])
        first = next(iter(runs.columns))
        tests = comparison.tests_of(runs, METRICS, first)
        return {one.metric for one in tests.each}, runs.judged.said(METRICS, first)

    assert compared("0.05", "1.0") == ({*METRICS}, "")
    tested, said = compared("0.01", "1.0")
    assert tested == {"client_accuracy_mean"}
    assert said.startswith("client_sure_... is of other clients or other rows, and not tested: ")


def test_who_does_not_report_it_on_each_seed_is_not_tested(groups):
    runs = Runs.read([*groups["0.05"], *groups["1.0"]])
    metric, first = "test_accuracy", next(iter(runs.columns))
    assert comparison.tests_of(runs, [metric], first).each
    last = runs.columns[[*runs.columns][1]][-1]
    fewer = [
        one.drop(columns=metric) if number == last else one
        for number, one in enumerate(runs.rounds)
    ]
    runs = replace(runs, rounds=fewer)
    assert not comparison.tests_of(runs, [metric], first).each
    said = comparison.notes_of(runs, [], [metric], first)
    assert any("test_accuracy is not reported by 1 of 3 of lr 1.0, and not" in one for one in said)


def test_nan_is_the_worst_client():
    """It was left out, and the worst of the others was the worst."""
    numbers = np.array([[math.nan, math.nan, 10], [math.nan, 20, 10], [math.nan, 30, 10]])
    assert math.isnan(over_clients(numbers, "personal")["personal_loss_worst"])
    assert all(map(math.isnan, spread(np.array([1, np.nan]), "x", True).values()))
    assert spread(np.empty(0), "x", True) == {}


@pytest.mark.parametrize("whole", [False, True])
def test_own_models_of_numbers_are_those_of_the_same_clients(whole):
    """What the comparison looks for was a column that nobody wrote."""
    rng = np.random.default_rng(0)
    x, who = rng.normal(size=(60, 3)).astype(np.float32), np.repeat(np.arange(3), 20)
    own = {"algorithm": "ditto"} if whole else {"evaluation.local_models": True, "cohort": 1}
    e = fedorch.Experiment(
        data=(x, x.sum(1), who), model="linear", loss="mse", rounds=1,
        **{"local.steps": 2, "data.validation.clients": 0.2, **own},
    )  # fmt: skip
    e.run()
    table = e.inner.client_rows[-1]
    for family in ("personal_", "personal_validation_"):
        many, *columns = COLUMNS[family]
        (column,) = [one for one in columns if one in table]
        assert (~np.isnan(table[column])).sum() == (3 if whole else 1)
        assert (table[many] > 0).all()


def test_losses_of_each_run_s_own_have_no_better_side(groups):
    runs = Runs.read(groups["0.05"])
    for metric in ("mixture_loss", "agent_critic_loss", "mixture_loss_mean"):
        assert runs.more_is_better(metric) is None
        with pytest.raises(UserError, match=r"weighs in its own way.*mode: min"):
            _ = Sweep(metric=metric).direction
        assert Sweep(metric=metric, mode="min").direction == "min"
    for metric in ("test_loss", "client_loss_worst", "personal_validation_loss_mean"):
        assert runs.more_is_better(metric) is False
    log_loss = SimpleNamespace(called="log_loss")
    assert is_of_its_own("test_log_loss")
    for metric in ("test_log_loss", "client_validation_log_loss_mean"):
        assert not is_of_its_own(metric, [log_loss])
