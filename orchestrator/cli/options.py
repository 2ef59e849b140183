"""Options and arguments that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import completion
from orchestrator.cli.arguments import path, within

ConfigArgument = Annotated[
    Path | None,
    typer.Argument(callback=path, help="YAML config; without one, the quick start"),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="override a key: --set local.lr=0.1 (repeatable)",
        autocompletion=completion.settings,
    ),
]
PluginOption = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin",
        metavar="FILE|MODULE",
        callback=path,
        help="a .py file or an installed module with parts of one's own (repeatable)",
    ),
]

AddressOption = Annotated[
    str, typer.Option(help="Ray cluster: local, auto, HOST:PORT or ray://HOST:PORT")
]
JsonOption = Annotated[bool, typer.Option("--json", help="print it as JSON, for programs")]
CpusOption = Annotated[
    int | None, typer.Option(callback=within(0, 10_000), help="CPUs of a local cluster")
]
GpusOption = Annotated[
    float | None,
    typer.Option(callback=within(0, 10_000), help="(logical) GPUs of a local cluster"),
]
