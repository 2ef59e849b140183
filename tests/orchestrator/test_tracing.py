"""Recorded computations against the same computed anew, by torch's own vmap and autograd."""

import ctypes
import inspect
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

from algorithms.parts import losses
from algorithms.parts.losses import CrossEntropy
from orchestrator.models.net import Net
from orchestrator.models.tried import mixes, tried, unstacked
from orchestrator.training import engines
from orchestrator.training.batches import common_width
from orchestrator.training.engines import Contrast, OnTrial, Sequential, Vectorized, is_known
from orchestrator.training.tracing import trace

CLIENTS, BATCH = 3, 5


class Scaled(nn.Module):
    """A frozen tensor, a mask by value, a parameter without a use, and rows taken by number."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(12, 7)
        self.frozen = nn.Parameter(torch.linspace(0.5, 2, 7), requires_grad=False)
        self.unused = nn.Parameter(torch.ones(2))
        self.last = nn.Linear(7, 4)

    def forward(self, x):
        h = self.inner(x.flatten(1)) * self.frozen
        return self.last(torch.where(h > 0, h, 0.1 * h)[:, torch.tensor([6, 5, 4, 3, 2, 1, 0])])


class Pooling(nn.Module):
    """A mean over what a mask of ones leaves, whose derivative is a tensor without strides."""

    def __init__(self):
        super().__init__()
        self.inner, self.last = nn.Linear(4, 4), nn.Linear(4, 4)
        self.mask = torch.ones(3, 1)

    def forward(self, x):
        return self.last((self.inner(x.flatten(1, 2)).view(-1, 3, 4) * self.mask).sum(1))


class Overwriting(nn.Module):
    """Changes its own input."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(12, 4)

    def forward(self, x):
        return self.last(x.mul_(0.5).flatten(1))


class Attending(nn.Module):
    """Products of products."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 8)
        self.heads = nn.MultiheadAttention(8, 2, batch_first=True)
        self.last = nn.Linear(8, 4)

    def forward(self, x):
        h = self.inner(x.flatten(1, 2))
        return self.last(self.heads(h, h, h, need_weights=False)[0].mean(1))


MODELS = {
    "linear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(12, 4)),
    "mlp": lambda: nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 4)),
    "in place": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(12, 8), nn.ReLU(inplace=True), nn.LayerNorm(8), nn.Linear(8, 4)
    ),
    "convolutions": lambda: nn.Sequential(
        nn.Conv2d(1, 4, 2), nn.Tanh(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4, 4)
    ),
    "its own": Scaled,
    "attention": Attending,
    "pooled": Pooling,
    "over its input": Overwriting,
}
LOSSES = {
    "cross_entropy": CrossEntropy(),
    "smoothed": CrossEntropy(label_smoothing=0.1),
    "weighted": CrossEntropy(weight=(1.0, 0.5, 2.0, 0.0)),
    "focal": losses.Focal(),
    "mse": losses.MeanSquares(),
    "huber": losses.Huber(delta=0.5),
    "bce": losses.BinaryCrossEntropy(),
}


@dataclass(frozen=True)
class Pull:
    """A loss term that compares features."""

    factor: float

    def term(self, features, others):
        return self.factor * (features - others[0]).square().sum(-1)


def batch(sizes, seed=0):
    """Inputs, classes and sizes; the padding is another client's row."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(CLIENTS, BATCH, 1, 3, 4, generator=g)
    return x, torch.randint(0, 4, (CLIENTS, BATCH), generator=g), torch.tensor(sizes)


def models(net, seed=1):
    g = torch.Generator().manual_seed(seed)
    return net.initial + 0.3 * torch.randn(CLIENTS, net.spec.size, generator=g)


def one_by_one(net, loss, w, x, y, sizes, references=None, factor=0.0):
    """Gradients and losses of each client by an ordinary backward pass of the module."""
    gradients, means = [], []
    for c, n in enumerate(sizes.tolist()):
        net.bind(w[c].clone(), net.initial_buffers.clone())
        logits, features = net.featured(x[c, :n].clone())
        mean = loss.per_sample(logits, y[c, :n]).mean()
        if references is not None:
            with torch.no_grad():
                others = net.at(references[c], net.initial_buffers, x[c, :n].clone())[1]
            mean = mean + factor * (features - others).square().sum(-1).mean()
        out = torch.empty(net.spec.size)
        net.gradient(mean, out)
        gradients.append(out)
        means.append(mean.detach())
    return torch.stack(gradients), torch.stack(means)


def engine_gradients(engine, w, x, y, sizes, contrast=None):
    out = torch.full_like(w, torch.nan)
    engine.attach(engine.views(w, torch.empty(len(w), 0)))
    losses = engine.gradients(w, x.clone(), y, sizes, out, contrast)
    return out, losses


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("model", MODELS)
def test_what_is_replayed_is_the_gradient(model, loss):
    """First and second use, full and ragged batches of one shape."""
    net, loss = Net(MODELS[model]()), LOSSES[loss]
    engine = Vectorized(net, loss)
    for seed, sizes in enumerate([(5, 5, 5), (5, 2, 1), (5, 5, 5)]):
        w, (x, y, sizes) = models(net, seed), batch(sizes, seed)
        for got, want in zip(
            engine_gradients(engine, w, x, y, sizes),
            one_by_one(net, loss, w, x, y, sizes), strict=True,
        ):  # fmt: skip
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    assert len(engine.records.kept) == 1


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("model", [name for name in MODELS if name != "over its input"])
def test_a_client_s_recorded_step_has_the_bits_of_torch_s(model, precision):
    """And so may be recorded when it has been done often enough to be worth it."""
    net = Net(MODELS[model]())
    engine, out = Sequential(net, CrossEntropy(), precision), torch.empty(1, net.spec.size)
    found = []
    for step in range(engines.WORTH_IT + 23):
        w, (x, y, _) = models(net, step % 2)[:1], batch((5, 5, 5), step % 2)
        engine.attach(engine.views(w, torch.empty(1, 0)))
        loss = engine.gradients(w, x[:1], y[:1], torch.tensor([5]), out)
        found.append((loss.clone(), out.clone()))
    (record,) = engine.records.kept.values()
    # torch's attention may draw (dropout), and so is never recorded
    assert callable(record) is (model != "attention")
    for step, (loss, gradient) in enumerate(found):
        assert torch.equal(loss, found[step % 2][0])
        assert torch.equal(gradient, found[step % 2][1])


class Masked(nn.Module):
    """Half of a layer stays as it is, by a hook on its gradient."""

    def __init__(self):
        super().__init__()
        self.a, self.b, mask = nn.Linear(12, 6), nn.Linear(6, 4), torch.ones(6, 12)
        mask[:3] = 0
        self.a.weight.register_hook(lambda gradient: gradient * mask)

    def forward(self, x):
        return self.b(torch.tanh(self.a(x.flatten(1))))


class Referring(nn.Module):
    """Uses a parameter past its name."""

    def __init__(self, detached):
        super().__init__()
        self.a, self.b = nn.Linear(12, 6), nn.Linear(6, 4)
        weight = self.a.weight
        self.size = lambda: (weight.detach() if detached else weight).abs().mean()

    def forward(self, x):
        return self.b(torch.tanh(self.a(x.flatten(1)))) / self.size()


UNFAITHFUL = {
    "a hook": Masked, "a reference": lambda: Referring(False),
    "a value of it": lambda: Referring(True),
}  # fmt: skip


@pytest.mark.parametrize("kind", UNFAITHFUL)
def test_what_is_more_than_a_function_of_its_tensors_is_never_replayed(kind):
    """Else the bits after 50 steps were others, and depended on how many of them an actor did."""
    torch.manual_seed(0)
    one, other = Net(UNFAITHFUL[kind]()), Net(UNFAITHFUL[kind]())
    other.module.load_state_dict(one.module.state_dict())
    engine, bare = Sequential(one, CrossEntropy()), Sequential(other, CrossEntropy())
    bare.lasting = False
    outs = torch.empty(1, one.spec.size), torch.empty(1, one.spec.size)
    for step in range(engines.WORTH_IT + 6):
        w, (x, y, _) = models(one, step)[:1], batch((5, 5, 5), step)
        for its, out in zip((engine, bare), outs, strict=True):
            its.attach(its.views(w, torch.empty(1, 0)))
            its.gradients(w, x[:1], y[:1], torch.tensor([5]), out)
        assert torch.equal(*outs)
    assert not any(engine.records.kept.values())


@pytest.mark.parametrize("kind", ["a hook", "a value of it"])
def test_nor_is_it_batched_over_clients(kind):
    net, x = Net(UNFAITHFUL[kind]()), torch.rand(5, 1, 3, 4)
    assert "others then" in unstacked(net, x)


def test_what_a_head_of_zeros_hides_is_seen():
    """As many networks begin with; what is before it had no part in their outputs."""
    for kind, problem in (("memory", "pass to pass"), ("judged", "in evaluation")):
        with pytest.raises(ValueError, match=problem):
            tried("it", Hiding(kind), torch.rand(5, 12), (4,))
    assert not tried("it", Hiding("trained"), torch.rand(5, 12), (4,))
    assert mixes("it", Hiding("trained"), torch.rand(5, 12), (4,))
    hooked = Net(Hiding("hook"))
    before = hooked.module.a.weight.clone()
    assert "others then" in unstacked(hooked, torch.rand(5, 12))
    assert torch.equal(hooked.module.a.weight, before)
    assert not hooked.module.b.weight.any()


class Hiding(nn.Module):
    """Does what no trainer can repeat, before a head of zeros."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.a, self.b = kind, nn.Linear(12, 6), nn.Linear(6, 4)
        self.mean = torch.zeros(6)
        nn.init.zeros_(self.b.weight)

    def forward(self, x):
        h = torch.tanh(self.a(x))
        if self.kind == "judged" or (self.kind == "trained" and self.training):
            h = h - h.mean(0)
        if self.kind == "hook" and h.requires_grad:
            h.register_hook(lambda gradient: gradient / 2)
        if self.kind == "memory" and self.training:
            self.mean = self.mean + h.detach().mean(0)
            h = h - self.mean
        return self.b(h)


def test_steps_that_are_never_the_same_are_not_recorded():
    normed = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(12), nn.Linear(12, 4))
    dropped = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(12, 4))
    for module in (normed, dropped):
        assert not Sequential(Net(module), CrossEntropy()).lasting


def test_what_cannot_be_recorded_is_computed_anew():
    recorded = Vectorized(Net(MODELS["in place"]()), CrossEntropy())
    anew = Vectorized(Net(Overwriting()), CrossEntropy())
    for engine in (recorded, anew):
        engine_gradients(engine, models(engine.net), *batch((5, 5, 5)))
    assert None not in recorded.records.kept.values()
    assert set(anew.records.kept.values()) == {None}


@pytest.mark.parametrize("function", [
    lambda x: (x + torch.rand(3),),
    lambda x: (x * x.sum().item(),),
    lambda x: (x[x > 0],),
    lambda x: (x.mul_(2),),
    lambda x: (x * torch.from_numpy(x.numpy() * 2),),
    lambda x: (x * torch.tensor(x.tolist()),),
    lambda x: (x * torch.as_tensor(np.asarray(x)),),
    lambda x: (x * torch.tensor([1.0 + one for one in x]),),
    lambda x: (x * torch.as_tensor([[x[0], x[1], x[2]]])[0],),
    lambda x: (x * torch.tensor_split(x, (x > 0).sum().reshape(1))[0].sum(),),
], ids=["draws", "reads a value", "as many as there are", "writes over its input", "through NumPy",
        "through a list", "through an array", "through a list of tensors", "and through one of such",
        "split where a value says"])  # fmt: skip
def test_what_is_no_matter_of_shapes_is_not_recorded(function):
    x = torch.tensor([1.0, -2.0, 3.0])
    assert trace(function, [x]) is None
    assert x.tolist() == [1.0, -2.0, 3.0]


def test_a_function_with_a_memory_is_not_recorded():
    calls = []

    def function(x):
        calls.append(1)
        return (x * len(calls),)

    assert trace(function, [torch.ones(2)]) is None


def test_what_is_left_out_changes_nothing_of_the_rest():
    """Constants, products with ones, operations that were done before, (AᵀB)ᵀ, several results."""

    def function(a, b):
        low, high = a.aminmax()
        same = (a.transpose(1, 2) @ b).transpose(1, 2) * torch.ones_like(high)
        again = (a.transpose(1, 2) @ b).transpose(1, 2).expand(2, 4, 3).permute(0, 1, 2)
        return same + again * 1 + torch.arange(3).float() * 2, high - low, a

    g = torch.Generator().manual_seed(0)
    draw = lambda: [torch.randn(2, 5, n, generator=g) for n in (3, 4)]  # noqa: E731
    replay = trace(function, draw())
    inputs = draw()
    for got, want in zip(replay(*inputs), function(*inputs), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6)
    code = inspect.getsource(replay)
    assert code.count(".bmm.") == 1
    assert not any(word in code for word in ("permute", "expand", "arange", "ones"))


def test_results_are_written_where_they_belong():
    """A product, by the product itself; what is used twice, or is no product, is copied."""

    def function(a, b):
        product, other = a @ b, b.transpose(1, 2) @ a.transpose(1, 2)
        return product, other, other, a + 1, other.sum()

    g = torch.Generator().manual_seed(0)
    inputs = [torch.randn(2, *s, generator=g) for s in ((5, 3), (3, 7))]
    replay = trace(function, inputs, delivered=4)
    wide = [torch.full((2, 50), torch.nan) for _ in range(4)]
    wanted = function(*inputs)
    places = [w[:, 3 : 3 + r[0].numel()].view_as(r) for w, r in zip(wide, wanted, strict=False)]
    (total,) = replay(*inputs, *places)
    for got, want in zip((*places, total), wanted, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    assert all(w[:, 38:].isnan().all() and w[:, :3].isnan().all() for w in wide)
    assert "bmm.out" in inspect.getsource(replay)


class Catching(CrossEntropy.__bases__[0]):
    """A loss of one's own as plugins have it: whatever it raises is made another error."""

    name: str = "catching_of_tests"

    def per_sample(self, outputs, targets):
        try:
            weights = torch.from_numpy(np.where(targets.numpy() == 0, 3.0, 1.0)).float()
        except Exception as error:
            raise ValueError("caught") from error
        return nn.functional.cross_entropy(outputs, targets, reduction="none") * weights


def test_a_loss_that_reads_its_targets_is_computed_anew():
    """Recorded, it would have the first batch's weights for ever."""
    net, loss = Net(MODELS["mlp"]()), Catching()
    engine = Vectorized(net, loss)
    for seed in range(3):
        w, (x, y, sizes) = models(net, seed), batch((5, 4, 3), seed)
        for got, want in zip(
            engine_gradients(engine, w, x, y, sizes),
            one_by_one(net, loss, w, x, y, sizes), strict=True,
        ):  # fmt: skip
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    assert set(engine.records.kept.values()) == {None}


class Remembering(CrossEntropy.__bases__[0]):
    """A loss that reads a number by a door that no recorder sees."""

    name: str = "remembering_of_tests"

    def per_sample(self, outputs, targets):
        first = ctypes.c_int64.from_address(targets.data_ptr()).value
        return nn.functional.cross_entropy(outputs, targets, reduction="none") * (1 + first)


def test_code_of_others_is_tried_before_its_record_is_used():
    """As a client's steps are: what a recorder does not see would be the first batch's for ever."""
    net, loss = Net(MODELS["mlp"]()), Remembering()
    engine = Vectorized(net, loss)
    for seed in range(6):
        w, (x, y, sizes) = models(net, seed), batch((5, 4, 3), seed)
        got = engine_gradients(engine, w, x, y, sizes)
        want = engine_gradients(Vectorized(net, loss), w, x, y, sizes)
        assert all(map(torch.equal, got, want)), seed
    assert is_known(CrossEntropy(), *net.module.modules())
    assert not is_known(loss)
    net.module.register_forward_hook(lambda module, inputs, out: out)
    assert not is_known(CrossEntropy(), *net.module.modules())


@dataclass(frozen=True)
class Unhashable:
    """A rule with a list in it."""

    some: list

    def term(self, features, others):
        return features.sum(-1)


def test_a_rule_that_has_no_hash_is_no_key():
    assert engines.lasting(Unhashable([1]).term) is None
    assert engines.lasting(Pull(1.0).term) is not None


def test_embeddings_that_torch_does_not_batch_train_one_by_one():
    for options in ({"padding_idx": 0}, {"scale_grad_by_freq": True}):
        net = Net(nn.Sequential(nn.Embedding(5, 3, **options), nn.Flatten(), nn.Linear(6, 2)))
        assert "padding_idx" in engines.vectorizable(net)
    assert engines.vectorizable(Net(nn.Sequential(nn.Embedding(5, 3), nn.Flatten()))) is None


def test_terms_of_equal_rules_share_a_record():
    net = Net(MODELS["mlp"]())
    engine, w, others = Vectorized(net, CrossEntropy()), models(net, 1), models(net, 2)
    x, y, sizes = batch((5, 4, 3))
    for factor in (0.5, 0.5, 2.0):
        contrast = Contrast([others], torch.empty(CLIENTS, 0), Pull(factor).term)
        got = engine_gradients(engine, w, x, y, sizes, contrast)
        want = one_by_one(net, CrossEntropy(), w, x, y, sizes, others, factor)
        for ours, theirs in zip(got, want, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert len(engine.records.kept) == 2


def test_a_term_of_nobody_knows_what_is_computed_anew():
    """Two different functions that would look the same."""
    net = Net(MODELS["mlp"]())
    engine, w, others = Vectorized(net, CrossEntropy()), models(net, 1), models(net, 2)
    x, y, sizes = batch((5, 4, 3))
    for factor in (0.5, 2.0):
        contrast = Contrast(
            [others], torch.empty(CLIENTS, 0), lambda z, o, f=factor: Pull(f).term(z, o)
        )
        got = engine_gradients(engine, w, x, y, sizes, contrast)
        want = one_by_one(net, CrossEntropy(), w, x, y, sizes, others, factor)
        torch.testing.assert_close(got[0], want[0], rtol=1e-4, atol=1e-5)
    assert not engine.records.kept


def test_records_are_few(monkeypatch):
    monkeypatch.setattr(engines, "RECORDS", 2)
    net = Net(MODELS["linear"]())
    engine, w = Vectorized(net, CrossEntropy()), models(net)
    x, y, sizes = batch((5, 5, 5))
    for width in (5, 4, 3, 5):
        got, _ = engine_gradients(engine, w, x[:, :width], y[:, :width], sizes.clamp_max(width))
        want, _ = one_by_one(net, CrossEntropy(), w, x, y, sizes.clamp_max(width))
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    assert len(engine.records.kept) == 2


@pytest.mark.parametrize("b", [1, 7, 32, 1000])
def test_widths_are_few_and_hold_every_batch(b):
    widths = {n: common_width(b, n) for n in range(1, 2000)}
    assert all(min(b, n) <= width <= min(b, 1.25 * n) for n, width in widths.items())
    assert len(set(widths.values())) <= 5 + 4 * b.bit_length()


def test_recording_imports_no_compiler():
    """It would take a second and 150 MB in every actor: what only a process of its own can show."""
    program = """
import sys, torch
from algorithms.parts.losses import CrossEntropy
from orchestrator.models.net import Net
from orchestrator.training.engines import Vectorized
net = Net(torch.nn.Linear(3, 2))
engine, w, out = Vectorized(net, CrossEntropy()), net.initial.repeat(2, 1), torch.empty(2, 8)
engine.attach(engine.views(w, torch.empty(2, 0)))
engine.gradients(w, torch.ones(2, 4, 3), torch.ones(2, 4, dtype=torch.long), torch.tensor([4, 4]), out)
assert len(engine.records.kept) == 1
print(sorted({"sympy", "torch._dynamo", "triton"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


class Frozen(nn.Module):
    """Keeps numbers in parameters that are not trained, and one that must be a simplex."""

    def __init__(self):
        super().__init__()
        self.places = nn.Parameter(torch.arange(12.0).flip(0), requires_grad=False)
        self.prior, self.b = nn.Parameter(torch.tensor([0.9995, 0.0005])), nn.Linear(12, 4)

    def forward(self, x):
        odds = torch.distributions.Categorical(probs=self.prior[None]).probs
        return self.b(x[:, self.places.long()]) + odds.sum()


def test_weights_that_no_noise_may_be_added_to_are_left_alone():
    assert not tried("it", Frozen(), torch.rand(5, 12), (4,))
    assert not mixes("it", Frozen(), torch.rand(5, 12), (4,))


def test_what_looks_at_numbers_is_not_recorded():
    """Whether a matrix has an inverse: it has no result, and was a TypeError."""
    assert trace(lambda m, v: (torch.linalg.solve(m, v),), [torch.eye(3), torch.ones(3)]) is None


def test_what_was_only_seen_at_gradients_of_zero_is_not_trusted():
    """A hook on a parameter that halves its gradient is not in a record, which was used ever after."""

    def record(x, out):
        out.copy_(x)
        return (x.sum(),)

    def after(trial, x, factor, times):
        for _ in range(times):
            trial = trial.after((x,), (factor * x, x.sum()))
        return trial

    zeros, ones = torch.zeros(3), torch.ones(3)
    trial = after(OnTrial(record), zeros, 0.5, 5)
    assert isinstance(trial, OnTrial)
    assert trial.after((ones,), (0.5 * ones, ones.sum())) is None
    assert trial.after((ones,), (ones, ones.sum())) is record
    assert after(OnTrial(record), ones, 1.0, 3) is record
    assert after(OnTrial(record), zeros, 1.0, 20) is None
