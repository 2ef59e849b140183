"""From a YAML file and ``key=value`` settings to a validated config."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from orchestrator.config.defaults import with_defaults
from orchestrator.config.parsing import LEVELS, parse, parse_file
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
    try:
        filled = with_defaults(raw)
    except RecursionError as error:
        raise UserError("config: there are too many mappings within one another") from error
    try:
        return Config.model_validate(filled)
    except ValidationError as error:
        raise UserError(sentence(error, filled)) from error


def apply(raw: dict[str, Any], setting: str) -> None:
    """Put one ``a.b=value`` (the value in YAML) into a raw config."""
    key, equals, text = setting.partition("=")
    if not equals or not key:
        raise UserError(f"--set {setting!r}: write key=value, for example local.lr=0.1")
    if key.count(".") >= LEVELS:
        raise UserError(f"--set {setting!r}: the key has more than {LEVELS} levels")
    put(raw, key.strip(), parse(text, f"--set {setting!r}: the value"))


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
    raw = parse_file(path)
    if not isinstance(raw, dict | None):
        raise UserError(
            f"{path}: a {what} is a mapping of keys to values, not {type(raw).__name__}"
        )
    return raw or {}
