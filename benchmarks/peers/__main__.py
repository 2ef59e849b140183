"""Seconds a round of the same work: a bare PyTorch loop, fedorch, pfl, Flower.

``python -m benchmarks.peers [--repeat N] [--work NAME ...] [--environments FOLDER]`` makes the
environments that are missing, lets the contestants train in turn, each in a process of its own, and
prints a table. Data are random images. A peer that cannot be installed is a line that says why.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.peers.environments import NEEDS, Environment, environment, here
from benchmarks.peers.work import WORKS, Work, leave

DEADLINE = 1800.0
"""Seconds that a contestant may take for a work."""


@dataclass
class Contestant:
    """A way to do the work, and the seconds of its rounds."""

    name: str
    where: Environment
    words: Sequence[str]
    """Module of this package, and what it is told after the folder."""
    seconds: list[float] = field(default_factory=list)
    problem: str = ""

    def run(self, folder: Path) -> None:
        """Train once."""
        if self.where.missing or self.problem:
            self.problem = self.problem or f"not installed: {self.where.missing}"
            return
        module, *rest = self.words
        command = [self.where.python, "-m", f"benchmarks.peers.{module}", folder, *rest]
        quiet = {
            "OMP_NUM_THREADS": "1", "FLWR_TELEMETRY_ENABLED": "0", "RAY_AUTH_MODE": "disabled",
            # or else Flower joins whatever cluster was here last, dead or alive
            "RAY_ADDRESS": "local",
        }  # fmt: skip
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=DEADLINE, check=True,
                env={**os.environ, **quiet},
            )  # fmt: skip
            self.seconds += json.loads(done.stdout.strip().split("\n")[-1])
        except (subprocess.SubprocessError, ValueError) as error:
            said = (getattr(error, "stderr", "") or str(error)).strip().split("\n")
            self.problem = f"failed: {said[-1][:100]}"


def contestants(environments: Mapping[str, Environment]) -> list[Contestant]:
    """All of them; the first is what the others are compared with."""
    mine, flower, pfl = here(), environments["flower"], environments["pfl"]
    return [
        Contestant("bare PyTorch loop, one core", mine, ["bare"]),
        Contestant("fedorch in process, one core", mine, ["ours"]),
        Contestant(f"pfl {pfl.version}, one core", pfl, ["with_pfl"]),
        Contestant("fedorch on Ray, two actors", mine, ["ours", "2"]),
        Contestant(f"Flower {flower.version}, two CPUs", flower, ["with_flower", "2"]),
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=3, help="turns of each contestant")
    parser.add_argument("--work", nargs="*", default=[w.name for w in WORKS], help="which works")
    cache = Path.home() / ".cache" / "fedorch" / "peers"
    parser.add_argument("--environments", type=Path, default=cache, help="where they are")
    options = parser.parse_args()
    environments = {peer: environment(peer, options.environments) for peer in NEEDS}
    table = Table("work", "how", "s a round", "fastest", "ratio to the bare loop")
    for work in [w for w in WORKS if w.name in options.work]:
        _add(table, work, _contest(work, environments, options.repeat))
        Console().print(table)


def _contest(work: Work, environments: Mapping[str, Environment], repeat: int) -> list[Contestant]:
    contest = contestants(environments)
    with tempfile.TemporaryDirectory() as folder:
        leave(work, Path(folder))
        for _ in range(repeat):
            for one in contest:
                one.run(Path(folder))
    return contest


def _add(table: Table, work: Work, contest: Sequence[Contestant]) -> None:
    base = statistics.median(contest[0].seconds)
    for one in contest:
        if not one.seconds:
            table.add_row(work.name, one.name, one.problem)
            continue
        middle = statistics.median(one.seconds)
        table.add_row(
            work.name, one.name, f"{middle:.4g}", f"{min(one.seconds):.4g}", f"{middle / base:.2f}"
        )


if __name__ == "__main__":
    main()
