"""What a silent config means: the algorithm's own defaults, and the options of default parts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from algorithms.algorithm import AlgorithmOptions
from algorithms.fedavg import FedAvg
from algorithms.part import Part, variants
from orchestrator.config.paths import at, has, put, remove
from orchestrator.config.schema import Config


def with_defaults(raw: Mapping[str, Any]) -> dict[str, Any]:
    """``raw`` with every default that depends on what is chosen in it: the algorithm's, its
    preset's, the cohort of few clients, and the names of default parts.
    """
    filled: dict[str, Any] = _deep_copy(raw)
    defaults = _defaults(filled)
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


def _chosen(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The algorithm's name and, where it has presets, the preset's."""
    given = raw.get("algorithm", FedAvg.Options().name)
    name = str(given.get("name") if isinstance(given, Mapping) else given)
    options = variants(AlgorithmOptions).get(name)
    if not options or not options.presets:
        return {"name": name}
    preset = given.get(options.presets_by) if isinstance(given, Mapping) else None
    usual = options.model_fields[options.presets_by].default
    return {"name": name, options.presets_by: usual if preset is None else preset}


def _defaults(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted path -> default of the algorithm that is chosen, and of its preset."""
    chosen = _chosen(raw)
    options = variants(AlgorithmOptions).get(chosen["name"])
    if not options:
        return {}
    preset = options.presets.get(str(chosen.get(options.presets_by)), {}) if options.presets else {}
    return {**options.defaults, **preset}


def put_all(raw: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Set dotted paths, and with another algorithm, or preset, its defaults (:func:`rechosen`)."""
    before = dict(raw)
    for path, value in values.items():
        put(raw, path, value)
    rechosen(before, raw, values)


def rechosen(before: Mapping[str, Any], after: dict[str, Any], keys: Collection[str]) -> None:
    """Where settings of ``keys`` have chosen another algorithm, or preset, in a run's own config,
    which says every default: take out of it what was the default of the one ``before``, for those
    of the other to take its place. A part that it had by default goes with all its options.
    """
    whole = Config.model_fields.keys() <= before.keys()
    if not whole or _chosen(before) == _chosen(after):
        return
    usual = _usual(_chosen(before))
    paths = {*_defaults(before), *_defaults(after)}
    if WORK & paths:
        paths |= WORK
    for path in paths:
        said = any(f"{k}.".startswith(f"{path}.") or f"{path}.".startswith(f"{k}.") for k in keys)
        if not said and has(before, path) and _is_default(before, usual, path):
            remove(after, path)


def _is_default(config: Mapping[str, Any], usual: Mapping[str, Any], path: str) -> bool:
    """Whether at a path is what the algorithm has there by default: of a part of its own, the part
    of that name.
    """
    mine, its = _value(config, path), _value(usual, path)
    if path in _defaults(config) and isinstance(mine, Mapping) and "name" in mine:
        return bool(mine["name"] == its["name"])
    return bool(mine == its)


def _usual(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """What a config means that says nothing but the algorithm, and its preset."""
    try:
        config = Config.model_validate(with_defaults({"algorithm": chosen}))
    except ValidationError:  # it wants to be told how many steps
        told = {"algorithm": chosen, "local": {"steps": 1}}
        config = Config.model_validate(with_defaults(told))
    return config.model_dump(mode="json")


def implied(configs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For each config what one has that says nothing but its algorithm, and preset; made once for
    all that have the same.
    """
    chosen = [_chosen(config) for config in configs]
    usual = {tuple(one.items()): one for one in chosen}
    made = {key: _usual(one) for key, one in usual.items()}
    return [made[tuple(one.items())] for one in chosen]


def _value(config: Mapping[str, Any], path: str) -> Any:
    """What is at a path; of the epochs also what they are where nothing is said of them."""
    found = at(config, path)
    if path == "local.epochs" and at(config, "local.steps") is None:
        return found or 1
    return found


WORK = {"local.steps", "local.epochs"}
"""Of which one is given."""


def _complete(filled: dict[str, Any], path: str, default: BaseModel | dict[str, Any]) -> None:
    """Where the same part is named, or options of it only, keep the default's others."""
    given = at(filled, path)
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
