"""What the numbers of runs are of: means over other clients or other rows are no like numbers, nor
are losses by other formulas.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from algorithms.part import Part
from orchestrator.config import Config
from orchestrator.files import json_text
from orchestrator.plugins.sources import is_ours
from orchestrator.results.own_code import CODES
from orchestrator.results.run_folder import RunFolder

if TYPE_CHECKING:
    import pandas as pd

FAMILIES = {
    "client_validation_": "client_validation",
    "personal_validation_": "client_validation",
    "client_": "client",
    "personal_": "client",
    "test_": "test",
    "validation_": "validation",
    "heldout_": "heldout",
}
"""How metrics begin -> which of a run's ``rows_sha256`` theirs is; the longer ones first."""
COLUMNS = {
    "client_": ("test_rows", "accuracy", "loss"),
    "personal_": ("test_rows", "personal_accuracy", "personal_loss"),
    "client_validation_": ("validation_rows", "accuracy_validation", "loss_validation"),
    "personal_validation_": (
        "validation_rows", "personal_accuracy_validation", "personal_loss_validation",
    ),
}  # fmt: skip
"""How metrics of the clients begin -> the columns of clients.parquet with their rows, and those
that accuracy and loss are made of."""
SOME = 6
"""Groups that a sentence has room for."""

Rows: TypeAlias = dict[int, float]
"""Client -> its test rows."""


@dataclass(frozen=True)
class Basis:
    """What a run's last numbers are of."""

    config: Config
    digests: Mapping[str, str]
    """``rows_sha256``; empty of a run of before."""
    clients: pd.DataFrame
    """What is known of each honest client."""
    codes: str
    """``CODES``, as the run has them."""
    metrics: Collection[str] = ()
    """What its last round has reported."""

    @classmethod
    def of(cls, folder: RunFolder) -> Basis:
        result = folder.result()
        codes = " ".join(str(result.get(key, "")) for key in CODES)
        clients = folder.clients()
        last = clients[clients["round"] == clients["round"].max()]
        if "malicious" in last:
            last = last[~last["malicious"].astype(bool)]
        return cls(folder.config(), result.get("rows_sha256", {}), last, codes, result["metrics"])

    def counts(self, what: str) -> Rows:
        """The clients that metrics which begin so (``source``) are over, and their rows; none of
        metrics of all clients.
        """
        if what not in self._counted:
            self._counted[what] = self._count(what)
        return self._counted[what]

    @cached_property
    def _counted(self) -> dict[str, Rows]:
        return {}

    def _count(self, what: str) -> Rows:
        family = family_of(what)
        if family not in COLUMNS:
            return {}
        many, *columns = COLUMNS[family]
        if own := what.removeprefix(family).removesuffix("_"):
            columns = [f"{own}_validation" if "validation" in family else own]
        known = self.clients.reindex(columns=["client", many, *columns])
        judged = known[known[columns].notna().any(axis=1) & (known[many] > 0)]
        return dict(zip(judged["client"].tolist(), judged[many].tolist(), strict=True))

    def source(self, metric: str) -> str | None:
        """How metrics begin that are over the same clients as this one: its family, or for a metric
        that is told apart by client (``evaluation.metrics``), which some do not define, that; None
        of metrics of no family.
        """
        family = family_of(metric)
        called = [f"{family}{one.called}_" for one in self.config.evaluation.metrics]
        own = [one for one in called if metric.startswith(one)] if family in COLUMNS else []
        return max(own, key=len) if own else family

    def has_rows_of(self, other: Basis, what: str) -> bool:
        """Whether metrics that begin so are over the same rows of the same clients; where one of
        both has none, or it is not known, they are.
        """
        mine, theirs, family = self.counts(what), other.counts(what), family_of(what)
        assert family is not None
        if mine and theirs and mine != theirs:
            return False
        key = FAMILIES[family]
        known = {one.digests[key] for one in (self, other) if key in one.digests}
        return len(known) < 2 or (family in COLUMNS and not (mine and theirs))

    def measures(self, metric: str) -> bool:
        """Whether the run's last round has it; all that is known of runs whose numbers are not."""
        return not self.metrics or metric in self.metrics

    def yardstick(self, metric: str) -> str:
        """By which formula a metric is, as far as a config chooses that."""
        chosen = [self.config.loss] if "loss" in metric.split("_") else []
        own = [
            one
            for one in self.config.evaluation.metrics
            if re.search(rf"(^|_){re.escape(one.called)}(_|$)", metric)
        ]
        texts = [text for one in [*chosen, *own] for text in self._formula(one)]
        if any(one.given != "outputs" for one in own):
            texts.append(f"softmax {self.config.loss.softmax is not False}")
        return "\n".join(texts)

    def _formula(self, part: Part) -> Iterator[str]:
        """What a part is, and what code it is of where that is not ours."""
        yield json_text(part.model_dump(mode="json"))
        module = type(part).__module__
        if not is_ours(module):
            known = {plugin.module: plugin.sha256 for plugin in self.config.plugins}
            yield f"{module} {known.get(module, '')} {self.codes}"


@dataclass(frozen=True)
class Judged:
    """What the last numbers of groups of runs are of."""

    groups: Mapping[str, Mapping[int, RunFolder]]
    """Name -> seed -> a run."""

    @cached_property
    def _basis(self) -> dict[str, dict[int, Basis]]:
        """Name -> seed -> what its numbers are of."""
        return {
            name: {seed: Basis.of(folder) for seed, folder in runs.items()}
            for name, runs in self.groups.items()
        }

    def others(self, metric: str, against: str) -> list[str]:
        """The groups in which a metric is of something else than in ``against``; those aside that
        do not report it.
        """
        found = {*self._of_other_rows(metric, against), *self._by_others(metric, against)}
        return [name for name in self.groups if name in found]

    def _of_other_rows(self, metric: str, against: str) -> dict[str, int]:
        """The groups in which it is over other clients, or other rows of theirs, on a seed of both
        -> such a seed, with other numbers of rows if there is one.
        """
        theirs, found = self._basis.get(against, {}), {}
        what = self._source(metric, against)
        for name, its in self._basis.items() if what else ():
            apart = [s for s in its if s in theirs and not its[s].has_rows_of(theirs[s], what)]
            counted = [s for s in apart if its[s].counts(what) != theirs[s].counts(what)]
            if apart:
                found[name] = [*counted, *apart][0]
        return found

    def _source(self, metric: str, against: str) -> str:
        """As a basis of ``against`` has it, or ""."""
        first = next(iter(self._basis.get(against, {}).values()), None)
        return "" if first is None else first.source(metric) or ""

    def _by_others(self, metric: str, against: str) -> list[str]:
        """The groups in which it is by another formula; one of failed runs has none, nor one that
        does not measure it.
        """
        first = {name: next(iter(its.values())) for name, its in self._basis.items() if its}
        first = {name: one for name, one in first.items() if one.measures(metric)}
        if against not in first:
            return []
        one = first[against].yardstick(metric)
        return [name for name, basis in first.items() if basis.yardstick(metric) != one]

    def said(self, metrics: Iterable[str], against: str) -> str:
        """Which of the ``metrics`` are of what, where not all are of the same; or ""."""
        metrics = [*metrics]
        sources = {what: metric for metric in metrics if (what := self._source(metric, against))}
        notes = []
        for what, metric in sources.items():
            if others := self._of_other_rows(metric, against):
                notes.append(
                    f"{what}... is of other clients or other rows, and not tested: "
                    + "; ".join(self._counts(what, others, against))
                )
        by = [metric for metric in metrics if self._by_others(metric, against)]
        if by:
            notes.append(f"by other formulas, and not tested: {', '.join(dict.fromkeys(by))}")
        return "; ".join(notes)

    def _counts(self, what: str, others: Mapping[str, int], against: str) -> Iterable[str]:
        """How many they are in some groups, on a seed on which they are not the same."""
        seed = next(iter(others.values()))
        for name, on in {against: seed, **dict([*others.items()][:SOME])}.items():
            rows = self._basis[name][on].counts(what)
            many = f"{len(rows):,} clients with {sum(rows.values()):,.0f} rows in " if rows else ""
            yield f"{many}{name}"


def family_of(metric: str) -> str | None:
    """Which of ``FAMILIES`` a metric is of; None where it is of none."""
    return next((family for family in FAMILIES if metric.startswith(family)), None)
