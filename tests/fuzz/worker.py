"""A worker of a campaign: plays the cases it is given, and reports each."""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import random
import resource
import traceback
import warnings
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import torch

from tests.fuzz.families import FAMILIES
from tests.fuzz.judge import PATIENCE, brief, judged, smaller

ROOM = 6 * 2**30
"""Bytes of address space that a worker may take beyond what it has at its start."""


def work(pipe: Connection, traces: Path) -> None:
    """:func:`play`, and tell of what goes wrong with the battery itself."""
    try:
        play(pipe, traces)
    except Exception:
        pipe.send(traceback.format_exc())
        raise


def play(pipe: Connection, traces: Path) -> None:
    """Play what comes, ``(family, seed, number, known causes)``, until None does.

    Answers ``(outcome, cause, what was said, smallest pieces)``. A case that holds up the process
    itself, where no signal reaches Python, ends it, and leaves a trace in the file ``traces``.
    """
    prepare()
    with traces.open("w") as file, _quiet(traces.with_suffix(".out")):
        while (case := pipe.recv()) is not None:
            name, seed, number, known = case
            family = FAMILIES[name]
            pieces = family.pieces(seed, number)
            np.random.seed(number % 2**32)
            random.seed(number)
            longest = (PATIENCE + 1) * family.deadline + 5
            faulthandler.dump_traceback_later(longest, exit=True, file=file)
            verdict = judged(family, pieces)
            faulthandler.cancel_dump_traceback_later()
            if verdict.outcome == "failed" and verdict.cause not in known:
                faulthandler.dump_traceback_later(60 * family.deadline, exit=True, file=file)
                pieces = smaller(family, pieces, verdict.cause)
                faulthandler.cancel_dump_traceback_later()
            shown = brief(repr(pieces)) if verdict.outcome == "failed" else ""
            pipe.send((verdict.outcome, verdict.cause, brief(verdict.said), shown))


def prepare() -> None:
    """One thread, no warnings, no network for hubs, and an end to memory before the machine's."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + ROOM, size + ROOM))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


@contextlib.contextmanager
def _quiet(path: Path) -> Iterator[None]:
    """What anything prints past the consoles goes to a file."""
    with path.open("w") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
        yield
