"""Values for the fields of pydantic models: at, inside and beyond what the schema says."""

from __future__ import annotations

import inspect
import math
import types
import typing
from collections.abc import Iterator
from random import Random
from typing import Any, Literal, Union

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from algorithms.part import Part, variants
from tests.fuzz.oddities import FLOATS, HUGE, TEXTS, anything

Setting = tuple[str, Any]
"""A dotted path and its value."""


def settings(
    rng: Random, model: type[BaseModel], density: float, odd: float, prefix: str = ""
) -> Iterator[Setting]:
    """Values for fields of ``model`` at every depth: each with probability ``density``, and odd
    with probability ``odd``.
    """
    for key, field in model.model_fields.items():
        if key == "name" and issubclass(model, Part):
            continue
        kind = _inner(field.annotation)
        below = inspect.isclass(kind) and issubclass(kind, BaseModel)
        # a section is only a way to its fields
        if rng.random() >= density and not (below and not issubclass(kind, Part)):
            continue
        if rng.random() < odd / 3 * (not below):
            yield prefix + key, anything(rng)
        elif below:
            yield from _below(rng, kind, density, odd, prefix + key)
        else:
            yield prefix + key, value(rng, field, odd)


def _below(
    rng: Random, kind: type[BaseModel], density: float, odd: float, path: str
) -> Iterator[Setting]:
    """A section's settings, or a part of any name and some of its options."""
    if issubclass(kind, Part):
        members = variants(kind)
        if not members:
            return
        name = rng.choice(list(members))
        yield f"{path}.name", name
        kind = members[name]
        density = max(density, 0.3)
    yield from settings(rng, kind, density, odd, f"{path}.")


def value(rng: Random, field: FieldInfo, odd: float) -> Any:
    """A value for one field: mostly one that its type and bounds allow."""
    if not field.is_required() and rng.random() < 0.15:
        return field.get_default(call_default_factory=True)
    limits = [m for m in field.metadata if isinstance(m, annotated_types.BaseMetadata)]
    if rng.random() < odd:
        return _beyond(rng, limits)
    return of_type(rng, field.annotation, limits)


def _beyond(rng: Random, limits: list[Any]) -> Any:
    """Just outside of a bound, or far."""
    ends = [e for m in limits for e in (_ends(m) or ())]
    near = [e + step for e in ends for step in (-1, 1, -1e-9, 1e-9)]
    return rng.choice([*ends, *near, rng.choice(FLOATS), rng.choice(HUGE), rng.choice(TEXTS)])


def _ends(limit: Any) -> list[float]:
    return [v for k in ("ge", "gt", "le", "lt") if (v := getattr(limit, k, None)) is not None]


def of_type(rng: Random, kind: Any, limits: list[Any] = ()) -> Any:  # type: ignore[assignment]
    """A value of an annotation."""
    kind = _inner(kind)
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (Union, types.UnionType):
        return of_type(rng, rng.choice(args), limits)
    if origin is Literal:
        return rng.choice(args)
    if origin in (tuple, list):
        inner = args[0] if args else str
        fixed = origin is tuple and len(args) > 1 and args[1] is not Ellipsis
        return [of_type(rng, inner) for _ in range(len(args) if fixed else rng.randrange(4))]
    if origin is dict:
        return {of_type(rng, args[0]): of_type(rng, args[1]) for _ in range(rng.randrange(3))}
    return _scalar(rng, kind, limits)


def _scalar(rng: Random, kind: Any, limits: list[Any]) -> Any:
    if kind is type(None):
        return None
    if kind is bool:
        return rng.random() < 0.5
    if kind in (int, float):
        return _number(rng, kind, limits)
    if kind is str:
        return rng.choice(("abc", "x", "0", "test_accuracy", "a b", *TEXTS))
    return anything(rng)


def _number(rng: Random, kind: type, limits: list[Any]) -> int | float:
    """Within the bounds: often at them, mostly small."""
    low = max(
        (e for m in limits for k in ("ge", "gt") if (e := getattr(m, k, None)) is not None),
        default=0,
    )
    high = min(
        (e for m in limits for k in ("le", "lt") if (e := getattr(m, k, None)) is not None),
        default=math.inf,
    )
    if kind is int:
        top = int(min(high, low + rng.choice((1, 5, 40))))
        return rng.choice((int(low), top, rng.randint(int(low), max(int(low), top))))
    top = min(high, low + rng.choice((0.1, 1, 10)))
    near = [math.nextafter(low, math.inf), math.nextafter(top, low), low, top]
    return rng.choice([*near, *[rng.uniform(low, top) for _ in range(4)]])


def _inner(kind: Any) -> Any:
    """Without what annotates it."""
    while typing.get_origin(kind) is typing.Annotated:
        kind = typing.get_args(kind)[0]
    return kind
