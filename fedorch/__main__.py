"""Where the ``fedorch`` command begins, before the seconds that its imports take."""

from __future__ import annotations

import gc
import os
import signal
import sys
from importlib.machinery import PathFinder
from pathlib import Path

from fedorch import lazily

ROOT = Path(__file__).resolve().parents[1]
"""Where the packages of this installation lie."""


def main() -> None:
    """Ctrl-C ends the command without a word while it has nothing to tidy up."""
    signal.signal(signal.SIGINT, lambda number, frame: os._exit(130))
    for package in ("algorithms", "rl", "orchestrator", "sweeps"):
        if place := hidden_by(package):
            sys.exit(_refused(package, place))
    lazily.defer()
    gc.disable()  # what is imported stays
    try:
        from sweeps.cli import main as command
    except ModuleNotFoundError as error:
        sys.exit(_lacking(error.name))
    gc.enable()

    signal.signal(signal.SIGINT, signal.default_int_handler)
    command()


def hidden_by(package: str) -> str:
    """The file that is imported in place of a package of ours; "" for none. Other distributions
    have packages of names as general as these.
    """
    found = PathFinder.find_spec(package)
    ours = ROOT / package / "__init__.py"
    if found is None or found.origin is None or Path(found.origin).resolve() == ours:
        return ""
    return found.origin


def _refused(package: str, place: str) -> int:
    print(
        f"fedorch: {package} is not fedorch's: {place} hides it; take its folder off sys.path "
        "(PYTHONPATH, or where the command is called)",
        file=sys.stderr,
    )
    return 2


def _lacking(module: str | None) -> int:
    print(
        f"fedorch: {sys.executable} has no package {module!r}, and so not what fedorch needs: "
        "activate its environment first",
        file=sys.stderr,
    )
    return 2


if __name__ == "__main__":
    main()
