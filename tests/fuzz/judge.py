"""The one oracle: accepted with a right result, or refused in one sentence, within the deadline."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from orchestrator.errors import UserError
from orchestrator.terminal import errors
from tests.fuzz.family import Family, Pieces, Wrong

PATIENCE = 6
"""Deadlines that a case may wait for."""
LONGEST = 1_000
"""Characters of a sentence."""
HOUSE = ("algorithms", "rl", "orchestrator", "sweeps")
ROOT = Path(__file__).parents[2]


class Overdue(BaseException):
    """A case is over its deadline. No Exception, or the product might take it for its own."""


@dataclass(frozen=True)
class Verdict:
    """How a case ended: accepted, refused or failed; why, and the same why for like failures."""

    outcome: str
    cause: str = ""
    said: str = ""


def judged(family: Family, pieces: Pieces) -> Verdict:
    """Play a case in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="fuzz-", ignore_cleanup_errors=True) as outer:
        # what commands find in ".." is the case's, too
        folder = str(Path(outer, "case"))
        Path(folder).mkdir()
        try:
            with _within(family.deadline), _inside(Path(folder)):
                family.play(pieces, Path(folder))
        except UserError as error:
            # as the terminal shows it
            said = errors.plain(str(error)).replace(folder, "FOLDER")
            wrong = clumsy(said)
            return Verdict("failed", f"{family.name}: {wrong}", said[:2000]) if wrong else REFUSED
        except Wrong as error:
            said = str(error).replace(folder, "FOLDER")
            return Verdict("failed", f"{family.name}: {said.partition(':')[0]}", said[:2000])
        except Overdue as error:
            return Verdict("failed", f"{family.name}: over its deadline in {error}", str(error))
        # SystemExit and KeyboardInterrupt of the product are failures like all others
        except BaseException as error:
            return Verdict("failed", f"{family.name}: {_cause(error)}", _told(error))
    return Verdict("accepted")


REFUSED = Verdict("refused")


def clumsy(sentence: str) -> str | None:
    """What makes ``sentence`` none that a user could be told; None if it is one."""
    if not sentence.strip():
        return "the sentence is empty"
    if "Traceback" in sentence:
        return "the sentence is a traceback"
    if "\n" in sentence or not all(c.isprintable() or c == "\t" for c in sentence):
        return "the sentence holds control characters"
    return f"the sentence is longer than {LONGEST}" if len(sentence) > LONGEST else None


@contextlib.contextmanager
def _within(seconds: float) -> Iterator[None]:
    """So many of the processor; of the clock more, as the machine may have other work."""
    computed, began = time.process_time(), time.monotonic()

    def ring(number: int, frame: FrameType | None) -> None:
        waited = time.monotonic() - began
        if time.process_time() - computed < seconds - 1 and waited < PATIENCE * seconds:
            return
        raise Overdue(_where(traceback.extract_stack(frame)))

    before = signal.signal(signal.SIGALRM, ring)
    # again and again: whatever catches the first, or is in a __del__, does not get away with it
    others = signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)
        # pytest's own limit goes on
        signal.setitimer(signal.ITIMER_REAL, *others)


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    """Work there: a command without --out writes beside the user."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _cause(error: BaseException) -> str:
    return f"{type(error).__name__} in {_where(traceback.extract_tb(error.__traceback__))}"


def _where(stack: traceback.StackSummary) -> str:
    """The innermost function of the house: like failures have the same."""
    for frame in reversed(stack):
        with contextlib.suppress(ValueError):
            path = Path(frame.filename).relative_to(ROOT)
            if path.parts[0] in HOUSE:
                return f"{path}:{frame.name}"
    return stack[-1].name if stack else "?"


def _told(error: BaseException) -> str:
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:
        text = type(error).__name__
    return text[:500] + "\n" + "".join(traceback.format_tb(error.__traceback__)[-4:])[:1500]


def brief(text: str) -> str:
    """``text`` on a page: what is there again and again stands there once."""
    return re.sub(r"(.{1,12}?)\1{9,}", r"\1\1…", text[:50_000])[:1500]


def smaller(family: Family, pieces: Pieces, cause: str, tries: int = 60) -> Pieces:
    """Fewest pieces that still fail for that cause, as far as leaving out one after another finds
    them.
    """
    at = 0
    while at < len(pieces) and tries > 0 and len(pieces) > 1:
        without = [*pieces[:at], *pieces[at + 1 :]]
        tries -= 1
        if judged(family, without).cause == cause:
            pieces = without
        else:
            at += 1
    return pieces
