"""The command in this process, heard as a shell hears it."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from orchestrator import terminal
from orchestrator.cli import app, doctor, quickstart
from orchestrator.cluster import connection
from orchestrator.errors import UserError
from sweeps import cli
from tests.fuzz.family import Wrong


@dataclass(frozen=True)
class Told:
    """What a command said."""

    code: int
    text: str
    complaint: str

    @property
    def sentence(self) -> str:
        """Its complaint, without who complains; that of click is what is in its box."""
        _, said, sentence = self.complaint.rpartition("fedorch: ")
        return (sentence if said else " ".join(self.complaint.split())).strip()


def spoken(folder: Path, *words: str) -> Told:
    """Run ``fedorch WORDS``; raises Wrong if it ends with any code but 0 and 2."""
    out, errors = io.StringIO(), io.StringIO()
    with _heard(out, errors), mock.patch.object(sys, "argv", ["fedorch", *words]):
        try:
            cli.main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(bool(end.code))
    told = Told(code, out.getvalue(), errors.getvalue())
    # a check that found something says so with 1
    if code not in ((0, 1, 2) if words[:1] == ("doctor",) else (0, 2)):
        raise Wrong(f"exit {code} of {words[:1]}: {told.text[-300:]} {told.complaint[-600:]}")
    if "Traceback" in told.text + told.complaint:
        raise Wrong(f"a traceback is printed by {words[:1]}: {told.complaint[-900:]}")
    if code == 2 and not told.complaint.strip():
        raise Wrong(f"exit 2 of {words[:1]}: without a word")
    return told


@contextlib.contextmanager
def _heard(out: io.StringIO, errors: io.StringIO) -> Iterator[None]:
    """Everything that is printed goes to the two; no cluster is started, none is asked."""
    with contextlib.ExitStack() as stack:
        enter = stack.enter_context
        for console, to in ((terminal.console, out), (terminal.errors, errors)):
            enter(mock.patch.object(console, "_file", to))
            enter(mock.patch.object(console, "_width", 200))
        enter(mock.patch.object(app, "report", _as_it_is))
        enter(contextlib.redirect_stdout(out))
        enter(contextlib.redirect_stderr(errors))
        for module in (connection, doctor, quickstart):
            enter(mock.patch.object(module, "connected", _nobody))
        enter(mock.patch.object(quickstart, "ALIKE", LITTLE))
        enter(mock.patch.dict(os.environ, {"RAY_API_SERVER_ADDRESS": "http://127.0.0.1:9"}))
        yield


LITTLE = ["rounds=1", "local.steps=2", "data.limit=300", "model=linear"]
"""What the quick start does here."""


def _as_it_is(error: Exception) -> str:
    """What nobody has foreseen is a failure, under its own name."""
    raise error


@contextlib.contextmanager
def _nobody(*about: object) -> Iterator[str]:
    """A cluster takes seconds, and has tests of its own."""
    raise UserError("there is no cluster here")
    yield ""
