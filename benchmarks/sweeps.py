"""What a sweep saves: 16 trials of 5 rounds under Tune against 16 separate ``fedorch run``s.

``python -m benchmarks.sweeps``
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml
from rich.console import Console
from rich.table import Table

SETTINGS = ["data.clients=10", "cohort=5", "rounds=5", "model=linear", "local.steps=10"]
RATES = [round(0.01 * (i + 1), 2) for i in range(16)]


def timed(*command: str) -> float:
    """Seconds of a ``fedorch`` command."""
    begun = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "sweeps.cli", *command], check=True, stdout=subprocess.DEVNULL
    )
    return time.perf_counter() - begun


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        file = place / "grid.yaml"
        file.write_text(
            yaml.safe_dump({"set": SETTINGS, "axes": {"local.lr": RATES}, "loggers": []})
        )
        together = timed("sweep", str(file), "--out", str(place / "sweep"))
        settings = [word for s in SETTINGS for word in ("--set", s)]
        alone, here = 0.0, 0.0
        for i, rate in enumerate(RATES):
            own = [*settings, "--set", f"local.lr={rate}"]
            alone += timed("run", *own, "--out", str(place / f"ray{i}"))
            here += timed("run", *own, "--in-process", "--out", str(place / f"here{i}"))
    table = Table("16 trials of 5 rounds", "seconds", "ratio to the sweep")
    for name, seconds in (
        ("fedorch sweep", together),
        ("16 x fedorch run", alone),
        ("16 x fedorch run --in-process", here),
    ):
        table.add_row(name, f"{seconds:.1f}", f"{seconds / together:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
