"""What made a result: versions of the packages, and the commit of the source tree."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("fedorch", "ray", "torch", "torchvision", "numpy", "pydantic")


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide a run's bits."""
    found = {"python": sys.version.split()[0]}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def git_commit() -> str | None:
    """Commit of the source tree that runs, if it is a git checkout."""
    # of the code that runs, wherever the command was given
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
