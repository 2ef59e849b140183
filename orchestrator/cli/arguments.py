"""Words, paths and numbers of a command line: wrong ones are told before anything starts."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from algorithms.section import UNWRITABLE
from orchestrator.errors import UserError
from orchestrator.results.contents import run_that_writes
from orchestrator.results.pictures import PICTURES
from orchestrator.results.places import is_remote

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
NAME, PATH = 255, 4095
"""Most bytes of a file's name, and of a path, on Linux."""


class Commands(TyperGroup):
    """The commands, whose mistakes in use are sentences like all others."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for place, word in enumerate(args, start=1):
            _require_text(f"argument {place}", word)
        with _sentences():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> object:
        with _sentences():
            return super().invoke(ctx)


class Panel(typer.Typer):
    """Commands that stand under one title where the ``fedorch`` command, which takes them over as
    its own, lists all.
    """

    def __init__(self, title: str) -> None:
        super().__init__()
        self.title = title

    def command(self, name: str | None = None, **settings: Any) -> Callable[[F], F]:
        """As typer's; what a function says of itself is broken into lines as the terminal is."""
        place = super().command

        def register(function: F) -> F:
            about = " ".join((function.__doc__ or "").split())
            return place(name, help=about, rich_help_panel=self.title, **settings)(function)

        return register

    def group(self, name: str, help: str) -> typer.Typer:
        """Commands of two words, of which this is the first."""
        commands = typer.Typer(no_args_is_help=True)
        self.add_typer(commands, name=name, help=help, rich_help_panel=self.title)
        return commands


@contextmanager
def _sentences() -> Iterator[None]:
    try:
        yield
    except TyperException as error:
        # what shows the help where a command was to follow; typer tells it by its name, too
        if type(error).__name__ == "NoArgsIsHelpError":
            raise
        raise UserError(" ".join(error.format_message().split())) from error


def _require_text(what: str, word: str) -> None:
    """Raise UserError for bytes that are no text, which neither a config nor a message can hold."""
    try:
        word.encode()
    except UnicodeEncodeError as error:
        raise UserError(f"{what}: {word!r} is not UTF-8") from error


def path(param: typer.CallbackParam, value: T) -> T:
    """For an option or argument of one or more paths (or URIs, where it takes them); ``~`` is the
    user's home, also where the shell leaves it as it is.
    """
    if isinstance(value, list | tuple):
        return type(value)(path(param, one) for one in value)
    if value is None:
        return value
    _require_path(_called(param), str(value))
    return type(value)(_at_home(_called(param), str(value)))  # type: ignore[call-arg]


def picture(param: typer.CallbackParam, value: T) -> T:
    """For the path of a picture that is to be written, in a format that there is."""
    if value is not None:
        file, called = Path(str(value)), _called(param)
        _require_path(called, str(file))
        if file.suffix.lower() not in PICTURES:
            raise UserError(f"{called} {file}: a picture's name ends in {', '.join(PICTURES)}")
        _require_folder(called, file)
    return value


def page(param: typer.CallbackParam, value: T) -> T:
    """For the path of a page that is to be written."""
    written(param, value)
    if value is not None and Path(str(value)).suffix.lower() not in (".html", ".htm"):
        raise UserError(f"{_called(param)} {value}: a page's name ends in .html")
    return value


def new(param: typer.CallbackParam, value: T) -> T:
    """For the path of a file or folder that is to be made; the command says what is there."""
    value = path(param, value)
    if value is not None and not Path(str(value)).is_dir():
        written(param, value)
    return value


def written(param: typer.CallbackParam, value: T) -> T:
    """For the path of a file that is to be written; none of a run's own."""
    if value is not None:
        _require_path(_called(param), str(value))
        _require_folder(_called(param), Path(str(value)))
    return value


def within(low: float, high: float) -> Callable[[typer.CallbackParam, T], T]:
    """For a number from ``low`` to ``high``; NaN is none."""

    def check(param: typer.CallbackParam, value: T) -> T:
        if isinstance(value, int | float) and not low <= value <= high:
            raise UserError(f"{_called(param)} {value}: must be from {low:g} to {high:g}")
        # minus zero is zero
        return 0.0 if isinstance(value, float) and not value else value  # type: ignore[return-value]

    return check


def numbers(text: str, option: str) -> list[float]:
    """Finite numbers, separated by commas, that ``option`` gives."""
    try:
        found = [float(word) for word in text.split(",")]
    except ValueError as error:
        raise UserError(
            f"{option}: {text!r} is not a list of numbers separated by commas"
        ) from error
    if not all(map(math.isfinite, found)):
        raise UserError(f"{option}: {text!r} has a number that is not finite")
    return found


def _called(param: typer.CallbackParam) -> str:
    """What a user calls it: ``--plot``, ``RUNS``."""
    long = [name for name in param.opts if name.startswith("--")]
    return long[0] if long else str(param.name).upper()


def _require_path(called: str, text: str) -> None:
    if not text or UNWRITABLE.search(text):
        raise UserError(f"{called} {text!r}: is not a path; name one without control characters")
    # storage has its own rules
    if is_remote(text):
        return
    sizes = [len(os.fsencode(name)) for name in Path(text).parts]
    if max(sizes, default=0) > NAME or sum(sizes) + len(sizes) > PATH:
        raise UserError(
            f"{called} {text}: is too long; a name has at most {NAME} bytes, a path {PATH}"
        )
    try:
        Path(text).resolve()
    except (OSError, RuntimeError) as error:
        raise UserError(f"{called} {text}: is a link that leads to itself") from error


def _at_home(called: str, text: str) -> str:
    try:
        return str(Path(text).expanduser()) if text.startswith("~") else text
    except RuntimeError as error:
        raise UserError(f"{called} {text}: there is no such user") from error


def _require_folder(called: str, file: Path) -> None:
    """Raise UserError unless ``file`` can be a file in a folder that is there, and is no run's."""
    if file.is_dir():
        raise UserError(f"{called} {file}: is a folder, and a file's name is meant")
    if not file.parent.is_dir():
        raise UserError(f"{called} {file}: there is no folder {file.parent}")
    if not os.access(file.parent, os.W_OK | os.X_OK):
        raise UserError(f"{called} {file}: {file.parent} cannot be written to")
    if (run := run_that_writes(file)) is not None:
        raise UserError(f"{called} {file}: is a file of the run in {run}; choose another name")
