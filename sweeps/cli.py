"""The ``fedorch`` command: what the orchestrator offers, and sweeps."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import app as cli
from orchestrator.cli import finished, starting
from orchestrator.cli.arguments import path, within, written
from orchestrator.cli.options import AddressOption, CpusOption, GpusOption, JsonOption, SetOption
from orchestrator.errors import UserError
from orchestrator.results.places import is_remote


class Form(StrEnum):
    """How a table is written."""

    terminal = "terminal"
    markdown = "markdown"
    csv = "csv"
    html = "html"
    latex = "latex"
    json = "json"


ColumnOption = Annotated[
    list[str] | None, typer.Option("--column", help="only this column of the table (repeatable)")
]
BudgetOption = Annotated[
    str, typer.Option(help="smoke (seconds), reduced (fits two cores), full (the paper's)")
]


@starting.commands.command()
def sweep(
    target: Annotated[
        str, typer.Argument(help="PAPER/TABLE, a sweep's YAML file, or: status")
    ] = "",
    folder: Annotated[
        str | None, typer.Argument(callback=path, help="status: folder of the sweep")
    ] = None,
    show: Annotated[
        bool,
        typer.Option(
            "--list",
            help="list the papers' tables and figures, or PAPER's, and what they cost; of "
            "PAPER/TABLE: its rows, columns and claims; of a sweep's file: its trials",
        ),
    ] = False,
    timed: Annotated[
        bool,
        typer.Option(
            "--time",
            help="run nothing but a round or two of a trial of each kind, and tell what the sweep "
            "will take here",
        ),
    ] = False,
    budget: BudgetOption = "reduced",
    column: ColumnOption = None,
    settings: SetOption = None,
    out: Annotated[
        str | None,
        typer.Option(
            callback=path,
            help="folder (or s3://...) for the results (default: runs/sweeps/NAME)",
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="continue the sweep in that folder")
    ] = False,
    reuse: Annotated[
        list[str] | None,
        typer.Option(
            "--reuse",
            metavar="FOLDER",
            callback=path,
            help="take over trials that another sweep has finished, where they are the same "
            "(repeatable)",
        ),
    ] = None,
    at_once: Annotated[
        int | None,
        typer.Option(callback=within(1, 10_000), help="most trials that run at the same time"),
    ] = None,
    address: AddressOption = "local",
    num_cpus: CpusOption = None,
    num_gpus: GpusOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a grid, or all of a paper's table, on Ray Tune."""
    # imported here: they take seconds, which other commands need not wait for
    from sweeps import commands
    from sweeps.home import local_copy

    if show:
        commands.show_list(target, settings or (), as_json)
        return
    if target == "status":
        if folder is None:
            raise UserError("sweep status: name the folder of the sweep")
        commands.show_status(local_copy(folder), as_json)
        return
    if not target or folder is not None:
        raise UserError("sweep: name a table (see --list), a sweep's YAML file, or: status FOLDER")
    from orchestrator.cluster.connection import connected
    from sweeps import targets
    from sweeps.reuse import Finished

    chosen = targets.resolve(target, budget, column or ())
    chosen.check()
    place, finished = chosen.place(out), Finished.of(reuse or ())
    how = targets.Running(resume, tuple(settings or ()), at_once, finished)
    if timed:
        commands.show_time(chosen, how, as_json)
        return
    if as_json:
        raise UserError(
            "--json is for --list, --time and status; of a sweep that has run, `fedorch table "
            "--format json` prints the table"
        )
    chosen.require_place(place, resume)
    if chosen.shows_end(place, how):
        return
    with connected(address, num_cpus, num_gpus):
        chosen.run(place, how)


@finished.commands.command()
def table(
    target: Annotated[
        str,
        typer.Argument(
            callback=path,
            help="PAPER/TABLE of `fedorch sweep --list`, a sweep's YAML file, or a sweep's folder",
        ),
    ],
    budget: BudgetOption = "reduced",
    column: ColumnOption = None,
    out: Annotated[
        str | None,
        typer.Option(callback=path, help="folder of the sweep (default: runs/sweeps/NAME)"),
    ] = None,
    form: Annotated[Form, typer.Option("--format", help="how to write it")] = Form.terminal,
    file: Annotated[Path | None, typer.Option(callback=written, help="write to this file")] = None,
) -> None:
    """Measured numbers beside the published ones, and which of the paper's claims hold; also while
    the sweep runs.
    """
    from sweeps import targets
    from sweeps.home import local_copy

    if is_remote(target) or Path(target).is_dir():
        if out is not None:
            raise UserError("--out: the sweep's folder is given already")
        folder = local_copy(target)
        chosen = targets.of_folder(folder, column or ())
    else:
        chosen = targets.resolve(target, budget, column or ())
        folder = local_copy(chosen.place(out))
    chosen.show(folder, form.value, file)


def main() -> None:
    """Entry point of the ``fedorch`` command."""
    cli.main()


if __name__ == "__main__":
    main()
