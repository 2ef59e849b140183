"""A virtual environment for each peer: its own packages, and this environment's torch below."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

NEEDS = {"flower": "flwr[simulation]", "pfl": "pfl"}
"""Peer -> what pip is asked for."""


@dataclass(frozen=True)
class Environment:
    """Where a peer is installed, or why it is not."""

    python: Path
    version: str = ""
    missing: str = ""


def environment(peer: str, below: Path) -> Environment:
    """The peer's environment in a folder ``below``, made (in minutes) where there is none."""
    folder = below / peer
    python = folder / "bin" / "python"
    if not (folder / "made").exists():
        venv.create(folder, with_pip=True, clear=True)
        # what it does not bring itself it finds here, torch above all, with its 5 GB
        (packages,) = folder.glob("lib/python*/site-packages")
        (packages / "below.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
        done = subprocess.run(
            [python, "-m", "pip", "install", "--quiet", NEEDS[peer]],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            return Environment(
                python, missing=(done.stderr.strip() or "pip failed").split("\n")[-1]
            )
        (folder / "made").touch()
    return Environment(python, _version(python, NEEDS[peer].partition("[")[0]))


def _version(python: Path, package: str) -> str:
    code = f"from importlib.metadata import version; print(version({package!r}))"
    return subprocess.run(
        [python, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


def here() -> Environment:
    """The one that fedorch is installed in."""
    return Environment(Path(sys.executable))
