"""Schedules against torch's, and in effect."""

import pytest
import torch
from torch.optim import lr_scheduler

from algorithms.parts import schedules
from orchestrator.rounds.experiment import Experiment
from tests.configs import small
from tests.running import finish

THEIRS = {
    schedules.Step(every=3, gamma=0.5): lambda o: lr_scheduler.StepLR(o, 3, 0.5),
    schedules.Cosine(over=8, floor=0.0): lambda o: lr_scheduler.CosineAnnealingLR(o, 8),
    schedules.Linear(over=8, floor=0.25): lambda o: lr_scheduler.LinearLR(o, 1.0, 0.25, 8),
    schedules.Constant(): lambda o: lr_scheduler.ConstantLR(o, 1.0),
}


@pytest.mark.parametrize(("ours", "theirs"), THEIRS.items(), ids=[s.name for s in THEIRS])
def test_rates_are_torch_s(ours, theirs):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 1.0)
    scheduler = theirs(optimizer)
    for t in range(1, 9):
        assert ours.factor(t) == pytest.approx(optimizer.param_groups[0]["lr"], abs=1e-12)
        optimizer.step()
        scheduler.step()


def test_a_warm_up_rises_to_where_the_schedule_begins():
    warm = schedules.Step(every=2, gamma=0.5, warmup=3)
    assert [warm.factor(t) for t in range(1, 9)] == [0.25, 0.5, 0.75, 1, 1, 0.5, 0.5, 0.25]
    assert schedules.Cosine(over=2, floor=0.1).factor(50) == pytest.approx(0.1)


def test_it_is_the_rate_of_the_round():
    falling = finish(small("local.schedule={name: step, every: 1, gamma: 0.5}", "local.lr=0.2"))
    same = finish(small("local.lr_decay=0.5", "local.lr=0.2"))
    assert torch.equal(falling.algorithm.w, same.algorithm.w)
    e = Experiment(small("local.schedule={name: cosine, over: 2}", "local.lr=0.2"))
    assert [e.world.local.rate(t) for t in (1, 2, 3)] == pytest.approx([0.2, 0.1, 0.0])
