"""What code of a user's own keeps from round to round, and no checkpoint holds."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from types import FunctionType
from typing import Any

import numpy as np
import torch

from algorithms.algorithm import Algorithm
from orchestrator.noted import note
from orchestrator.plugins.plugin import Plugin
from orchestrator.plugins.sources import is_ours
from orchestrator.results.own_code import names_in
from orchestrator.rounds.digests import digest

OF_ALL = frozenset(("w", "buffers", "options", "setting", "influence", "memory", "past", "notes"))
"""Attributes of every algorithm."""
LARGEST = 10_000_000
"""Entries of a tensor that is looked at: a tenth of a second a round."""


class Unsaved:
    """Looks, after each round, at what an algorithm of one's own has in attributes that are not in
    its ``server_state``, and at the variables of plugins.
    """

    def __init__(self, algorithm: Algorithm, plugins: Sequence[Plugin]) -> None:
        self.algorithm, self.plugins = algorithm, plugins
        own = _assigned(type(algorithm)) - OF_ALL
        self.names = sorted(own.difference(algorithm.server_state))
        self.before: dict[str, object] = {}

    def changed(self) -> list[str]:
        """What is another than at the last look, by what a person calls it."""
        seen = {**dict(self._attributes()), **dict(self._variables())}
        other = [one for one, value in seen.items() if self.before.get(one, value) != value]
        self.before = seen
        return other

    def _attributes(self) -> Iterator[tuple[str, object]]:
        for name in self.names:
            if name in vars(self.algorithm):
                whose = type(self.algorithm).__name__
                yield f"{whose}.{name}", _stands_for(vars(self.algorithm)[name])

    def _variables(self) -> Iterator[tuple[str, object]]:
        for plugin in self.plugins:
            for name, value in [*vars(sys.modules[plugin.module]).items()]:
                if not name.startswith("__"):
                    yield f"{name} of {plugin.name}", _stands_for(value)


def _stands_for(value: Any) -> object:
    """Whatever goes wrong here is no fault of the run's."""
    try:
        return _looked_at(value)
    except Exception:  # of tensors that are sparse, modules that are lazy, code of others
        return type(value)


def _looked_at(value: Any) -> object:
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, torch.Generator):
        return digest(value.get_state())
    if isinstance(value, random.Random | np.random.RandomState):
        state = value.getstate() if isinstance(value, random.Random) else value.get_state()
        return digest({"": repr(state)})
    if isinstance(value, torch.nn.Module | torch.optim.Optimizer):
        return digest(value.state_dict())
    entries = value.numel() if isinstance(value, torch.Tensor) else getattr(value, "size", 0)
    if isinstance(value, torch.Tensor | np.ndarray) and entries <= LARGEST:
        return digest(value)
    return note(value)


def _assigned(kind: type) -> set[str]:
    """Attributes that methods of classes assign which are not ours."""
    theirs = [one for one in kind.__mro__ if not is_ours(one.__module__)]
    methods = [m for one in theirs for m in vars(one).values() if isinstance(m, FunctionType)]
    return {name for one in methods for name in names_in(one.__code__, ("STORE_ATTR",))}
