"""What is wrong with a config, in one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from algorithms.part import Part, nearest, variants
from orchestrator.config.schema import Config


def sentence(
    error: ValidationError,
    raw: Mapping[str, Any],
    model: type[BaseModel] = Config,
    what: str = "config",
) -> str:
    """The first problem of a config (or another ``model``) in a sentence: key, problem, value."""
    first = error.errors()[0]
    # a key may hold control characters, which would be printed
    where = ".".join(str(p) if str(p).isprintable() else repr(p) for p in first["loc"])
    # pydantic's prefix to what our own validators say
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        message = (
            "there is no such key; "
            f"{nearest(str(first['loc'][-1]), _keys_beside(first['loc'], raw, model))}"
        )
        return f"{what}: {where}: {message}"
    if not where or first["type"] in ("unknown_name", "no_name"):
        return f"{what}: {where + ': ' if where else ''}{message}"
    message = message.replace("Input should be", "must be")
    return f"{what}: {where}: {message} (got {_short(first['input'])})"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _keys_beside(
    loc: tuple[int | str, ...], raw: Mapping[str, Any], model: type[BaseModel]
) -> list[str]:
    """The valid keys at the place of an unknown one."""
    here: Any = raw
    for key in loc[:-1]:
        family = _family(model, str(key))
        here = here.get(key) if isinstance(here, Mapping) else None
        if family is None:
            return []
        name = here.get("name") if isinstance(here, Mapping) else None
        model = variants(family).get(str(name), family) if issubclass(family, Part) else family
    return list(model.model_fields)


def _family(model: type[BaseModel], key: str) -> Any:
    field = model.model_fields.get(key)
    annotation = getattr(field, "annotation", None)
    return (
        annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None
    )
