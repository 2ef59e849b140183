"""A module of a user's own, whose parts a config can name like built-in ones."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from algorithms.section import Section
from orchestrator.errors import UserError
from orchestrator.files import read_bytes, said
from orchestrator.plugins.sources import PACKAGE, SOURCES, is_known, module_of

LARGEST = 1_000_000
"""Bytes of a file."""
NAME = re.compile(r"[A-Za-z_]\w{0,60}")

FOLDER = "plugins"
"""Where a run keeps the files that its config names."""


class Plugin(Section):
    """A file or an installed module, and what was in it."""

    name: str = Field(description="of the file, without .py; or of the module, with dots")
    sha256: str = Field("", description="digest of the file, or of the module's files")
    file: str = Field("", exclude=True, description="where the file is; empty: known by its digest")
    kept: bool = Field(
        False, exclude=True, description="whether a run's folder names it, and no user"
    )

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, given: Any) -> Any:
        """A path ends in .py; anything else is a module."""
        if not isinstance(given, str):
            return given
        if given.endswith(".py"):
            return {"name": Path(given).stem, "file": given}
        return {"name": given}

    @property
    def is_file(self) -> bool:
        """Or else an installed module."""
        return bool(self.file) or module_of(self.name, self.sha256) in SOURCES

    @property
    def module(self) -> str:
        """The name under which Python has it."""
        return module_of(self.name, self.sha256) if self.is_file else self.name

    @property
    def reference(self) -> str:
        """What tells it from others in a :func:`pinned` reference."""
        return self.module.removeprefix(f"{PACKAGE}.")


def content_of(plugin: Plugin) -> bytes:
    """What is in its file; raises UserError for one that no plugin has."""
    if not NAME.fullmatch(plugin.name):
        raise UserError(
            f"plugins: {plugin.file}: a plugin's file is named by letters, digits and _"
        )
    content = read_bytes(Path(plugin.file))
    with said(f"plugins: {plugin.file}: cannot be read"):
        content.decode()
    if len(content) > LARGEST:
        raise UserError(f"plugins: {plugin.file}: {len(content)} bytes are more than code has")
    return content


def source(plugin: Plugin) -> bytes | None:
    """Content of a plugin's file; None for an installed module."""
    return SOURCES.get(plugin.module)


def fetch(plugins: Iterable[Plugin]) -> None:
    """Have the files of plugins that another process of the cluster has read."""
    for plugin in plugins:
        is_known(module_of(plugin.name, plugin.sha256))
