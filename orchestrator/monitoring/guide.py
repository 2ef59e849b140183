"""``fedorch dashboard``: where to look at a cluster's runs, and at what."""

from __future__ import annotations

import json
import os
from pathlib import Path

from orchestrator.errors import UserError
from orchestrator.files import home
from orchestrator.monitoring.grafana import FILE, dashboard
from orchestrator.terminal import console

SESSION = Path("/tmp/ray/session_latest/metrics/grafana/dashboards")
"""Where Ray keeps the dashboards that its Grafana configuration provisions, on the head node."""


def show_guide(url: str, folder: Path | None) -> None:
    """Print the dashboard's URL and what is there; put the Grafana dashboard into ``folder``, or
    beside Ray's own.

    Raises UserError if the cluster runs no dashboard or the file cannot be written.
    """
    if not url:
        raise UserError(
            "this cluster runs no dashboard; start its head with --include-dashboard=true"
        )
    console.print(f"Ray dashboard: http://{url}")
    if os.environ.get("RAY_AUTH_MODE") == "token":
        console.print(f"  it asks for the cluster's token: {_token_place()}", soft_wrap=True)
    for line in (
        "  Actors: `fedorch NAME server`, and `fedorch NAME clients #i`, each with what it is "
        "pinned to; restarts",
        "  Cluster, a node: titles of processes at work, `clients #i, round 12: clients 3, 4, 5`; "
        "CPUs, GPUs, memory",
        "  Jobs: what `fedorch submit` started, with its log",
        "  Metrics: needs Prometheus and Grafana (docs/monitoring.md)",
    ):
        console.print(line)
    place = folder or (SESSION if SESSION.is_dir() else None)
    if place is None:
        console.print(
            "Grafana: write the dashboard with --grafana FOLDER (on the head it goes beside Ray's "
            "own)"
        )
        return
    try:
        place.mkdir(parents=True, exist_ok=True)
        (place / FILE).write_text(json.dumps(dashboard(), indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(f"--grafana {place}: cannot be written: {error.strerror}") from error
    console.print(f"Grafana dashboard: {place / FILE}", soft_wrap=True)


def _token_place() -> str:
    """Where this user has it; it is not printed."""
    if "RAY_AUTH_TOKEN" in os.environ:
        return "what RAY_AUTH_TOKEN holds"
    return f"what {os.environ.get('RAY_AUTH_TOKEN_PATH') or home() / '.ray' / 'auth_token'} holds"
