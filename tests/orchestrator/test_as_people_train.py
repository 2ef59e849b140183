"""Rates within a round, decay of matrices only, mini-batches in pieces: against plain PyTorch."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.optim import lr_scheduler

from algorithms.local import LocalRule
from algorithms.parts.optimizers import Optimizer, Sgd
from algorithms.scaffold import ControlVariate
from orchestrator.config import load
from orchestrator.errors import UserError
from orchestrator.models.images import FedAAResNet, LeNet5, Mlp
from orchestrator.training.batches import Batches
from orchestrator.training.block import Block, engines
from orchestrator.training.messages import Advance, BlockSpec
from orchestrator.training.precision import unfit
from tests.configs import small
from tests.orchestrator.test_training import DATA, by_hand, train, world
from tests.running import finish

MLP = Mlp(hidden=(5,))


class Scheduled(torch.optim.SGD):
    """SGD whose rate torch's schedule changes after every step."""

    def __init__(self, parameters, schedule):
        super().__init__(parameters, 0.1)
        self.schedule = schedule(self)

    def step(self):
        super().step()
        self.schedule.step()


WITHIN = {
    "cosine": ({"name": "cosine", "over": 40}, lambda o: lr_scheduler.CosineAnnealingLR(o, 40)),
    "step": ({"name": "step", "every": 2, "gamma": 0.5}, lambda o: lr_scheduler.StepLR(o, 2, 0.5)),
    "warm": (
        {"name": "constant", "warmup": 3},
        lambda o: lr_scheduler.LambdaLR(o, lambda s: min(1.0, (s + 1) / 4)),
    ),
}


@pytest.mark.parametrize("vectorized", [False, True])
@pytest.mark.parametrize("name", WITHIN)
def test_rates_within_a_round_are_torch_s(name, vectorized):
    within, theirs = WITHIN[name]
    local = world(MLP, epochs=2, within=within)
    deltas, _ = train(local, [0, 1, 2], vectorized)
    for k, delta in enumerate(deltas):
        wanted, _ = by_hand(local, k, lambda p: Scheduled(p, theirs))
        torch.testing.assert_close(delta, wanted, rtol=1e-4, atol=1e-6)


def test_control_variates_are_the_mean_gradient_whatever_the_rates():
    """SCAFFOLD's c_i⁺ is Σ η_s g_s / Σ η_s: with full batches of a linear loss, that of torch."""
    local = world(MLP, steps=4, within={"name": "step", "every": 2, "gamma": 0.25}, batch_size=999)
    size = local.net().spec.size
    rule = ControlVariate(slice(0, size))
    e = train(local, [1], False, rule=_From(rule, size))[1]
    wanted, _ = by_hand(local, 1, lambda p: Scheduled(p, lambda o: lr_scheduler.StepLR(o, 2, 0.25)))
    reached = 0.1 * (1 + 1 + 0.25 + 0.25)
    torch.testing.assert_close(e.vectors["control"][0], -wanted / reached, rtol=1e-4, atol=1e-6)


def _From(rule, size):
    """A SCAFFOLD client in its first round: c = c_i = 0."""

    class First(type(rule)):
        def state(self, received, spec):
            received["control"] = torch.zeros(size)
            return super().state(received, spec)

    return First(rule.part)


def test_refused_where_a_method_counts_on_equal_rates():
    with pytest.raises(UserError, match=r"leave local\.within at constant"):
        load(None, ["algorithm=fednova", "local.within=cosine"])


DECAYING = [
    ({"name": "sgd", "weight_decay": 0.3}, lambda p, d: torch.optim.SGD(p, 0.1, weight_decay=d)),
    ({"name": "adam", "weight_decay": 0.3}, lambda p, d: torch.optim.Adam(p, 0.1, weight_decay=d)),
    ({"name": "adamw", "weight_decay": 0.3}, lambda p, d: torch.optim.AdamW(p, 0.1, weight_decay=d)),
    (
        {"name": "adagrad", "weight_decay": 0.3},
        lambda p, d: torch.optim.Adagrad(p, 0.1, weight_decay=d),
    ),
]  # fmt: skip


@pytest.mark.parametrize("vectorized", [False, True])
@pytest.mark.parametrize(("ours", "theirs"), DECAYING, ids=[o["name"] for o, _ in DECAYING])
def test_only_matrices_decay(ours, theirs, vectorized):
    def grouped(parameters):
        parameters = list(parameters)
        optimizers = [
            theirs([p for p in parameters if p.dim() > 1], 0.3),
            theirs([p for p in parameters if p.dim() < 2], 0.0),
        ]
        return _Both(optimizers)

    local = world(MLP, steps=6, optimizer={**ours, "decayed": "matrices"})
    deltas, _ = train(local, [0, 1], vectorized)
    everywhere, _ = train(world(MLP, steps=6, optimizer=ours), [0, 1], vectorized)
    assert (deltas - everywhere).abs().max() > 1e-4
    for k, delta in enumerate(deltas):
        torch.testing.assert_close(delta, by_hand(local, k, grouped)[0], rtol=1e-3, atol=1e-5)


class _Both:
    def __init__(self, optimizers):
        self.optimizers = optimizers

    def zero_grad(self):
        [one.zero_grad() for one in self.optimizers]

    def step(self):
        [one.step() for one in self.optimizers]


@pytest.mark.parametrize("clip", [None, 0.5])
def test_mini_batches_in_pieces_are_the_same_gradient(clip):
    whole, _ = train(world(MLP, steps=5, clip=clip), [0], False)
    pieces, _ = train(world(MLP, steps=5, clip=clip, micro_batch=5), [0], False)
    torch.testing.assert_close(pieces, whole, rtol=1e-4, atol=1e-6)
    assert not torch.equal(pieces, whole)


def test_terms_on_features_come_in_pieces_too():
    algorithm = "algorithm={name: moon, mu: 3.0}"
    whole, pieces = (
        finish(small(algorithm, f"local.micro_batch={rows}", "model=mlp")) for rows in (999, 7)
    )
    torch.testing.assert_close(pieces.algorithm.w, whole.algorithm.w, rtol=1e-3, atol=1e-5)


def test_statistics_see_each_piece():
    """As in torch: with batch norm, a batch in pieces is normalised piece by piece."""
    local = world(FedAAResNet(), steps=1, batch_size=8, micro_batch=4)
    delta, _ = train(local, [0], False)
    net = local.net()
    module, (rows,) = net.module.train(), Batches(DATA.train[0], local.local, 0, 1, 0).take(1)
    total = [torch.zeros_like(p) for p in module.parameters()]
    for some in np.split(rows, 2):
        x = (torch.tensor(DATA.samples.x[some]).float() / 255 - 0.2860) / 0.3530
        loss = F.cross_entropy(module(x), torch.tensor(DATA.samples.y[some])) / 2
        for mine, g in zip(total, torch.autograd.grad(loss, [*module.parameters()]), strict=True):
            mine += g
    wanted = net.spec.flatten({n: -0.1 * g for n, g in zip(net.params, total, strict=True)})
    torch.testing.assert_close(delta[0], wanted, rtol=1e-3, atol=1e-5)


def test_pieces_are_for_one_client_at_a_time():
    assert finish(small("local.micro_batch=4")).config.local.execution == "sequential"
    with pytest.raises(UserError, match=r"local\.micro_batch is for clients that are trained one"):
        finish(small("local.micro_batch=4", "local.execution=vectorized"))


@pytest.mark.parametrize("model", [Mlp(hidden=(30,)), LeNet5()], ids=lambda m: m.name)
def test_bf16_is_torch_s_autocast(model):
    """Products in bfloat16, everything else in float32, as a loop of torch's has it."""
    local = world(model, steps=6, precision="bf16")
    deltas, _ = train(local, [0, 1], False)
    exact, _ = train(world(model, steps=6), [0, 1], False)
    for k, delta in enumerate(deltas):
        net = local.net()
        module, before = net.module.train(), net.initial
        optimizer = torch.optim.SGD(module.parameters(), 0.1)
        for rows in Batches(DATA.train[k], local.local, 0, 1, k).take(6):
            x = (torch.tensor(DATA.samples.x[rows]).float() / 255 - 0.2860) / 0.3530
            with torch.autocast("cpu", torch.bfloat16):
                loss = F.cross_entropy(module(x), torch.tensor(DATA.samples.y[rows]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        wanted = net.spec.flatten(net.params) - before
        rounding = (exact[k] - wanted).norm()
        assert rounding > 1e-3 * wanted.norm()
        # one rounding at another place is passed on by the steps after it
        assert (delta - wanted).norm() < 0.3 * rounding


@pytest.mark.parametrize("vectorized", [False, True])
@pytest.mark.parametrize("precision", ["bf16", "float32"])
def test_gradients_of_products_in_bf16_have_eight_digits(precision, vectorized):
    local = world(MLP, precision=precision)
    engine, net = engines(local)[vectorized], local.net()
    w, g = net.initial.repeat(2 if vectorized else 1, 1), torch.Generator().manual_seed(0)
    x, y = torch.randn(len(w), 8, 1, 28, 28, generator=g), torch.arange(8).repeat(len(w), 1)
    gradients = torch.empty_like(w)
    engine.attach(engine.views(w, net.initial_buffers.expand(len(w), -1)))
    engine.gradients(w, x, y, torch.full((len(w),), 8), gradients)
    rounded = gradients.bfloat16().float()
    matrices = [e for e in net.spec.segments if len(e.shape) == 2]
    same = [torch.equal(*(v[:, e.start : e.stop] for v in (gradients, rounded))) for e in matrices]
    assert same == [precision == "bf16"] * 2


def test_terms_on_features_are_float32():
    run = finish(small("algorithm={name: moon, mu: 3.0}", "model=mlp", "local.precision=bf16"))
    assert run.algorithm.w.dtype == torch.float32
    exact = finish(small("algorithm={name: moon, mu: 3.0}", "model=mlp"))
    assert 0 < (run.algorithm.w - exact.algorithm.w).norm() < 0.1 * exact.algorithm.w.norm()


def test_what_cannot_be_multiplied_so_is_said():
    with pytest.raises(UserError, match=r"local\.precision: tf32 is of NVIDIA GPUs"):
        finish(small("local.precision=tf32"))


class _Refuses(torch.nn.Module):
    """A network that looks at the type of what it computes."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(784, 10)

    def forward(self, x):
        out = self.layer(x.flatten(1))
        if out.dtype != torch.float32:
            raise TypeError("float32 only")
        return out


def test_a_network_that_fails_in_bfloat16_is_said():
    reason = unfit("bf16", 0, _Refuses(), torch.zeros(2, 1, 28, 28))
    assert reason == "the network does not train in bfloat16: TypeError: float32 only"
    assert unfit("float32", 0, _Refuses(), torch.zeros(2, 1, 28, 28)) is None


UNEQUAL = ["data.partition={name: zipf, alpha: 1.0, sigma: 0.9}", "local.epochs=1", "cohort=6",
           "data.limit=300", "local.batch_size=8", "local.within={name: step, every: 2, gamma: 0.3}",
           "local.schedule={name: step, every: 1, gamma: 0.5}"]  # fmt: skip


def plain(*settings):
    return small(*settings, "local.steps=null")


@pytest.mark.parametrize("name", ["scaffold", "lp_proj"])
def test_each_client_has_its_own_rates(name):
    """Clients that step together, and are done at different steps, as each by itself."""
    options = ", steps_between: 3" if name == "lp_proj" else ""
    algorithm = [f"algorithm={{name: {name}{options}}}", *UNEQUAL, "local.block=6"]
    together = finish(plain(*algorithm, "local.execution=vectorized"))
    alone = finish(plain(*algorithm, "local.execution=sequential"))
    for key in ("control", "reference"):
        if hasattr(alone.algorithm, key):
            one, other = getattr(together.algorithm, key), getattr(alone.algorithm, key)
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5 * float(other.abs().max()))


def test_scallion_is_scaffold_whatever_the_rates():
    """Nothing compressed and α = β = 1: told in one message instead of two."""
    equal = [*UNEQUAL[2:], "data.partition=iid", "local.epochs=null"]
    one, other = (finish(small(f"algorithm={n}", *equal)) for n in ("scallion", "scaffold"))
    torch.testing.assert_close(one.algorithm.w, other.algorithm.w, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(one.algorithm.control, other.algorithm.control, rtol=1e-3, atol=1e-4)


def test_a_round_that_is_led_step_by_step_has_the_same_rates():
    within = "local.within={name: cosine, over: 6}"
    led = finish(small(within, "local.steps=5", "round_end={name: fda, theta: 1e9}"))
    at_once = finish(small(within, "local.steps=5"))
    assert torch.equal(led.algorithm.w, at_once.algorithm.w)


def test_clients_that_are_not_at_the_same_step_cannot_share_a_rate():
    e = engines(world(MLP, epochs=1, within={"name": "cosine", "over": 40}))
    net = e[False].net
    received = {"w": net.initial, "buffers": net.initial_buffers}
    spec = BlockSpec(np.arange(4), LocalRule(), {}, {}, 1, 0, True)
    block = Block(
        world(MLP, epochs=1, within={"name": "cosine", "over": 40}), e[True], spec, received
    )
    block.run(Advance(None))
    with pytest.raises(UserError, match="have done different numbers of steps"):
        block.run(Advance(1))


@pytest.mark.parametrize("model", [LeNet5(), Mlp(hidden=(4,))], ids=lambda m: m.name)
def test_kernels_are_matrices(model):
    mask = Sgd(weight_decay=0.1, decayed="matrices").decays(world(model).net().spec)
    wanted = {
        n: torch.full(p.shape, float(p.dim() > 1)) for n, p in world(model).net().params.items()
    }
    assert torch.equal(mask, world(model).net().spec.flatten(wanted))
    assert 0 < mask.mean() < 1


def test_an_optimiser_of_one_s_own_need_not_know_of_masks():
    class Plain(Optimizer):
        name: str = "plain_of_tests"

        def start(self, w):
            return {}

        def step(self, state, w, g, lr):
            w.sub_(g, alpha=lr)

    own, _ = train(world(MLP, steps=3, optimizer=Plain()), [0], False)
    ours, _ = train(world(MLP, steps=3), [0], False)
    assert torch.equal(own, ours)


def test_the_loss_of_a_batch_in_pieces_is_the_whole_batch_s():
    runs = [finish(small(f"local.micro_batch={rows}")) for rows in (999, 5)]
    whole, pieces = ([r["train_loss"] for r in run.records] for run in runs)
    assert pieces == pytest.approx(whole, rel=1e-4)
