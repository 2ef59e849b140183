"""report.html: what was run, how it ended, what it did, whom it serves, what it cost."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from orchestrator.config import Config
from orchestrator.files import said
from orchestrator.pages import page
from orchestrator.pages.figures import Figures
from orchestrator.pages.sentence import about, told
from orchestrator.results.columns import of_client, of_round
from orchestrator.results.contents import CONFIG
from orchestrator.results.result import Result
from orchestrator.results.run_folder import RunFolder
from orchestrator.results.usage import inputs_left, parameters_of
from orchestrator.terminal import HEADLINES, decimals

FIRST = 10
"""Clients that the table shows at first: the worst."""
MOST_CLIENTS = 1000
"""Rows of the table of clients."""
WORST_BY = {"accuracy": True, "personal_accuracy": True, "loss": False, "personal_loss": False}
"""Columns by the first of which that a run has clients are ordered, and whether the least of it is
the worst."""
TILES = (
    "test_accuracy", "client_accuracy_worst", "personal_accuracy_mean", "personal_accuracy_worst",
    "test_loss", "heldout_accuracy",
)  # fmt: skip


def report_of(folder: RunFolder, config: Config) -> str:
    """The page, from the run's files; raises UserError if they cannot be read."""
    result, clients = folder.result(), folder.clients()
    figures = figures_of(folder)
    with said(f"cannot read {folder.path / CONFIG}"):
        text = (folder.path / CONFIG).read_text(encoding="utf-8")
    body = (
        _head(
            result["name"],
            told(config, result, parameters_of(folder, result)),
            result.get("account", []),
            result.get("notes", []),
        )
        + page.tiles(_tiles(result))
        + _sections(config, figures, clients, inputs_left(folder).get("clients", []))
        + page.section(
            "In full",
            page.folded_facts("all numbers of the last round", _numbers(result))
            + page.folded_facts("where it came from", _origin(result))
            + page.folded("its config", f'<pre tabindex="0">{html.escape(text)}</pre>\n'),
        )
    )
    title = f"{result['name']}: {result['status']} after {result['rounds']} rounds"
    return _page(title, body, figures)


def page_so_far(config: Config, rounds: pd.DataFrame, clients: pd.DataFrame) -> str:
    """What there is to show of a run under way: of the rounds that it has kept in a checkpoint."""
    figures = Figures.of(rounds, clients)
    done = f"Round {len(rounds)} of {config.rounds}, when it last kept what it has."
    body = _head(config.name, [f"{about(config)}.", done]) + _sections(config, figures, clients)
    return _page(f"{config.name}: round {len(rounds)} of {config.rounds}", body, figures)


def _page(title: str, body: str, figures: Figures) -> str:
    charts = [page.chart(drawing) for drawing in figures]
    return page.page(title, body, charts, {"rounds": figures.table.values()})


def _head(
    name: str, lead: Sequence[str], account: Sequence[str] = (), notes: Sequence[str] = ()
) -> str:
    return (
        f"<h1>{html.escape(name)}</h1>\n"
        + "".join(f'<p class="lead">{html.escape(sentence)}</p>\n' for sentence in lead)
        + "".join(f'<p class="did">{html.escape(sentence)}</p>\n' for sentence in account)
        + "".join(f'<p class="said">note: {html.escape(note)}</p>\n' for note in notes)
    )


def _sections(
    config: Config, figures: Figures, clients: pd.DataFrame, names: Sequence[str] = ()
) -> str:
    """All figures, by what they are about, and the table of clients."""
    of = {what: page.figures(some) if some else "" for what, some in figures.sections.items()}
    return (
        page.axis_choice(figures.table.axes)
        + page.HINT
        + page.section("How good it is", of["good"])
        + page.section(f"What {_who(config)} did", of["did"])
        + page.section("The clients", of["clients"] + _clients(clients, names))
        + page.section("Who holds what", of["data"])
        + page.section("What it cost", of["cost"])
    )


def figures_of(folder: RunFolder) -> Figures:
    """All figures of the run; raises UserError if its files cannot be read."""
    held, labels = folder.holdings(), inputs_left(folder).get("classes", [])
    holdings = None
    if len(held):
        holdings = np.zeros((1 + held["client"].max(), max(1 + held["label"].max(), len(labels))))
        holdings[held["client"], held["label"]] = held["rows"]
    return Figures.of(folder.rounds(), folder.clients(), holdings, labels)


def _who(config: Config) -> str:
    """The algorithm, and what ends its rounds where that is a method of its own."""
    end = config.round_end.name
    usual = end == Config.model_fields["round_end"].default.name
    return config.algorithm.name if usual else f"{config.algorithm.name} with {end}"


def _tiles(result: Result) -> Iterator[tuple[str, str]]:
    metrics = result["metrics"]
    for key in [key for key in TILES if key in metrics][:3]:
        yield HEADLINES[key], f"{metrics[key]:.{decimals(metrics[key], 4)}f}"
    yield "rounds", f"{result['rounds']:,}"
    yield "MB up / down", f"{result['bytes_up'] / 1e6:,.1f} / {result['bytes_down'] / 1e6:,.1f}"
    yield "seconds", f"{result['seconds']:,.1f}"


def _numbers(result: Result) -> Iterator[tuple[str, str, str]]:
    for name, value in result["metrics"].items():
        yield name, _shown(value), of_round(name)


def _origin(result: Result) -> Iterator[tuple[str, str, str]]:
    about: Mapping[str, object] = result
    for key, meaning in ORIGIN.items():
        if about.get(key) is not None:
            yield key, str(about[key]), meaning
    for name, version in result["versions"].items():
        yield f"version of {name}", version, ""
    for name, digest in result.get("plugins", {}).items():
        yield f"plugin {name}", digest, "SHA-256 of a part of one's own"


ORIGIN = {
    "seed": "every random draw is a function of it",
    "weights_sha256": "digest of the model: the same on every machine, with any number of actors",
    "state_sha256": "digest of the whole server's state and every client's",
    "data_sha256": "digest of the data, and of who holds which rows",
    "git_commit": "of the code that ran",
    "actors": "client actors at the end",
    "actors_replaced": "client actors that died and were replaced",
}


def _clients(clients: pd.DataFrame, names: Sequence[str] = ()) -> str:
    """Every client after the last evaluated round, the worst first; by ``names``, if any."""
    if clients.empty:
        return ""
    last = clients[clients["round"] == clients["round"].max()].drop(columns="round")
    by = next((c for c in WORST_BY if c in last), None)
    if by:
        # a model of NaN says nothing of a client's rows, and nothing is worse
        gone = last[by].isna() & last.get("test_rows", pd.Series(0, last.index)).gt(0)
        last = last.sort_values(by, kind="stable", ascending=WORST_BY[by])
        last = pd.concat([last[gone.loc[last.index]], last[~gone.loc[last.index]]])
    columns = [(str(c).replace("_", " "), of_client(str(c))) for c in last]
    rows = [
        [_shown(value) if np.isfinite(value) else "" for value in row]
        for row in last.head(MOST_CLIENTS).itertuples(index=False)
    ]
    if names:
        columns.insert(1, ("name", "what the data call it"))
        for row, k in zip(rows, last["client"], strict=False):
            row.insert(1, names[int(k)])
    kept = (
        f" The {MOST_CLIENTS:,} {'worst' if by else 'first'} of {len(last):,} are here; "
        "clients.parquet has all."
        if len(last) > MOST_CLIENTS
        else ""
    )
    order = "the worst first; " if by else ""
    head = (
        f"<p>After the last round that was evaluated, {order}a column's name sorts by it.{kept}</p>"
    )
    return head + page.sortable("clients", columns, rows, FIRST)


def _shown(value: float) -> str:
    number = float(value)
    whole = np.isfinite(number) and number == int(number)
    return f"{number:,.0f}" if whole else f"{number:,.4g}"
