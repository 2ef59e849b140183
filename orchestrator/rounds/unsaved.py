"""What code of a user's own keeps from round to round, and no checkpoint holds."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from types import FunctionType
from typing import Any

from algorithms.algorithm import Algorithm
from orchestrator.noted import note
from orchestrator.plugins.plugin import Plugin
from orchestrator.plugins.sources import is_ours
from orchestrator.results.own_code import is_own, names_in

OF_ALL = frozenset(("w", "buffers", "options", "setting", "influence", "memory", "past", "notes"))
"""Attributes of every algorithm."""


class Unsaved:
    """Looks, after each round, at what an algorithm of one's own has in attributes that are not in
    its ``server_state``, and in its classes; and at the variables of plugins.
    """

    def __init__(self, algorithm: Algorithm, plugins: Sequence[Plugin]) -> None:
        self.algorithm, self.plugins = algorithm, plugins
        kinds = [one for one in type(algorithm).__mro__ if not _is_python_s(one.__module__)]
        self.own = [one for one in kinds if not is_ours(one.__module__)]
        ours = [one for one in kinds if is_ours(one.__module__)]
        self.known = {*OF_ALL, *algorithm.server_state, *(_assigned(ours) - _assigned(self.own))}
        """Attributes that a checkpoint holds, or that are our own affair."""
        self.before: dict[str, object] = {}

    def changed(self) -> list[str]:
        """What is another than at the last look, by what a person calls it."""
        seen = {**dict(self._attributes()), **dict(self._variables())}
        other = [one for one, value in seen.items() if self.before.get(one, value) != value]
        self.before = seen
        return other

    def _attributes(self) -> Iterator[tuple[str, object]]:
        kind = type(self.algorithm).__name__
        for name, value in [*vars(self.algorithm).items()]:
            if name not in self.known:
                yield f"{kind}.{name}", note(value, _is_of_one_s_own)
        for one in self.own:
            yield from _kept(vars(one), f"{one.__name__}.{{}}")

    def _variables(self) -> Iterator[tuple[str, object]]:
        for plugin in self.plugins:
            module = vars(sys.modules[plugin.module])
            yield from _kept(module, f"{{}} of {plugin.name}")
            for value in [*module.values()]:
                if isinstance(value, type) and value.__module__ == plugin.module:
                    called = f"{value.__name__}.{{}} of {plugin.name}"
                    yield from () if value in self.own else _kept(vars(value), called)


def _kept(names: Mapping[str, Any], called: str) -> Iterator[tuple[str, object]]:
    """The variables of a class, or a module, and what its functions keep."""
    for name, value in [*names.items()]:
        if isinstance(value, FunctionType):
            if is_own(value):
                yield called.format(name), note(_kept_by(value), _is_of_one_s_own)
        elif not name.startswith("__"):
            yield called.format(name), note(value, _is_of_one_s_own)


def _kept_by(function: FunctionType) -> tuple[object, ...]:
    """What a function has from call to call: defaults, attributes, and names around it."""
    around = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
    inner = [
        (one.__defaults__, vars(one)) if isinstance(one, FunctionType) else one for one in around
    ]
    return function.__defaults__, function.__kwdefaults__, vars(function), inner


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _is_python_s(module: str) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names


def _is_of_one_s_own(value: object) -> bool:
    """Whether it is an object whose class is of nobody's library."""
    return hasattr(value, "__dict__") and not isinstance(value, type) and is_own(type(value))


def _assigned(kinds: Sequence[type]) -> set[str]:
    """Attributes that methods of classes assign."""
    methods = [m for one in kinds for m in vars(one).values() if isinstance(m, FunctionType)]
    return {name for one in methods for name in names_in(one.__code__, ("STORE_ATTR",))}
