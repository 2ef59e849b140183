"""What goes wrong in code of others, in a sentence, with its line."""

from __future__ import annotations

import contextlib
import re
import traceback
from collections.abc import Iterator, Sequence

from orchestrator.errors import UserError
from orchestrator.plugins.plugin import Plugin
from orchestrator.plugins.sources import PACKAGE

TOLD = re.compile(rf'File "({PACKAGE}\.\w+)\.py", line (\d+), in (\S+)')
"""A line of a file in the text of a traceback."""


@contextlib.contextmanager
def blamed(plugins: Sequence[Plugin]) -> Iterator[None]:
    """Raise UserError for what code of the ``plugins`` raises, or a run with them: with the line,
    where that is theirs.
    """
    try:
        yield
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        if not plugins:
            raise
        causes = [*_causes(error)]
        cause = causes[-1]
        at = next((line for one in causes if (line := _line_of(one, plugins))), "")
        if at:
            raise UserError(f"plugins: {at}: {raised(cause)}") from error
        if isinstance(error, MemoryError | OSError):
            raise
        names = ", ".join(plugin.name for plugin in plugins)
        raise UserError(
            f"with parts of {names}: {raised(cause)}; something that they return cannot be used "
            "(`fedorch check` may tell what)"
        ) from error


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error, and what it was made of, from the outside in."""
    inner: object = error
    while isinstance(inner, BaseException):
        yield inner
        inner = getattr(inner, "cause", None) or inner.__cause__  # the first is Ray's


def _line_of(error: BaseException, plugins: Sequence[Plugin]) -> str:
    """The last line of a plugin that an error has come through; "" for none."""
    found = ""
    # what comes from another process has its lines in its text
    for module, line, name in TOLD.findall(str(error)):
        for plugin in plugins:
            if module == plugin.module:
                found = f"{plugin.name}, line {line}, in {name}"
    for frame, line in traceback.walk_tb(error.__traceback__):
        module = frame.f_globals.get("__name__", "")
        for plugin in plugins:
            if module == plugin.module or module.startswith(f"{plugin.module}."):
                found = f"{plugin.name}, line {line}, in {frame.f_code.co_name}"
    return found


def raised(error: BaseException) -> str:
    """What code of others has raised, in short."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]
