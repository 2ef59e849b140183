"""Dotted paths into a raw config: ``local.lr``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def put(raw: dict[str, Any], path: str, value: Any) -> None:
    """Set a dotted path; a part given by its bare name on the way becomes a mapping."""
    *parents, last = path.split(".")
    for key in parents:
        below = raw.get(key)
        if isinstance(below, str):
            below = {"name": below}
        # a copy: the mapping may be part of another config, too
        raw[key] = dict(below) if isinstance(below, Mapping) else {}
        raw = raw[key]
    raw[last] = value


def has(raw: Mapping[str, Any], path: str) -> bool:
    """Whether a dotted path is set."""
    for key in path.split("."):
        if not isinstance(raw, Mapping) or key not in raw:
            return False
        raw = raw[key]
    return True
