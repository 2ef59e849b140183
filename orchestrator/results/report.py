"""report.html: one self-contained page about a run."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from orchestrator.files import said
from orchestrator.results import plots
from orchestrator.results.columns import of_round
from orchestrator.results.result import Result
from orchestrator.results.run_folder import CONFIG, REPORT, RunFolder
from orchestrator.terminal import further

STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;
padding:0 1rem;color:#222}
h1{font-size:1.6rem}h2{font-size:1.1rem;margin-top:2rem}
figure{display:inline-block;width:47%;margin:0 1rem 1rem 0}img{width:100%}
figcaption{color:#666;font-size:.9rem}table{border-collapse:collapse}
td{padding:.15rem .8rem .15rem 0}
td+td{font-variant-numeric:tabular-nums}pre{background:#f6f6f6;padding:1rem;overflow:auto}"""


def write_report(folder: RunFolder, histogram: np.ndarray) -> None:
    """Write report.html from the run's files and its label ``histogram`` [N, classes]."""
    result, rounds, clients = folder.result(), folder.rounds(), folder.clients()
    figures = [
        *_accuracy_figure(rounds),
        (plots.curves({"": rounds}, LOSS, "loss"), "Loss over rounds"),
        *[_metric_figure(rounds, name) for name in further(map(str, rounds))],
        *_client_figures(clients),
        (plots.label_map(histogram), "Who holds what: training rows per client and label"),
        (plots.traffic(rounds), "Bytes transmitted"),
        (
            plots.curves({"": rounds}, SECONDS, "seconds"),
            "Where a round's time went; a client's work",
        ),
    ]
    body = "".join(_figure(f, caption) for f, caption in figures)
    with said(f"cannot read {folder.path / CONFIG}"):
        config = html.escape((folder.path / CONFIG).read_text())
    title = html.escape(f"{result['name']} — {result['status']} after {result['rounds']} rounds")
    page = (
        "<!doctype html><html lang=en><meta "
        f"charset=utf-8><title>{title}</title><style>{STYLE}</style>"
        f"<h1>{title}</h1>{_table(result)}<h2>Figures</h2>{body}<h2>Config</h2><pre>{config}</pre></html>"
    )
    folder.write_text(REPORT, page)


ACCURACY = {
    "test_accuracy": "test set",
    "client_accuracy_mean": "clients, mean",
    "client_accuracy_worst": "clients, worst",
    "personal_accuracy_mean": "personal models, mean",
    "heldout_accuracy": "held-out set",
}
LOSS = {"test_loss": "test set", "train_loss": "local training", "heldout_loss": "held-out set"}
SECONDS = {
    **{f"seconds_{p}": p for p in ("train", "transfer", "aggregate", "evaluate")},
    "seconds_client": "one client's computing",
}


def _accuracy_figure(rounds: pd.DataFrame) -> list[tuple[Figure, str]]:
    """None of targets that are numbers."""
    if not {*ACCURACY} & {*rounds}:
        return []
    return [(plots.curves({"": rounds}, ACCURACY, "accuracy"), "Accuracy over rounds")]


def _metric_figure(rounds: pd.DataFrame, name: str) -> tuple[Figure, str]:
    """One of the config's ``evaluation.metrics``."""
    columns = {
        f"test_{name}": "test set",
        f"client_{name}_mean": "clients, mean",
        f"client_{name}_worst": "clients, worst",
    }
    return plots.curves({"": rounds}, columns, name), f"{html.escape(name)} over rounds"


def _client_figures(clients: pd.DataFrame) -> list[tuple[Figure, str]]:
    if clients.empty:
        return []
    last = clients[clients["round"] == clients["round"].max()]
    kinds = {"accuracy": "the server's model", "personal_accuracy": "their personal models"}
    return [
        (
            plots.accuracy_histogram(last[column].to_numpy()),
            f"Clients by accuracy of {what}, last round",
        )
        for column, what in kinds.items()
        if column in last
    ]


def _figure(figure: Figure, caption: str) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    # inside the page, which is then one file
    data = base64.b64encode(buffer.getvalue()).decode()
    text = html.escape(caption)
    return (
        f'<figure><img alt="{text}" '
        f'src="data:image/png;base64,{data}"><figcaption>{text}</figcaption></figure>'
    )


def _table(result: Result) -> str:
    about: Mapping[str, object] = result
    facts: dict[str, object] = {
        **result["metrics"],
        **{k: about[k] for k in ("bytes_up", "bytes_down", "seconds", "seed")},
    }
    facts |= {k: about[k] for k in ("weights_sha256", "git_commit", "actors", "actors_replaced")}
    facts |= {f"version of {k}": v for k, v in result["versions"].items()}
    rows = "".join(
        f'<tr title="{html.escape(of_round(k))}"><td>{html.escape(k)}<td>{html.escape(_show(v))}'
        for k, v in facts.items()
    )
    return f"<table>{rows}</table>"


def _show(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
