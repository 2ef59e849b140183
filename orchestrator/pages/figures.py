"""The figures of a run: what every run has, and what its parts declare (algorithms/figure.py)."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from algorithms.figure import Axis, Figure
from algorithms.part import Part, members, nearest
from orchestrator.errors import UserError
from orchestrator.pages import charts
from orchestrator.pages.library import Spec
from orchestrator.pages.table import MEASURED, SO_FAR, Rows, Table, numbers, with_traffic
from orchestrator.results.columns import OF_ONE_MODEL
from orchestrator.terminal import further

ACCURACY = {
    "test_accuracy": "test set",
    "client_accuracy_mean": "clients, mean",
    "client_accuracy_worst": "clients, worst",
    "personal_accuracy_mean": "personal models, mean",
    "heldout_accuracy": "held-out set",
}
LOSS = {"test_loss": "test set", "train_loss": "local training", "heldout_loss": "held-out set"}
GOOD = (
    Figure(
        "accuracy", "Accuracy", "part of the rows that is right, where it was measured",
        "accuracy", ACCURACY,
    ),
    Figure(
        "clients", "How alike the clients are served",
        "accuracy of the model on each client's own test rows: the best and the worst tenth of the "
        "clients, their mean, the worst one",
        "accuracy",
        {
            "client_accuracy_best10": "best tenth", "client_accuracy_mean": "mean",
            "client_accuracy_worst10": "worst tenth", "client_accuracy_worst": "worst",
        },
    ),
    Figure(
        "personal", "How alike their own models serve them",
        "accuracy of each client's personal model on its own test rows",
        "accuracy",
        {
            "personal_accuracy_best10": "best tenth", "personal_accuracy_mean": "mean",
            "personal_accuracy_worst10": "worst tenth", "personal_accuracy_worst": "worst",
        },
    ),
    Figure("loss", "Loss", "mean over rows; of local training over the steps of a round", "loss",
           LOSS),
)  # fmt: skip
DID = (
    Figure(
        "attackers", "What the attackers had of the aggregate",
        "part of the clients that it counted which are malicious, and of its weight: 0 is the "
        "defence's aim",
        "part",
        {"malicious_selected": "of its clients", "malicious_weight": "of its weight"},
        bounds=(0, 1),
    ),
    Figure(
        "weights", "Whose updates counted, and how much",
        "part of the round's aggregate that each client's update was; nothing for clients that "
        "sent none; a ◂ at the right stands beside every attacker",
        "weight", client="weight",
    ),
    Figure(
        "influence", "How many clients the aggregate is like a mean of",
        "1/Σp² of the weights p: the cohort's size if all count alike", "clients",
        {"effective_clients": "1/Σp²", "cohort": "cohort"},
    ),
    Figure("updates", "Length of the clients' updates", "mean over the cohort's honest clients",
           "L2 norm", {"update_norm": "‖update‖"}),
    Figure("dropped", "Clients that did not count", "too late, lost, or without finite numbers",
           "clients", {"dropped": "dropped", "unjudged": "not judged"}),
)  # fmt: skip
COST = (
    Figure("traffic", "Bytes transmitted", "as a deployment would transmit them", "MB",
           {SO_FAR["bytes_down"]: "server to clients", SO_FAR["bytes_up"]: "clients to server"}),
    Figure(
        "seconds", "Where a round's time went",
        "the round's parts by the clock on the wall, and what one client computed",
        "seconds",
        {
            "seconds_train": "client actors", "seconds_transfer": "transfer",
            "seconds_aggregate": "server", "seconds_evaluate": "evaluation",
            "seconds_client": "one client's computing",
        },
    ),
)  # fmt: skip
DULL: Mapping[str, Callable[[pd.DataFrame], bool]] = {
    "dropped": lambda rounds: not rounds["dropped"].any(),
    "influence": lambda rounds: np.allclose(
        rounds["effective_clients"], rounds["cohort"], equal_nan=True
    ),
}
"""Figures that say nothing of a run in which all is as usual."""
OF_CLIENTS = ("distribution", "holdings")
"""Names of figures that are of no columns of rounds."""
MOST_CELLS = (60, 100)
"""Rounds and clients that a map shows; of more several share a cell."""


@dataclass(frozen=True)
class Drawing:
    """A figure of one run, ready to be drawn."""

    name: str
    title: str
    about: str
    make: Callable[[str, bool], Spec]
    """Its chart over an axis; whether it is a picture, without what answers a mouse."""
    over: Axis | None = None
    """The axis at first; None where there is no choice."""
    data: Mapping[str, Rows] = field(default_factory=dict)
    """Name -> rows, beside the table of rounds."""

    def spec(self, over: str, still: bool) -> Spec:
        """The chart with its explanation, which is also read aloud."""
        return {**self.make(over, still), "description": f"{self.title}: {self.about}"}

    def still(self, over: str = "", shared: Mapping[str, Rows] | None = None) -> Spec:
        """The chart with its data, and those that it has in common with others, for a picture."""
        data = {**(shared or {}), **self.data}
        return {**self.spec(over or self.over or "round", still=True), "datasets": data}


@dataclass(frozen=True)
class Figures:
    """All figures of one run, by what they are about, and the table of rounds that they share."""

    table: Table
    sections: Mapping[str, Sequence[Drawing]]

    @classmethod
    def of(
        cls, rounds: pd.DataFrame, clients: pd.DataFrame, holdings: np.ndarray | None = None,
        labels: Sequence[str] = (),
    ) -> Figures:  # fmt: skip
        """Of a run's tables and its training rows per client and label [N, L]."""
        rounds = with_traffic(rounds)
        declared = [f for part in members(Part) for f in vars(part).get("figures", ())]
        ours = [*GOOD, *declared, *DID, *COST]
        metrics = [_of_metric(name, ours) for name in further(map(str, rounds))]
        wanted = {"good": [*GOOD, *metrics], "did": [*declared, *DID], "cost": [*COST]}
        lines = {
            what: [(f, _lines(f, rounds)) for n, f in enumerate(figures) if f not in figures[:n]]
            for what, figures in wanted.items()
        }
        table = Table.of(
            rounds, [column for some in lines.values() for _, its in some for column in its]
        )
        drawn = {
            what: [
                drawing
                for f, its in some
                if (drawing := _drawing(f, its, table, clients)) is not None
            ]
            for what, some in lines.items()
        }
        sections = _told_apart(drawn)
        sections["clients"] = [*_distribution(clients)]
        sections["data"] = [] if holdings is None else [_holdings(holdings, labels)]
        return cls(table, sections)

    def __iter__(self) -> Iterator[Drawing]:
        return (drawing for some in self.sections.values() for drawing in some)

    def named(self, name: str) -> Drawing:
        """Raises UserError for one that the run does not have."""
        known = {drawing.name: drawing for drawing in self}
        if name not in known:
            raise UserError(f"--figure: the run has no {name!r}; {nearest(name, [*known])}")
        return known[name]


def _told_apart(sections: Mapping[str, Sequence[Drawing]]) -> dict[str, Sequence[Drawing]]:
    """With names of their own for those that are called like others before them: a part of one's
    own may call its figures as it likes.
    """
    seen: set[str] = set(OF_CLIENTS)
    found: dict[str, Sequence[Drawing]] = {}
    for what, drawings in sections.items():
        each = []
        for drawing in drawings:
            numbered = (f"{drawing.name}_{n}" for n in itertools.count(2))
            name = next(one for one in itertools.chain([drawing.name], numbered) if one not in seen)
            seen.add(name)
            each.append(replace(drawing, name=name))
        found[what] = each
    return found


def _of_metric(name: str, others: Sequence[Figure]) -> Figure:
    """One of the config's ``evaluation.metrics``; by its column's name where ``others`` have its
    own.
    """
    words = name.replace("_", " ")
    taken = name in OF_CLIENTS or any(name == figure.name for figure in others)
    return Figure(
        f"test_{name}" if taken else name, words.capitalize(),
        f"{words}, of the model on the test set and on the clients' rows",
        words,
        {
            f"test_{name}": "test set", f"client_{name}_mean": "clients, mean",
            f"client_{name}_worst": "clients, worst",
        },
    )  # fmt: skip


def _lines(figure: Figure, rounds: pd.DataFrame) -> dict[str, str]:
    """Column -> name of the curves that the run has numbers for."""
    found: dict[str, str] = {}
    for column, label in figure.curves.items():
        if column.endswith("_*"):
            pattern = re.compile(re.escape(column[:-1]) + r"(\d+)")
            numbered = [(c, m[1]) for c in map(str, rounds) if (m := pattern.fullmatch(c))]
            found |= {c: f"{label} {number}" for c, number in numbered}
        elif column in rounds:
            found[column] = label
    first = next(iter(figure.curves), "")
    # else the columns are those of another part, which has figures of its own
    if not found or (figure not in GOOD and not first.endswith("_*") and first not in found):
        return {}
    if figure in DID and figure.name in DULL and DULL[figure.name](rounds):
        return {}
    return {c: label for c, label in found.items() if np.isfinite(rounds[c]).any()}


def _drawing(
    figure: Figure, lines: Mapping[str, str], table: Table, clients: pd.DataFrame
) -> Drawing | None:
    """None where the run has recorded nothing of it."""
    if figure.client:
        rows = _cells(clients, figure.client)
        if not rows:
            return None
        return Drawing(
            figure.name, figure.title, figure.about,
            lambda over, still: charts.over_clients(figure.y, still),
            data={"clients-map": rows},
        )  # fmt: skip
    if not lines:
        return None
    named = {table.name(column): label for column, label in lines.items()}
    limits = [table.name(column) for column in figure.limits if column in lines]
    judged = [c for c in lines if c.startswith(OF_ONE_MODEL) and MEASURED in table.axes]
    measured = [table.name(column) for column in judged]
    # a curve that is alone has no legend
    alone = len(lines) == 1 < len(figure.curves)
    y = f"{figure.y}, {next(iter(lines.values()))}" if alone else figure.y

    def make(over: str, still: bool) -> Spec:
        return charts.curves(named, y, over, figure.ticks, figure.bounds, still, limits, measured)

    over: Axis = figure.over if figure.over in table.axes else "round"
    return Drawing(figure.name, figure.title, figure.about, make, over)


def _cells(clients: pd.DataFrame, column: str) -> Rows:
    """The column over clients and evaluated rounds; consecutive ones share a cell where there are
    too many.
    """
    if column not in clients or not np.isfinite(clients[column]).any():
        return []
    whole = clients.pivot(index="client", columns="round", values=column)
    some_rounds = math.ceil(whole.shape[1] / MOST_CELLS[0])
    bad = {*clients.loc[clients["malicious"] == 1, "client"]} if "malicious" in clients else set()
    # of some rounds the last one, of some clients their mean
    whole = whole.iloc[:, ::-1].iloc[:, ::some_rounds].iloc[:, ::-1]
    return [
        {"client": _span(whole.index[some].to_numpy(), bad), "round": int(t), "value": value}
        for some in _grouped(len(whole))
        for t, value in zip(whole.columns, numbers(whole.iloc[some].mean()), strict=True)
        if value is not None
    ]


def _grouped(many: int) -> list[np.ndarray]:
    """0 to ``many`` - 1 in as many groups as a map shows."""
    each = max(1, math.ceil(many / MOST_CELLS[1]))
    return np.split(np.arange(many), range(each, many, each))


def _span(names: np.ndarray, attackers: Collection[int] = ()) -> str:
    """Clients that share a cell; those that attack are marked."""
    marked = charts.ATTACKS if all(name in attackers for name in names) else ""
    return f"{names[0]}{marked}" if len(names) == 1 else f"{names[0]}–{names[-1]}{marked}"


def _distribution(clients: pd.DataFrame) -> Iterator[Drawing]:
    """How many clients are served how well after the last evaluated round."""
    kinds = {"accuracy": "the judged model", "personal_accuracy": "their own models"}
    last = clients[clients["round"] == clients["round"].max()] if len(clients) else clients
    if "malicious" in last:  # as in every metric over clients
        last = last[last["malicious"] == 0]
    rows: Rows = [
        {"kind": kind, "value": value}
        for column, kind in kinds.items()
        if column in last
        for value in numbers(last[column])
        if value is not None
    ]
    if not rows:
        return
    names = list(dict.fromkeys(row["kind"] for row in rows))
    x = "accuracy on a client's own test rows"
    yield Drawing(
        "distribution", "Clients by accuracy", "how many clients have which accuracy on their own "
        "test rows, after the last round that was evaluated",
        lambda over, still: charts.distribution(names, x, still),
        data={"clients": rows},
    )  # fmt: skip


def _holdings(rows: np.ndarray, labels: Sequence[str]) -> Drawing:
    """Who holds what; consecutive clients share a cell where there are too many, as their mean."""
    clients, few = _grouped(len(rows)), _grouped(rows.shape[1])
    named = list(labels) if len(labels) == rows.shape[1] == len(few) else [_span(g) for g in few]
    cells: Rows = [
        {"client": _span(some), "label": name, "value": value}
        for some in clients
        for name, value in zip(
            named, numbers(rows[some][:, g].sum(1).mean() for g in few), strict=True
        )
    ]
    return Drawing(
        "holdings", "Who holds what", "training rows of each client and label",
        lambda over, still: charts.holdings(still),
        data={"holdings": cells},
    )  # fmt: skip
