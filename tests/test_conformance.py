"""Every registered algorithm through the same checks, on the real trainer."""

import contextlib
import os
import signal

import pytest
import torch
from safetensors.torch import save

from algorithms.algorithm import AlgorithmOptions
from algorithms.local import LocalRule
from algorithms.part import variants
from orchestrator.conformance.forgetful import Forgetful
from orchestrator.rounds.experiment import Experiment
from tests.configs import small
from tests.running import finish
from tests.sets import quick

ALGORITHMS = sorted(variants(AlgorithmOptions))
ASK_IN_MID_ROUND = ("drfa", "drdm")
ALL_ONE_STEP = ["cohort=1.0", "local.steps=1", "data.partition=iid"]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_vectorised_is_sequential(name):
    a, b = (
        finish(small(f"algorithm={name}", f"local.execution={e}", "local.lr=0.02"))
        for e in ("sequential", "vectorized")
    )
    torch.testing.assert_close(a.algorithm.model(), b.algorithm.model(), rtol=1e-3, atol=2e-5)
    assert a.federation.ledger.up.tolist() == b.federation.ledger.up.tolist()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_blocks_do_not_matter_beyond_rounding(name):
    a, b = (finish(small(f"algorithm={name}", f"local.block={n}", "local.lr=0.02")) for n in (1, 3))
    torch.testing.assert_close(a.algorithm.model(), b.algorithm.model(), rtol=1e-3, atol=2e-5)


LIKE_FEDAA = ["local.batch_size=64", "local.lr=0.1", "data.heldout.per_class=100"]
DEGENERATE = [
    ("fedprox", "algorithm={name: fedprox, mu: 0}", []),
    ("fedavgm", "algorithm=fedavgm", ["server_optimizer.momentum=0"]),
    ("qfedavg", "algorithm={name: qfedavg, q: 0}", []),
    ("fednova", "algorithm=fednova", ["aggregator=mean"]),
    ("clustered", "algorithm={name: clustered, eps2: 1e9}", ["cohort=1.0"]),
    ("synchronous", "algorithm=synchronous", ALL_ONE_STEP),
    ("afl", "algorithm={name: afl, dual_lr: 0}", [*ALL_ONE_STEP, "output=last"]),
    ("drdsgd", "algorithm={name: drdsgd, robust: false, graph: complete}", ALL_ONE_STEP),
    ("scaffpd", "algorithm={name: scaffpd, dual_lr: 0}", [*ALL_ONE_STEP, "local.batch_size=1000"]),
    ("ditto", "algorithm={name: ditto, strength: 3.0}", []),
    ("fedaa", "algorithm={name: fedaa, select: 1.0, agent: uniform}", ["cohort=1.0", *LIKE_FEDAA]),
    ("moon", "algorithm={name: moon, mu: 0}", []),
    ("fedbn", "algorithm=fedbn", []),
    (
        "feddual",
        "algorithm={name: feddual, adaptive_loss: false}",
        ["aggregator={name: barycenter, method: linear, layers: 1}"],
    ),
    ("drfa", "algorithm={name: drfa, gamma: 0, replace: false, floor: 1.0}", ["cohort=1.0"]),
]
PERSONAL = {
    "local": "it never averages",
    "lp_proj": "it has no global model",
    "server_only": "it has no clients",
}
WITHOUT = {
    **PERSONAL,
    "fedavg": "it is FedAvg",
    "fedadam": "normalised step", "fedadamw": "normalised step", "fedadagrad": "normalised step", "fedyogi": "normalised step",
    "scaffold": "equal in the first round only: tested below",
    "scallion": "as scaffold: tested in algorithms/test_quadratics.py",
    "fedpvr": "as scaffold: tested in algorithms/test_feddual.py",
    "feddyn": "its server step adds −h/α, which does not vanish with α: tested below",
    "drdm": "as feddyn: tested below",
}  # fmt: skip


def test_the_table_is_complete():
    assert {d[0] for d in DEGENERATE} | set(WITHOUT) == set(ALGORITHMS)


@pytest.mark.parametrize(
    ("name", "degenerate", "settings"), DEGENERATE, ids=[d[0] for d in DEGENERATE]
)
def test_degenerate_settings_are_fedavg(name, degenerate, settings):
    reference = finish(small("algorithm=fedavg", *settings))
    same = finish(small(degenerate, *settings))
    torch.testing.assert_close(same.algorithm.w, reference.algorithm.w, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "name",
    [
        n
        for n in ALGORITHMS
        if n not in ("fedavg", "synchronous", "clustered", "fednova", "ditto", "fedbn", *PERSONAL)
    ],
)
def test_ordinary_settings_are_not_fedavg(name):
    settings = [s for s in ("cohort=1.0", "local.steps=1") if name in ("afl", "drdsgd")]
    features = ["model.projection=16"] if name == "moon" else []  # a linear model's are its inputs
    a, b = (
        finish(small("algorithm=fedavg", *settings, *features)),
        finish(small(f"algorithm={name}", *features)),
    )
    assert (a.algorithm.w - b.algorithm.model()).abs().max() > 1e-5


def test_fednova_differs_from_fedavg_when_clients_do_unequal_work():
    unequal = [
        "local.steps=null",
        "local.epochs=1",
        "data.partition={name: zipf, sigma: 1.0}",
        "aggregator=weighted_mean",
        "cohort=1.0",
    ]
    a, b = (finish(small(f"algorithm={n}", *unequal)) for n in ("fedavg", "fednova"))
    assert (a.algorithm.w - b.algorithm.w).abs().max() > 1e-3


def test_first_rounds_of_the_drift_corrected():
    """SCAFFOLD's first round is FedAvg's; FedDyn's and DRDM's is w + (1 + m/N) mean Δ."""
    start = Experiment(small()).algorithm.w
    base = finish(small("rounds=1", "cohort=1.0")).algorithm.w - start
    scaffold = finish(small("rounds=1", "cohort=1.0", "algorithm=scaffold")).algorithm.w - start
    torch.testing.assert_close(scaffold, base, rtol=1e-4, atol=1e-6)
    for name in ("{name: feddyn, mu: 1e-7}", "{name: drdm, mu: 1e-7}"):
        moved = finish(small("rounds=1", "cohort=1.0", f"algorithm={name}")).algorithm.w - start
        torch.testing.assert_close(moved, 2 * base, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_ledger_is_the_size_of_what_would_be_serialised(name, monkeypatch):
    """Every upload that reaches the ledger, measured again as safetensors payload."""
    from orchestrator.training import block, lane

    sizes = []
    original = lane.Lane.upload

    def weighed(self):
        uploads, diagnostics = original(self)
        if self.rule.transmitted:
            header = 8
            rows = {n: v[:1].contiguous() for n, v in uploads.items()}
            raw = save(rows) if rows else b"\0" * header
            length = int.from_bytes(raw[:header], "little")
            sizes.append((len(raw) - header - length) * len(self.ids))
        return uploads, diagnostics

    monkeypatch.setattr(lane.Lane, "upload", weighed)
    monkeypatch.setattr(block, "Lane", lane.Lane)
    experiment = Experiment(small(f"algorithm={name}", "rounds=1"))
    record = experiment.step()
    losses = 4 * {"drfa": 4, "drdm": 4, "afl": 6, "qfedavg": 4, "scaffpd": 4}.get(name, 0)
    snapshots = 4 * 7850 * len(experiment.federation.log.cohort) * (name in ("drfa", "drdm"))
    gossip = 2 * 6 * 4 * 7850 * (name == "drdsgd")
    assert record["bytes_up"] == sum(sizes) + losses + snapshots + gossip


def keeping(name):
    """Optimisers keep their state where they can: ditto's two models would share it."""
    return [] if name == "ditto" else ["local.optimizer_state=keep"]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_lost_blocks_are_made_again(name):
    """Every call of a run is lost once it is done, and the models with it: the bits are those of
    the undisturbed run.
    """
    config = small(f"algorithm={name}", "rounds=2", "evaluation.every=2", *keeping(name))
    disturbed, undisturbed = finish(config, Forgetful), finish(config)
    assert disturbed.state_sha256() == undisturbed.state_sha256()
    loss = "test_loss" if config.algorithm.makes_common else "personal_loss_worst"
    assert disturbed.records[-1][loss] == undisturbed.records[-1][loss]
    assert (disturbed.federation.plane.lost > 0) == (name in ASK_IN_MID_ROUND)


@pytest.mark.parametrize("name", quick(ALGORITHMS, "scaffold"))
def test_an_actor_killed_in_mid_round(name, company):
    """An actor is killed as the first broadcast goes out, and not in the second round; the bits are
    those without Ray.
    """
    config = small(
        f"algorithm={name}", "resources.actors=2", "rounds=2", "evaluation.every=2", *keeping(name)
    )
    experiment = Experiment(config, company.plane(config))
    plane = experiment.federation.plane
    share, victims = plane.share, [plane.crew.processes[0]]

    def share_then_kill(tensors):
        handle = share(tensors)
        while victims:
            os.kill(victims.pop().pid, signal.SIGKILL)
        return handle

    plane.share = share_then_kill
    while not experiment.finished:
        experiment.step()
    experiment.close()
    assert plane.replaced == 1
    assert experiment.state_sha256() == finish(config).state_sha256()


class DiesAtTheEnd(LocalRule):
    """Wraps a rule and kills its own process once, after local training, before anything was
    sent."""

    def __init__(self, rule, marker):
        self.rule, self.marker, self.transmitted = rule, marker, rule.transmitted

    def __getattribute__(self, name):
        if name in (
            "rule",
            "marker",
            "transmitted",
            "upload",
            "__class__",
            "__dict__",
            "__reduce_ex__",
            "__getstate__",
        ):
            return object.__getattribute__(self, name)
        return getattr(object.__getattribute__(self, "rule"), name)

    def upload(self, work):
        with contextlib.suppress(FileExistsError):
            os.close(
                os.open(self.marker, os.O_CREAT | os.O_EXCL)
            )  # one actor only, should two arrive at once
            os.kill(os.getpid(), signal.SIGKILL)
        return self.rule.upload(work)


@pytest.mark.parametrize("name", quick(["scaffold", "drfa", "drdm", "scaffpd", "drdsgd"], "drdm"))
def test_an_actor_that_dies_late_in_a_session(name, company, tmp_path):
    """The snapshot has been asked, the models are trained: all of it is replayed elsewhere."""
    config = small(f"algorithm={name}", "resources.actors=2", "rounds=2", "evaluation.every=2")
    experiment = Experiment(config, company.plane(config))
    federation, train = experiment.federation, experiment.federation.train

    def deadly(cohort, rule, *args, **kwargs):
        return train(cohort, DiesAtTheEnd(rule, str(tmp_path / "marker")), *args, **kwargs)

    federation.train = deadly
    while not experiment.finished:
        experiment.step()
    experiment.close()
    assert (tmp_path / "marker").exists()
    assert federation.plane.replaced == 1
    assert experiment.state_sha256() == finish(config).state_sha256()
