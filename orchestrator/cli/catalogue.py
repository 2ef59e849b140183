"""What a config can name, described for a reader."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from algorithms.algorithm import AlgorithmOptions
from algorithms.part import Part, close_to, nearest, variants
from algorithms.parts.aggregators import Aggregator
from algorithms.parts.attacks import Attack
from algorithms.parts.barycenters import Barycenter
from algorithms.parts.compressors import Compressor
from algorithms.parts.graphs import Graph
from algorithms.parts.iterates import Output
from algorithms.parts.losses import Loss
from algorithms.parts.metrics import Metric
from algorithms.parts.monitors import Monitor
from algorithms.parts.optimizers import Optimizer
from algorithms.parts.round_ends import RoundEnd
from algorithms.parts.samplers import Sampler
from algorithms.parts.schedules import Schedule
from algorithms.parts.server_optimizers import ServerOptimizer
from algorithms.parts.uncertainty import Uncertainty
from algorithms.parts.weighers import Weigher
from orchestrator.cli.listing import Facts
from orchestrator.config import Config
from orchestrator.config.sentences import keys_meaning, keys_of, sections_of
from orchestrator.data import Dataset
from orchestrator.data.augment import Augmentation
from orchestrator.data.partitioners import Partitioner
from orchestrator.errors import UserError
from orchestrator.models import Model
from orchestrator.plugins.taken import origin
from orchestrator.results.columns import all_of_them, of_round
from orchestrator.terminal import console, headed
from orchestrator.tracking import Tracker

KINDS: dict[str, tuple[str, type[Part]]] = {
    "algorithms": ("algorithm", AlgorithmOptions),
    "datasets": ("data.dataset", Dataset),
    "partitioners": ("data.partition", Partitioner),
    "augmentations": ("data.augment", Augmentation),
    "models": ("model", Model),
    "losses": ("loss", Loss),
    "metrics": ("evaluation.metrics", Metric),
    "optimizers": ("local.optimizer", Optimizer),
    "schedules": ("local.schedule", Schedule),
    "samplers": ("sampler", Sampler),
    "round-ends": ("round_end", RoundEnd),
    "outputs": ("output", Output),
    "aggregators": ("aggregator", Aggregator),
    "barycenters": ("aggregator.method", Barycenter),
    "compressors": ("compression.uplink", Compressor),
    "monitors": ("round_end.monitor", Monitor),
    "attacks": ("attack", Attack),
    "weighers": ("algorithm.agent", Weigher),
    "graphs": ("algorithm.graph", Graph),
    "uncertainty-sets": ("algorithm.uncertainty", Uncertainty),
    "server-optimizers": ("server_optimizer", ServerOptimizer),
    "trackers": ("track", Tracker),
}


def show_kinds() -> None:
    """All kinds of parts and their members."""
    table = Facts(kind="kind", key="config key", names="names")
    for kind, (key, base) in KINDS.items():
        names = [
            f"{name} ({origin(cls)})" if origin(cls) else name
            for name, cls in variants(base).items()
        ]
        table.add(kind=kind, key=key, names=names)
    console.print(table)
    console.print("what each of a kind is: fedorch list KIND; its options: fedorch describe NAME")


def show_kind(kind: str, key: str = "") -> None:
    """One kind, a line each, chosen by ``key`` (unset: the usual one); raises UserError for an
    unknown kind.
    """
    if kind not in KINDS:
        raise UserError(f"there is no kind {kind!r}; {nearest(kind, list(KINDS))}")
    usual, base = KINDS[kind]
    table = Facts(name=kind, meaning=f"chosen by `{key or usual}`")
    for name, cls in variants(base).items():
        own = f" ({origin(cls)})" if origin(cls) else ""
        table.add(name=name, meaning=_first_sentence(cls) + own, kind=kind, key=key or usual)
    console.print(table)


def show_part(name: str) -> None:
    """What ``name`` is: parts of that name, a section or a key of the config (dotted), an option of
    parts (``algorithm.mu``, ``fedprox.mu``), a column of a run's tables, or ``columns``; raises
    UserError for what is none of them.
    """
    if name == "columns":
        return _show_columns()
    sections: dict[str, type[BaseModel]] = {"config": Config, **dict(sections_of(Config))}
    fields = dict(keys_of(Config))
    found: list[tuple[str, type[BaseModel]]] = [
        (f"{key}: {name}", variants(base)[name])
        for key, base in KINDS.values()
        if name in variants(base)
    ]
    if name in sections:
        found.append((name, sections[name]))
    elif name in fields:
        _show_key(name, fields[name])
    elif options := ([] if found else _options_called(name)):
        _show_option(name, options)
    elif not found and not _show_column(name):
        known = {*fields, *sections, *(column for _, column, _ in all_of_them())}
        hint = "; papers' tables: `fedorch sweep --list`" if "/" in name else _near(name, known)
        raise UserError(f"there is nothing called {name!r}{hint}")
    for title, cls in found:
        _show_options(title, cls)
    return None


def _options_called(name: str) -> list[tuple[str, FieldInfo]]:
    """(PART.OPTION, field) of what ``KEY.OPTION``, ``PART.OPTION`` or ``OPTION`` may mean."""
    above, _, option = name.rpartition(".")
    return [
        (f"{part}.{option}", cls.model_fields[option])
        for key, base in KINDS.values()
        for part, cls in variants(base).items()
        if above in ("", key, part) and option != "name" and option in cls.model_fields
    ]


def _show_option(key: str, found: list[tuple[str, FieldInfo]]) -> None:
    """An option of some parts, and the parts that it can name."""
    table = _options_table("option of")
    for name, field in found:
        table.add(option=name, **_described(field, name))
    console.print(table)
    _show_members(key, {_family(field.annotation) for _, field in found})


def _show_members(key: str, families: Collection[type[Part] | None]) -> None:
    for kind, (_, base) in KINDS.items():
        if base in families:
            show_kind(kind, key if "." in key else "")


def _options_table(first: str) -> Facts:
    return Facts(option=first, type="type", default="default", symbol="symbol", meaning="meaning")


def keys() -> list[str]:
    """Dotted keys of a config."""
    return [key for key, _ in keys_of(Config)]


def everything() -> list[str]:
    """All that :func:`show_part` knows."""
    parts = {name for _, base in KINDS.values() for name in variants(base)}
    return sorted(parts | {key for key, _ in sections_of(Config)} | {*keys(), "config", "columns"})


def parts_at(key: str) -> list[str]:
    """Names of the parts that a key takes; none where it takes no part."""
    field = dict(keys_of(Config)).get(key)
    family = _family(field.annotation) if field else None
    return list(variants(family)) if family else []


def _near(name: str, known_keys: set[str]) -> str:
    """A hint after an unknown name: what is close to it in the section that it is of, or anywhere;
    at most five.
    """
    parts = {n for _, base in KINDS.values() for n in variants(base)}
    section = name.rpartition(".")[0]
    within = sorted(key for key in known_keys if section and key.startswith(f"{section}."))
    known = within or sorted(known_keys | parts)
    # the last word may be right, and what is before it not
    close = [key for key in known if key.rpartition(".")[2] == name.rpartition(".")[2]]
    close += [c for c in keys_meaning(name) if c not in close]
    close += [c for c in close_to(name, known, 5, 0.6) if c not in close]
    if not close and within:
        close = within
    return f"; did you mean {', '.join(close[:5])}?" if close else "; `fedorch list` has all parts"


def _show_key(key: str, field: FieldInfo) -> None:
    """One key, and the parts that it can name."""
    table = _options_table("key")
    table.add(option=key, **_described(field, key))
    console.print(table)
    _show_members(key, {_family(field.annotation)})


def _family(annotation: Any) -> type[Part] | None:
    """The family whose members a key takes, be it several of them; None where it takes none."""
    if isinstance(annotation, type) and issubclass(annotation, Part):
        return annotation
    found = (_family(inner) for inner in get_args(annotation))
    return next((one for one in found if one), None)


def _show_column(name: str) -> bool:
    """A column of a run's tables; whether there is one of that name."""
    table = Facts(column=f"column {name} of", meaning="what it says")
    listed = {(where, column): meaning for where, column, meaning in all_of_them()}
    found = {where: meaning for (where, column), meaning in listed.items() if column == name}
    # names that are put together
    if not found and (meaning := of_round(name)):
        found["rounds"] = meaning
    for where, meaning in found.items():
        table.add(column=f"{where}.parquet", meaning=meaning, table=where)
    if found:
        console.print(table)
    return bool(found)


def _show_columns() -> None:
    """The dictionary of a run's tables."""
    for name in ("rounds", "clients"):
        table = Facts(column=f"column of {name}.parquet", meaning="what it says")
        for where, column, meaning in all_of_them():
            if where == name:
                table.add(column=column, meaning=meaning, table=where)
        console.print(table)


def _show_options(title: str, cls: type[BaseModel]) -> None:
    meaning = " ".join((cls.__doc__ or "").split())
    console.print(headed(title, "bold", f" — {meaning}"))
    table = _options_table("option")
    for key, field in cls.model_fields.items():
        # the name of a part chooses it, and is no option
        if key != "name" or not issubclass(cls, Part):
            section = key if title == "config" else f"{title}.{key}"
            table.add(option=key, **_described(field, section), of=title)
    console.print(table if table.row_count else "(no options)")
    if issubclass(cls, Part) and cls.records:
        console.print(f"records, each round: {', '.join(cls.records)} (`fedorch describe columns`)")
    sets: Mapping[str, Any] = getattr(cls, "defaults", {})
    for text, values in {"sets, unless the config does": sets, **_presets(cls)}.items():
        if values:
            shown = ", ".join(f"{k}={_plain(v)}" for k, v in values.items())
            console.print(f"{text}: {shown}")


def _described(field: FieldInfo, section: str) -> dict[str, Any]:
    """Type, default, symbol and meaning of an option; a section's default is a table of its own."""
    extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    below = isinstance(field.default, BaseModel) and not isinstance(field.default, Part)
    default = f"see {section}" if below else _default(field)
    symbol = str(extra.get("symbol", ""))
    family = _family(field.annotation)
    meaning = field.description or (_first_sentence(family) if family else "")
    return {
        "type": _type(field.annotation),
        "default": default,
        "symbol": symbol,
        "meaning": meaning,
    }


def _presets(cls: type[BaseModel]) -> dict[str, Mapping[str, Any]]:
    """Of an algorithm, or of an agent."""
    usual = cls.model_fields["preset"].default if "preset" in cls.model_fields else None
    return {
        f"preset {name}{' (the default)' if name == usual else ''} sets, unless the config does": v
        for name, v in getattr(cls, "presets", {}).items()
    }


def _plain(value: Any) -> Any:
    return (
        value.model_dump(exclude_defaults=True) | {"name": value.name}
        if isinstance(value, Part)
        else value
    )


def _type(annotation: Any) -> str:
    """In words, without the bounds that pydantic's types carry."""
    inner, kind = get_args(annotation), get_origin(annotation)
    if kind is Annotated:
        return _type(inner[0])
    if kind in (Union, UnionType):
        return " | ".join(map(_type, inner))
    if kind in (tuple, dict):
        words = ["..." if one is ... else _type(one) for one in inner]
        return f"{kind.__name__}[{', '.join(words)}]"
    if isinstance(annotation, type):
        return annotation.__name__.lower().replace("nonetype", "none")
    return str(annotation).replace("typing.", "").replace("Literal", "one of ")


def _default(field: FieldInfo) -> Any:
    try:
        value = field.get_default(call_default_factory=True, validated_data={})
    except Exception:  # a factory of somebody's own, which looks at other options
        return "(by other options)"
    if value is PydanticUndefined:
        return "(required)"
    if isinstance(value, Part):
        return value.name
    return [*value] if isinstance(value, tuple) else value


def _first_sentence(cls: type[BaseModel]) -> str:
    # the point of "et al." ends none
    return re.split(r"(?<!et al)\. ", " ".join((cls.__doc__ or "").split()))[0].rstrip(".")
