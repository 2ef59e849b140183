"""What ``fedorch new`` writes: a part of each kind, which runs at once.

``own_name`` and ``OwnName`` stand for the part's name and its class.
"""

from __future__ import annotations

HEAD = '''"""TITLE

TRY
    fedorch check FILE
"""

'''

ALGORITHM = '''from dataclasses import dataclass

from torch import Tensor

import fedorch


@dataclass(frozen=True)
class Rule(fedorch.LocalRule):
    """The client side. Every tensor has a row for each client that steps along, [C, ...], and no
    row may have a part in another's: so the bits do not depend on who computes beside whom.
    """

    pull: float

    def state(self, received: dict[str, Tensor], spec: object) -> dict[str, Tensor]:
        """What a client remembers from round to round, before it has ever taken part."""
        return {"seen": received["w"].clone()}

    def direction(self, gradient: Tensor, work: fedorch.Work) -> Tensor:
        """What a step follows, from the gradient [C, d]: here with a pull to where the client ended
        last time.
        """
        return gradient + self.pull * (work.w - work.state["seen"])

    def upload(self, work: fedorch.Work) -> dict[str, Tensor]:
        """What is sent; `delta` is the change of the model. Its bytes are booked."""
        work.state["seen"] = work.w.clone()
        return {"delta": work.w - work.start}


class OwnName(fedorch.FedAvg):
    """The server side: FedAvg, but for what is overridden (broadcast, apply, round)."""

    class Options(fedorch.FedAvg.Options):
        """FedAvg whose clients are pulled to where they were."""

        name: str = "own_name"
        pull: float = fedorch.option(0.1, "how strongly", "c", ge=0, le=1e3)

    options: Options

    def rule(self) -> fedorch.LocalRule:
        return Rule(self.options.pull)
'''

AGGREGATOR = '''import numpy as np

import fedorch


class OwnName(fedorch.Aggregator):
    """The mean of the updates after each has been cut to the median of their norms."""

    name: str = "own_name"
    times: float = fedorch.option(1.0, "of the median norm that an update may have", gt=0, le=1e3)

    def weights(self, samples: np.ndarray, counts: np.ndarray) -> None:
        """Weights [m] of a plain weighted sum; None: `combine` looks at the rows."""
        return None

    def combine(self, rows: fedorch.Rows) -> fedorch.Combined:
        """One vector [d] of the updates [m, d], and the weight that each has in it."""
        norms = rows.updates.norm(dim=1)
        factor = (self.times * norms.median() / norms.clamp_min(1e-12)).clamp(max=1.0)
        weight = factor / len(norms)
        # the vector, and what each update counts in it
        return fedorch.Combined((rows.updates * weight[:, None]).sum(0), weight)
'''

ATTACK = '''from collections.abc import Sequence

import torch
from torch import Tensor

import fedorch


class OwnName(fedorch.Forging):
    """Malicious clients (`fraction` of all, or `ids`) send their update times a factor, with noise.
    """

    name: str = "own_name"
    factor: float = fedorch.option(-2.0, "what the update is multiplied by", ge=-1e6, le=1e6)
    noise: float = fedorch.option(0.01, "standard deviation of what is added", ge=0, le=1e6)

    def forge(
        self, honest: Tensor, benign: Tensor, draws: Sequence[torch.Generator]
    ) -> Tensor:
        """What the malicious clients send [a, d], from what they would honestly send; a generator
        for each, keyed by client and round.
        """
        noise = [torch.randn(row.shape, generator=g) for row, g in zip(honest, draws)]
        return self.factor * honest + self.noise * torch.stack(noise)
'''

AUGMENTATION = '''import numpy as np
import torch
from torch import Tensor

import fedorch


class OwnName(fedorch.Augmentation):
    """The whole image some pixels to the side, around its edge. (A function of one input is an
    augmentation without this: `data.augment: ./FILE:shifted`.)
    """

    name: str = "own_name"
    most: int = fedorch.option(3, "pixels to either side", ge=0, le=1000)

    def draw(self, rng: np.random.Generator, n: int, shape: tuple[int, ...]) -> np.ndarray:
        """A row for each of n inputs; what is drawn for a client is its own."""
        return rng.integers(-self.most, self.most + 1, (n, 1))

    def apply(self, x: Tensor, draws: Tensor) -> Tensor:
        """Inputs [n, *shape], as they are stored (uint8 pixels, or float32), changed."""
        width = x.shape[-1]
        source = (torch.arange(width)[None] - draws) % width
        return x.gather(-1, source[:, None, None, :].expand_as(x))
'''

COMPRESSOR = '''from collections.abc import Sequence

import torch
from torch import Tensor

import fedorch


class OwnName(fedorch.Compressor):
    """Every entry to the nearest of so many steps of the row's largest."""

    name: str = "own_name"
    bits: int = fedorch.option(8, "of each entry", ge=2, le=16)

    def compress(self, rows: Tensor, draws: Sequence[torch.Generator]) -> Tensor:
        """What the receiver makes of the messages [C, d]: each row by itself."""
        most = rows.abs().amax(1, keepdim=True).clamp_min(1e-30)
        steps = 2 ** (self.bits - 1) - 1
        return (rows / most * steps).round() / steps * most

    def nbytes(self, size: int) -> int:
        """On the wire, of a vector of so many entries."""
        return 4 + -(-self.bits * size // 8)
'''

DATASET = '''import numpy as np

import fedorch


class OwnName(fedorch.Dataset):
    """Points around a centre for each class, which no two clients see from the same place."""

    name: str = "own_name"
    generated = True  # what is read depends on the request: the seed, the number of clients
    classes: int = fedorch.option(4, "number of classes", ge=2, le=1000)
    apart: float = fedorch.option(2.0, "how far the clients' centres are moved", ge=0, le=1e3)

    def read(self, request: fedorch.Request) -> fedorch.Samples:
        """All rows: those for training first, then those for the test."""
        rng = fedorch.generator(request.seed, "own_name")
        centres = rng.normal(size=(self.classes, 20)) * 3
        owner = np.repeat(np.arange(request.clients), 100)
        y = rng.integers(0, self.classes, len(owner))
        moved = rng.normal(size=(request.clients, 20)) * self.apart
        x = centres[y] + moved[owner] + rng.normal(size=(len(owner), 20))
        order = np.argsort(np.arange(len(owner)) % 100 >= 80, kind="stable")
        train = 80 * request.clients
        return fedorch.Samples(
            x[order].astype(np.float32), y[order], train, self.classes, owner=owner[order]
        )
'''

LOSS = '''import torch.nn.functional as F
from torch import Tensor

import fedorch


class OwnName(fedorch.Loss):
    """Cross-entropy of classes, to a power."""

    name: str = "own_name"
    power: float = fedorch.option(1.5, "of each sample's cross-entropy", "q", ge=1, le=10)

    def per_sample(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Losses [n] of outputs [n, o] and classes [n]: each sample by itself."""
        return F.cross_entropy(outputs, targets, reduction="none") ** self.power
'''

METRIC = '''from torch import Tensor

import fedorch


class OwnName(fedorch.Metric):
    """How often the right class is among the two likeliest."""

    name: str = "own_name"
    more_is_better = True

    def value(self, outputs: Tensor, targets: Tensor) -> float:
        """A number for outputs [n, o] and classes [n] of rows that are judged together."""
        best = outputs.topk(min(2, outputs.shape[1]), dim=1).indices
        return float((best == targets[:, None]).any(1).double().mean())
'''

MODEL = '''import math

from torch import nn

import fedorch


class OwnName(fedorch.Model):
    """Two dense layers. (Any nn.Module is a model without this: `model: ./FILE:Net`.)"""

    name: str = "own_name"
    width: int = fedorch.option(32, "of the hidden layer", ge=1, le=65536)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """From inputs [B, *shape] to [B, classes]; raise ValueError for shapes that do not fit."""
        return nn.Sequential(
            nn.Flatten(),
            nn.Linear(math.prod(shape), self.width),
            nn.GELU(),
            nn.Linear(self.width, classes),
        )
'''

PARTITIONER = '''import numpy as np

import fedorch


class OwnName(fedorch.Partitioner):
    """Client k has about (k + 1) times the rows of the first, drawn at random."""

    name: str = "own_name"
    least: int = fedorch.option(2, "rows that every client has", ge=1)

    def split(self, pool: fedorch.Pool) -> list[np.ndarray]:
        """Places in the pool of each client's rows, by `pool.labels`, `.classes`, `.owner`."""
        weight = np.arange(1, pool.clients + 1)
        free = len(pool.rows) - self.least * pool.clients
        sizes = self.least + np.floor(free * weight / weight.sum()).astype(int)
        order = pool.rng().permutation(len(pool.rows))
        return np.split(order[: sizes.sum()], np.cumsum(sizes)[:-1])
'''

SAMPLER = '''import numpy as np

import fedorch


class OwnName(fedorch.Sampler):
    """So many clients beside one another, from a place that is drawn."""

    name: str = "own_name"

    def sample(self, draw: fedorch.Draw, size: int) -> np.ndarray:
        """Ids [size], ascending; by the seed and the round alone."""
        rng = fedorch.generator(draw.seed, "own_name", draw.round)
        start = int(rng.integers(draw.clients))
        return np.sort((start + np.arange(size)) % draw.clients)
'''

TRACKER = '''from collections.abc import Mapping, Sequence
from pathlib import Path

import fedorch


class OwnName(fedorch.Tracker):
    """A line a round in a file of the run's folder."""

    name: str = "own_name"
    # remote = True makes the calls in a thread of their own, so that no service holds a run up
    file: str = fedorch.option("rounds.txt", "its name", min_length=1, max_length=100)

    def begin(self, run: fedorch.Tracked) -> fedorch.Log:
        """The log of a run that begins, or goes on after `run.done` rounds; what was told of later
        ones is told again.
        """
        path = run.folder / Path(self.file).name
        told = path.read_text().splitlines(keepends=True) if path.is_file() else []
        path.write_text("".join(told[: run.done]))
        return Lines(path)


class Lines(fedorch.Log):
    """Whatever is raised here is told in a note, and ends no run. (A run that has ended, and goes
    on with more rounds, loses the word at its end.)
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, record: Mapping[str, float]) -> None:
        """A round's metrics."""
        loss = record.get("test_loss", float("nan"))
        with self.path.open("a") as file:
            file.write(f"{record['round']:.0f} {loss:.4f}\\n")

    def end(self, ending: Mapping[str, object], files: Sequence[Path]) -> None:
        """What result.json says, and the files that the run leaves."""
        with self.path.open("a") as file:
            file.write(f"{ending['status']}\\n")
'''

TEMPLATES = {
    "algorithm": ("algorithm", ALGORITHM),
    "aggregator": ("aggregator", AGGREGATOR),
    "attack": ("attack", ATTACK),
    "augmentation": ("data.augment", AUGMENTATION),
    "compressor": ("compression.uplink", COMPRESSOR),
    "dataset": ("data.dataset", DATASET),
    "loss": ("loss", LOSS),
    "metric": ("evaluation.metrics", METRIC),
    "model": ("model", MODEL),
    "partitioner": ("data.partition", PARTITIONER),
    "sampler": ("sampler", SAMPLER),
    "tracker": ("track", TRACKER),
}
"""Kind -> where such a part stands in a config, and the file."""


def written(kind: str, name: str, file: str) -> str:
    """The file of a part of that kind and name."""
    key, body = TEMPLATES[kind]
    title = f"A part of one's own: {'an' if kind[0] in 'aeiou' else 'a'} {kind}."
    head = HEAD.replace("TITLE", title).replace(
        "TRY", f"    fedorch run --plugin {file} --set {key}={name}"
    )
    camel = "".join(word.capitalize() for word in name.split("_"))
    text = head + body.replace("own_name", name).replace("OwnName", camel)
    return text.replace("FILE", file)
