"""Where the ``fedorch`` command begins, before the seconds that its imports take."""

from __future__ import annotations

import os
import signal


def main() -> None:
    """Ctrl-C ends the command without a word while it has nothing to tidy up."""
    signal.signal(signal.SIGINT, lambda number, frame: os._exit(130))
    from sweeps.cli import main as command

    signal.signal(signal.SIGINT, signal.default_int_handler)
    command()


if __name__ == "__main__":
    main()
