"""Which keys settings say, and in which of them groups of settings differ."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from orchestrator.config.parsing import parse
from orchestrator.config.paths import put


def differing(groups: Iterable[Sequence[str]]) -> frozenset[str]:
    """The keys under which not all of some groups of settings (``key=value``) say the same; a
    part's name by the part's key.
    """
    told = [dict(leaves(settings)) for settings in groups]
    keys = {key for one in told for key in one}
    return frozenset(key for key in keys if len({one.get(key) for one in told}) > 1)


def leaves(settings: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each key that settings give a value, and the value; later ones win."""
    raw: dict[str, Any] = {}
    for setting in settings:
        path, _, text = setting.partition("=")
        put(raw, path.strip(), parse(text, setting))
    waiting = [*raw.items()]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, Mapping) and value:
            waiting += [(f"{path}.{key}".removesuffix(".name"), one) for key, one in value.items()]
        else:
            yield path, repr(value)


def key_of(setting: str) -> str:
    """Of ``key=value``; a part's name by the part's key."""
    return setting.partition("=")[0].strip().removesuffix(".name")


def under(key: str, keys: Collection[str]) -> str:
    """The first of ``keys`` that a setting of ``key`` would win over; or ""."""
    return next((one for one in sorted(keys) if f"{one}.".startswith(f"{key}.")), "")


def is_lost(setting: str, winning: Collection[str]) -> bool:
    """Whether settings of ``winning`` keys, which come later, win over all of ``setting``."""
    return all(any(under(key, [said]) for key in winning) for said, _ in leaves([setting]))
