"""A part whose work is done by something in a plugin: ``FILE.py:NAME``."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic import Field, JsonValue

from algorithms.part import nearest
from algorithms.section import Section
from orchestrator.errors import UserError
from orchestrator.plugins.blame import raised
from orchestrator.plugins.plugin import Plugin
from orchestrator.plugins.sources import PACKAGE, is_known


class Own(Section):
    """What a part has whose work is done by something in a plugin."""

    of: str = Field(
        "", description="PLUGIN:NAME, a plugin (its file's name without .py) and what is called"
    )
    options: dict[str, JsonValue] = Field({}, description="keyword arguments of the call")

    def made(self, key: str, facts: Mapping[str, Any]) -> Any:
        """What the call makes of the ``options`` and of those ``facts`` that its signature asks
        for. Raises ValueError, which names the config's ``key``, for whatever is wrong with it.
        """
        try:
            called = find(self.of)
            if not callable(called):
                kind = type(called).__name__
                raise ValueError(f"{self.of} is a {kind}, which cannot be called")
            given, named = _arguments(self.of, called, facts, self.options)
        except ValueError as error:
            raise ValueError(f"{key}: {' '.join(str(error).split())}"[:400]) from error
        try:
            return called(*given, **named)
        except UserError:
            raise
        except (Exception, SystemExit) as error:  # whatever code of others may raise
            raise ValueError(f"{key}: {self.of}: {raised(error)}") from error


# a loss is called in every step, and to read a signature takes as long as a small step
_signature = functools.lru_cache(maxsize=1000)(inspect.signature)


def _arguments(
    of: str, made: Callable[..., object], facts: Mapping[str, Any], options: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Positional arguments, where a signature has nothing else, and keyword arguments for a call;
    raises ValueError for options that it does not take, or that are missing.
    """
    parameters = _signature(made).parameters
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    unknown = [name for name in options if name not in parameters and not takes_all]
    if unknown:
        raise ValueError(f"{of} takes no {unknown[0]!r}; {nearest(unknown[0], [*parameters])}")
    given = {name: facts[name] for name in parameters if name in facts} | dict(options)
    variable = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    missing = [
        name
        for name, p in parameters.items()
        if p.default is p.empty and p.kind not in variable and name not in given
    ]
    if missing:
        raise ValueError(
            f"{of} needs {', '.join(missing)}: give it among the options, or a default; it is "
            f"called with {', '.join(facts)}, as far as it asks for them"
        )
    placed = [name for name, p in parameters.items() if p.kind is p.POSITIONAL_ONLY]
    return [given.pop(name, parameters[name].default) for name in placed], given


def pinned(reference: str, plugins: Iterable[Plugin]) -> str:
    """``PLUGIN:NAME`` with the plugin as any process can find it, by what is in it."""
    name, colon, called = reference.partition(":")
    modules = {plugin.name: plugin.reference for plugin in plugins}
    return f"{modules.get(name, name)}{colon}{called}"


def find(reference: str) -> Any:
    """What a plugin has under a name, by a :func:`pinned` reference that a config's plugins know;
    raises ValueError if there is nothing of that name.
    """
    name, _, called = reference.partition(":")
    is_file = is_known(f"{PACKAGE}.{name}")
    found = importlib.import_module(f"{PACKAGE}.{name}" if is_file else name)
    if not hasattr(found, called):
        there = [n for n in vars(found) if not n.startswith("_")]
        raise ValueError(f"{reference!r}: {name} has no {called!r}; {nearest(called, there)[:300]}")
    return getattr(found, called)
