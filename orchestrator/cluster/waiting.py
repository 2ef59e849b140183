"""Waiting for what may not be there: a cluster, a dashboard, a storage."""

from __future__ import annotations

import atexit
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar, cast

from orchestrator.errors import UserError

T = TypeVar("T")
_late: list[threading.Thread] = []
"""Threads that were left behind, perhaps still waiting."""
VARIABLE = "FEDORCH_TIMEOUT"
PATIENCE = 10.0
"""Seconds that somebody who does not answer is waited for, unless the variable says otherwise."""


def patience() -> float:
    """How many seconds to wait for a first answer; raises UserError if the variable is no time."""
    said = os.environ.get(VARIABLE) or str(PATIENCE)
    try:
        seconds = float(said)
    except ValueError:
        seconds = 0.0
    # over a day it is a slip, and the clocks below it have bounds of their own
    if not 0 < seconds <= 86_400:
        raise UserError(f"{VARIABLE}={said[:40]!r}: say a number of seconds over 0, up to 86400")
    return seconds


def unanswered(seconds: float) -> TimeoutError:
    """What is said when so many seconds have passed."""
    return TimeoutError(f"no answer within {seconds:g} s ({VARIABLE}=60 would wait for a minute)")


def within(seconds: float, work: Callable[[], T]) -> T:
    """What ``work`` returns or raises, in at most so many seconds; else raises TimeoutError.

    It works in a thread, since what waits in a C library (a name server, a storage) hears of no
    signal: here Ctrl-C is heard at once. A thread that is late is left behind; see ``leaving``.
    """
    answers: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

    def answer() -> None:
        try:
            answers.put((work(), None))
        except BaseException as error:
            answers.put((None, error))

    worker = threading.Thread(target=answer, daemon=True)
    worker.start()
    try:
        value, error = answers.get(timeout=seconds)
    except queue.Empty:
        _late.append(worker)
        raise unanswered(seconds) from None
    except BaseException:  # a signal
        _late.append(worker)
        raise
    if error is not None:
        raise error
    return cast(T, value)


@contextmanager
def leaving() -> Iterator[None]:
    """Around a command: when it exits, no thread that was left behind holds it up.

    The library for S3 waits at exit for all its calls, and for one to a server that has fallen
    silent it waits for ever.
    """
    try:
        yield
    except SystemExit as end:
        # not at once: the command may be one of several that a process does
        atexit.register(_go, end.code if isinstance(end.code, int) else int(end.code is not None))
        raise


def _go(code: int) -> None:
    """End the process if somebody would hold it up; registered last, it is called first."""
    if any(worker.is_alive() for worker in _late):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
