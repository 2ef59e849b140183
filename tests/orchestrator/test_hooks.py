"""Hooks of a user's own: who trains beside whom, and where, is in no number."""

import numpy as np
import pytest
import torch

import fedorch
from algorithms.local import LocalRule, Probe
from algorithms.part import retire
from algorithms.parts.compressors import Compressor
from orchestrator.errors import UserError
from orchestrator.rounds.experiment import Experiment
from orchestrator.training import hooks
from tests.configs import small
from tests.running import finish


class _Remembering(LocalRule):
    def state(self, received, spec):
        return {"m": torch.zeros(spec.size)}


class Mean(_Remembering):
    def direction(self, gradient, work):
        return gradient - gradient.mean(0)


class ByTheirLoss(_Remembering):
    def after_step(self, work):
        work.w.mul_(1 - 0.01 * float(work.loss.mean()))


class Numbered(_Remembering):
    calls = 0

    def direction(self, gradient, work):
        self.calls += 1
        return gradient / self.calls


class Noisy(_Remembering):
    def upload(self, work):
        return {"delta": work.w - work.start + torch.randn_like(work.w)}


class MixedStart(_Remembering):
    def begin(self, work):
        return super().begin(work) * len(work.clients)


class Adding(_Remembering):
    def after_step(self, work):
        work.extras["new"] = work.loss.clone()


class Replacing(_Remembering):
    def direction(self, gradient, work):
        work.state["m"] = 0.9 * work.state["m"] + gradient
        return work.state["m"]

    def after_step(self, work):
        work.w = work.w * 0.99


class WorkedOutOnce(_Remembering):
    half = None

    def direction(self, gradient, work):
        if self.half is None:
            self.half = torch.full((work.spec.size,), 0.5)
        return gradient * self.half


class Swapping(_Remembering):
    def state(self, received, spec):
        return {"a": torch.zeros(spec.size), "b": torch.ones(spec.size)}

    def after_step(self, work):
        work.state["a"], work.state["b"] = work.state["b"], work.state["a"]

    def upload(self, work):
        swapped = work.steps[:, None] % 2
        assert (work.state["a"] == swapped).all()
        assert (work.state["b"] == 1 - swapped).all()
        return super().upload(work)


class Shifted(_Remembering):
    """Of natural code what is written so or with copies, is the same."""

    copies = False

    def state(self, received, spec):
        return {"v": torch.zeros(spec.size)}

    def begin(self, work):
        zeros = torch.zeros_like(work.state["v"])
        one = work.state["v"].clone() if self.copies else work.state["v"]
        work.extras |= {"old": zeros, "older": zeros.clone() if self.copies else zeros, "kept": one}
        return super().begin(work) + one

    def direction(self, gradient, work):
        copy = torch.clone if self.copies else lambda tensor: tensor
        work.extras["older"] = copy(work.extras["old"])
        work.extras["old"] = copy(gradient.clone())
        work.state["v"] = 0.9 * work.state["v"] + gradient
        return (
            gradient + 0.5 * work.extras["old"] + 0.2 * work.extras["older"] + work.extras["kept"]
        )

    def after_step(self, work):
        work.w, work.extras["kept"] = 0.9 * work.w + 0.1 * work.extras["kept"], work.w.clone()


class Anchored(_Remembering):
    """Keeps the gradient itself, which the lane goes on using."""

    copies = False
    watches_accuracy = True

    def begin(self, work):
        work.extras |= {name: torch.zeros(len(work.clients), work.spec.size) for name in "vo"}
        work.extras["halved"] = torch.zeros(len(work.clients))
        return super().begin(work)

    def epoch(self, work, starting, accuracy):
        if self.copies:
            work.w.copy_(torch.where(starting[:, None], 0.9 * work.w, work.w))
            work.extras["halved"] += starting
        else:
            work.w = torch.where(starting[:, None], 0.9 * work.w, work.w)
            work.extras["halved"] = work.extras["halved"] + starting

    def direction(self, gradient, work):
        v = gradient + 0.9 * (work.extras["v"] - work.extras["o"])
        kept = gradient.clone() if self.copies else gradient
        work.extras["v"], work.extras["o"] = v, kept
        return v


class AnchoredByCopies(Anchored):
    copies = True


class Rated(_Remembering):
    def after_step(self, work):
        work.lr = work.lr * 0.9


class MeanEpoch(_Remembering):
    watches_accuracy = True

    def epoch(self, work, starting, accuracy):
        work.state["m"] = work.state["m"] + accuracy.mean()


class Copied(Shifted):
    copies = True


class WithReach(_Remembering):
    def begin(self, work):
        work.extras["one"] = torch.tensor(0.5)
        work.extras["few"] = torch.ones(1, 3)
        return super().begin(work)

    def upload(self, work):
        return {"delta": (work.w - work.start) / work.reach[:, None] * work.extras["one"]}


class Growing(_Remembering):
    def state(self, received, spec):
        return {"n": torch.zeros((), dtype=torch.int64)}

    def after_step(self, work):
        work.state["n"] = work.state["n"] + 0.5


class ByPlace(_Remembering):
    def direction(self, gradient, work):
        return gradient * torch.linspace(1, 2, len(gradient))[:, None]


class MixingLater(_Remembering):
    def direction(self, gradient, work):
        return gradient + 0.1 * work.state["m"].mean(0)

    def upload(self, work):
        work.state["m"] = work.w - work.start
        return super().upload(work)


class MixingWhatWasSent(_Remembering):
    def sent(self, work, messages):
        work.state["m"] = messages["delta"].mean(0).expand_as(work.w).clone()


class MixedReferences(_Remembering):
    def references(self, work):
        return [work.w.mean(0).expand_as(work.w)]

    def contrast(self, features, references):
        return (features - references[0]).square().mean(-1)


class Share(Probe):
    def answer(self, work):
        lengths = torch.linalg.vector_norm(work.w - work.start, dim=1, keepdim=True)
        return lengths / lengths.sum()


class MadeInBegin(_Remembering):
    def begin(self, work):
        work.state.setdefault("n", torch.zeros(len(work.clients)))
        return super().begin(work)


class MadeInUpload(_Remembering):
    def upload(self, work):
        work.state["n"] = work.steps.clone()
        return super().upload(work)


class Forgetting(_Remembering):
    def begin(self, work):
        work.extras["first"] = torch.ones(len(work.clients))
        return super().begin(work)

    def direction(self, gradient, work):
        return gradient * (1 + work.extras.pop("first", 0.0))[:, None]


class Elsewhere(_Remembering):
    def after_step(self, work):
        work.w.data = work.w.data.clamp(-0.02, 0.02)


class ElsewhereKept(_Remembering):
    def direction(self, gradient, work):
        work.state["m"].data = 0.9 * work.state["m"].data + gradient
        return gradient


class Whole(_Remembering):
    def direction(self, gradient, work):
        work.extras["k"] = 0
        return gradient


class Shrinking(_Remembering):
    def upload(self, work):
        work.state["m"] = work.state["m"][:, :3]
        return super().upload(work)


class Scaled(_Remembering):
    """It mixes clients by an attribute, which is the same in a second call."""

    scale = 1.0

    def direction(self, gradient, work):
        self.scale = float(gradient.norm(dim=1).mean())
        return gradient


class Drifting(_Remembering):
    def direction(self, gradient, work):
        drift = work.w - work.start
        return gradient + 0.1 * drift / (drift.norm() + 1e-8)


class Aligned(_Remembering):
    """Right, and of cancelling sums: another number of rows rounds them otherwise."""

    def upload(self, work):
        delta = work.w - work.start
        c = torch.linspace(-1, 1, delta.shape[1])
        left = (delta @ c) - (delta * c).sum(1)
        return {"delta": delta, "left": left * 1e3}


class Momentum(_Remembering):
    """What is kept is what is returned, of which the optimiser makes another tensor."""

    copies = False

    def direction(self, gradient, work):
        kept = work.state["m"].mul_(0.9).add_(gradient)
        return kept.clone() if self.copies else kept


class MomentumOfCopies(Momentum):
    copies = True


class Consensus(_Remembering):
    """Before the first step the models are the same."""

    def direction(self, gradient, work):
        return gradient + 0.1 * (work.w - work.w.mean(0))


class Following(LocalRule):
    """Returns what it has, which is everybody's."""

    copies = False

    def __init__(self):
        self.v = None

    def direction(self, gradient, work):
        if self.v is None:
            self.v = torch.full((1, gradient.shape[1]), 0.1)
        rows = self.v.expand_as(gradient)
        return rows.clone() if self.copies else rows


class FollowingCopies(Following):
    copies = True


class ByStart(LocalRule):
    def direction(self, gradient, work):
        return work.received["w"].expand_as(gradient)


class NamedW(LocalRule):
    def upload(self, work):
        delta = work.w - work.start
        return {"delta": delta, "w": delta.mean(0).expand_as(delta)}


class InPlace(_Remembering):
    def direction(self, gradient, work):
        return work.state["m"].mul_(0.9).add_(gradient)

    def after_step(self, work):
        work.w.mul_(0.99)


class Plain(_Remembering):
    def direction(self, gradient, work):
        return work.state["m"].mul_(0.9).add_(gradient)

    def upload(self, work):
        work.state["m"] = work.state["m"] * 0.5
        keyed = [fedorch.generator(1, "noise", int(k)) for k in work.clients]
        noise = [g.standard_normal(work.w.shape[1], np.float32) for g in keyed]
        return {"delta": work.w - work.start + 0.01 * torch.from_numpy(np.stack(noise))}


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (Mean, "Mean.direction: what it gives for a client depends on the clients"),
        (ByTheirLoss, "ByTheirLoss.after_step: what it gives for a client depends"),
        (MixedStart, "MixedStart.begin: what it gives for a client depends"),
        (Numbered, "Numbered.direction changes attributes"),
        (Noisy, "Noisy.upload gives another result for the same numbers: it draws, or counts"),
        (Adding, "Adding adds 'new' of work.state or work.extras"),
        (Growing, "Growing gives another shape or type to 'n'"),
        (Rated, r"Rated replaces work\.lr in a hook around a step"),
        (MeanEpoch, r"MeanEpoch\.epoch: what it gives for a client depends"),
        (ByPlace, "ByPlace.direction: what it gives for a client depends"),
        (MadeInBegin, r"MadeInBegin adds 'n' to work\.state, which its clients would forget"),
        (MadeInUpload, r"MadeInUpload adds 'n' to work\.state"),
        (Shrinking, r"Shrinking gives another shape or type to 'm' of work\.state, which is torch"),
        (Forgetting, r"Forgetting removes 'first' of work\.extras"),
        (Elsewhere, r"Elsewhere gives work\.w other memory \(\.data = \.\.\.\)"),
        (ElsewhereKept, r"ElsewhereKept gives work\.state\['m'\] other memory"),
        (Whole, r"Whole puts a int into work\.extras\['k'\]: there are tensors"),
        (Scaled, r"Scaled\.direction changes attributes"),
        (Drifting, r"Drifting\.direction: what it gives for a client depends"),
        (NamedW, r"NamedW\.upload: what it gives for a client depends"),
        (Consensus, "Consensus.direction: what it gives for a client depends"),
        (MixingWhatWasSent, "MixingWhatWasSent.sent: what it gives for a client depends"),
        (MixedReferences, "MixedReferences.references: what it gives for a client depends"),
    ],
)
def test_hooks_that_mix_clients_draw_or_count_are_refused(monkeypatch, rule, said):
    """Who trained beside whom, and where, was in the numbers, without a word."""
    monkeypatch.setattr("algorithms.fedavg.LocalRule", rule)
    with pytest.raises(UserError, match=said):
        Experiment(small("local.steps=null", "local.epochs=2")).step()


def test_answers_that_mix_clients_are_refused(monkeypatch):
    monkeypatch.setattr("algorithms.drdm.ModelProbe", Share)
    with pytest.raises(UserError, match=r"Share\.answer: what it gives for a client depends"):
        Experiment(small("algorithm=drdm")).step()


def test_what_clients_remember_is_mixed_later(monkeypatch):
    monkeypatch.setattr("algorithms.fedavg.LocalRule", MixingLater)
    with pytest.raises(UserError, match=r"MixingLater\.direction: what it gives for a client"):
        finish(small("cohort=6"))


@pytest.mark.parametrize("execution", ["sequential", "vectorized"])
def test_what_a_hook_puts_in_the_place_of_a_tensor_is_written_into_it(monkeypatch, execution):
    """It was lost as soon as one client had done its steps."""
    work = (
        "local.steps=null",
        "local.epochs=2",
        "local.batch_size=8",
        f"local.execution={execution}",
    )
    config = small(*work, "data.partition={name: zipf, sigma: 1.0}")
    ends = []
    for rule in (Replacing, InPlace, Shifted, Copied, Anchored, AnchoredByCopies):
        monkeypatch.setattr("algorithms.fedavg.LocalRule", rule)
        ends.append(finish(config).algorithm.model())
    torch.testing.assert_close(ends[0], ends[1], rtol=1e-5, atol=1e-7)
    assert torch.equal(ends[2], ends[3])
    assert torch.equal(ends[4], ends[5])


@pytest.mark.parametrize("settings", [("local.block=1",), ()])
def test_what_a_rule_returns_is_not_written_into(monkeypatch, settings):
    """Weight decay was written into an attribute, or into what all had received."""
    ends = []
    for rule in (Following, FollowingCopies, ByStart):
        monkeypatch.setattr("algorithms.fedavg.LocalRule", rule)
        config = small("local.optimizer={name: sgd, weight_decay: 0.1}", *settings)
        ends.append(finish(config).algorithm.model())
    assert torch.equal(ends[0], ends[1])


@pytest.mark.parametrize("optimizer", ["weight_decay: 0.1", "momentum: 0.5, nesterov: true"])
def test_what_is_kept_and_returned_stays_as_it_was(monkeypatch, optimizer):
    """Weight decay was in what the next step began with."""
    ends = []
    for rule in (Momentum, MomentumOfCopies):
        monkeypatch.setattr("algorithms.fedavg.LocalRule", rule)
        ends.append(finish(small(f"local.optimizer={{name: sgd, {optimizer}}}")).algorithm.model())
    assert torch.equal(*ends)


@pytest.mark.parametrize("rule", [Swapping, WorkedOutOnce, WithReach, Aligned])
def test_what_is_right_is_not_refused(monkeypatch, rule):
    """Tensors that exchange their places, what a rule works out once, what is of no client."""
    monkeypatch.setattr("algorithms.fedavg.LocalRule", rule)
    work = (
        "local.steps=null",
        "local.epochs=2",
        "local.batch_size=8",
        "local.execution=vectorized",
    )
    Experiment(small("data.partition={name: zipf, sigma: 1.0}", *work)).step()


def test_hooks_are_tried_on_copies(monkeypatch):
    """A rule that keeps to its rows has the same bits, tried or not."""
    monkeypatch.setattr("algorithms.fedavg.LocalRule", Plain)
    once = finish(small()).state_sha256()
    monkeypatch.setattr(hooks, "is_own_hook", lambda owner, name: False)
    monkeypatch.setattr(hooks, "_known", {})
    assert finish(small()).state_sha256() == once


def test_a_compressor_that_mixes_clients_is_refused():
    class AllOfThem(Compressor):
        name: str = "of_all"

        def compress(self, rows, draws):
            most = rows.abs().sum()
            return (rows / most * 1e4).round() / 1e4 * most

        def nbytes(self, size):
            return size

    try:
        with pytest.raises(
            UserError, match=r"AllOfThem\.compress: what it gives for a client depends"
        ):
            Experiment(small("compression.uplink=of_all")).step()
    finally:
        retire(__name__)


def test_what_one_run_does_not_show_the_next_may():
    """Beside gradients that are huge what a rule adds is rounding; it was taken for right ever after."""

    def mixed(size):
        given = 1 + torch.eye(3, 2)
        return lambda rows, stir=None: {"result": size * given[rows] + given[rows].mean(0)}

    rule = Mean()
    hooks.require_rows_apart(rule, "direction", (1, 0), 3, mixed(1e7))
    hooks.require_rows_apart(rule, "direction", (1, 0), 3, mixed(1.0))
    Experiment(small())
    with pytest.raises(UserError, match="depends on the clients"):
        hooks.require_rows_apart(rule, "direction", (1, 0), 3, mixed(1.0))


def test_clients_that_are_alike_show_nothing():
    """A run in which all gradients were 0 had let the next one of its process mix clients."""

    def mixed(given):
        return lambda rows, stir=None: {"result": given[rows] - given[rows].mean(0)}

    rule = Mean()
    hooks.require_rows_apart(rule, "direction", (1, 0), 3, mixed(torch.zeros(3, 2)))
    with pytest.raises(UserError, match="depends on the clients"):
        hooks.require_rows_apart(rule, "direction", (1, 0), 3, mixed(torch.eye(3, 2)))
