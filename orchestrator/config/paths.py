"""Dotted paths into a raw config: ``local.lr``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def put(raw: dict[str, Any], path: str, value: Any, part: bool = True) -> None:
    """Set a dotted path; a part given by its bare name on the way becomes a mapping.

    A bare name in place of a mapping that has no other leaves the options there: whoever sets
    ``algorithm.mu`` and then ``algorithm`` means both. ``part``: whether a part may be there.
    """
    *parents, last = path.split(".")
    for key in parents:
        below = raw.get(key)
        if isinstance(below, str):
            below = {"name": below}
        # a copy: the mapping may be part of another config, too
        raw[key] = dict(below) if isinstance(below, Mapping) else {}
        raw = raw[key]
    there = raw.get(last)
    if (
        part
        and isinstance(value, str)
        and isinstance(there, Mapping)
        and there.get("name", value) == value
    ):
        value = {**there, "name": value}
    raw[last] = value


def has(raw: Mapping[str, Any], path: str) -> bool:
    """Whether a dotted path is set."""
    for key in path.split("."):
        if not isinstance(raw, Mapping) or key not in raw:
            return False
        raw = raw[key]
    return True


def at(raw: Mapping[str, Any], path: str) -> Any:
    """What is at a dotted path, which must be set."""
    found: Any = raw
    for key in path.split("."):
        found = found[key]
    return found


def remove(raw: dict[str, Any], path: str) -> None:
    """Take away what is at a dotted path, if anything is."""
    if not has(raw, path):
        return
    *parents, last = path.split(".")
    for key in parents:
        # a copy: the mapping may be part of another config, too
        raw[key] = dict(raw[key])
        raw = raw[key]
    del raw[last]
