"""Ray client actors: the same bits as in-process, whatever their number, whoever dies."""

import json
import os
import signal
import time

import numpy as np
import pytest
import ray
import torch
from ray.util.placement_group import placement_group, remove_placement_group

from algorithms.local import LocalRule
from orchestrator.clients import crew, pool
from orchestrator.clients.actor import ClientActor, tensors_travel_as_arrays
from orchestrator.cluster import reservation
from orchestrator.errors import UserError
from orchestrator.rounds.experiment import Experiment
from orchestrator.rounds.remote import NAMESPACE, answer_of, halt, launch
from orchestrator.rounds.server import ray_plane
from tests.configs import small
from tests.running import finish, finish_on_ray, on_ray

pytestmark = pytest.mark.usefixtures("ray_session")


@pytest.fixture(params=["lent", pytest.param("its own", marks=pytest.mark.long)])
def start(request, company):
    """Starts a config on client actors: real processes in both cases, which may be killed."""
    started = []

    def begin(config):
        own = request.param == "its own"
        started.append(on_ray(config) if own else Experiment(config, company.plane(config)))
        return started[-1]

    # processes that are started for a test take longer to their first step on a loaded machine
    begin.patience = 20 if request.param == "its own" else 8
    yield begin
    for experiment in started:
        experiment.close()


@pytest.mark.parametrize(
    ("wish", "actors"),
    [
        ("resources.actors=1", 1),
        ("resources.actors=2", 2),
        pytest.param("resources.actors=5", 5, marks=pytest.mark.long),
        pytest.param("resources.clients_per_actor=2", 3, marks=pytest.mark.long),
        pytest.param("resources.clients_per_actor=1", 6, marks=pytest.mark.long),
    ],
)
def test_bits_do_not_depend_on_the_actors(wish, actors, company):
    fixed = ["local.block=1", "algorithm=scaffold", "local.execution=sequential"]
    here = finish(small(*fixed))
    config = small(*fixed, wish)
    there = finish(config, company.plane(config))
    assert there.state_sha256() == here.state_sha256()
    assert there.records[-1]["test_loss"] == here.records[-1]["test_loss"]
    assert there.federation.ledger.up.tolist() == here.federation.ledger.up.tolist()
    assert there.federation.plane.actors == actors


@pytest.mark.parametrize(
    ("wish", "actors"),
    [("actors: 2", 2), pytest.param("clients_per_actor: 2", 3, marks=pytest.mark.long)],
)
def test_bits_do_not_depend_on_actors_that_are_started_for_the_run(wish, actors):
    config = small("algorithm=scaffold", "local.block=1", f"resources={{{wish}}}")
    there = finish_on_ray(config)
    assert there.state_sha256() == finish(config).state_sha256()
    assert there.federation.plane.actors == actors


def kill(place):
    os.kill(place.pid, signal.SIGKILL)


class KillsOnce(LocalRule):
    """Ends its own process at the first step of client 3, once."""

    def __init__(self, marker):
        self.marker = marker

    def direction(self, gradient, work):
        if 3 in work.clients and not os.path.exists(self.marker):
            with open(self.marker, "w") as f:
                f.write("dead")
            os.kill(os.getpid(), signal.SIGKILL)
        return gradient


def test_an_actor_that_dies_in_mid_training_is_replaced(start, tmp_path):
    config = small("cohort=6", "resources.actors=2")
    experiment = start(config)
    experiment.algorithm.rule = lambda: KillsOnce(str(tmp_path / "marker"))
    while not experiment.finished:
        experiment.step()
    assert (tmp_path / "marker").exists()
    assert experiment.federation.plane.replaced == 1
    assert experiment.state_sha256() == finish(config).state_sha256()


def test_an_actor_killed_between_rounds_and_one_killed_twice(start):
    config = small("algorithm=scaffold", "resources.actors=2", "rounds=4")
    experiment = start(config)
    plane = experiment.federation.plane
    experiment.step()
    kill(plane.crew.processes[0])
    experiment.step()
    for _ in range(600):
        if not plane.crew.booting:
            break
        experiment.federation.per_sample(
            experiment.algorithm.w, experiment.algorithm.buffers, np.arange(10)
        )
        time.sleep(0.1)
    kill(plane.crew.processes[0])
    kill(plane.crew.processes[1])
    while not experiment.finished:
        experiment.step()
    assert plane.replaced >= 2
    assert experiment.state_sha256() == finish(config).state_sha256()


class Unstartable(ClientActor):
    def __init__(self, *arguments):
        raise OSError("no room on the disk")


def unstartable():
    """An actor as a company lends them, but one that never gets ready."""

    class Unready:
        def take(self, *arguments):
            pass

        def ready(self):
            raise OSError("no room on the disk")

    return ray.remote(Unready).options(num_cpus=0).remote()


@pytest.mark.long  # the crew is asked the same without processes
def test_an_actor_that_cannot_be_started_again_is_left_out(start, company, monkeypatch):
    """The other does all the work; without any, the run ends."""
    config = small("resources.actors=2", "rounds=6")
    experiment = start(config)
    plane = experiment.federation.plane
    experiment.step()
    monkeypatch.setattr(crew, "ATTEMPTS", 2)
    monkeypatch.setattr(pool, "ClientActor", Unstartable)
    monkeypatch.setattr(company, "lend", unstartable)
    kill(plane.crew.processes[0])
    said = ""
    while not experiment.finished:
        experiment.step()
        while plane.crew.booting and plane.available:
            experiment.federation.per_sample(
                experiment.algorithm.w, experiment.algorithm.buffers, np.arange(10)
            )
            time.sleep(0.05)
        said += " ".join(plane.events())
    assert "client actor 0 cannot be started" in said
    assert "the run goes on without it" in said
    assert plane.available == 1
    assert experiment.state_sha256() == finish(config).state_sha256()
    kill(plane.crew.processes[1])
    with pytest.raises(UserError, match="client actor 1 cannot be started"):
        experiment.federation.per_sample(
            experiment.algorithm.w, experiment.algorithm.buffers, np.arange(10)
        )


def test_a_block_lost_in_mid_session_is_replayed(start):
    """Advance, lose every actor with the models on it, go on: the updates are the undisturbed
    ones."""
    config = small("resources.actors=2", "local.steps=6")

    def session(experiment, disturb):
        algorithm, federation = experiment.algorithm, experiment.federation
        federation.begin_round(1)
        cohort = algorithm.draw(1)
        from algorithms.local import ModelProbe

        with federation.train(cohort, LocalRule(), algorithm.broadcast()) as training:
            training.advance(2)
            middle = training.query(ModelProbe(), np.full(len(cohort), 1 / len(cohort)))
            if disturb:
                for place in federation.plane.crew.processes.values():
                    kill(place)
            training.advance(4)
            updates = training.collect(np.full(len(cohort), 1 / len(cohort)))
        return middle, updates.mean("delta")

    experiment = start(config)
    there = session(experiment, disturb=True)
    here = session(Experiment(config), disturb=False)
    assert torch.equal(there[0], here[0])
    assert torch.equal(there[1], here[1])


class AlwaysDies(LocalRule):
    def direction(self, gradient, work):
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.long  # Dispatch is asked the same without processes
def test_a_client_that_always_kills_its_actor_ends_the_run(start):
    experiment = start(small("resources.actors=1"))
    experiment.algorithm.rule = AlwaysDies
    with pytest.raises(
        UserError, match=r"client actor 0 died while training clients 0, 1 in round 1, 4 times"
    ):
        experiment.step()


@pytest.mark.parametrize(
    ("wish", "actors"),
    [
        ("gpus_per_actor: 0.5", 4),
        ("gpus_per_actor: 0.4, cpus_per_actor: 0.5", 4),
        ("gpus_per_actor: 0.25, cpus_per_actor: 3", 2),  # of eight CPUs: they decide
    ],
)
def test_room_for_as_many_actors_as_fit(wish, actors):
    reserved = reservation.reserve(small(f"resources={{{wish}}}").resources, 6)
    assert reserved.actors == actors
    reserved.end()


@pytest.mark.long
def test_fractions_of_logical_gpus():
    config = small("resources.gpus_per_actor=0.5")
    experiment = on_ray(config)
    assert experiment.federation.plane.actors == 4
    devices = {place.device for place in experiment.federation.plane.crew.processes.values()}
    assert devices == {"cuda" if torch.cuda.is_available() else "cpu"}
    experiment.close()


@pytest.mark.parametrize(
    "wish",
    [
        "resources={actors: 9, gpus_per_actor: 0.5}",
        "resources={actors: 2, cpus_per_actor: 20}",
        "resources={actors: 8, gpus_per_actor: 0.25, cpus_per_actor: 2}",
        "resources={actors: 5, gpus_per_actor: 0.4}",  # two on each of two GPUs
    ],
)
def test_more_than_the_cluster_has(wish):
    with pytest.raises(UserError, match="do not fit the cluster"):
        on_ray(small(wish))


def test_nobody_waits_for_nodes_that_will_not_come():
    apart = small("resources={actors: 2, cpus_per_actor: 0.1, strategy: STRICT_SPREAD}")
    with pytest.raises(UserError, match="want 2 nodes, and the cluster has 1; take SPREAD"):
        reservation.reserve(apart.resources, 6)


def test_capacity_for_shares_of_a_gpu():
    assert [reservation.capacity("GPU", there, 0.4) for there in (2, 1, 1.5, 0.39, 0)] == [
        4,
        2,
        3,
        0,
        0,
    ]
    assert [reservation.capacity("GPU", 3, 2), reservation.capacity("CPU", 2, 0.4)] == [1, 5]


@pytest.mark.long
def test_shares_of_a_gpu_lie_within_one():
    experiment = on_ray(small("resources={gpus_per_actor: 0.4, cpus_per_actor: 0.5}"))
    assert experiment.federation.plane.actors == 4
    experiment.close()


@pytest.mark.long
def test_as_many_actors_as_every_resource_allows():
    """Eight CPUs and two GPUs: the CPUs decide."""
    experiment = on_ray(small("resources={gpus_per_actor: 0.25, cpus_per_actor: 3}"))
    assert experiment.federation.plane.actors == 2
    experiment.close()


@pytest.mark.parametrize(("wish", "again"), [(["resources.actors=3"], True), ([], False)])
def test_room_for_fewer_if_there_is_no_more(wish, again, monkeypatch):
    """Six of the cluster's eight CPUs are another's, so two of three actors fit, or of as many as
    the cluster has room for.
    """
    monkeypatch.setattr(reservation, "LOOK", 1.0)
    others = placement_group([{"CPU": 6}])
    try:
        assert others.wait(20)
        # what is free is reported some time after that, on a busy machine
        for _ in range(200):
            if ray.available_resources().get("CPU", 0) <= 2:
                break
            time.sleep(0.1)
        reserved = reservation.reserve(small(*wish).resources, 6, fewer=again)
        assert reserved.actors == 2
        reserved.end()
    finally:
        remove_placement_group(others)


@pytest.mark.long
def test_a_restarted_server_settles_for_the_room_there_is(monkeypatch):
    """Six of the cluster's eight CPUs are another's, so two of three actors fit."""
    monkeypatch.setattr(reservation, "LOOK", 1.0)
    others = placement_group([{"CPU": 6}])
    config = small("resources.actors=3")
    here = finish(config)
    try:
        assert others.wait(20)
        experiment = Experiment(config, lambda world: ray_plane(world, config, again=True))
        assert experiment.federation.plane.actors == 2
        while not experiment.finished:
            experiment.step()
        experiment.close()
    finally:
        remove_placement_group(others)
    assert experiment.state_sha256() == here.state_sha256()


def test_received_tensors_are_private_copies(ray_session):
    """An in-place step in one actor must not reach the object store."""
    tensors_travel_as_arrays()

    @ray_session.remote(num_cpus=0.1)
    class Stepper:
        def step(self, tensors):
            tensors["w"] += 1
            return float(tensors["w"][0])

    ref = ray_session.put({"w": torch.zeros(100_000)})
    stepper = Stepper.remote()
    assert ray_session.get([stepper.step.remote(ref) for _ in range(2)]) == [1.0, 1.0]
    assert ray_session.get(ref)["w"].abs().sum() == 0


class HangsOnce(LocalRule):
    """Sleeps for ever at the first step of client 3: once, or whenever it is asked."""

    def __init__(self, marker, once):
        self.marker, self.once = marker, once

    def direction(self, gradient, work):
        if 3 in work.clients and not (self.once and os.path.exists(self.marker)):
            with open(self.marker, "w") as f:
                f.write("hung")
            time.sleep(3600)
        return gradient


def hanging(start, tmp_path, once, *settings):
    timeout = f"resources.client_timeout={start.patience}"
    config = small("cohort=6", "local.block=1", "resources.actors=2", timeout, *settings)
    experiment = start(config)
    experiment.algorithm.rule = lambda: HangsOnce(str(tmp_path / "marker"), once)
    return config, experiment


@pytest.mark.long  # test_dispatch.py has it without the waiting
def test_a_client_that_hangs_is_redone_elsewhere(start, tmp_path):
    config, experiment = hanging(start, tmp_path, True)
    while not experiment.finished:
        experiment.step()
    plane = experiment.federation.plane
    said = f"did not answer within {start.patience} s while training clients 3 in round 1"
    # a busy machine may be late with others, too, which are redone as well
    late = plane.events()
    assert any(said in event for event in late)
    assert (plane.replaced, plane.repeated) == (len(late), len(late))
    assert experiment.state_sha256() == finish(config).state_sha256()


def test_a_client_that_always_hangs_can_be_left_out(start, tmp_path):
    _, experiment = hanging(start, tmp_path, False, "resources.on_timeout=drop", "rounds=1")
    record = experiment.step()
    others = np.array([0, 1, 2, 4, 5])
    assert record["dropped"] == 1
    assert experiment.federation.ledger.up[3] == 0
    assert (experiment.federation.ledger.up[others] > 0).all()
    # the mean over those that are left, by hand
    alone = Experiment(small("cohort=6", "local.block=1", "rounds=1"))
    alone.federation.begin_round(1)
    cohort = alone.algorithm.draw(1)
    with alone.federation.train(cohort, LocalRule(), alone.algorithm.broadcast()) as training:
        training.advance()
        rows = training.collect().vectors["delta"]
    shares = torch.from_numpy(alone.algorithm.weights(cohort)[others])
    expected = alone.algorithm.w + (rows[others].double() * (shares / shares.sum())[:, None]).sum(0)
    torch.testing.assert_close(experiment.algorithm.w.double(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.long
def test_too_few_clients_are_left(start, tmp_path):
    _, experiment = hanging(
        start,
        tmp_path,
        False,
        "resources.on_timeout=drop",
        "resources.minimum_cohort=6",
        "rounds=1",
    )
    with pytest.raises(UserError, match="5 clients are left without 3"):
        experiment.step()


def test_an_exception_in_a_rule_names_the_clients(company):
    class Broken(LocalRule):
        def direction(self, gradient, work):
            raise ZeroDivisionError("oops")

    config = small("resources.actors=1")
    experiment = Experiment(config, company.plane(config))
    experiment.algorithm.rule = Broken
    with pytest.raises(RuntimeError, match="training clients"):
        experiment.step()
    experiment.close()


@pytest.mark.long
def test_a_detached_server_finishes_by_itself(tmp_path, ray_session):
    config = small("rounds=5", "resources.actors=1")
    server = launch(config, tmp_path / "x", resuming=False, detached=True)
    answer_of(server.prepared.remote())
    with pytest.raises(UserError, match="already under way"):
        launch(config, tmp_path / "x", resuming=False)
    for _ in range(300):
        try:
            ray_session.get_actor(f"{config.name} @ {tmp_path / 'x'}", NAMESPACE)
        except ValueError:
            break
        time.sleep(0.1)
    else:
        pytest.fail("the server is still there")
    assert (tmp_path / "x" / "result.json").exists()


@pytest.mark.long
def test_a_detached_run_can_be_stopped_by_its_folder(tmp_path, ray_session):
    config = small("rounds=100000", "resources.actors=1")
    server = launch(config, tmp_path / "x", resuming=False, detached=True)
    answer_of(server.prepared.remote())
    answer_of(server.watch.remote(0))
    halt(str(tmp_path / "x"))
    result = json.loads((tmp_path / "x" / "result.json").read_text())
    assert result["status"] == "stopped"
    assert 0 < result["rounds"] < 100000
    with pytest.raises(UserError, match="no run goes into"):
        halt(str(tmp_path / "y"))
