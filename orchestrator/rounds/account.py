"""What the parts of a run say that they did in it."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from algorithms.part import Part
from orchestrator.config import Config
from orchestrator.rounds.metrics import Record


def account_of(config: Config, records: Sequence[Record]) -> tuple[list[str], list[str]]:
    """Sentences of the config's parts about the rounds that they were in; notes of those that
    could not say any: a run that has ended is not to be lost by its last words.
    """
    table = pd.DataFrame(records)
    rounds = {str(column): table[column].to_numpy(float) for column in table}
    told: list[str] = []
    notes: list[str] = []
    for part in config.sections():
        if isinstance(part, Part):
            try:
                said = part.account(rounds)
                told += [said] if isinstance(said, str) else [str(sentence) for sentence in said]
            except (Exception, SystemExit) as error:
                notes.append(f"{part.name} cannot say what it did: {type(error).__name__}: {error}")
    return told, notes
