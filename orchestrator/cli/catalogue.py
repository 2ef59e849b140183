"""What a config can name, described for a reader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel
from pydantic_core import PydanticUndefined
from rich.table import Table

from algorithms.algorithm import AlgorithmOptions
from algorithms.part import Part, nearest, variants
from algorithms.parts.aggregators import Aggregator
from algorithms.parts.attacks import Attack
from algorithms.parts.barycenters import Barycenter
from algorithms.parts.compressors import Compressor
from algorithms.parts.graphs import Graph
from algorithms.parts.monitors import Monitor
from algorithms.parts.optimizers import Optimizer
from algorithms.parts.round_ends import RoundEnd
from algorithms.parts.samplers import Sampler
from algorithms.parts.server_optimizers import ServerOptimizer
from algorithms.parts.weighers import Weigher
from orchestrator.config import Config
from orchestrator.data import Dataset, FederatedData
from orchestrator.data.partitioners import Partitioner
from orchestrator.errors import UserError
from orchestrator.models import Model
from orchestrator.results import plots
from orchestrator.terminal import console

KINDS: dict[str, tuple[str, type[Part]]] = {
    "algorithms": ("algorithm", AlgorithmOptions),
    "datasets": ("data.dataset", Dataset),
    "partitioners": ("data.partition", Partitioner),
    "models": ("model", Model),
    "optimizers": ("local.optimizer", Optimizer),
    "samplers": ("sampler", Sampler),
    "round-ends": ("round_end", RoundEnd),
    "aggregators": ("aggregator", Aggregator),
    "barycenters": ("aggregator.method", Barycenter),
    "compressors": ("compression.uplink", Compressor),
    "monitors": ("round_end.monitor", Monitor),
    "attacks": ("attack", Attack),
    "weighers": ("algorithm.agent", Weigher),
    "graphs": ("algorithm.graph", Graph),
    "server-optimizers": ("server_optimizer", ServerOptimizer),
}


def show_kinds() -> None:
    """All kinds of parts and their members."""
    table = Table("kind", "config key", "names")
    for kind, (key, base) in KINDS.items():
        table.add_row(kind, key, ", ".join(variants(base)))
    console.print(table)


def show_kind(kind: str) -> None:
    """One kind, a line each; raises UserError for an unknown kind."""
    if kind not in KINDS:
        raise UserError(f"there is no kind {kind!r}; {nearest(kind, list(KINDS))}")
    key, base = KINDS[kind]
    table = Table(kind, f"chosen by `{key}`")
    for name, cls in variants(base).items():
        table.add_row(name, _first_sentence(cls))
    console.print(table)


def show_part(name: str) -> None:
    """Every option of the parts called ``name``, or of a config section; raises UserError for an
    unknown name.
    """
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
    console.print(f"[bold]{title}[/] — {' '.join((cls.__doc__ or '').split())}", highlight=False)
    table = Table("option", "type", "default", "symbol", "meaning")
    for key, field in cls.model_fields.items():
        if key == "name" and issubclass(cls, Part):
            continue
        extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
        section = isinstance(field.default, BaseModel) and not isinstance(field.default, Part)
        default = (
            f"see {key if title == 'config' else f'{title}.{key}'}" if section else _default(field)
        )
        table.add_row(
            key,
            _type(field.annotation),
            default,
            str(extra.get("symbol", "")),
            field.description or "",
        )
    console.print(table if table.row_count else "(no options)")
    if issubclass(cls, AlgorithmOptions):
        for title, values in {
            "sets, unless the config does": cls.defaults,
            **_presets(cls),
        }.items():
            if values:
                console.print(
                    f"{title}: {', '.join(f'{k}={_plain(v)}' for k, v in values.items())}",
                    highlight=False,
                )


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
    if isinstance(annotation, type):
        return annotation.__name__.lower()
    return (
        str(annotation)
        .replace("typing.", "")
        .replace("Literal", "one of ")
        .replace("NoneType", "none")
    )


def _default(field: Any) -> str:
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is PydanticUndefined:
        return "(required)"
    if isinstance(value, Part):
        return value.name
    return str(value)


def _first_sentence(cls: type[BaseModel]) -> str:
    return " ".join((cls.__doc__ or "").split()).split(". ")[0].rstrip(".")


def show_data(config: Config, plot: Path | None) -> None:
    """The client x label histogram, in numbers and (if asked for) as a picture."""
    data = FederatedData.build(config.data, config.seed)
    histogram = data.histogram()
    shown = min(data.samples.classes, 20)
    table = Table("client", "train", "test", *[str(c) for c in range(shown)])
    for k in range(min(data.clients, 100)):
        row = [str(n) if n else "·" for n in histogram[k, :shown]]
        table.add_row(str(k), str(data.train.sizes[k]), str(data.test.sizes[k]), *row)
    console.print(table)
    hidden = [f"{data.clients - 100} more clients"] * (data.clients > 100)
    hidden += [f"labels from {shown} on"] * (data.samples.classes > shown)
    if hidden:
        console.print(f"not shown: {', '.join(hidden)}")
    console.print(_summary(data, histogram), highlight=False)
    if plot is not None:
        plots.label_map(histogram).savefig(plot, dpi=130)
        console.print(f"wrote {plot}", highlight=False)


def _summary(data: FederatedData, histogram: np.ndarray) -> str:
    sizes, held = data.train.sizes, (histogram > 0).sum(1)
    dominant = (histogram.max(1) / histogram.sum(1)).mean()
    return (
        f"{data.clients} clients, {sizes.sum()} training rows (least {sizes.min()}, median "
        f"{np.median(sizes):g}, most "
        f"{sizes.max()}); {held.mean():.2f} labels a client, the commonest makes up "
        f"{dominant:.0%}; "
        f"{len(data.test_rows)} test rows, {len(data.heldout_rows)} held out at the server"
    )
