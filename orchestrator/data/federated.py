"""The federation's data: one copy of the samples, and who holds which rows."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field, SerializeAsAny, model_validator

from algorithms.draws import generator
from algorithms.part import SEVERAL, chosen_from
from algorithms.section import Section
from orchestrator.data import client_tests
from orchestrator.data.augment import Augmentation
from orchestrator.data.datasets import FashionMnist10k
from orchestrator.data.lists import Lists, by_owner, keep_apart, keep_disjoint
from orchestrator.data.mapped import Inputs, pieces
from orchestrator.data.partitioners import Dirichlet, Natural, Partitioner, Pool
from orchestrator.data.samples import Dataset, Request, Samples
from orchestrator.data.validation import ValidationConfig, keep_back
from orchestrator.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

Rows = Annotated[int, Field(ge=0)]
SPLITS = ("test", "validation")
"""What a client judges models by: ``FederatedData.judging``."""


class HeldOut(Section):
    """The server's own labelled rows, taken out of the pool before it is shared out."""

    per_class: Rows | dict[int, Rows] = Field(
        0,
        description="rows per class q, or {class: rows} with 0 for the others; 0 means that the "
        "server holds none",
    )
    per_client: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="instead: every natural client hands over this part of the smallest client's "
        "number of rows (FedAA's SYNTHETIC: 0.1)",
    )
    take: Literal["first", "random"] = Field(
        "first", description="the first rows of each class or client (FedAA), or random"
    )

    @model_validator(mode="after")
    def _one_rule(self) -> HeldOut:
        if self.per_class and self.per_client:
            raise ValueError(
                "give either per_class or per_client, not both; where an algorithm gives "
                "per_class by itself, set it to 0"
            )
        return self

    def rows(self, label: int) -> int:
        """Rows of class ``label``."""
        return self.per_class.get(label, 0) if isinstance(self.per_class, dict) else self.per_class


class ClientTest(Section):
    """Each client's own test rows."""

    source: Literal["mix", "local"] = Field(
        "mix",
        description="rows of the test split in the client's class mix, or a part of the client's "
        "own rows",
    )
    fraction: float = Field(
        0.25, gt=0, lt=1, description="local: part of each client's rows kept for its test"
    )
    least: int = Field(
        50,
        ge=1,
        description="mix: least number of test rows a client, as far as there are such of its "
        "classes",
    )


class DataConfig(Section):
    """Section ``data`` of a config."""

    dataset: Annotated[SerializeAsAny[Dataset], chosen_from(Dataset)] = FashionMnist10k()
    clients: int = Field(30, ge=1, le=1_000_000, description="number of clients N")
    partition: Annotated[SerializeAsAny[Partitioner], chosen_from(Partitioner)] = Dirichlet(
        alpha=0.3
    )
    pool: Literal["train", "all"] = Field(
        "train", description="rows shared out: the training split, or both splits joined (FedAA)"
    )
    limit: int | None = Field(
        None, ge=1, description="share out only this many rows, drawn at random"
    )
    heldout: HeldOut = HeldOut()
    client_test: ClientTest = ClientTest()
    validation: ValidationConfig = ValidationConfig()
    scale: Literal["standard", "half", "unit"] = Field(
        "standard",
        description="images: by the dataset's mean and deviation, to [-1, 1] (FedAA), or to [0, 1]",
    )
    augment: Annotated[
        tuple[Annotated[SerializeAsAny[Augmentation], chosen_from(Augmentation)], ...], SEVERAL
    ] = Field(
        (),
        max_length=20,
        description="random changes of the inputs of each training mini-batch, one after the "
        "other; ./FILE.py:FUNCTION of one's own",
    )

    @model_validator(mode="after")
    def _of_one_kind(self) -> DataConfig:
        if isinstance(self.partition, Natural) and self.client_test.source == "local":
            raise ValueError(
                "client_test.source: local, but natural clients have their rows of the test split "
                "for their tests (data.dataset says which these are)"
            )
        return self


@dataclass(frozen=True)
class FederatedData:
    """Samples, and row numbers: each client's training, validation and test data; the server's."""

    samples: Samples
    train: Lists
    validation: Lists
    """Of each client; empty without ``data.validation.clients``."""
    test: Lists
    test_rows: np.ndarray
    """The global test set."""
    validation_rows: np.ndarray
    """The global validation set (may be empty)."""
    heldout_rows: np.ndarray
    """The server's held-out set (may be empty)."""
    shift: tuple[float, ...]
    scale: tuple[float, ...]

    @property
    def clients(self) -> int:
        return len(self.train)

    @cached_property
    def holdings(self) -> Lists:
        """Training rows by id: the clients', then the server's."""
        return Lists(
            np.concatenate([self.train.rows, self.heldout_rows]),
            np.append(self.train.offsets, self.train.offsets[-1] + len(self.heldout_rows)),
        )

    @cached_property
    def sha256(self) -> str:
        """Digest of the samples, and of who holds which rows of them."""
        lists = (self.train, self.validation, self.test)
        rows = [part for one in lists for part in _parts(one)]
        rows += [self.test_rows, self.validation_rows, self.heldout_rows]
        return _sha256([self.samples_sha256, self.shift, self.scale], rows)

    def rows_sha256(self) -> dict[str, str]:
        """Digests of the rows that models are judged by, of the server's sets and of clients', as
        far as there are any.
        """
        sets = {
            "test": [self.test_rows],
            "validation": [self.validation_rows],
            "heldout": [self.heldout_rows],
            "client": _parts(self.test),
            "client_validation": _parts(self.validation),
        }
        return {name: _sha256([], rows) for name, rows in sets.items() if len(rows[0])}

    @cached_property
    def samples_sha256(self) -> str:
        """Digest of the samples alone."""
        return samples_sha256(self.samples)

    def judging(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The rows of client ``k`` by ``SPLITS``; the server has none of its own."""
        none = np.empty(0, np.int64)
        return (self.test[k], self.validation[k]) if k < self.clients else (none, none)

    @classmethod
    def build(cls, config: DataConfig, seed: int, samples: Samples | None = None) -> FederatedData:
        """Load (unless ``samples`` are at hand), hold out, share out.

        Raises UserError if that cannot be done.
        """
        samples = config.dataset.load(Request(seed, config.clients)) if samples is None else samples
        pool_rows = np.arange(len(samples.y) if config.pool == "all" else samples.train)
        published = config.partition.published(config.clients)
        heldout = published.heldout if published else _heldout(config, samples, pool_rows, seed)
        split = np.setdiff1d(np.arange(samples.train, len(samples.y)), heldout)
        pool_rows = np.setdiff1d(pool_rows, heldout)
        if isinstance(config.partition, Natural):
            # a natural client's rows of the test split are its own for its test, pooled or not
            pool_rows = pool_rows[pool_rows < samples.train]
        pool_rows = _limited(config.limit, pool_rows, seed)
        if published:
            train, test = _share(config, samples, pool_rows, seed), published.tests
        else:
            train, test = _dealt(config, samples, pool_rows, split, seed)
        train, kept, validation_rows = keep_back(
            config.validation, train, samples.y, config.partition.overlapping, seed
        )
        tests = Lists.of(test)
        # with both splits shared out, the clients' own test rows are all there is to test on
        test_rows = np.unique(tests.rows) if config.pool == "all" else split
        data = cls(
            samples, Lists.of(train), Lists.of(kept), tests, test_rows, validation_rows, heldout,
            *_scaling(config.scale, samples),
        )  # fmt: skip
        data.keep_apart()
        if not config.partition.overlapping:
            keep_disjoint(data.train)
        return data

    def keep_apart(self) -> None:
        """Raise UserError unless what is trained on, tested on, chosen on and held out have no row
        in common.
        """
        tested = np.concatenate([self.test.rows, self.test_rows])
        chosen = np.concatenate([self.validation.rows, self.validation_rows])
        sets = {
            "a test set": tested,
            "a validation set": chosen,
            "the server's held-out rows": self.heldout_rows,
        }
        keep_apart(self.train, sets, len(self.samples.y))

    def histogram(self) -> np.ndarray:
        """Training rows per client and label [N, classes]."""
        table = np.zeros((self.clients, self.samples.classes), np.int64)
        client = np.repeat(np.arange(self.clients), self.train.sizes)
        np.add.at(table, (client, self.samples.y[self.train.rows]), 1)
        return table

    def held_rows(self) -> pd.DataFrame:
        """The same as a table: client, label, rows; without what nobody has."""
        # client actors never come here, and are 30 MB smaller without it
        import pandas as pd

        table = self.histogram()
        client, label = table.nonzero()
        return pd.DataFrame({"client": client, "label": label, "rows": table[client, label]})


def called(config: DataConfig, data: FederatedData) -> tuple[str, ...]:
    """Names of the clients, where each is one of the dataset's own that have names."""
    natural = isinstance(config.partition, Natural)
    return data.samples.owners[: data.clients] if natural else ()


def _parts(lists: Lists) -> list[np.ndarray]:
    return [lists.rows, lists.offsets]


def samples_sha256(samples: Samples) -> str:
    """Digest of all that there is of a dataset."""
    facts = [samples.train, samples.classes, samples.mean, samples.std]
    facts += [samples.tags] if samples.tags else []
    owner = np.empty(0, np.int64) if samples.owner is None else samples.owner
    numbers = [] if samples.targets is None else [samples.targets]
    return _sha256(facts, [samples.x, samples.y, owner, *numbers])


def _sha256(facts: list[object], arrays: Sequence[Inputs]) -> str:
    sha = hashlib.sha256(repr(facts).encode())
    for array in arrays:
        sha.update(f"{array.dtype} {array.shape}".encode())
        for piece in pieces(array):
            sha.update(np.ascontiguousarray(piece).data)
    return sha.hexdigest()


def _heldout(config: DataConfig, samples: Samples, pool: np.ndarray, seed: int) -> np.ndarray:
    """The server's rows out of ``pool``, ascending."""
    rng = generator(seed, "heldout")
    if config.heldout.per_client:
        return np.sort(np.concatenate(_by_client(config, samples, rng)))
    return np.sort(np.concatenate(_by_class(config.heldout, samples, pool, rng)))


def _by_client(config: DataConfig, samples: Samples, rng: np.random.Generator) -> list[np.ndarray]:
    """int(part · n) rows of each client's training split, n being the smallest client's number of
    rows, tests included (FedAA, Table 5).
    """
    asked = config.heldout
    if samples.owner is None or not isinstance(config.partition, Natural):
        raise UserError(
            "data.heldout.per_client: only natural clients (data.partition: natural) have rows of "
            "their own to hand over; use per_class"
        )
    sizes = np.bincount(samples.owner, minlength=config.clients)[: config.clients]
    each = int(asked.per_client * sizes.min())
    if not each:
        raise UserError(
            f"data.heldout.per_client: {asked.per_client:g} of the smallest client's {sizes.min()} "
            "rows is not one row"
        )
    taken = []
    for k, rows in enumerate(by_owner(samples.owner[: samples.train], config.clients)):
        if len(rows) <= each:
            raise UserError(
                f"data.heldout.per_client: client {k} has only {len(rows)} rows to train on, and "
                f"is to hand over {each}"
            )
        order = rng.permutation(rows) if asked.take == "random" else rows
        taken.append(order[:each])
    return taken


def _by_class(
    config: HeldOut, samples: Samples, pool: np.ndarray, rng: np.random.Generator
) -> list[np.ndarray]:
    unknown = (
        [c for c in config.per_class if not 0 <= c < samples.classes]
        if isinstance(config.per_class, dict)
        else []
    )
    if unknown:
        raise UserError(
            f"data.heldout.per_class: {unknown[0]} is not one of the {samples.classes} classes"
        )
    taken = []
    for c in range(samples.classes):
        rows = pool[samples.y[pool] == c]
        # not even all of a class: the clients are to have some of it
        if config.rows(c) and len(rows) <= config.rows(c):
            raise UserError(
                f"data.heldout.per_class: class {c} has only {len(rows)} rows, {config.rows(c)} "
                "asked"
            )
        rows = rng.permutation(rows) if config.take == "random" else rows
        taken.append(rows[: config.rows(c)])
    return taken


def _limited(limit: int | None, pool: np.ndarray, seed: int) -> np.ndarray:
    if limit is None:
        return pool
    if limit > len(pool):
        raise UserError(
            f"data.limit: {limit} is more than the {len(pool)} rows there are to share out"
        )
    return np.sort(generator(seed, "limit").choice(pool, limit, replace=False))


Parts = list[np.ndarray]
"""Row numbers of each client."""


def _dealt(
    config: DataConfig, samples: Samples, pool: np.ndarray, split: np.ndarray, seed: int
) -> tuple[Parts, Parts]:
    """Training and test rows of each client, from ``pool`` and the test split's rows ``split``."""
    asked, natural = config.client_test, isinstance(config.partition, Natural)
    local = not natural and (asked.source == "local" or config.pool == "all")
    if local and not config.partition.overlapping:
        return client_tests.local(_share(config, samples, pool, seed), asked.fraction, seed)
    least = asked.least
    if local:
        # what one client kept for its test would be in another's training, so all keep it before
        pool, split = client_tests.set_aside(samples, pool, asked.fraction, seed)
        least = 1
    train = _share(config, samples, pool, seed)
    if natural:
        return train, client_tests.natural(samples, split, config.clients)
    return train, client_tests.mixed(samples, split, train, least, seed)


def _share(config: DataConfig, samples: Samples, rows: np.ndarray, seed: int) -> list[np.ndarray]:
    if len(rows) < config.clients:
        raise UserError(
            f"data.clients: {config.clients} clients cannot share {len(rows)} training rows"
        )
    owner = None if samples.owner is None else samples.owner[rows]
    pool = Pool(rows, samples.y[rows], samples.classes, config.clients, seed, owner)
    given = config.partition.split(pool)
    if len(given) != config.clients:
        raise UserError(
            f"data.partition: {config.partition.name} makes {len(given)} lists of rows for "
            f"{config.clients} clients"
        )
    parts = [rows[_positions(config, k, p, len(rows))] for k, p in enumerate(given)]
    empty = [k for k, p in enumerate(parts) if len(p) == 0]
    if empty:
        raise UserError(
            f"data.partition: client {empty[0]} gets no training rows ({len(empty)} clients in all "
            "do)"
        )
    return parts


def _positions(config: DataConfig, k: int, given: np.ndarray, rows: int) -> np.ndarray:
    """What client ``k`` is given, as positions in a pool of so many rows."""
    positions = np.asarray(given)
    whole = positions.dtype.kind in "iu" and positions.ndim == 1
    if len(positions) and not (whole and 0 <= positions.min() <= positions.max() < rows):
        raise UserError(
            f"data.partition: what {config.partition.name} gives client {k} are not whole numbers "
            f"from 0 to {rows - 1}"
        )
    return positions.astype(np.int64)


def _scaling(how: str, samples: Samples) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """(shift, scale) per channel for bytes: x ↦ (x − shift) · scale; empty for inputs that are used
    as they are.
    """
    channels = len(samples.mean)
    if how == "half":
        return (127.5,) * channels, (1 / 127.5,) * channels
    if how == "unit":
        return (0.0,) * channels, (1 / 255,) * channels
    return tuple(255 * m for m in samples.mean), tuple(1 / (255 * s) for s in samples.std)
