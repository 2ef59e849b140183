"""Parts: small immutable objects that a config names, validates and composes.

A part is a section (section.py) with behaviour. Its fields are its options; its ``name`` is how a
config refers to it. Every family of parts (samplers, aggregators, partitioners, models ...) has an
abstract base class, and its members are simply the subclasses that give ``name`` a default.
"""

from __future__ import annotations

import difflib
import re
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from algorithms.account import Rounds
from algorithms.figure import Figure
from algorithms.section import Section

P = TypeVar("P", bound="Part")


class Part(Section):
    """Base of everything that is chosen by name in a config."""

    model_config = ConfigDict(validate_default=True)

    name: str
    records: ClassVar[Mapping[str, str]] = {}
    """What it adds to the record of a round: column -> meaning (``client/COLUMN``: a column of each
    client; ``NAME_*``: several with numbers behind)."""
    headline: ClassVar[Mapping[str, str]] = {}
    """Which of that the line of a round has, on a terminal: column -> what it is called there."""
    figures: ClassVar[tuple[Figure, ...]] = ()
    """What a report draws of that."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Raises TypeError for declarations that are no texts by text."""
        super().__pydantic_init_subclass__(**kwargs)
        for name in ("records", "headline"):
            told = getattr(cls, name, {})
            pairs = told.items() if isinstance(told, Mapping) else [(told, None)]
            if not all(isinstance(text, str) for pair in pairs for text in pair):
                _REFUSED.add(cls)  # its traceback may keep it alive, under its parent's name
                raise TypeError(f"{cls.__name__}.{name} is to be {{column: what it is}}, all texts")

    def account(self, rounds: Rounds) -> Iterator[str]:
        """What it did in a run, in sentences, from what the run's rounds recorded."""
        yield from ()

    @model_validator(mode="after")
    def _name_is_its_own(self) -> Part:
        # the name is a field like any other, which a config could set to another part's
        expected = part_name(type(self))
        if self.name != expected:
            raise PydanticCustomError(
                "wrong_name", "this part is named {expected}", {"expected": expected}
            )
        return self


def part_name(cls: type[Part]) -> str | None:
    """The name under which ``cls`` is chosen, or None if it is an abstract base."""
    default = cls.model_fields["name"].default
    return default if isinstance(default, str) else None


def option(
    default: Any, description: str, symbol: str = "", file: bool = False, **constraints: Any
) -> Any:
    """A field of a part: default, one-line meaning, the paper's symbol, whether it names a file (or
    a folder) that decides what comes of the part, pydantic constraints.
    """
    return Field(
        default,
        description=description,
        json_schema_extra={"symbol": symbol, "file": file},
        **constraints,
    )


def _compiled(pattern: str) -> str:
    try:
        re.compile(pattern)
    # re leaves some numbers of repetitions to C, and nested groups to Python's stack
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"is not a regular expression: {error}") from error
    return pattern


Pattern = Annotated[str, AfterValidator(_compiled)]
"""A regular expression over names of tensors."""
Layers = Annotated[int, Field(ge=1)] | Pattern
"""The last so many layers of a model, or those whose tensors' names match."""
Width = Annotated[int, Field(ge=1, le=65_536)]
"""Of a layer of a network."""


_RETIRED: dict[str, set[type]] = {}
"""Module -> its parts, which no longer count."""
_REFUSED: weakref.WeakSet[type] = weakref.WeakSet()
"""Parts whose declarations are wrong, which never counted."""


def retire(module: str) -> None:
    """No longer count the parts that a module has made so far: others take their place."""
    mine = {cls for cls in members(Part) if cls.__module__ == module}
    _RETIRED.setdefault(module, set()).update(mine)


def restore(module: str) -> None:
    """Count them again."""
    _RETIRED.pop(module, None)


def members(base: type[P]) -> Iterator[type[P]]:
    """All classes of the family ``base`` that exist by now: a part counts from the moment its
    module is imported.
    """
    if base not in _RETIRED.get(base.__module__, ()) and base not in _REFUSED:
        yield base
    for sub in base.__subclasses__():
        yield from members(sub)


def variants(base: type[P]) -> dict[str, type[P]]:
    """All named parts of the family ``base``, sorted by name."""
    named = ((part_name(cls) or "", cls) for cls in members(base))
    return {name: cls for name, cls in sorted(named, key=lambda pair: pair[0]) if name}


def nearest(name: str, names: list[str]) -> str:
    """A hint after an unknown name: the closest valid ones, and the valid names."""
    close = close_to(name, names, 1) or [one for one in names if _part_of(name, one)][:3]
    close = close or close_to(name, names, 1, 0.5)
    hint = f"did you mean {' or '.join(map(repr, close))}? " if close else ""
    return f"{hint}valid: {', '.join(names)}"


def close_to(name: str, names: Sequence[str], most: int, alike: float = 0.8) -> list[str]:
    """At most so many of the ``names``, the closest first; ``alike``: how close, of 1."""
    # a long one is close to none, and takes a time that grows with the square of its length
    return difflib.get_close_matches(name[:100], names, most, alike)


def _part_of(word: str, name: str) -> bool:
    """Whether a name is made of that word and others (``worst``, ``client_accuracy_worst``)."""
    return len(word) > 2 and word.lower() in name.lower()


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str | Mapping | Part) else value


SEVERAL = BeforeValidator(_listed)
"""Annotation metadata of a tuple of parts: one of them need not stand in a list."""


def chosen_from(base: type[P]) -> BeforeValidator:
    """Annotation metadata: read ``"name"`` or ``{name: ..., option: ...}`` as the named member of
    ``base``.
    """

    def read(value: Any) -> Any:
        if isinstance(value, str):
            value = {"name": value}
        if not isinstance(value, Mapping):
            # a part already (a default), or something that pydantic is to complain of
            return value
        members = variants(base)
        name = value.get("name")
        if name is None:
            raise PydanticCustomError(
                "no_name", "needs a name; valid: {names}", {"names": ", ".join(members)}
            )
        if not isinstance(name, str) or name not in members:
            context = {"name": repr(name)[:100], "hint": nearest(str(name), list(members))}
            raise PydanticCustomError("unknown_name", "there is no {name}; {hint}", context)
        chosen = members[name]
        if lacking := sorted(getattr(chosen, "__abstractmethods__", ())):
            context = {"name": repr(name), "methods": ", ".join(lacking)}
            raise PydanticCustomError("unfinished", "{name} does not define {methods}", context)
        return chosen.model_validate(dict(value))

    return BeforeValidator(read)
