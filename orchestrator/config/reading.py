"""From a YAML file and ``key=value`` settings to a validated config."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from orchestrator.config.defaults import with_defaults
from orchestrator.config.paths import put
from orchestrator.config.schema import Config
from orchestrator.config.sentences import sentence
from orchestrator.errors import UserError


def load(path: Path | None = None, settings: Sequence[str] = ()) -> Config:
    """Read a YAML file (None: the quick start), apply ``a.b=value`` settings; raises UserError."""
    raw = {} if path is None else _mapping(path, "config")
    for setting in settings:
        apply(raw, setting)
    return build(raw)


def build(raw: Mapping[str, Any]) -> Config:
    """Validate a raw config, with all defaults where it is silent; raises UserError."""
    filled = with_defaults(raw)
    try:
        return Config.model_validate(filled)
    except ValidationError as error:
        raise UserError(sentence(error, filled)) from error


def apply(raw: dict[str, Any], setting: str) -> None:
    """Put one ``a.b=value`` (the value in YAML) into a raw config."""
    key, equals, text = setting.partition("=")
    if not equals or not key:
        raise UserError(f"--set {setting!r}: write key=value, for example local.lr=0.1")
    try:
        put(raw, key.strip(), yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise UserError(f"--set {setting!r}: the value is not YAML") from error


def read_whole(path: Path, what: str = "config") -> dict[str, Any]:
    """The mapping in a YAML file, with the file that it names as its ``base`` in place of that
    name.

    ``what`` the file is, for the sentence of the UserError that is raised if it is none.
    """
    raw = _mapping(path, what)
    if isinstance(raw.get("base"), str):
        try:
            raw["base"] = _mapping(path.parent / raw["base"], "config")
        except UserError as error:
            raise UserError(f"base: {error}") from error
    return raw


def _mapping(path: Path, what: str) -> dict[str, Any]:
    try:
        raw = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"cannot read {path}: {' '.join(str(error).split())}") from error
    if not isinstance(raw, dict | None):
        raise UserError(
            f"{path}: a {what} is a mapping of keys to values, not {type(raw).__name__}"
        )
    return raw or {}


class _Loader(yaml.SafeLoader):
    """Refuses a mapping that has a key twice, where YAML's own loader silently takes the last."""

    def compose_mapping_node(self, anchor: Any) -> Any:
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            name = str(key.value)
            # YAML allows several merges in one mapping
            if name in seen and name != "<<":
                raise yaml.MarkedYAMLError(
                    problem=f"the key {name!r} is there twice", problem_mark=key.start_mark
                )
            seen.add(name)
        return node
