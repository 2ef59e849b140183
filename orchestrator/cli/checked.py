"""``fedorch check``: the battery on the parts of a file, as a table."""

from __future__ import annotations

from rich.table import Column, Table

from orchestrator.cli.catalogue import KINDS
from orchestrator.conformance.battery import Outcome, outcomes, trials
from orchestrator.errors import UserError
from orchestrator.plugins.sources import is_ours
from orchestrator.terminal import bar, console


def show_checks(plugin: str) -> None:
    """Check all parts of a file or module; raises UserError if one fails, or they are ours."""
    if is_ours(plugin) and not plugin.endswith(".py"):
        raise UserError(f"check {plugin}: is of fedorch itself, whose own tests try its parts")
    found: list[Outcome] = []
    with bar() as progress:
        for trial in trials(plugin, KINDS):
            task = progress.add_task(trial.name, total=None, note="")

            def said(title: str, task: int = task) -> None:
                progress.update(task, note=title)  # type: ignore[arg-type]

            found += outcomes(trial, said)
            progress.update(task, total=1, completed=1, note="")
    table = Table("part", Column("check", ratio=2), "", Column("why", ratio=3))
    for one in found:
        table.add_row(one.part, one.check, one.said, one.why)
    console.print(table)
    failed = [one for one in found if one.said == "fails"]
    if failed:
        raise UserError(f"check: {len(failed)} of {len(found)} checks fail")
    console.print(f"{len(found)} checks: all that apply are passed")
