"""Which checks a part gets, and what comes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from algorithms.part import Part
from orchestrator.conformance.checks import BATTERY, Check
from orchestrator.conformance.trial import Fault, Inapplicable, Trial
from orchestrator.errors import UserError
from orchestrator.plugins.blame import raised
from orchestrator.plugins.plugin import Plugin
from orchestrator.plugins.taken import parts_of, take

Kinds = Mapping[str, tuple[str, type[Part]]]
"""Kind -> key of a config, and family."""


@dataclass(frozen=True)
class Outcome:
    """What came of one check of one part."""

    part: str
    check: str
    said: Literal["ok", "fails", "does not apply"]
    why: str = ""


def trials(plugin: str, kinds: Kinds) -> list[Trial]:
    """The parts of a file or module that a config can name; raises UserError if there are none."""
    (taken,) = take([Plugin.model_validate(plugin)])
    found = []
    for cls in parts_of(taken.module):
        for key, family in kinds.values():
            if issubclass(cls, family):
                found.append(Trial(cls, key, plugin))
                break
    if not found:
        raise UserError(
            f"{plugin}: it defines no parts (classes that give `name` a default); functions and "
            "modules of torch are tried when a config names them"
        )
    return found


def outcomes(trial: Trial, on_check: Callable[[str], None]) -> Iterator[Outcome]:
    """What came of each check that a part gets, as they are done."""
    for check in BATTERY:
        if issubclass(trial.cls, check.families):
            on_check(check.title)
            yield _outcome(trial, check)


def _outcome(trial: Trial, check: Check) -> Outcome:
    try:
        check.run(trial)
    except Inapplicable as reason:
        return Outcome(trial.name, check.title, "does not apply", str(reason))
    except (Fault, UserError) as error:
        return Outcome(trial.name, check.title, "fails", str(error))
    except Exception as error:  # whatever code of others may raise
        return Outcome(trial.name, check.title, "fails", raised(error))
    return Outcome(trial.name, check.title, "ok")
