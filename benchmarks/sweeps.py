"""What a sweep saves: 16 trials of 5 rounds under Tune against 16 separate ``fedorch run``s.

``python -m benchmarks.sweeps``; with ``--trials 200``, what so many trials of about a second each
cost beside their own training.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml
from rich.console import Console
from rich.table import Table

from sweeps.results import stored

SETTINGS = ["data.clients=10", "cohort=5", "rounds=5", "model=linear", "local.steps=10"]
ROUNDS = 90
"""Of such a trial, that it takes about a second."""


def rates(many: int) -> list[float]:
    """As many values of an axis."""
    return [round(0.001 * (i + 1), 3) for i in range(many)]


def write_sweep(place: Path, settings: list[str], many: int) -> Path:
    """The file of a grid of ``many`` learning rates."""
    file = place / "grid.yaml"
    axes = {"local.lr": rates(many)}
    file.write_text(yaml.safe_dump({"set": settings, "axes": axes, "loggers": []}))
    return file


def timed(*command: str) -> float:
    """Seconds of a ``fedorch`` command."""
    begun = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "sweeps.cli", *command], check=True, stdout=subprocess.DEVNULL
    )
    return time.perf_counter() - begun


def many(trials: int) -> Table:
    """Seconds a trial of a sweep, and of its training alone."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "sweep"
        settings = [*SETTINGS[:2], f"rounds={ROUNDS}", *SETTINGS[3:], "evaluation.every=90"]
        whole = timed(
            "sweep", str(write_sweep(Path(folder), settings, trials)), "--out", str(place)
        )
        _, results = stored(place)
        training = sum(result.folder.rounds()["seconds"].sum() for result in results)
    table = Table(f"{trials} trials of {ROUNDS} rounds", "seconds", "a trial")
    for name, seconds in (("fedorch sweep, from start to end", whole), ("training", training)):
        table.add_row(name, f"{seconds:.1f}", f"{seconds / trials:.2f}")
    return table


def few() -> Table:
    """A sweep beside as many runs."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        file = write_sweep(place, SETTINGS, 16)
        together = timed("sweep", str(file), "--out", str(place / "sweep"))
        settings = [word for s in SETTINGS for word in ("--set", s)]
        alone, here = 0.0, 0.0
        for i, rate in enumerate(rates(16)):
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
    return table


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, help="of about a second each, and no separate runs")
    options = parser.parse_args()
    Console().print(few() if options.trials is None else many(options.trials))


if __name__ == "__main__":
    main()
