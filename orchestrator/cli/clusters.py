"""Commands on a cluster: what runs there, its jobs, and whether it is well."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.arguments import Panel, path
from orchestrator.cli.listing import Facts, listed
from orchestrator.cli.options import JsonOption
from orchestrator.results.places import is_remote
from orchestrator.results.run_folder import RunFolder
from orchestrator.terminal import console

commands = Panel("Clusters")


ClusterOption = Annotated[str, typer.Option(help="Ray cluster: auto, HOST:PORT or ray://HOST:PORT")]
JobsOption = Annotated[
    str | None,
    typer.Option(
        help="the cluster: its dashboard (http://HOST:8265), auto, HOST:PORT or ray://HOST:PORT "
        "[default: RAY_API_SERVER_ADDRESS, RAY_ADDRESS, or this machine's]"
    ),
]


@commands.command()
def top(
    address: ClusterOption = "auto",
    once: Annotated[bool, typer.Option("--once", help="print the table and end")] = False,
) -> None:
    """Watch the runs and trials under way on a cluster."""
    from orchestrator.cluster.connection import connected
    from orchestrator.monitoring.top import show_top

    with connected(address):
        try:
            show_top(once)
        except KeyboardInterrupt:
            return


@commands.command()
def dashboard(
    address: ClusterOption = "auto",
    grafana: Annotated[
        Path | None, typer.Option(callback=path, help="folder for the Grafana dashboard")
    ] = None,
) -> None:
    """Where to look at a cluster's runs in a browser, and at what."""
    from orchestrator.cluster.connection import connected
    from orchestrator.monitoring.guide import show_guide

    with connected(address) as url:
        show_guide(url, grafana)


@commands.command(context_settings={"ignore_unknown_options": True})
def submit(
    words: Annotated[
        list[str], typer.Argument(help="run or sweep, with their arguments and options")
    ],
    address: JobsOption = None,
    name: Annotated[
        str | None, typer.Option("--id", help="name of the job (default: of the time)")
    ] = None,
) -> None:
    """Run or sweep as a job on a cluster; it goes on when this terminal is closed."""
    from orchestrator.cluster import jobs

    started = jobs.submit(address, words, name or f"fedorch-{time.strftime('%Y%m%d-%H%M%S')}")
    there = "" if address is None else f" --address {address}"
    follow = (f"`fedorch {command} {started}{there}`" for command in ("logs", "stop"))
    console.print(f"submitted {started}: {', '.join(follow)}", soft_wrap=True)
    if (place := jobs.results(words, started)) is not None:
        console.print(f"results: {place} on the head node", soft_wrap=True)


@commands.command("jobs")
def jobs_listed(address: JobsOption = None, as_json: JsonOption = False) -> None:
    """The jobs of a cluster: ids, how they are doing, commands."""
    from orchestrator.cluster import jobs

    with listed(as_json):
        table = Facts(id="id", status="status", started="started", command="command")
        for job in jobs.listed(address):
            table.add(**job)
        console.print(table)


@commands.command()
def logs(
    name: Annotated[str, typer.Argument(help="id of the job")],
    address: JobsOption = None,
    follow: Annotated[bool, typer.Option("--follow", help="go on until the job ends")] = False,
) -> None:
    """What a job has printed."""
    from orchestrator.cluster import jobs

    for text in jobs.logs(address, name, follow):
        console.print(text, end="", soft_wrap=True)


@commands.command()
def stop(
    name: Annotated[
        str,
        typer.Argument(
            callback=path,
            help="id of a job, or folder (or s3://...) of a run started with --detach",
        ),
    ],
    address: Annotated[
        str | None,
        typer.Option(help="a job's: the cluster's dashboard; a run's: as of `fedorch run`"),
    ] = None,
) -> None:
    """End a job, or a detached run after its round; continue it later with --resume."""
    if is_remote(name) or RunFolder(Path(name)).begun:
        from orchestrator.cluster.connection import connected
        from orchestrator.rounds.remote import halt

        folder = RunFolder.at(name)
        with connected(address or "auto"):
            halt(folder.place)
        status = RunFolder.viewed(name).result()["status"]
        console.print(f"{folder.place}: {status}", soft_wrap=True)
        if status == "stopped":
            where = shlex.quote(folder.place)
            console.print(
                f"to go on: fedorch run --resume {where} --address {address or 'auto'}",
                soft_wrap=True,
            )
        return
    from orchestrator.cluster import jobs

    ended, how = jobs.stop(address, name)
    console.print(f"{name}: {ended.lower()}")
    if ended == "STOPPED" and how:
        console.print(f"to go on (where it had begun): {how}", soft_wrap=True)
    elif ended == "FAILED":
        where = "" if address is None else f" --address {shlex.quote(address)}"
        console.print(f"why: fedorch logs {name}{where}", soft_wrap=True)


@commands.command()
def doctor(address: Annotated[str, typer.Option(help="Ray cluster to check")] = "local") -> None:
    """Check Python, packages, data, GPUs and Ray on this machine."""
    from orchestrator.cli.doctor import examine

    if not examine(address):
        sys.exit(1)
