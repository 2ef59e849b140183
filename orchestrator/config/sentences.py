"""What is wrong with a config, in one sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from algorithms.part import Part, close_to, nearest, variants
from orchestrator.config.schema import Config

KIND = re.compile(r"(constrained-)?(int|float|str)$|(tuple|dict|list|function-\w+)\[")
"""What pydantic calls a kind of value, in the place of a problem."""


def sentence(
    error: ValidationError,
    raw: Mapping[str, Any],
    model: type[BaseModel] = Config,
    what: str = "config",
) -> str:
    """The first problem of a config (or another ``model``) in a sentence: key, problem, value."""
    first = _telling(error.errors(include_url=False))
    where = ".".join(map(_readable, _place(first)))
    # pydantic's prefix to what our own validators say
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        return f"{what}: {where}: {_unknown(first['loc'], raw, model)}"
    if not where or first["type"] in ("unknown_name", "no_name"):
        return f"{what}: {where + ': ' if where else ''}{message}"
    # as it is written, and not in forty digits
    message = re.sub(r"\d{20,}", lambda digits: f"{float(digits[0]):g}", message)
    message = message.replace("Input should be", "must be")
    return f"{what}: {where}: {message} (got {_short(first['input'])})"


def _unknown(loc: tuple[int | str, ...], raw: Mapping[str, Any], model: type[BaseModel]) -> str:
    """What is said of a key that there is not."""
    key = str(loc[-1])
    if len(loc) == 1 and key in ELSEWHERE.get(model.__name__, {}):
        return f"there is no such key; {ELSEWHERE[model.__name__][key]}"
    if "." in key:
        section, _, inside = key.partition(".")
        return f"there is no such key; sections are nested: {section}: {{{inside}: ...}}"
    beside = _beside(loc, raw, model)
    others = [name for name, part in variants(beside.family).items() if key in part.model_fields]
    whose = f"; {', '.join(others[:5])} would have it" if beside.part and others else ""
    of = f" of {beside.part}" if beside.part else ""
    same = [last for path in keys_meaning(key) if (last := path.rpartition(".")[2]) in beside.keys]
    hint = ""
    if not close_to(key, beside.keys, 1):
        path = ".".join(map(str, (*loc[:-1], same[0]))) if same else ""
        hint = f"did you mean {path}? " if path else meant(key)
    known = f"{hint}valid: {', '.join(beside.keys)}" if hint else nearest(key, beside.keys)
    return f"there is no such key{of}{whose}; {known}"


_SWEEP = "it is a sweep's: fedorch sweep FILE"
_RUN = "it is a config's of a run: fedorch run FILE, or put it below base"
ELSEWHERE = {
    "Config": dict.fromkeys(("base", "axes", "cells", "set", "seeds", "metric"), _SWEEP),
    "Sweep": dict.fromkeys(Config.model_fields.keys() - {"name"}, _RUN),
}
"""Keys of the other kind of file."""


def options_at(path: str, raw: Mapping[str, Any]) -> list[str]:
    """The options that the part has which a raw config chooses at a dotted path; none elsewhere."""
    found = _beside((*path.split("."), ""), raw, Config)
    return found.keys if found.part else []


def meant(key: str) -> str:
    """A hint where the last word of ``key`` is what a key of the config means: learning_rate."""
    found = keys_meaning(key)
    return f"did you mean {' or '.join(found)}? " if found else ""


def keys_meaning(name: str) -> list[str]:
    """Dotted keys of the config, three at most, whose description has the words of ``name``."""
    words = name.rpartition(".")[2].replace("_", " ").lower()
    if len(words) <= 3:
        return []
    said = re.compile(rf"\b{re.escape(words)}\b")
    return [k for k, field in keys_of(Config) if said.search((field.description or "").lower())][:3]


def keys_of(model: type[BaseModel], above: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Dotted key and field of everything that a config can say, sections and options of parts left
    out.
    """
    for key, field in model.model_fields.items():
        if isinstance(field.default, BaseModel) and not isinstance(field.default, Part):
            yield from keys_of(type(field.default), f"{above}{key}.")
        else:
            yield above + key, field


def sections_of(model: type[BaseModel], above: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    """Dotted key and model of every section of a config that is no part."""
    for key, field in model.model_fields.items():
        if isinstance(field.default, BaseModel) and not isinstance(field.default, Part):
            yield above + key, type(field.default)
            yield from sections_of(type(field.default), f"{above}{key}.")


def _telling(problems: list[ErrorDetails]) -> ErrorDetails:
    """The first problem; of a value that may be of several kinds, that with the kind it is."""
    place = _place(problems[0])
    beside = [p for p in problems if _place(p)[: len(place)] == place]
    return min(beside, key=lambda p: 2 * p["type"].endswith("_type") + ("parsing" in p["type"]))


def _place(problem: ErrorDetails) -> list[int | str]:
    """The keys that lead to a problem, without the kinds that pydantic puts among them."""
    return [key for key in problem["loc"] if not KIND.match(str(key))]


def _readable(key: int | str) -> str:
    """A key, which may hold control characters or be longer than a sentence."""
    text = str(key)
    return text if text.isprintable() and len(text) <= 80 else _short(key)


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # Python writes no integers of thousands of digits
        text = "an integer of thousands of digits"
    return text if len(text) <= 80 else text[:77] + "..."


class _Beside(NamedTuple):
    """What there is at the place of an unknown key."""

    keys: list[str]
    part: str = ""
    """Name of the part that it would be an option of, if it is one's place."""
    family: type[Part] = Part


def _beside(loc: tuple[int | str, ...], raw: Mapping[str, Any], model: type[BaseModel]) -> _Beside:
    here: Any = raw
    found = _Beside([])
    for key in loc[:-1]:
        family = _family(model, str(key))
        here = here.get(key) if isinstance(here, Mapping) else None
        if family is None:
            return _Beside([])
        found, model = _Beside([]), family
        if issubclass(family, Part):
            name = str(here.get("name")) if isinstance(here, Mapping) else ""
            known = variants(family)
            model = known.get(name, family)
            found = _Beside([], name if name in known else "", family)
    return found._replace(keys=list(model.model_fields))


def _family(model: type[BaseModel], key: str) -> Any:
    field = model.model_fields.get(key)
    annotation = getattr(field, "annotation", None)
    return (
        annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None
    )
