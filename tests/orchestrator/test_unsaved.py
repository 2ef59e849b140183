"""What code of a user's own keeps from round to round, and no checkpoint holds, is told."""

import itertools
from dataclasses import dataclass
from functools import cached_property

import pytest
import torch

from orchestrator.rounds.unsaved import Unsaved


@dataclass
class Best:
    value: float = 0.0


class Keeping:
    """An algorithm's attributes, and what a round does to them."""

    server_state = ("saved",)

    def __init__(self):
        self.saved, self.w = [0], torch.zeros(3)
        self.start()

    def start(self):
        pass

    def round(self):
        self.saved.append(1)
        self.w += 1


class ByClient(Keeping):
    def start(self):
        self.kept = {1: torch.zeros(5000)}

    def round(self):
        self.kept[1][4000] += 1


class InAnObject(Keeping):
    def start(self):
        self.kept = Best()

    def round(self):
        self.kept.value += 1


class InTheClass(Keeping):
    kept = []

    def round(self):
        self.kept.append(1)


class BySetattr(Keeping):
    def start(self):
        vars(self)["kept"] = 0

    def round(self):
        vars(self)["kept"] += 1


class ByCount(Keeping):
    def start(self):
        self.kept = itertools.count()

    def round(self):
        next(self.kept)


class ByDefault(Keeping):
    def round(self, kept=[]):  # noqa: B006
        kept.append(1)


class ByClosure(Keeping):
    def counting():
        seen = []

        def kept(self):
            seen.append(1)

        return kept

    kept = counting()
    del counting

    def round(self):
        self.kept()


class Odd:
    def __getattr__(self, name):
        return getattr(torch.zeros(()), name)

    def __len__(self):
        raise TypeError


class WorkedOut:
    @cached_property
    def graph(self):
        return [1]


class HoldingOdd(Keeping):
    def start(self):
        self.kept, self.lazy = Odd(), WorkedOut()

    def round(self):
        assert self.lazy.graph


class Cached(Keeping):
    """Of what is worked out once nothing changes."""

    def start(self):
        self.kept = {"mask": torch.ones(3), "best": Best(), "model": torch.nn.Linear(2, 2)}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (ByClient, "ByClient.kept"), (InAnObject, "InAnObject.kept"), (InTheClass, "InTheClass.kept"),
        (BySetattr, "BySetattr.kept"), (ByCount, "ByCount.kept"), (ByDefault, "ByDefault.round"),
        (ByClosure, "ByClosure.kept"), (Cached, None), (Keeping, None), (HoldingOdd, None),
    ],
)  # fmt: skip
def test_what_no_checkpoint_holds_is_seen(kind, name):
    algorithm = kind()
    looking = Unsaved(algorithm, [])
    looking.changed()
    assert looking.changed() == []
    algorithm.round()
    assert looking.changed() == ([name] if name else [])
