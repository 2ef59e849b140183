"""Whose rows the numbers of runs are of: means over other clients are no like numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from orchestrator.results.run_folder import RunFolder

FAMILIES = {"client_": ("accuracy", "loss"), "personal_": ("personal_accuracy", "personal_loss")}
"""How metrics of the clients begin -> the columns of clients.parquet that they are made of."""
SOME = 6
"""Groups that a sentence has room for."""

Rows: TypeAlias = dict[int, float]
"""Client -> its test rows."""


@dataclass(frozen=True)
class Judged:
    """The clients, and their rows, that the last numbers of groups of runs are over."""

    groups: Mapping[str, Mapping[int, RunFolder]]
    """Name -> seed -> a run."""

    @cached_property
    def _rows(self) -> dict[str, dict[int, dict[str, Rows]]]:
        """Name -> seed -> family -> these; read where a metric is of clients."""
        return {
            name: {seed: rows_of(folder) for seed, folder in runs.items()}
            for name, runs in self.groups.items()
        }

    def others(self, metric: str, against: str) -> list[str]:
        """The groups in which a metric of clients is over other clients, or other test rows of
        theirs, than in ``against``, on a seed of both; those aside that do not report it.
        """
        family = family_of(metric)
        if family is None:
            return []
        theirs = self._rows[against]
        return [
            name
            for name, its in self._rows.items()
            if any(
                its[seed][family] != theirs[seed][family]
                for seed in {*its} & {*theirs}
                if its[seed][family] and theirs[seed][family]
            )
        ]

    def said(self, metrics: Iterable[str], against: str) -> str:
        """Which of the ``metrics`` are over whose rows, where not all are over the same; or ""."""
        families = {family: metric for metric in metrics if (family := family_of(metric))}
        notes = []
        for family, metric in families.items():
            if others := self.others(metric, against):
                shown = "; ".join(self._counts(family, name) for name in [against, *others[:SOME]])
                notes.append(
                    f"{family}... is of other clients or other test rows, and not tested: {shown}"
                )
        return "; ".join(notes)

    def _counts(self, family: str, name: str) -> str:
        """How many they are in a group, on its first seed."""
        rows = next(iter(self._rows[name].values()))[family]
        return f"{len(rows):,} clients with {sum(rows.values()):,.0f} rows in {name}"


def family_of(metric: str) -> str | None:
    """Which of ``FAMILIES`` a metric is of; None where it is not of clients."""
    return next((family for family in FAMILIES if metric.startswith(family)), None)


def rows_of(folder: RunFolder) -> dict[str, Rows]:
    """Family -> the honest clients that a run's last numbers of it are over."""
    clients = folder.clients()
    last = clients[clients["round"] == clients["round"].max()]
    if "test_rows" not in last:
        last = last[:0].assign(test_rows=0.0)
    if "malicious" in last:
        last = last[~last["malicious"].astype(bool)]
    found = {}
    for family, columns in FAMILIES.items():
        known = last.reindex(columns=[*columns]).notna().any(axis=1) & (last["test_rows"] > 0)
        judged = last[known]
        rows = zip(judged["client"].tolist(), judged["test_rows"].tolist(), strict=True)
        found[family] = dict(rows)
    return found
