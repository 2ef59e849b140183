"""Commands on what a config can name: lists, descriptions, parts of one's own."""

from __future__ import annotations

import keyword
from pathlib import Path
from typing import Annotated

import typer

from algorithms.part import nearest
from orchestrator.cli import completion
from orchestrator.cli.arguments import Panel, path
from orchestrator.cli.listing import listed
from orchestrator.cli.options import JsonOption, PluginOption
from orchestrator.cli.templates import TEMPLATES
from orchestrator.cli.templates import written as written_part
from orchestrator.errors import UserError
from orchestrator.files import write_text
from orchestrator.plugins.plugin import NAME
from orchestrator.plugins.taken import take_named
from orchestrator.terminal import console

commands = Panel("Parts")


@commands.command("list")
def list_(
    kind: Annotated[
        str,
        typer.Argument(
            help="algorithms, datasets, models, partitioners, ...", autocompletion=completion.kinds
        ),
    ] = "",
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """List what a config can name."""
    from orchestrator.cli.catalogue import show_kind, show_kinds

    take_named(plugin or ())
    with listed(as_json):
        if kind:
            show_kind(kind)
        else:
            show_kinds()


@commands.command()
def describe(
    name: Annotated[
        str,
        typer.Argument(
            help="a name from `fedorch list`, a section or key of the config, or: columns",
            autocompletion=completion.names,
        ),
    ],
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """What a part, a key of the config, or a column of a run's tables is: options, types, defaults,
    meanings, the paper's symbols.
    """
    from orchestrator.cli.catalogue import show_part

    take_named(plugin or ())
    with listed(as_json):
        show_part(name)


@commands.command("completion")
def completion_(
    shell: Annotated[str, typer.Argument(help="bash, zsh, fish or powershell")],
) -> None:
    """Print what makes a shell complete commands, names of parts and keys: eval "$(fedorch
    completion bash)".
    """
    console.print(completion.script(shell), soft_wrap=True)


@commands.command()
def new(
    name: Annotated[str, typer.Argument(help="of the part, and of its file: letters, digits, _")],
    kind: Annotated[str, typer.Option(help=f"what it is: {', '.join(TEMPLATES)}")] = "algorithm",
) -> None:
    """Write the file of a part of one's own, commented, which runs at once."""
    if kind not in TEMPLATES:
        raise UserError(f"--kind: {nearest(kind, [*TEMPLATES])}")
    if not NAME.fullmatch(name) or name != name.lower() or keyword.iskeyword(name):
        raise UserError(f"new: {name[:80]!r} is no name: use small letters, digits and _")
    file = Path(f"{name}.py")
    if file.exists():
        raise UserError(f"new: {file} is there already")
    text = written_part(kind, name, file.name)
    write_text(file, text)
    console.print(f"{file}: try it", soft_wrap=True)
    console.print("\n".join(text.splitlines()[2:4]), soft_wrap=True)


@commands.command()
def check(
    plugin: Annotated[
        str,
        typer.Argument(
            metavar="FILE|MODULE", callback=path, help="a .py file or an installed module"
        ),
    ],
) -> None:
    """Try the parts of a file as our own are tried: bits, resuming, lost actors, bytes, and what
    its family asks.
    """
    from orchestrator.cli.checked import show_checks

    show_checks(plugin)
