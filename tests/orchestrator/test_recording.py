"""Lanes whose steps are recorded, with what stands in for CUDA graphs on a CPU."""

from dataclasses import dataclass

import pytest
import torch

from algorithms.algorithm import AlgorithmOptions
from algorithms.local import LocalRule
from algorithms.part import variants
from orchestrator.clients.plane import InProcess
from orchestrator.errors import UserError
from orchestrator.training import hooks
from orchestrator.training.engines import told_apart
from orchestrator.training.recording import entangled
from tests.configs import small
from tests.graphs import Graphs, recording
from tests.running import finish

ONE_STEP = ("afl", "synchronous")
DEEP = ["data.limit=60", "local.steps=4", "local.batch_size=4", "evaluation.every=3"]
SETTINGS = {
    **{
        name: [f"algorithm={name}", "local.lr=0.02"]
        + (["rounds=9"] if name in ONE_STEP else ["local.steps=6"])
        for name in sorted(set(variants(AlgorithmOptions)) - {"fedaa"})
    },
    "ragged": ["local.steps=null", "local.epochs=2", "local.batch_size=24"],
    "fda": ["cohort=1.0", "round_end={name: fda, theta: 0.05}", "local.steps=20"],
    "adam kept": ["local.optimizer=adam", "local.lr=0.001", "local.optimizer_state=keep"],
    "momentum": ["local.optimizer={name: sgd, momentum: 0.9, weight_decay: 0.01}", "rounds=5"],
    "clipped, flipped": ["local.clip=0.5", "attack={name: label_flip, ids: [1]}", "cohort=1.0"],
    "rates": ["local.within={name: cosine, over: 6}", "local.steps=6", "rounds=5"],
    "one by one": ["local.execution=sequential", "local.steps=6"],
    "pieces": ["local.execution=sequential", "local.micro_batch=8", "local.steps=6"],
    "dropout": ["model=pfl_cnn", *DEEP],
    "statistics": ["model=fedaa_resnet", *DEEP],
    "rotated": ["data.augment=[crop]", "local.steps=6"],
}  # fmt: skip


@pytest.mark.parametrize("name", SETTINGS)
def test_recorded_steps_give_the_same_bits(name):
    config, graphs = small(*SETTINGS[name]), Graphs()
    recorded, plain = finish(config, recording(graphs)), finish(config)
    assert recorded.state_sha256() == plain.state_sha256()
    assert graphs.replays > 2 * graphs.captures > 0


@dataclass(frozen=True)
class Rebinding(LocalRule):
    """Keeps what it has in new tensors."""

    def begin(self, work):
        work.extras["steps"] = torch.zeros(len(work.clients))
        return super().begin(work)

    def after_step(self, work):
        work.extras["steps"] = work.extras["steps"] + 1
        work.w.mul_(0.99)

    def upload(self, work):
        assert (work.extras["steps"] == work.steps).all()
        return super().upload(work)


@dataclass(frozen=True)
class Adding(LocalRule):
    """Makes a tensor of its own on its way."""

    def after_step(self, work):
        work.extras["last"] = work.loss.clone()

    def upload(self, work):
        return {"delta": super().upload(work)["delta"] * work.extras["last"][:, None]}


class Counting(LocalRule):
    """Does something else in every fifth step that it has seen, which no tensor tells."""

    seen = 0

    def direction(self, gradient, work):
        Counting.seen += 1
        return gradient if Counting.seen % 5 else gradient * 2


@dataclass(frozen=True)
class Tangled(LocalRule):
    """Holds a part of what it remembers by another name."""

    def begin(self, work):
        work.extras["model"] = work.state["model"][:, :100]
        return super().begin(work)

    def state(self, received, spec):
        return {"model": torch.zeros(spec.size)}

    def after_step(self, work):
        work.extras["model"] += work.w[:, :100]
        work.w.sub_(work.state["model"], alpha=0.01)


@dataclass(frozen=True)
class Twice(LocalRule):
    """Holds what it remembers by another name."""

    def begin(self, work):
        work.extras["model"] = work.state["model"]
        return super().begin(work)

    def state(self, received, spec):
        return {"model": torch.zeros(spec.size)}

    def after_step(self, work):
        work.extras["model"] += work.w
        work.w.sub_(work.state["model"], alpha=0.01)


@dataclass(frozen=True)
class MovingStart(LocalRule):
    """Writes to where training began."""

    def begin(self, work):
        return super().begin(work).clone()

    def after_step(self, work):
        work.start.lerp_(work.w, 0.25)


@dataclass(frozen=True)
class LateRebinding(LocalRule):
    """Between passes, once they do well enough, puts another tensor in the place of its own."""

    watches_accuracy = True

    def begin(self, work):
        work.extras["mu"] = torch.ones(len(work.clients))
        return super().begin(work)

    def epoch(self, work, starting, accuracy):
        if bool((accuracy > 0.3).any()):
            work.extras["mu"] = work.extras["mu"] * 0.5

    def direction(self, gradient, work):
        return gradient * work.extras["mu"][:, None]


@dataclass(frozen=True)
class Remembering(LocalRule):
    """Keeps a number of the lane in Python, which no tensor tells."""

    def begin(self, work):
        Remembering.scale = 1 + 0.1 * int(work.clients.sum())
        return super().begin(work)

    def direction(self, gradient, work):
        return gradient * Remembering.scale


@dataclass(frozen=True, slots=True)
class Slotted(LocalRule):
    mu: float

    def direction(self, gradient, work):
        return gradient * self.mu


class Hidden(LocalRule):
    __slots__ = ("mu",)


def with_rule(rule, monkeypatch, graphs=None, *settings):
    """A run of FedAvg with that rule."""
    monkeypatch.setattr("algorithms.fedavg.LocalRule", lambda: rule)
    config = small(*(settings or ["local.steps=6"]))
    return finish(config, recording(graphs) if graphs else InProcess)


PASSES = ["local.steps=null", "local.epochs=3", "local.batch_size=8"]


@pytest.mark.parametrize(
    ("rule", "settings"),
    [
        (MovingStart(), ["local.steps=6"]),
        (LateRebinding(), PASSES),
        (Twice(), ["cohort=1.0", "round_end={name: fda, theta: 5.0}", "local.steps=8"]),
        (Remembering(), ["local.steps=6", "rounds=6", "local.lr_decay=0.99"]),
        (Remembering(), ["local.steps=6", "rounds=6", "local.execution=sequential"]),
        (Slotted(0.5), ["local.steps=6"]),
    ],
)
def test_rules_that_do_what_they_should_not_have_the_same_bits(rule, settings, monkeypatch):
    graphs = Graphs()
    monkeypatch.setattr(hooks, "is_own_hook", lambda owner, name: False)  # some are told
    recorded = with_rule(rule, monkeypatch, graphs, *settings)
    assert recorded.state_sha256() == with_rule(rule, monkeypatch, None, *settings).state_sha256()
    if isinstance(rule, Slotted):
        assert graphs.replays > graphs.captures > 0


@pytest.mark.parametrize("partition", ["iid", "{name: zipf, sigma: 1.0}"])
def test_an_entry_that_would_be_lost_is_told(monkeypatch, partition):
    """Also where all clients happen to do as many steps."""
    ragged = [f"data.partition={partition}", "local.execution=vectorized", *PASSES]
    with pytest.raises(UserError, match=r"Adding adds 'last' of work\.state or work\.extras"):
        with_rule(Adding(), monkeypatch, None, *ragged)


def test_a_tensor_by_two_names_stays_one(monkeypatch):
    graphs = Graphs()
    recorded = with_rule(Twice(), monkeypatch, graphs)
    assert recorded.state_sha256() == with_rule(Twice(), monkeypatch).state_sha256()
    assert graphs.replays > graphs.captures > 0


@pytest.mark.parametrize("rule", [Rebinding(), Tangled()])
def test_tensors_that_do_not_stay_are_not_recorded(rule, monkeypatch):
    graphs = Graphs()
    recorded = with_rule(rule, monkeypatch, graphs)
    assert recorded.state_sha256() == with_rule(rule, monkeypatch).state_sha256()
    assert not graphs.replays


def test_a_recording_that_gives_other_numbers_is_given_up(monkeypatch):
    graphs = Graphs()
    monkeypatch.setattr(hooks, "is_own_hook", lambda owner, name: False)  # which would have told
    with_rule(Counting(), monkeypatch, graphs)
    assert 0 < graphs.replays <= 3


def test_what_cannot_be_captured_is_done_step_by_step(monkeypatch):
    config = small("local.steps=6")
    refused = finish(config, recording(lambda function: None))
    assert refused.state_sha256() == finish(config).state_sha256()


@dataclass(frozen=True)
class Spoiling(LocalRule):
    """Writes into what others have received."""

    def after_step(self, work):
        work.received["w"].add_(1)


def test_a_rule_that_writes_into_what_was_received_is_told(monkeypatch):
    with pytest.raises(UserError, match=r"changes work\.received"):
        with_rule(Spoiling(), monkeypatch, Graphs())


def test_rules_are_told_apart_by_what_they_hold():
    @dataclass(frozen=True)
    class Held:
        value: object

    class Other(LocalRule):
        def __init__(self):
            self.value = 1

    assert told_apart(LocalRule()) == told_apart(LocalRule())
    assert told_apart(Held(1)) == told_apart(Held(1)) != told_apart(Held(2))
    assert told_apart(Slotted(1.0)) == told_apart(Slotted(1.0)) != told_apart(Slotted(2.0))
    assert told_apart(Hidden()) is None
    assert told_apart(Held([])) is told_apart(Held(torch.ones(1))) is told_apart(Other()) is None


def test_tensors_that_share_memory():
    w, both = torch.zeros(4), torch.zeros(2, 4)
    assert not entangled({"w": w, "start": both[0], "received/w": both[1]}, ["w"])
    assert entangled({"w": both[0], "start": both[1]}, ["w"])
    assert entangled({"w": both[0], "state/a": both[1]}, ["w", "state/a"])
    assert not entangled({"state/a": both, "start": both, "received/w": w}, ["state/a"])
    assert not entangled({"w": w, "loss": torch.empty(0), "norms": torch.empty(0)}, ["w", "loss"])


def test_hooks_are_not_tried_where_a_step_is_recorded(monkeypatch):
    """A GPU says nothing of a number while it records: the run ended."""

    class Watched(LocalRule):
        def direction(self, gradient, work):
            return gradient

    inside, tried = [], []

    class Recording(Graphs):
        def __call__(self, function):
            inside.append(True)
            replay = super().__call__(function)
            inside.pop()
            return replay

    def trying(owner, name, when, work, *given):
        assert not inside
        tried.append(name)

    monkeypatch.setattr("orchestrator.training.hooks.require_own_rows", trying)
    graphs = Recording()
    with_rule(Watched(), monkeypatch, graphs, "local.steps=2", "rounds=3")
    assert graphs.captures
    assert "direction" in tried
