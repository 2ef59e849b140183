"""Whole experiments in this process: bits, bytes, policies, metrics."""

import numpy as np
import pytest
import torch
from scipy.stats import entropy

import fedorch
from algorithms.algorithm import AlgorithmOptions
from algorithms.draws import generator
from algorithms.part import variants
from orchestrator.clients.federation import RoundLog
from orchestrator.errors import Diverged, UserError
from orchestrator.results.run_folder import RunFolder
from orchestrator.rounds.drive import begin, drive
from orchestrator.rounds.experiment import Experiment
from orchestrator.rounds.metrics import evenness, over_clients
from orchestrator.training.block import Block
from tests.configs import small
from tests.running import finish, resumed

ALGORITHMS = sorted(variants(AlgorithmOptions))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_same_seed_same_bits(name):
    a, b = (finish(small(f"algorithm={name}")) for _ in range(2))
    assert a.state_sha256() == b.state_sha256()
    assert a.state_sha256() != finish(small(f"algorithm={name}", "seed=1")).state_sha256()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_resumed_is_undisturbed(name, tmp_path):
    kept = (
        [] if name == "ditto" else ["local.optimizer_state=keep"]
    )  # ditto's two models would share it
    config = small(f"algorithm={name}", *kept)
    whole = finish(config)
    second = resumed(config, tmp_path, 1)
    assert second.state_sha256() == whole.state_sha256()
    assert [r["bytes_up"] for r in second.records] == [r["bytes_up"] for r in whole.records]
    loss = "test_loss" if config.algorithm.makes_common else "personal_loss_worst"
    assert second.records[0][loss] == whole.records[0][loss]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_server_state_names_everything_that_changes(name):
    """Attributes outside ``server_state`` stay as they were (but for the account of the last
    aggregate, and what ``output`` remembers, which every checkpoint holds).
    """
    experiment = Experiment(small(f"algorithm={name}"))
    known = {*experiment.algorithm.server_state, "influence", "notes", "past"}
    fixed = {k: id(v) for k, v in vars(experiment.algorithm).items() if k not in known}
    experiment.step()
    assert {k: id(v) for k, v in vars(experiment.algorithm).items() if k in fixed} == fixed
    assert set(vars(experiment.algorithm)) == set(fixed) | known


def test_learning_happens():
    experiment = finish(small("rounds=15", "local.steps=10", "data.limit=2000", "local.lr=0.02"))
    assert experiment.records[-1]["test_accuracy"] > 0.6 > experiment.records[0]["test_accuracy"]


def test_blocks_change_nothing_but_rounding():
    a = finish(small("local.block=1", "local.execution=sequential"))
    b = finish(small("local.block=4", "local.execution=sequential"))
    c = finish(small("local.block=4", "local.execution=vectorized"))
    torch.testing.assert_close(a.algorithm.w, b.algorithm.w, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(a.algorithm.w, c.algorithm.w, rtol=1e-3, atol=1e-5)


def test_synchronous_sgd_is_large_batch_sgd():
    """One local SGD step of every client on batches of equal size, averaged = one step on the
    union.
    """
    config = small(
        "algorithm=synchronous",
        "rounds=1",
        "model=linear",
        "local.batch_size=16",
        "data.partition=iid",
    )
    experiment = finish(config)
    net = experiment.net
    w = net.initial.clone()
    net.bind(w, net.initial_buffers)
    rows = np.concatenate(
        [generator(0, "batches", 1, k).permutation(experiment.data.train[k])[:16] for k in range(6)]
    )
    x = (torch.tensor(experiment.data.samples.x[rows]).float() / 255 - 0.2860) / 0.3530
    loss = torch.nn.functional.cross_entropy(
        net.module(x), torch.tensor(experiment.data.samples.y[rows])
    )
    want = w - 0.1 * net.gradient(loss, torch.empty_like(w))
    torch.testing.assert_close(experiment.algorithm.w, want, rtol=1e-4, atol=1e-6)


def test_sample_weighted_mean():
    skewed = ["data.partition={name: zipf, sigma: 1.0}", "cohort=6"]
    a = finish(small(*skewed, "rounds=1"))
    b = finish(small(*skewed, "rounds=1", "aggregator=weighted_mean"))
    assert not torch.equal(a.algorithm.w, b.algorithm.w)


@pytest.mark.parametrize(
    ("name", "down", "up"),
    [("fedavg", 1, 1), ("fedadam", 1, 1), ("scaffold", 2, 2), ("local", 0, 0)],
)
def test_bytes(name, down, up):
    record = Experiment(small(f"algorithm={name}")).step()
    clients = 6 if name == "local" else 4
    assert record["bytes_down"] == down * 4 * 7850 * clients
    assert record["bytes_up"] == up * 4 * 7850 * clients


@pytest.mark.parametrize(("policy", "extra"), [("aggregate", 1664), ("local", 0), ("exclude", 0)])
def test_batch_norm_policies(policy, extra):
    config = small(
        "model=fedaa_resnet",
        f"buffers={policy}",
        "rounds=2",
        "local.steps=1",
        "data.limit=60",
        "cohort=6",
        "evaluation.every=2",
    )
    experiment = finish(config)
    d, start = experiment.net.spec.size, experiment.net.initial_buffers
    assert (
        experiment.records[0]["bytes_up"]
        == experiment.records[0]["bytes_down"]
        == 4 * (d + extra) * 6
    )
    assert torch.equal(experiment.algorithm.buffers, start) == (policy == "exclude")
    assert ("buffers" in experiment.federation.store.states.get(0, {})) == (policy != "aggregate")


@pytest.mark.parametrize("execution", ["sequential", "vectorized"])
def test_a_diverging_client(execution, monkeypatch):
    """A client with absurd inputs: named and fatal by default, left out or kept if asked."""
    base = ["local.execution=" + execution, "cohort=6", "rounds=1", "evaluation.clients=false"]

    def start(policy):
        experiment = Experiment(small(*base, f"non_finite={policy}"))
        fed = experiment.federation.plane.host.world
        bad = set(experiment.data.train[3].tolist())
        batch = fed.batch

        def poisoned(rows, changes=()):
            x, y = batch(rows, changes)
            x[torch.from_numpy(np.isin(rows, list(bad)))] = float("nan")
            return x, y

        object.__setattr__(fed, "batch", poisoned)
        return experiment

    with pytest.raises(Diverged, match="round 1: the update of client 3 holds NaN"):
        start("fail").step()
    dropped = start("drop")
    record = dropped.step()
    assert record["dropped"] == 1
    assert dropped.algorithm.w.isfinite().all()
    kept = start("keep")
    kept.step()
    assert not kept.algorithm.w.isfinite().all()


def test_personal_models_are_evaluated_on_every_client():
    settings = ("rounds=4", "local.steps=20", "cohort=3")
    experiment = finish(small("algorithm=local", *settings))
    record, table = experiment.records[-1], experiment.client_rows[-1]
    first = finish(small("algorithm=fedavg", "rounds=1", "local.lr=1e-9"))
    assert record["personal_accuracy_mean"] > first.records[0]["client_accuracy_mean"]
    assert np.isfinite(table["personal_accuracy"]).all()
    assert (table["test_rows"] == experiment.data.test.sizes).all()


@pytest.mark.parametrize("name", ["local", "lp_proj"])
def test_a_model_that_nobody_trains_is_not_judged(name):
    """It was compared with those of others, and by its loss was better than some."""
    record = finish(small(f"algorithm={name}")).records[-1]
    assert record["personal_accuracy_mean"] > 0
    assert not [one for one in record if one.startswith(("test_", "client_", "validation_"))]
    with pytest.raises(UserError, match="makes no model but the clients' own, and nothing would"):
        Experiment(small(f"algorithm={name}", "evaluation.personal=false"))


def test_held_out_metrics():
    record = Experiment(small("data.heldout.per_class=5")).step()
    assert 0 <= record["heldout_accuracy"] <= 1


def test_metrics_over_clients_by_hand():
    m = over_clients(np.array([[5, 30, 10], [9, 4, 10], [0, 0, 0]]), "client")
    assert m["client_accuracy_mean"] == pytest.approx(0.7)
    assert m["client_accuracy_worst"] == m["client_accuracy_worst10"] == 0.5
    assert m["client_accuracy_std"] == pytest.approx(0.2)
    assert m["client_accuracy_weighted"] == pytest.approx(0.7)
    assert m["client_accuracy_best10"] == 0.9
    assert m["client_loss_worst"] == 3.0
    assert over_clients(np.zeros((1, 3)), "client") == {}


def test_tenths_of_the_clients():
    sums = np.array([[k, 0, 25] for k in range(25)])
    m = over_clients(np.random.default_rng(0).permutation(sums), "client")
    assert m["client_accuracy_worst10"] == pytest.approx(1 / 25)
    assert m["client_accuracy_best10"] == pytest.approx(23 / 25)


@pytest.mark.parametrize(
    "x", [[0.5, 0.9], [0.2, 0.0, 0.7, 0.7], [0.8], [0.3, 0.3, 0.3 + 1e-12], [0, 0, 1]]
)
def test_evenness_by_its_definitions(x):
    """Jain's index, the angle to (1, …, 1) by the scalar product, and the divergence by SciPy."""
    x = np.array(x)
    found, n = evenness(x), len(x)
    assert found["jain"] == pytest.approx(x.sum() ** 2 / (n * (x**2).sum()))
    cosine = x.sum() / np.sqrt(n) / np.linalg.norm(x)
    assert found["angle"] == pytest.approx(np.degrees(np.arccos(min(1.0, cosine))), abs=1e-5)
    assert found["kl"] == pytest.approx(entropy(x / x.sum(), np.full(n, 1 / n)), abs=1e-12)
    assert evenness(np.zeros(3)) == {}


def test_lambda_of_each_client_is_in_its_rows():
    experiment = finish(small("algorithm=drfa", "rounds=2"))
    dual = experiment.client_rows[-1]["dual"]
    assert np.array_equal(dual, experiment.algorithm.dual)
    assert np.ptp(dual) > 0
    assert "dual" not in finish(small("rounds=1")).client_rows[-1]


def test_groups_by_label_are_those_of_the_data():
    groups = "algorithm={name: afl, uncertainty: groups}"
    experiment = finish(small(groups, "local.steps=1", "cohort=1.0", "rounds=2"))
    common = experiment.data.histogram().argmax(1)
    dual = experiment.algorithm.dual
    for label in np.unique(common):
        assert np.ptp(dual[common == label]) == pytest.approx(0, abs=1e-15)
    assert np.ptp(dual) > 0


def test_client_accuracies_are_those_of_the_model():
    experiment = Experiment(small())
    experiment.step()
    net, data = experiment.net, experiment.data
    net.bind(experiment.algorithm.w, experiment.algorithm.buffers)
    for k in range(6):
        x = (torch.tensor(data.samples.x[data.test[k]]).float() / 255 - 0.2860) / 0.3530
        want = (net.module(x).argmax(1).numpy() == data.samples.y[data.test[k]]).mean()
        assert experiment.client_rows[0]["accuracy"][k] == pytest.approx(want)


def test_local_training_transmits_nothing_even_with_batch_norm():
    deep = ["model=fedaa_resnet", "local.steps=1", "data.limit=60", "evaluation.every=9"]
    record = Experiment(small("algorithm=local", *deep)).step()
    assert record["bytes_up"] == record["bytes_down"] == 0


def test_a_client_without_a_batch_sends_no_control_variate():
    sizes = ["data.limit=200", "data.partition={name: zipf, sigma: 1.0}", "cohort=6", "rounds=2"]
    experiment = finish(
        small("algorithm=scaffold", "local.drop_last=true", "local.batch_size=50", *sizes)
    )
    moved = [
        s["control"].abs().max() > 0 for _, s in sorted(experiment.federation.store.states.items())
    ]
    assert moved == [n >= 50 for n in experiment.data.train.sizes] == [True] + 5 * [False]


def test_a_round_in_which_no_client_has_a_batch_is_an_error():
    """With ``drop_last`` and too large a batch, a run was finished without a single step."""
    idle = ["local.batch_size=50", "local.drop_last=true"]
    run = Experiment(small("data.limit=120", "data.partition=iid", *idle))
    with pytest.raises(UserError, match=r"round 1: no client did a step.*local\.batch_size = 50"):
        run.step()
    assert run.t == 0
    # as long as anybody has one, the others may idle
    zipf = ["data.partition={name: zipf, sigma: 1.0}", "cohort=6"]
    record = Experiment(small("data.limit=200", *zipf, *idle)).step()
    assert 0 < record["steps"] < 3


def test_a_server_without_a_batch_is_refused():
    """It would train for the whole run without a step, or lend FLTrust a direction of zero."""
    idle = ["data.heldout.per_class=1", "local.batch_size=11", "local.drop_last=true"]
    for server in ("algorithm=server_only", "aggregator=fltrust"):
        with pytest.raises(UserError, match="rows held out at the server"):
            Experiment(small(server, *idle))
        Experiment(small(server, *idle, "local.batch_size=10")).step()


def test_two_sessions_of_the_same_clients_are_one_rounds_work():
    ditto = finish(small("algorithm={name: ditto, personal_steps: 5}", "rounds=2"))
    assert [r["steps_total"] for r in ditto.records] == [3 + 5, 2 * (3 + 5)]
    alone = finish(small("rounds=1", "algorithm=fedavg")).records[0]
    both = finish(
        small("rounds=1", "algorithm={name: ditto, personal_steps: 3, strength: 0}")
    ).records[0]
    assert both["train_loss"] == pytest.approx(alone["train_loss"], rel=0.3)


def test_sessions_that_overlap_count_a_client_once():
    log = RoundLog()
    for ids, steps, loss in (
        ([0, 1, 2], [2.0, 2.0, 2.0], [1.0, 2.0, 3.0]),
        ([0, 2, 5], [6.0, 0.0, 1.0], [3.0, 0.0, 7.0]),
    ):
        log.add(
            np.array(ids),
            {
                "steps": np.array(steps), "train_loss": np.array(loss),
                "update_norm": np.array(loss), "gradient_norm/a": 2 * np.array(loss),
            },
        )  # fmt: skip
    assert log.cohort.tolist() == [0, 1, 2, 5]
    assert log.diagnostics["steps"].tolist() == [8, 2, 2, 1]
    assert log.diagnostics["train_loss"].tolist() == [2.5, 2, 3, 7]
    assert log.diagnostics["gradient_norm/a"].tolist() == [5, 4, 6, 14]
    assert log.diagnostics["update_norm"].tolist() == [3, 2, 0, 7]


def test_norms_of_a_client_that_trains_two_models():
    """Of the update that it sends: ditto's was of the model that stays; gradients are those of all
    steps.
    """
    watched = ["rounds=2", "evaluation.gradient_norms=true"]
    alone = finish(small(*watched, "algorithm=fedavg")).records
    both = finish(small(*watched, "algorithm={name: ditto, personal_steps: 6}")).records
    norms = [[record["update_norm"] for record in run] for run in (both, alone)]
    assert norms[0] == pytest.approx(norms[1])
    (norm, *_) = [name for name in alone[0] if name.startswith("gradient_norm/")]
    twice = finish(small(*watched, "algorithm={name: ditto, personal_steps: 600}")).records
    assert alone[0][norm] > both[0][norm] > twice[0][norm]


def test_a_fault_leaves_a_word_on_disk(tmp_path):
    """Not only what a user can mend."""
    experiment = Experiment(small())
    experiment.step = lambda: 1 / 0
    folder = RunFolder(tmp_path / "run")
    begin(experiment, folder, resuming=False)
    with pytest.raises(ZeroDivisionError):
        drive(experiment, folder)
    assert folder.result()["error"] == "ZeroDivisionError: division by zero"
    assert folder.result()["status"] == "failed"


def test_too_little_memory_on_the_gpu_is_a_sentence(monkeypatch):
    def refuse(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB.")

    monkeypatch.setattr(Block, "run", refuse)
    with pytest.raises(UserError, match=r"lower local\.block"):
        Experiment(small()).step()


def test_threads_are_part_of_the_bits():
    assert Experiment(small("resources.threads=2")).science() != Experiment(small()).science()


def test_clusters_report_the_whole_cohort():
    experiment = finish(small("algorithm={name: clustered, eps1: 1000, eps2: 0.0001}", "rounds=3"))
    assert experiment.records[-1]["clusters"] > 1
    assert experiment.records[-1]["cohort"] == 6


def test_time_is_accounted_once():
    record = Experiment(small("algorithm=local", "local.steps=20")).step()
    parts = sum(record[f"seconds_{p}"] for p in ("train", "transfer", "aggregate", "evaluate"))
    assert parts <= record["seconds"] * 1.02


def test_a_graph_that_cannot_be_connected():
    with pytest.raises(UserError, match="no connected"):
        Experiment(small("algorithm={name: drdsgd, graph: {name: erdos_renyi, p: 0.0001}}"))


def test_what_others_set_of_torch_changes_no_bit():
    """Another experiment beside it, or its caller, may change threads and products in between."""
    config = small("rounds=2")
    alone = finish(config)
    threads, products = torch.get_num_threads(), torch.get_float32_matmul_precision()
    try:
        beside = Experiment(config)
        beside.step()
        Experiment(small("resources.threads=2"))
        torch.set_float32_matmul_precision("medium")
        beside.step()
        assert torch.get_num_threads() == 1
        assert torch.get_float32_matmul_precision() == "highest"
        assert beside.weights_sha256() == alone.weights_sha256()
        # of a caller of Python's its own work keeps its speed
        torch.set_num_threads(2)
        mine = fedorch.Experiment(config)
        assert (torch.get_num_threads(), torch.get_float32_matmul_precision()) == (2, "highest")
        mine.run()
        assert torch.get_num_threads() == 2
        assert mine.weights_sha256() == alone.weights_sha256()
    finally:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(products)
