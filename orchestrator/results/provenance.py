"""What made a result: versions of the packages, and the commit of the source tree."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.results.result import Result

COMMIT = 40
"""Digits of one."""
MOST = 6
"""Commits that a sentence names."""
SOURCES = Path(__file__).parents[2]
"""The tree whose code runs."""
PACKAGES = ("fedorch", "ray", "torch", "torchvision", "numpy", "pydantic")


@lru_cache
def _installed() -> dict[str, str]:
    found = {"python": sys.version.split()[0]}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide a run's bits."""
    return dict(_installed())


def made_by() -> dict[str, str]:
    """What computes here: releases of Python and the packages, and the commit of the code."""
    return {**versions(), "fedorch's commit": git_commit() or "unknown"}


def differing(before: Mapping[str, str]) -> str:
    """What computes here that is another than ``before``, as ``made_by`` said it; or ""."""
    now = made_by()
    others = [
        f"{name} {_shortened(before[name])} → {_shortened(now[name])}"
        for name in now
        if name in before and before[name] != now[name]
    ]
    return ", ".join(others)


# once: what a process has imported stays what it was
@lru_cache
def git_commit() -> str | None:
    """Commit of the source tree that runs, if it is a git checkout; of one whose code was edited
    since, behind a + with a digest of what was.
    """
    # an installed copy may lie in a repository of somebody's, which does not know its files
    if not _git("ls-files", "--", "*.py"):
        return None
    head, changes = _git("rev-parse", "HEAD"), _git("diff", "HEAD", "--", "*.py")
    if not head:
        return None
    edited = hashlib.sha256(changes).hexdigest()[:8] if changes else ""
    return "+".join(filter(None, [head.decode().strip(), edited]))


def _git(*words: str) -> bytes:
    """What git says of the code that runs, wherever the command was given; nothing without it."""
    command = ["git", "-C", str(SOURCES), *words]
    # those name another repository, in a hook of its
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        return subprocess.run(command, capture_output=True, check=True, timeout=10, env=own).stdout
    except (OSError, subprocess.SubprocessError):
        return b""


def of_which_code(results: Sequence[Result]) -> list[str]:
    """A sentence for commits, and for releases of torch, of which ``results`` are of several."""
    commits = Counter(_shortened(result.get("git_commit")) for result in results)
    torches = Counter(str((result.get("versions") or {}).get("torch")) for result in results)
    return [
        f"of {len(each)} {what}: " + ", ".join(f"{one} ({n})" for one, n in each.most_common(MOST))
        for what, each in (
            ("commits of fedorch", commits),
            ("releases of torch", torches),
        )
        if len(each) > 1
    ]


def seconds_said(results: Sequence[Result]) -> list[str]:
    """A sentence for each reason why seconds of ``results`` do not compare: they had different
    numbers of actors, or some are from another sweep.
    """
    said = []
    actors = sorted({many for result in results if (many := result.get("actors")) is not None})
    if actors[1:]:
        some = " and ".join(map(str, actors))
        said.append(f"seconds: of {some} client actors, which share the cores")
    taken = sum("taken_from" in result for result in results)
    if 0 < taken < len(results):
        said.append(
            f"seconds: {taken} of {len(results)} runs are taken over from another sweep, which had "
            "other machines, or other work beside it"
        )
    return said


def _shortened(commit: str | None) -> str:
    """Of a commit its first digits; a release stays."""
    head, plus, edited = (commit or "unknown").partition("+")
    return f"{head[:7] if len(head) == COMMIT else head}{plus}{edited}"
