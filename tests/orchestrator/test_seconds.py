"""Whose seconds are whose, on a clock that goes by mini-batches: nobody waits, nothing is noise."""

import numpy as np
import pytest

from orchestrator.analysis.comparison import _times
from orchestrator.clients.plane import InProcess
from orchestrator.conformance.forgetful import Forgetful
from orchestrator.results.run_folder import RunFolder
from orchestrator.rounds.drive import begin, drive
from orchestrator.rounds.experiment import Experiment
from orchestrator.training.block import Block
from orchestrator.training.clock import shares
from orchestrator.training.lane import Lane
from tests.configs import small
from tests.running import finish

STEP, UPLOAD, JUDGING = 2.0, 0.5, 1000.0
"""What a mini-batch of a client, its upload, and a judgement take on the clock of these tests."""
UNEQUAL = ["cohort=6", "local.steps=null", "local.epochs=2", "data.limit=900",
           "data.partition={name: pfnm, alpha: 0.5}"]  # fmt: skip


@pytest.fixture
def clock(monkeypatch):
    """A clock that only training, uploads and judging move."""
    at = [0.0]

    def takes(cls, name, cost):
        before = getattr(cls, name)

        def slower(self, *arguments):
            at[0] += cost(self, *arguments)
            return before(self, *arguments)

        monkeypatch.setattr(cls, name, slower)

    takes(Lane, "step", lambda lane, x, y, sizes: STEP * len(sizes))
    takes(Lane, "upload", lambda lane: UPLOAD * len(lane.ids))
    takes(Block, "_evaluate", lambda block: JUDGING)
    monkeypatch.setattr("orchestrator.training.block.now", lambda device: at[0])
    return at


class Twenty(InProcess):
    """This process, which says of itself that it is twenty actors."""

    actors = 20


@pytest.mark.parametrize("plane", [InProcess, Twenty, Forgetful])
@pytest.mark.parametrize("block", [1, 4, 6])
@pytest.mark.usefixtures("clock")
def test_a_clients_seconds_depend_on_its_work_alone(plane, block):
    """Not on blocks, on how many actors there are, or on how often an actor died."""
    settings = [f"local.block={block}", "local.execution=sequential", "rounds=2"]
    for record in finish(small(*settings, "cohort=5"), plane).records:
        assert record["seconds_client"] == pytest.approx(3 * STEP + UPLOAD)


@pytest.mark.usefixtures("clock")
def test_a_mean_over_clients_of_unequal_work():
    experiment = finish(small(*UNEQUAL, "rounds=1", "local.block=4"))
    steps = experiment.federation.log.diagnostics["steps"]
    assert steps.min() < steps.max()
    found = experiment.federation.log.computing
    # a block's uploads are in equal parts
    expected = {k: STEP * s + UPLOAD for k, s in enumerate(steps.tolist())}
    assert found == pytest.approx(expected)
    assert experiment.records[0]["seconds_client"] == pytest.approx(np.mean([*expected.values()]))


def test_judging_is_nobodys_work(clock):
    judged = ["evaluation.local_models=true", "evaluation.every=1", "cohort=4", "rounds=1"]
    record = finish(small("algorithm=fedavg", *judged)).records[0]
    assert clock[0] > JUDGING
    assert record["seconds_client"] == pytest.approx(3 * STEP + UPLOAD)


@pytest.mark.parametrize(("looks", "many"), [("local_models=true", 1), ("every_steps=1", 3)])
def test_models_are_judged_in_the_judge_s_seconds(clock, monkeypatch, looks, many):
    """In mid-round they were judged in the time in which the clients train."""
    monkeypatch.setattr("orchestrator.training.host.time.perf_counter", lambda: clock[0])
    e = Experiment(small("algorithm=fedavg", f"evaluation.{looks}", "cohort=4", "rounds=1"))
    monkeypatch.setattr(Block, "_look", slowed(clock, Block._look))
    e.step()
    log = e.federation.log
    assert log.train_seconds == pytest.approx(4 * (3 * STEP + UPLOAD))
    # of two blocks
    assert log.evaluate_seconds == pytest.approx(2 * many * JUDGING)
    assert e.records[0]["seconds_client"] == pytest.approx(3 * STEP + UPLOAD)


def slowed(clock, before):
    def slower(self, *arguments):
        clock[0] += JUDGING
        return before(self, *arguments)

    return slower


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(("algorithm", "steps"), [("local", 3), ("ditto", 3 + 5)])
def test_a_model_that_stays_with_its_client_is_its_work(algorithm, steps):
    """Ditto's personal problem took no time, and ``local`` none at all."""
    own = "{name: ditto, personal_steps: 5}" if algorithm == "ditto" else algorithm
    record = finish(small(f"algorithm={own}", "cohort=1.0", "rounds=1")).records[0]
    sessions = 1 + (algorithm == "ditto")
    assert record["seconds_client"] == pytest.approx(steps * STEP + sessions * UPLOAD)


@pytest.mark.usefixtures("clock")
def test_the_server_is_no_client():
    """It trains among them in FLTrust, and alone in server_only."""
    held = ["data.heldout.per_class=10", "local.block=10"]
    whole = ["cohort=6", "local.steps=null", "local.epochs=1", "rounds=1"]
    trusting = finish(small("aggregator=fltrust", *held, *whole))
    log = trusting.federation.log
    mine = [v for k, v in log.computing.items() if k != trusting.data.clients]
    assert len(log.computing) == len(mine) + 1 == 7
    assert trusting.records[0]["seconds_client"] == pytest.approx(np.mean(mine))
    alone = finish(small("algorithm=server_only", *held, "rounds=1"))
    assert "seconds_client" not in alone.records[0]


@pytest.mark.usefixtures("clock")
def test_compare_prints_a_clients_seconds(tmp_path):
    config, folder = small("local.execution=sequential"), RunFolder(tmp_path / "run")
    experiment = Experiment(config, Twenty)
    begin(experiment, folder, False)
    drive(experiment, folder)
    line = _times([folder.rounds()])[0]
    assert line.label == "seconds of a client a round"
    assert line.cell([0]) == f"{3 * STEP + UPLOAD:.3f}"


def test_shares_of_a_block():
    np.testing.assert_allclose(shares(12.0, np.array([1, 0, 3])), [3.0, 0.0, 9.0])
    np.testing.assert_allclose(shares(12.0, np.array([0, 0, 0])), [4.0, 4.0, 4.0])
