"""Client optimisers against torch.optim, server optimisers against the paper's formulas."""

import pytest
import torch

from algorithms.parts.optimizers import AdaGrad, Adam, AdamW, Sgd, Yogi
from algorithms.parts.server_optimizers import (
    ServerAdaGrad,
    ServerAdam,
    ServerAdamW,
    ServerSgd,
    ServerYogi,
)

CASES = [
    (Sgd(), lambda p: torch.optim.SGD(p, lr=0.1)),
    (Sgd(momentum=0.9), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)),
    (
        Sgd(momentum=0.9, nesterov=True),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    ),
    (Sgd(weight_decay=0.3), lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.3)),
    (Adam(), lambda p: torch.optim.Adam(p, lr=0.1)),
    (
        Adam(weight_decay=0.2, beta1=0.7),
        lambda p: torch.optim.Adam(p, lr=0.1, weight_decay=0.2, betas=(0.7, 0.999)),
    ),
    (AdamW(weight_decay=0.2), lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.2)),
    (AdaGrad(), lambda p: torch.optim.Adagrad(p, lr=0.1)),
    (AdaGrad(initial=0.5), lambda p: torch.optim.Adagrad(p, lr=0.1, initial_accumulator_value=0.5)),
]


@pytest.mark.parametrize(("ours", "theirs"), CASES, ids=lambda c: getattr(c, "name", ""))
def test_every_row_follows_torch(ours, theirs):
    torch.manual_seed(0)
    w = torch.randn(3, 5, dtype=torch.float64)
    rows = [torch.nn.Parameter(r.clone()) for r in w]
    references = [theirs([r]) for r in rows]
    state = ours.start(w)
    for _ in range(20):
        g = torch.randn(3, 5, dtype=torch.float64)
        for row, reference, gradient in zip(rows, references, g, strict=True):
            row.grad = gradient.clone()
            reference.step()
        ours.step(state, w, g.clone(), 0.1)
    torch.testing.assert_close(w, torch.stack([r.detach() for r in rows]))


def test_keras_form_of_epsilon():
    """w ← w − η √(1 − β2^t)/(1 − β1^t) · m/(√v + ε), Keras' order, in plain numbers."""
    rule, server = (
        Adam(eps=0.01, eps_hat=True),
        ServerAdam(lr=0.1, eps=0.01, beta2=0.999, bias_correction=True, eps_hat=True),
    )
    w, m, v, want = torch.tensor([1.0], dtype=torch.float64), 0.0, 0.0, 1.0
    ours, theirs = rule.start(w), server.start(w)
    other = w.clone()
    for t, g in enumerate([0.3, -0.05, 0.002], start=1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        want -= 0.1 * (1 - 0.999**t) ** 0.5 / (1 - 0.9**t) * m / (v**0.5 + 0.01)
        rule.step(ours, w, torch.tensor([g], dtype=torch.float64), 0.1)
        other = server.step(theirs, other, -torch.tensor([g], dtype=torch.float64))
        assert (w.item(), other.item()) == (pytest.approx(want), pytest.approx(want))
    plain = torch.tensor([1.0], dtype=torch.float64)
    Adam(eps=0.01).step(Adam().start(plain), plain, torch.tensor([0.3], dtype=torch.float64), 0.1)
    assert plain.item() == pytest.approx(1.0 - 0.1 * 0.3 / (0.3 + 0.01))


def test_yogi_second_moment():
    rule, w = Yogi(bias_correction=False, eps=0.0, beta1=0.0), torch.zeros(2)
    state = rule.start(w)
    rule.step(state, w, torch.tensor([2.0, -1.0]), 1.0)
    # v = 0 − (1 − β2) g² sign(0 − g²) = (1 − β2) g²
    torch.testing.assert_close(state["second"], 0.001 * torch.tensor([4.0, 1.0]))
    before = state["second"].clone()
    rule.step(state, w, torch.tensor([0.01, 0.01]), 1.0)
    torch.testing.assert_close(state["second"], before - 0.001 * torch.full((2,), 1e-4))


def test_fedavg_server_adds_the_update():
    w, delta = torch.randn(4), torch.randn(4)
    opt = ServerSgd()
    torch.testing.assert_close(opt.step(opt.start(w), w, delta), w + delta)


def test_fedadam_is_reddis_algorithm_2():
    opt = ServerAdam(lr=0.3, beta1=0.9, beta2=0.99, eps=1e-3)
    w = torch.zeros(4, dtype=torch.float64)
    state, m, v, x = opt.start(w), torch.zeros(4), torch.zeros(4), w.clone()
    for k in range(1, 6):
        delta = torch.linspace(-1, 1, 4, dtype=torch.float64) * k
        w = opt.step(state, w, delta)
        m = 0.9 * m + 0.1 * delta
        v = 0.99 * v + 0.01 * delta**2
        x = x + 0.3 * m / (v.sqrt() + 1e-3)
    torch.testing.assert_close(w, x)


def test_fedadagrad_and_fedyogi_formulas():
    delta = torch.tensor([0.5, -2.0], dtype=torch.float64)
    w = torch.zeros(2, dtype=torch.float64)
    ada = ServerAdaGrad(lr=0.1, eps=1e-3)
    torch.testing.assert_close(ada.step(ada.start(w), w, delta), 0.1 * delta / (delta.abs() + 1e-3))
    yogi = ServerYogi(lr=0.1, eps=1e-3)
    want = 0.1 * (0.1 * delta) / ((0.01 * delta**2).sqrt() + 1e-3)
    torch.testing.assert_close(yogi.step(yogi.start(w), w, delta), want)


def test_fedadamw_decays_the_model():
    w = torch.ones(2, dtype=torch.float64)
    opt = ServerAdamW(lr=0.1, weight_decay=0.5)
    torch.testing.assert_close(
        opt.step(opt.start(w), w, torch.zeros(2, dtype=torch.float64)), 0.95 * w
    )


def test_pytorch_adam_at_the_server():
    opt = ServerAdam(lr=0.1, beta2=0.999, eps=1e-8, bias_correction=True)
    w = torch.randn(5)
    p = torch.nn.Parameter(w.clone())
    reference, state = torch.optim.Adam([p], lr=0.1), opt.start(w)
    for _ in range(5):
        delta = torch.randn(5)
        p.grad = -delta
        reference.step()
        w = opt.step(state, w, delta)
    torch.testing.assert_close(w, p.detach(), rtol=1e-5, atol=1e-6)
