"""The ``fedorch`` command."""

from __future__ import annotations

import errno
import sys

import typer

from orchestrator.cli import clusters, completion, finished, named, starting
from orchestrator.cli.arguments import Commands
from orchestrator.cli.faults import report
from orchestrator.cli.run_shown import INTERRUPTED
from orchestrator.cluster.waiting import leaving
from orchestrator.errors import Interrupted, UserError
from orchestrator.extras import named_if_missing
from orchestrator.files import require_working_folder
from orchestrator.terminal import console, escaping, told

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    help="Federated-learning experiments on Ray.",
)
for some in (starting, finished, named, clusters):
    app.add_typer(some.commands)


def _for_want_of_memory(error: BaseException) -> bool:
    """Whether a library could not be loaded into what the process may have."""
    no_room = ("failed to map segment", "cannot allocate memory")
    return isinstance(error, ImportError) and any(said in str(error) for said in no_room)


def _told(error: BaseException) -> int:
    """Say why the command has ended; returns its exit code."""
    unwritten = (errno.ENOSPC, errno.EIO)
    if isinstance(error, UserError):
        told("fedorch", error, "red")
    elif isinstance(error, MemoryError) or _for_want_of_memory(error):
        told("fedorch", "this machine's memory is too small for what was asked", "red")
    elif isinstance(error, OSError) and error.filename is None and error.errno in unwritten:
        # of help pages, which typer prints itself; files are told with their names
        told("fedorch", f"standard output cannot be written: {error.strerror}", "red")
        console.on_broken_pipe()
    else:
        told("fedorch", report(error), "red")
        return 1
    return INTERRUPTED if isinstance(error, Interrupted) else 2


@leaving()
def main() -> None:
    """Run the command: one sentence and exit code 2 for everything that the user can mend; for a
    fault of ours one sentence, which says where its traceback is, and exit code 1.
    """
    escaping()
    completion.prepare()
    try:
        require_working_folder()
        with named_if_missing():
            app(prog_name="fedorch")
    except SystemExit as ended:
        if console.lost and not ended.code:
            told("fedorch", f"standard output cannot be written: {console.lost}", "red")
            sys.exit(2)
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a plugin may raise what it likes
        sys.exit(_told(error))


if __name__ == "__main__":
    main()
