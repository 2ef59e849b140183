"""Judging models: which test rows there are, and what a round's record and table of clients say.

Each distinct row is evaluated once, and every metric is a float64 mean over rows, so that no number
depends on how many actors did the work.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch

from algorithms.algorithm import Algorithm
from algorithms.finite import all_finite
from algorithms.local import GivenModel
from algorithms.parts.losses import Loss
from algorithms.parts.metrics import Metric, each_token, nameable
from orchestrator.clients.federation import Federation
from orchestrator.config.schema import EvaluationConfig
from orchestrator.data.federated import SPLITS, FederatedData
from orchestrator.errors import Diverged, UserError
from orchestrator.results.columns import OF_A_CLIENT
from orchestrator.rounds.metrics import Record, over_clients, over_rows, spread
from orchestrator.training.evaluation import per_client
from orchestrator.training.messages import BUFFERS

if TYPE_CHECKING:
    from torch import Tensor

ClientTable = dict[str, np.ndarray]
"""Column -> a value of each client [N]."""


NOTHING = np.empty(0, np.int64)


@dataclass(frozen=True)
class Judged:
    """Distinct rows to evaluate, and the places among them of what is asked for."""

    rows: np.ndarray
    sets: Mapping[str, np.ndarray]
    """What the server is judged by ("test", "validation", "heldout") -> its rows' places."""
    clients: Mapping[str, np.ndarray]
    """Of ``SPLITS`` -> the clients' own, one client after the other; empty where they are not
    asked."""

    @classmethod
    def of(cls, data: FederatedData, with_clients: bool) -> Judged:
        """The rows that a round's evaluation looks at."""
        sets = {
            "test": data.test_rows,
            "validation": data.validation_rows,
            "heldout": data.heldout_rows,
        }
        own = {"test": data.test.rows, "validation": data.validation.rows}
        clients = own if with_clients else dict.fromkeys(own, NOTHING)
        groups = (*sets.values(), *clients.values())
        # clients may share rows, and have them from the global sets
        rows, found_at = np.unique(np.concatenate(groups), return_inverse=True)
        places = np.split(found_at, np.cumsum([len(group) for group in groups])[:-1])
        first, last = places[: len(sets)], places[len(sets) :]
        return cls(rows, dict(zip(sets, first, strict=True)), dict(zip(own, last, strict=True)))


class Judge:
    """Evaluates an algorithm's models after a round."""

    def __init__(
        self,
        evaluation: EvaluationConfig,
        loss: Loss,
        algorithm: Algorithm,
        federation: Federation,
    ) -> None:
        self.evaluation, self.loss = evaluation, loss
        self.algorithm, self.federation = algorithm, federation
        self.data = federation.data
        self.benign = federation.terms.adversary.benign
        """Mask [N] of the clients whose metrics count."""
        self.judged = Judged.of(self.data, evaluation.clients)

    def judge(self) -> tuple[Record, ClientTable]:
        """All accuracy metrics, and their values by client; of a model for all where the algorithm
        makes one.
        """
        if self.algorithm.options.makes_common:
            record, table = self.of(self.algorithm.model(), self.algorithm.statistics())
        else:
            sizes = {f"{split}_rows": self._sizes(split).astype(float) for split in SPLITS}
            held = {name: rows for name, rows in sizes.items() if rows.any()}
            record, table = {}, self._told() | held
        for split, sums in self._personal().items():
            record |= self._over_benign(sums, "personal", split)
            correct, loss, rows = sums.T
            if not np.isnan(correct).any():
                table |= _columns("personal_accuracy", correct, rows, split)
            table |= _columns("personal_loss", loss, rows, split)
        return record, table

    def of(self, w: Tensor, buffers: Tensor) -> tuple[Record, ClientTable]:
        """Those of one model [d] for all, with its batch-norm statistics [b]."""
        judged = self.judged
        loss, hit, outputs = self.federation.per_sample(w, buffers, judged.rows)
        losses, hits = loss.numpy(), hit.numpy()
        record: Record = {}
        for name, places in judged.sets.items():
            record |= over_rows(losses[places], hits[places], name)
        table = self._told()
        if self.evaluation.clients:
            for split, places in judged.clients.items():
                sums = per_client(loss[places], hit[places], self._sizes(split)).numpy()
                record |= self._over_benign(sums, "client", split)
                table |= _means(sums, split)
        for metric in self.evaluation.metrics:
            measured, columns = self._measured(metric, outputs)
            record, table = record | measured, table | columns
        return record, table

    def _told(self) -> ClientTable:
        """Who is malicious, and what the algorithm says of each client, as it is now. Raises
        UserError for what is no number of each, and for a name of ours.
        """
        table: ClientTable = {} if self.benign.all() else {"malicious": ~self.benign}
        for name, given in self.algorithm.by_client().items():
            values, n = np.array(given), self.data.clients  # a copy: it may go on changing its own
            who = f"algorithm {self.algorithm.options.name}: by_client returns {name!r}"
            if values.shape != (n,) or values.dtype.kind not in "biuf":
                raise UserError(f"{who} that is not a number of each of {n} clients")
            if not nameable(name):
                raise UserError(f"{who} as the name of a column; names are texts of one line")
            if name in OF_A_CLIENT or name in self._columns:
                raise UserError(f"{who}, which is a column that is there anyway; rename it")
            table[name] = values
        return table

    @cached_property
    def _columns(self) -> set[str]:
        """Names of the columns that clients' results have."""
        measured = ("accuracy", "loss", "personal_accuracy", "personal_loss")
        names = (*measured, *(metric.called for metric in self.evaluation.metrics))
        return {_named(name, split) for name in names for split in SPLITS}

    def _measured(self, metric: Metric, outputs: Tensor) -> tuple[Record, ClientTable]:
        """A metric of the model that made ``outputs`` [n, o] of the judged rows: of the server's
        sets, and of each client's own rows.
        """
        record: Record = {}
        table: ClientTable = {}
        for name, places in self.judged.sets.items():
            if len(places):
                record[f"{name}_{metric.called}"] = self._value(metric, outputs, places)
        for split, places in self.judged.clients.items():
            if len(places):
                each = np.split(places, np.cumsum(self._sizes(split))[:-1])
                values = np.array([self._value(metric, outputs, mine) for mine in each])
                table[_named(metric.called, split)] = values
                name = f"{_named('client', split)}_{metric.called}"
                # who has no rows that it is defined by is left out, and no model that diverged
                told = ~np.isnan(values) | [not all_finite([outputs[mine]]) for mine in each]
                record |= spread(values[self.benign & told], name, metric.side)
        return record, table

    def _value(self, metric: Metric, outputs: Tensor, places: np.ndarray) -> float:
        """NaN of no rows."""
        if not len(places):
            return math.nan
        samples, rows = self.data.samples, self.judged.rows[places]
        made, targets = outputs[torch.from_numpy(places)], torch.from_numpy(samples.wanted[rows])
        if samples.tags:
            made, targets = each_token(made.view(len(rows), *samples.made), targets)
        made = made if metric.given == "outputs" else self.loss.scores(made)
        try:
            return metric.number(made, targets)
        except ValueError as error:  # one of the user's own
            kind = UserError if all_finite(made) else Diverged
            raise kind(str(error)) from error

    def _sizes(self, split: str) -> np.ndarray:
        """Rows of each client [N]."""
        return (self.data.test if split == "test" else self.data.validation).sizes

    def _over_benign(self, sums: np.ndarray, whose: str, split: str) -> Record:
        return over_clients(sums[self.benign], _named(whose, split))

    def _personal(self) -> dict[str, np.ndarray]:
        """Of ``SPLITS`` -> correct answers, summed loss and rows [N, 3] of each client's own model,
        where there are such models: personal ones, or those that were trained in the round.
        """
        models = self.algorithm.personal_models()
        rule = self.algorithm.personal_rule() or (None if models is None else GivenModel())
        if rule is not None and self.evaluation.personal:
            known = {"w": self.algorithm.model(), BUFFERS: self.algorithm.statistics()}
            everyone = np.arange(self.data.clients)
            own = {} if models is None else {"model": models}
            with self.federation.judging(everyone, rule, known, own) as session:
                session.evaluate()
        # who was not in the round has no rows here, and is left out of the means
        return {
            split: np.array([found.get(k, (0.0, 0.0, 0.0)) for k in range(self.data.clients)])
            for split, found in self.federation.log.personal.items()
        }


def keeps_personal_models(algorithm: Algorithm) -> bool:
    """Whether each client has a model of its own, here or on the server."""
    return algorithm.personal_models() is not None or algorithm.personal_rule() is not None


def _named(name: str, split: str) -> str:
    """What a metric, or a column, of test rows is called; of validation rows it says so."""
    return name if split == "test" else f"{name}_{split}"


def _means(sums: np.ndarray, split: str) -> ClientTable:
    """The columns of each client's results [N, 3]."""
    correct, loss, rows = sums.T
    losses = _columns("loss", loss, rows, split)
    if not losses:
        return {}
    # of targets that are numbers nobody can say what is right
    known = not np.isnan(correct).any()
    accuracy = _columns("accuracy", correct, rows, split) if known else {}
    return {**accuracy, **losses, f"{split}_rows": rows}


def _columns(name: str, total: np.ndarray, rows: np.ndarray, split: str) -> ClientTable:
    """The means [N] over each client's rows, under their name; NaN for a client without any, and
    nothing if nobody has.
    """
    if split != "test" and not rows.any():
        return {}
    mean = np.divide(total, rows, out=np.full(len(rows), np.nan), where=rows > 0)
    return {_named(name, split): mean}
