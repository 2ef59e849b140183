"""What a silent config means: the algorithm's own defaults, and the options of default parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from algorithms.algorithm import AlgorithmOptions
from algorithms.fedavg import FedAvg
from algorithms.part import Part, variants
from orchestrator.config.paths import has, put
from orchestrator.config.schema import Config


def with_defaults(raw: Mapping[str, Any]) -> dict[str, Any]:
    """``raw`` with every default that depends on what is chosen in it: the algorithm's, its
    preset's, the cohort of few clients, and the names of default parts.
    """
    filled: dict[str, Any] = _deep_copy(raw)
    chosen = filled.get("algorithm", FedAvg.Options().name)
    name = chosen.get("name") if isinstance(chosen, Mapping) else chosen
    options = variants(AlgorithmOptions).get(str(name))
    defaults = dict(options.defaults) if options else {}
    if options and options.presets:
        given = chosen.get(options.presets_by) if isinstance(chosen, Mapping) else None
        preset = options.model_fields[options.presets_by].default if given is None else given
        defaults |= options.presets.get(str(preset), {})
    # of steps and epochs one is given: it rules out a default of the other
    for given, other in (("local.epochs", "local.steps"), ("local.steps", "local.epochs")):
        if has(filled, given):
            defaults.pop(other, None)
    defaults.setdefault("cohort", _usual_cohort(filled))
    for path, value in defaults.items():
        if not has(filled, path):
            put(filled, path, value)
        elif isinstance(value, BaseModel | dict):
            _complete(filled, path, value)
    return _named(filled, Config)


def _complete(filled: dict[str, Any], path: str, default: BaseModel | dict[str, Any]) -> None:
    """Where the same part is named, or options of it only, keep the default's others."""
    given: Any = filled
    for key in path.split("."):
        given = given[key]
    put(
        filled,
        path,
        _merged(_written(default) if isinstance(default, BaseModel) else default, given),
    )


def _merged(whole: Any, given: Any) -> Any:
    """``given`` over a part's options ``whole``, at every depth, unless it names another part."""
    given = (
        {"name": given}
        if isinstance(given, str) and isinstance(whole, dict) and "name" in whole
        else given
    )
    if not isinstance(given, Mapping) or not isinstance(whole, dict):
        return given
    if given.get("name", whole.get("name")) != whole.get("name"):
        return given
    return {**whole, **{k: _merged(whole.get(k), v) for k, v in given.items()}}


def _written(part: BaseModel) -> dict[str, Any]:
    """The name of a part and the options that were given to it, at every depth."""
    given = {n: v for n, v in part if n == "name" or n in part.model_fields_set}
    return {n: _written(v) if isinstance(v, BaseModel) else v for n, v in given.items()}


def _usual_cohort(raw: Mapping[str, Any]) -> int:
    """The default cohort, or everyone where there are fewer clients."""
    data = raw.get("data")
    clients = data.get("clients") if isinstance(data, Mapping) else None
    usual: int = Config.model_fields["cohort"].default
    # anything else in its place is for the schema to refuse
    return min(usual, clients) if isinstance(clients, int) and clients > 0 else usual


def _named(given: dict[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    """Options without a name are the default part's: ``partition: {alpha: 1}`` is a Dirichlet's."""
    for key, value in given.items():
        field = model.model_fields.get(key)
        if not isinstance(value, dict) or field is None:
            continue
        if isinstance(field.default, Part):
            value.setdefault("name", field.default.name)
        elif isinstance(field.default, BaseModel):
            _named(value, type(field.default))
    return given


def _deep_copy(value: Any) -> Any:
    return {k: _deep_copy(v) for k, v in value.items()} if isinstance(value, Mapping) else value
