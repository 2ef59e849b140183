"""What all do: rounds of federated averaging with SGD, on data that one file holds."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Work:
    """Rounds in which ``cohort`` of ``clients`` clients train for ``epochs`` on ``rows`` rows
    each. Rows are a multiple of the batch, so that every library does the same steps.
    """

    name: str
    model: str
    """Of networks.py, and of a config."""
    shape: tuple[int, int, int]
    clients: int
    cohort: int
    rows: int
    batch: int
    epochs: int
    rounds: int
    lr: float
    parameters: int

    @property
    def steps(self) -> int:
        """Steps of all clients in a round."""
        return self.cohort * self.epochs * self.rows // self.batch


WORKS = (
    Work("linear", "linear", (1, 28, 28), 30, 20, 320, 32, 1, 40, 0.05, 7_850),
    Work("cnn", "drdm_cnn", (1, 28, 28), 30, 20, 320, 32, 1, 5, 0.05, 794_310),
    Work("fedaa-mlp", "mlp", (1, 28, 28), 100, 100, 576, 64, 2, 4, 0.1, 79_510),
    Work("flute-lr", "linear", (1, 28, 28), 1000, 10, 60, 10, 1, 100, 0.03, 7_850),
    Work("blazefl-cnn", "fedaa_cnn", (3, 32, 32), 100, 100, 500, 50, 5, 1, 0.1, 62_006),
)


def write_data(work: Work, path: Path) -> None:
    """Random images and labels of ten classes, client after client."""
    rng = np.random.default_rng(0)
    rows = work.clients * work.rows
    channels, *side = work.shape
    shape = (rows, *side) if channels == 1 else (rows, *side, channels)
    x = rng.integers(0, 256, shape, np.uint8)
    y = rng.integers(0, 10, rows)
    client = np.repeat(np.arange(work.clients), work.rows)
    # a few that fedorch tests on, and the others do not look at
    tested = {"x_test": x[:100], "y_test": y[:100], "client_test": np.arange(100) % work.clients}
    np.savez(path, x_train=x, y_train=y, client_train=client, **tested)


def read_work(folder: Path) -> Work:
    """What the folder's work.json says."""
    raw = json.loads((folder / "work.json").read_text())
    return Work(**{**raw, "shape": tuple(raw["shape"])})


def leave(work: Work, folder: Path) -> None:
    """Write the work and its data for the contestants."""
    (folder / "work.json").write_text(json.dumps(asdict(work)))
    write_data(work, folder / "data.npz")


def timed(step: Callable[[], object], work: Work) -> Iterator[float]:
    """Seconds of each counted round, after one that is not."""
    step()
    for _ in range(work.rounds):
        begun = time.perf_counter()
        step()
        yield time.perf_counter() - begun


def tell(seconds: list[float]) -> None:
    """Print what the contestant's parent process reads: the last line."""
    print(json.dumps(seconds), flush=True)
