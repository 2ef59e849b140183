"""What a config can name, described for a reader."""

from __future__ import annotations

from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from rich.table import Table

from algorithms.algorithm import AlgorithmOptions
from algorithms.part import Part, nearest, variants
from algorithms.parts.aggregators import Aggregator
from algorithms.parts.attacks import Attack
from algorithms.parts.barycenters import Barycenter
from algorithms.parts.compressors import Compressor
from algorithms.parts.graphs import Graph
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
from orchestrator.config import Config
from orchestrator.data import Dataset
from orchestrator.data.augment import Augmentation
from orchestrator.data.partitioners import Partitioner
from orchestrator.errors import UserError
from orchestrator.models import Model
from orchestrator.plugins import origin
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
    table = Table("kind", "config key", "names")
    for kind, (key, base) in KINDS.items():
        names = [
            f"{name} ({origin(cls)})" if origin(cls) else name
            for name, cls in variants(base).items()
        ]
        table.add_row(kind, key, ", ".join(names))
    console.print(table)


def show_kind(kind: str) -> None:
    """One kind, a line each; raises UserError for an unknown kind."""
    if kind not in KINDS:
        raise UserError(f"there is no kind {kind!r}; {nearest(kind, list(KINDS))}")
    key, base = KINDS[kind]
    table = Table(kind, f"chosen by `{key}`")
    for name, cls in variants(base).items():
        own = f" ({origin(cls)})" if origin(cls) else ""
        table.add_row(name, _first_sentence(cls) + own)
    console.print(table)


def show_part(name: str) -> None:
    """Every option of the parts or config section called ``name``; raises UserError for none."""
    sections: dict[str, type[BaseModel]] = {"config": Config, **dict(_sections(Config))}
    found: list[tuple[str, type[BaseModel]]] = [
        (f"{key}: {name}", variants(base)[name])
        for key, base in KINDS.values()
        if name in variants(base)
    ]
    if name in sections:
        found.append((name, sections[name]))
    if not found:
        known = sorted({n for _, base in KINDS.values() for n in variants(base)} | set(sections))
        raise UserError(f"there is nothing called {name!r}; {nearest(name, known)}")
    for title, cls in found:
        _show_options(title, cls)


def _sections(model: type[BaseModel], above: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    """Dotted key and model of every section of a config that is no part."""
    for key, field in model.model_fields.items():
        if isinstance(field.default, BaseModel) and not isinstance(field.default, Part):
            yield above + key, type(field.default)
            yield from _sections(type(field.default), f"{above}{key}.")


def _show_options(title: str, cls: type[BaseModel]) -> None:
    meaning = " ".join((cls.__doc__ or "").split())
    console.print(headed(title, "bold", f" — {meaning}"))
    table = Table("option", "type", "default", "symbol", "meaning")
    for key, field in cls.model_fields.items():
        # the name of a part chooses it, and is no option
        if key != "name" or not issubclass(cls, Part):
            section = key if title == "config" else f"{title}.{key}"
            table.add_row(key, *_described(field, section))
    console.print(table if table.row_count else "(no options)")
    if issubclass(cls, AlgorithmOptions):
        for text, values in {"sets, unless the config does": cls.defaults, **_presets(cls)}.items():
            if values:
                shown = ", ".join(f"{k}={_plain(v)}" for k, v in values.items())
                console.print(f"{text}: {shown}")


def _described(field: FieldInfo, section: str) -> tuple[str, str, str, str]:
    """Type, default, symbol and meaning of an option; a section's default is a table of its own."""
    extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    below = isinstance(field.default, BaseModel) and not isinstance(field.default, Part)
    default = f"see {section}" if below else _default(field)
    symbol = str(extra.get("symbol", ""))
    return _type(field.annotation), default, symbol, field.description or ""


def _presets(cls: type[AlgorithmOptions]) -> dict[str, dict[str, Any]]:
    return {
        f"preset {name} sets, unless the config does": values
        for name, values in cls.presets.items()
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


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is PydanticUndefined:
        return "(required)"
    if isinstance(value, Part):
        return value.name
    return str(value)


def _first_sentence(cls: type[BaseModel]) -> str:
    return " ".join((cls.__doc__ or "").split()).split(". ")[0].rstrip(".")
