"""Losses and metrics against torch's, torchmetrics', finite differences and sums by hand."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from algorithms.parts import losses, metrics
from algorithms.parts.metrics import Auroc

RNG = torch.Generator().manual_seed(3)
OUT = torch.randn(40, 4, generator=RNG)
CLASSES = torch.randint(0, 4, (40,), generator=RNG)
NUMBERS = torch.randn(40, 4, generator=RNG)
LABELS = (NUMBERS > 0).float()
WEIGHT = (0.5, 2.0, 0.0, 1.0)


def by_hand(y):
    """−log p_y of each row, in float64."""
    z = OUT.double().numpy()
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    return -np.log(p[np.arange(40), y])


@pytest.mark.parametrize(
    ("loss", "targets", "expected"),
    [
        (losses.CrossEntropy(), CLASSES, lambda: by_hand(CLASSES)),
        (losses.CrossEntropy(weight=WEIGHT), CLASSES, lambda: np.array(WEIGHT)[CLASSES] * by_hand(CLASSES)),
        (
            losses.CrossEntropy(label_smoothing=0.3),
            CLASSES,
            lambda: 0.7 * by_hand(CLASSES)
            + 0.3 * np.mean([by_hand(np.full(40, c)) for c in range(4)], 0),
        ),
        (
            losses.CrossEntropy(label_smoothing=0.3, weight=WEIGHT),
            CLASSES,
            lambda: 0.7 * np.array(WEIGHT)[CLASSES] * by_hand(CLASSES)
            + 0.3 * np.mean([WEIGHT[c] * by_hand(np.full(40, c)) for c in range(4)], 0),
        ),
        (
            losses.Focal(gamma=1.5),
            CLASSES,
            lambda: (1 - np.exp(-by_hand(CLASSES))) ** 1.5 * by_hand(CLASSES),
        ),
        (losses.Focal(gamma=0), CLASSES, lambda: by_hand(CLASSES)),
        (losses.MeanSquares(), NUMBERS, lambda: ((OUT - NUMBERS) ** 2).mean(1)),
        (losses.MeanMagnitudes(), NUMBERS, lambda: (OUT - NUMBERS).abs().mean(1)),
        (losses.MeanSquares(), CLASSES, lambda: ((OUT - torch.eye(4)[CLASSES]) ** 2).mean(1)),
        (
            losses.Huber(delta=0.7),
            NUMBERS,
            lambda: torch.where(
                (e := (OUT - NUMBERS).abs()) <= 0.7, e**2 / 2, 0.7 * (e - 0.35)
            ).mean(1),
        ),
        (
            losses.BinaryCrossEntropy(),
            LABELS,
            lambda: -torch.where(LABELS > 0, OUT.sigmoid().log(), (1 - OUT.sigmoid()).log()).mean(1),
        ),
    ],
)  # fmt: skip
def test_losses_are_their_formulas(loss, targets, expected):
    one = loss.per_sample(OUT, targets)
    np.testing.assert_allclose(one, expected(), rtol=2e-5, atol=1e-6)
    torch.testing.assert_close(loss.mean(OUT, targets), one.mean())
    torch.testing.assert_close(loss.sum(OUT, targets), one.sum())
    assert loss.refuses(4, targets) is None
    targets = targets.double() if targets.is_floating_point() else targets
    gradient = torch.func.grad(lambda out: loss.mean(out, targets))(OUT.double())
    assert gradient.isfinite().all()
    small = torch.zeros_like(OUT).double()
    small[3, 1] = 1e-6
    change = loss.mean(OUT.double() + small, targets) - loss.mean(OUT.double() - small, targets)
    assert float(gradient[3, 1]) == pytest.approx(float(change) / 2e-6, rel=1e-3, abs=1e-9)


def test_a_certain_sample_has_a_finite_focal_gradient():
    sure = torch.tensor([[200.0, 0.0]], requires_grad=True)
    losses.Focal(gamma=0.5).mean(sure, torch.tensor([0])).backward()
    assert sure.grad.isfinite().all()


def test_what_is_right():
    assert losses.CrossEntropy().correct(OUT, CLASSES).tolist() == [
        bool(out.argmax() == y) for out, y in zip(OUT, CLASSES, strict=True)
    ]
    assert losses.MeanSquares().correct(OUT, NUMBERS).isnan().all()
    several = losses.BinaryCrossEntropy().correct(OUT, LABELS)
    assert several.tolist() == [
        all((o > 0) == (t == 1) for o, t in zip(out, row, strict=True))
        for out, row in zip(OUT, LABELS, strict=True)
    ]


@pytest.mark.parametrize(
    ("loss", "outputs", "targets", "why"),
    [
        (losses.CrossEntropy(), 4, NUMBERS, "is of classes"),
        (losses.Focal(), 4, NUMBERS, "is of classes"),
        (losses.CrossEntropy(weight=(1.0, 2.0)), 4, CLASSES, "weight has 2 numbers"),
        (losses.BinaryCrossEntropy(), 4, NUMBERS, "each 0 or 1"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(loss, outputs, targets, why):
    assert why in loss.refuses(outputs, targets)


def confusion():
    table = np.zeros((4, 4))
    for out, y in zip(OUT, CLASSES, strict=True):
        table[y, out.argmax()] += 1
    return table


def test_a_class_without_rows_that_is_predicted():
    """As scikit-learn has it: no part of a mean of recalls, and 0 in one of F1."""
    outputs = F.one_hot(torch.tensor([0, 1, 2, 0]), 4) * 5.0
    targets = torch.tensor([0, 1, 1, 0])
    assert metrics.BalancedAccuracy().value(outputs, targets) == (1 + 1 / 2) / 2
    assert metrics.MacroF1().value(outputs, targets) == pytest.approx((1 + 2 / 3 + 0) / 3)


def test_metrics_are_their_formulas():
    table = confusion()
    hits, rows, columns = np.diag(table), table.sum(1), table.sum(0)
    assert metrics.MacroF1().value(OUT, CLASSES) == pytest.approx(
        np.mean(2 * hits / (rows + columns))
    )
    assert metrics.BalancedAccuracy().value(OUT, CLASSES) == pytest.approx(np.mean(hits / rows))
    p = OUT.double().softmax(1).numpy()
    y = CLASSES.numpy()
    areas = []
    for c in range(4):  # the part of pairs that are in the right order
        mine, others = p[y == c, c], p[y != c, c]
        areas.append(np.mean(mine[:, None] > others[None]))
    odds = losses.CrossEntropy().scores(OUT)
    assert metrics.Auroc().value(odds, CLASSES) == pytest.approx(np.mean(areas), abs=1e-6)
    assert math.isnan(metrics.Auroc().value(OUT[:3], torch.zeros(3, dtype=torch.int64)))
    error = 0.0
    top, right = p.max(1), p.argmax(1) == y
    for low in np.arange(15) / 15:
        inside = (top > low) & (top <= low + 1 / 15)
        if inside.any():
            error += inside.mean() * abs(top[inside].mean() - right[inside].mean())
    assert metrics.CalibrationError().value(odds, CLASSES) == pytest.approx(error, abs=1e-6)
    assert metrics.MeanAbsoluteError().value(OUT, NUMBERS) == pytest.approx(
        float((OUT - NUMBERS).abs().mean())
    )
    assert metrics.RootMeanSquare().value(OUT, NUMBERS) == pytest.approx(
        math.sqrt(F.mse_loss(OUT, NUMBERS))
    )
    each = [np.corrcoef(2 * NUMBERS[:, j] + 1, NUMBERS[:, j])[0, 1] for j in range(4)]
    assert np.allclose(each, 1)  # what is only scaled is no perfect prediction
    assert metrics.R2().value(NUMBERS, NUMBERS) == 1
    mean = NUMBERS.mean(0).expand(40, 4)
    assert metrics.R2().value(mean, NUMBERS) == pytest.approx(0, abs=1e-6)
    assert math.isnan(metrics.R2().value(OUT[:1], NUMBERS[:1]))
    assert "is of classes" in metrics.MacroF1().refuses(NUMBERS)
    assert "is of numbers" in metrics.R2().refuses(CLASSES)


def test_auroc_is_of_the_classes_that_are_there():
    """torchmetrics counts the others as 0: perfect predictions of two classes of ten had 0.2."""
    targets = torch.arange(50) % 2
    outputs = torch.nn.functional.one_hot(targets, 10).float() * 5
    assert Auroc().value(outputs, targets) == 1.0
    outputs = torch.randn(50, 10, generator=torch.Generator().manual_seed(0))
    by_hand = []
    for k in (0, 1):
        score = outputs[:, k]
        pairs = score[targets == k][:, None] - score[targets != k][None]
        by_hand.append(float((pairs > 0).double().mean()))
    assert Auroc().value(outputs, targets) == pytest.approx(np.mean(by_hand), abs=1e-6)
    assert np.isnan(Auroc().value(torch.full((50, 10), torch.nan), targets))
