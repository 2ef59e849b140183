"""The Grafana dashboard of fedorch's metrics, beside the ones that Ray provides."""

from __future__ import annotations

from typing import Any

from orchestrator.monitoring.signals import BYTES, PHASE_SECONDS, SIGNALS

FILE = "fedorch_grafana_dashboard.json"
CHOSEN = '{experiment=~"$experiment", trial=~"$trial"}'
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH, HEIGHT = 8, 7
"""Of a panel, in Grafana's grid of 24 columns."""


def dashboard() -> dict[str, Any]:
    """Grafana's JSON: one panel for each signal, the phases of a round, and the traffic."""
    # max: Ray labels each series with its process, and a run that was continued has several
    plots = [
        (
            s.about,
            f"max by (experiment, trial) (ray_{s.name}{CHOSEN})",
            "{{experiment}} {{trial}}",
            s.unit,
        )
        for s in SIGNALS
    ]
    plots.append(
        (
            "Phases of a round",
            f"max by (experiment, trial, phase) (ray_{PHASE_SECONDS}{CHOSEN})",
            "{{experiment}} {{trial}} {{phase}}",
            "s",
        )
    )
    plots.append(
        (
            "Bytes a second, up and down",
            f"sum by (experiment, direction) (rate(ray_{BYTES}{CHOSEN}[1m]))",
            "{{experiment}} {{direction}}",
            "Bps",
        )
    )
    return {
        "uid": "fedorch",
        "title": "fedorch",
        "tags": ["fedorch"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_source(), _choice("experiment"), _choice("trial")]},
        "panels": [_panel(i, *plot) for i, plot in enumerate(plots)],
    }


def _panel(number: int, title: str, query: str, legend: str, unit: str) -> dict[str, Any]:
    columns = 24 // WIDTH
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": title,
        "datasource": SOURCE,
        "gridPos": {
            "x": number % columns * WIDTH,
            "y": number // columns * HEIGHT,
            "w": WIDTH,
            "h": HEIGHT,
        },
        "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
        "targets": [{"refId": "A", "datasource": SOURCE, "expr": query, "legendFormat": legend}],
    }


def _source() -> dict[str, Any]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus"}


def _choice(label: str) -> dict[str, Any]:
    """A menu of a label's values, from the one metric that every run has."""
    return {
        "name": label,
        "type": "query",
        "datasource": SOURCE,
        "query": f"label_values(ray_fedorch_round, {label})",
        # the menu is read again whenever the time range changes
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }
