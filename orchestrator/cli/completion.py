"""What a shell offers when Tab is pressed: names of parts and keys, those of plugins among them."""

from __future__ import annotations

import os
from typing import Any

from orchestrator.errors import UserError

VARIABLE = "_FEDORCH_COMPLETE"
"""By it the shell's script asks the command."""
SHELLS = ("bash", "zsh", "fish", "powershell")


def prepare() -> None:
    """Know the shells, where one of them is asking."""
    if VARIABLE in os.environ:
        # typer only calls it where it adds options of its own, which write to the user's files
        from typer._completion_classes import completion_init

        completion_init()


def script(shell: str) -> str:
    """What a shell has to run once; raises UserError for one that is not known."""
    if shell not in SHELLS:
        raise UserError(f"completion: give one of {', '.join(SHELLS)}, not {shell[:40]!r}")
    from typer._completion_shared import get_completion_script

    return get_completion_script(prog_name="fedorch", complete_var=VARIABLE, shell=shell)


def kinds(incomplete: str) -> list[str]:
    """Kinds of parts that begin so."""
    from orchestrator.cli.catalogue import KINDS

    return _beginning(list(KINDS), incomplete)


def names(ctx: Any, incomplete: str) -> list[str]:
    """Names of parts (of the plugins on the line, too), sections and keys."""
    from orchestrator.cli.catalogue import everything

    _take(ctx)
    return _beginning(everything(), incomplete)


def settings(ctx: Any, incomplete: str) -> list[str]:
    """``key=``, and behind it the names of the parts that the key takes."""
    from orchestrator.cli.catalogue import keys, parts_at

    _take(ctx)
    key, equals, begun = incomplete.partition("=")
    if not equals:
        return [f"{one}=" for one in _beginning(keys(), incomplete)]
    return [f"{key}={name}" for name in _beginning(parts_at(key), begun)]


def _take(ctx: Any) -> None:
    """The plugins on the line; one that cannot be had has no names."""
    from orchestrator.plugins.taken import installed, take_named

    try:
        installed()
        take_named(ctx.params.get("plugin") or ())
    except UserError:
        return


def _beginning(known: list[str], incomplete: str) -> list[str]:
    return [one for one in known if one.startswith(incomplete)]
