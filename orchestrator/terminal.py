"""The terminal: where everything is printed, and the metrics that a person looks at first.

What is printed comes from configs, folders and files of other people: no text is read as markup,
and no control character or byte that is none gets through. Styles are given to ``Text``.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import shlex
import sys
from collections.abc import Collection, Iterable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
)
from rich.text import Text

from orchestrator.errors import shown


class Terminal(Console):
    """A console for texts that are nothing but texts."""

    def __init__(self, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, highlight=False, emoji=False)
        if self._width == 0:  # COLUMNS=0: nobody knows
            self._width = None
        self.lost = ""
        """Why nothing more can be written, which ends no run; "" while it can, or where nobody
        reads any more (a pager that was left)."""
        self.kept: list[Any] | None = None
        """What is printed, where it is to be kept instead (cli/listing.py)."""
        self.silent = ContextVar("silent", default=False)
        """Whether this thread prints nothing here; others may."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print, as long as somebody takes it."""
        if self.kept is not None:
            self.kept += objects
            return
        if self.silent.get():
            return
        # a line of a log is one, however long: who searches it looks for whole ones
        if not self.is_terminal and all(isinstance(one, str | Text) for one in objects):
            options.setdefault("soft_wrap", True)
        try:
            super().print(*objects, **options)
        except OSError as error:
            self.lost = error.strerror or str(error)
            self.on_broken_pipe()

    def on_broken_pipe(self) -> None:
        """Be quiet from now on, and write what is left of the last words to nowhere."""
        self.quiet = True
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.file.fileno())
            os.close(nowhere)

    def render_str(self, text: str, **options: Any) -> Text:
        """What rich makes of every string, also one in a table."""
        options |= {"markup": False, "emoji": False, "highlight": False, "highlighter": None}
        return super().render_str(self.plain(text), **options)

    def plain(self, text: str) -> str:
        """``text`` with escapes for what cannot be seen, and for what this terminal cannot show."""
        known = text.encode(self.encoding, "backslashreplace").decode(self.encoding)
        return shown(known, "\t\n\r")


def escaping() -> None:
    """Have this process write escapes for what the terminal's encoding has no sign for: rich draws
    with signs of its own (an ellipsis where a column is too narrow), which no text here holds.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


console = Terminal()
errors = Terminal(stderr=True)

HEADLINES = {  # metric -> what a person calls it, in this order
    "test_accuracy": "test accuracy",
    "test_loss": "test loss",
    "validation_accuracy": "validation accuracy",
    "heldout_accuracy": "held-out accuracy",
    "client_accuracy_mean": "client accuracy, mean",
    "client_accuracy_worst": "client accuracy, worst",
    "client_accuracy_worst10": "client accuracy, worst 10 %",
    "client_accuracy_std": "client accuracy, std",
    "personal_accuracy_mean": "personal accuracy, mean",
    "personal_accuracy_worst": "personal accuracy, worst",
    "train_loss": "local training loss",
}


def further(metrics: Iterable[str]) -> list[str]:
    """What else is recorded of the test set: the names that ``evaluation.metrics`` have there."""
    usual = {*HEADLINES}
    return [n.removeprefix("test_") for n in metrics if n.startswith("test_") and n not in usual]


def labels_of(metrics: Collection[str]) -> dict[str, str]:
    """Of these metrics those that a person looks at first -> what they are called, in order."""
    own = {f"test_{name}": f"test {name.replace('_', ' ')}" for name in further(metrics)}
    return {key: label for key, label in (HEADLINES | own).items() if key in metrics}


def decimals(number: float, usual: int) -> int:
    """So many as are ``usual``, or two digits of a number that would be 0 with them."""
    if not math.isfinite(number) or not number or round(number, usual):
        return usual
    return 1 - math.floor(math.log10(abs(number)))


def headed(head: str, style: str, text: str) -> Text:
    """``head`` in ``style``, and ``text`` behind it."""
    return Text.assemble((console.plain(head), style), console.plain(text))


def told(kind: str, text: object, style: str = "yellow") -> None:
    """Tell on stderr what the results do not say: ``note: ...``, its kind in ``style``."""
    errors.print(headed(f"{kind}:", style, f" {text}"), soft_wrap=True)


class Words(TextColumn):
    """A text of a progress bar, which is no markup either."""

    def render(self, task: Task) -> Text:
        return Text(console.plain(self.text_format.format(task=task)))


def bar(*further: ProgressColumn) -> Progress:
    """A progress bar that shows its task's description and field ``note``; only on a terminal."""
    columns = (
        Words("{task.description}"),
        MofNCompleteColumn(),
        BarColumn(),
        Words("{task.fields[note]}"),
        *further,
    )
    return Progress(
        *columns, console=console, disable=not console.is_terminal or console.silent.get()
    )


def sweep_again(place: str) -> str:
    """The command that goes on with the sweep at ``place``: this one, where it is of a sweep."""
    typed = Path(sys.argv[0]).name in ("fedorch", "__main__.py") and sys.argv[1:2] == ["sweep"]
    if not typed:
        return f"its own command with --resume ({place})"
    more = () if "--resume" in sys.argv else ("--resume",)
    return shlex.join(["fedorch", *sys.argv[1:], *more])
