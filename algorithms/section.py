"""What every group of settings is: closed, frozen, and without numbers that are none.

The limits below hold for every option that names no others, so that none reaches a library as an
overflow, a NaN, a bool that counts as 1, or a text that no file can be named by.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

WHOLE = 2**31 - 1
"""Largest magnitude of a whole number."""
REAL = 1e38
"""Largest magnitude of any other number: about float32's, in which models are."""
TEXT = 4096
"""Most characters of a text: as many as a path may have on Linux."""
UNWRITABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters, and halves of surrogates, which no file can be written with."""

Schema = dict[str, Any]
"""A core schema of pydantic, whose kinds have no type in common."""


def _fields(schema: Any) -> list[Schema]:
    """The fields of a model, below whatever its validators have put around them."""
    while schema["type"] != "model-fields":
        schema = schema["schema"]
    return list(schema["fields"].values())


def _restrict(field: Schema) -> None:
    """Bound all numbers and texts of one field, and refuse what only looks like them."""
    holder = field["schema"] if field["schema"]["type"] == "default" else field
    # a model's schema is made once, and asked for again wherever the model is a field
    if holder["schema"].get("function", {}).get("function") in (_no_bools, _writable):
        return
    kinds = _bound(holder["schema"])
    if kinds & {"int", "float"} and "bool" not in kinds:
        _first(holder, _no_bools)
    if "str" in kinds:
        _first(holder, _writable)


def _first(holder: Schema, check: Callable[[Any], Any]) -> None:
    inner = holder["schema"]
    holder["schema"] = core_schema.no_info_before_validator_function(check, inner)


def _bound(schema: object) -> set[str]:
    """Set the limits of this module in a schema, in place; returns the kinds that are in it."""
    if isinstance(schema, list | tuple):
        return set().union(*map(_bound, schema))
    # what a group inside may hold is for itself to say
    if not isinstance(schema, dict) or schema.get("type") in ("model", "definition-ref"):
        return set()
    kind = schema.get("type")
    if kind in LIMITS:
        LIMITS[kind](schema)
    below = [part for key, part in schema.items() if key not in VALUES]
    return {str(kind)}.union(*map(_bound, below))


VALUES = ("metadata", "serialization", "default", "expected")
"""Keys of a schema below which no values are read."""


def _whole(schema: Schema) -> None:
    _between(schema, -WHOLE, WHOLE)


def _real(schema: Schema) -> None:
    if not schema.get("allow_inf_nan"):
        _between(schema, -REAL, REAL)


def _between(schema: Schema, low: float, high: float) -> None:
    if not schema.keys() & {"ge", "gt"}:
        schema["ge"] = low
    if not schema.keys() & {"le", "lt"}:
        schema["le"] = high


def _text(schema: Schema) -> None:
    schema.setdefault("max_length", TEXT)


LIMITS: dict[object, Callable[[Schema], None]] = {"int": _whole, "float": _real, "str": _text}


def _no_bools(value: Any) -> Any:
    """Raise for a bool: YAML's ``true`` is not the number 1."""
    if any(isinstance(one, bool) for one in _each(value)):
        raise PydanticCustomError("a_bool", "must be a number, and true and false are none")
    return value


def _writable(value: Any) -> Any:
    """Raise for a text that cannot be written."""
    if any(isinstance(one, str) and UNWRITABLE.search(one) for one in _each(value)):
        raise PydanticCustomError("unwritable", "must be a text without control characters")
    return value


def _each(value: Any) -> Iterator[object]:
    """A value, or those in a list or mapping."""
    if isinstance(value, Mapping):
        yield from value
        value = list(value.values())
    yield from value if isinstance(value, list | tuple) else [value]


class Section(BaseModel):
    """A group of settings.

    Unknown keys are refused; so are bools where numbers are meant, and numbers that are infinite,
    NaN, or beyond the bounds of their field (else ``WHOLE`` and ``REAL``). A field that may be
    infinite says so: ``allow_inf_nan=True``.
    """

    # its validator is built when it is first needed: of all parts that there are, a run has a dozen
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[BaseModel], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        found = handler(source)
        for field in _fields(handler.resolve_ref_schema(found)):
            _restrict(field)
        return found

    def sections(self) -> Iterator[Section]:
        """This group and all that are inside, in the order of their fields."""
        yield self
        for _, value in self:
            for one in value if isinstance(value, tuple) else (value,):
                if isinstance(one, Section):
                    yield from one.sections()

    def named_files(self) -> Iterator[str]:
        """The files and folders that options name, of this group and of those inside."""
        for section in self.sections():
            yield from section.files()

    def files(self) -> Iterator[str]:
        """Those of this group."""
        for name, field in type(self).model_fields.items():
            value, extra = getattr(self, name), field.json_schema_extra
            if value is not None and isinstance(extra, Mapping) and extra.get("file"):
                yield str(value)
