"""Which training rows each client holds: partitioners, functions of seed and labels alone."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from algorithms.draws import generator
from algorithms.part import Part, option
from orchestrator.data.lists import by_owner
from orchestrator.data.samples import counts, row_numbers
from orchestrator.data.sources import Form, missing, read_npz, stored
from orchestrator.errors import UserError


@dataclass(frozen=True)
class Pool:
    """The rows to share out: row numbers [n], their labels [n], and what the draws depend on."""

    rows: np.ndarray
    labels: np.ndarray
    classes: int
    clients: int
    seed: int
    owner: np.ndarray | None = None

    def rng(self) -> np.random.Generator:
        return generator(self.seed, "partition")

    def by_class(self, rng: np.random.Generator | None = None) -> list[np.ndarray]:
        """Positions in the pool per class, shuffled if ``rng`` is given."""
        groups = by_owner(self.labels, self.classes)
        return [rng.permutation(g) for g in groups] if rng is not None else groups


@dataclass(frozen=True)
class Published:
    """Row numbers (over train, then test) of the clients' test sets and of the held-out set."""

    tests: list[np.ndarray]
    heldout: np.ndarray


class Partitioner(Part):
    """Shares a pool of rows out over the clients."""

    repeats: ClassVar[bool] = False
    """Whether it may hand one row to several clients, or twice to one, for their training."""

    @property
    def overlapping(self) -> bool:
        """Whether it does so with these options."""
        return self.repeats

    @abstractmethod
    def split(self, pool: Pool) -> list[np.ndarray]:
        """Positions in the pool for each client; raises UserError if that cannot be."""

    def published(self, clients: int) -> Published | None:
        """Test and server rows that come with the partition itself, if any."""
        return None


class Iid(Partitioner):
    """Equal random parts; ``shuffle: false`` takes the rows in order, as the FDA thesis does."""

    name: str = "iid"
    shuffle: bool = option(True, "shuffle the rows before cutting them")

    def split(self, pool: Pool) -> list[np.ndarray]:
        n = len(pool.rows)
        order = pool.rng().permutation(n) if self.shuffle else np.arange(n)
        return np.array_split(order, pool.clients)


class Dirichlet(Partitioner):
    """Hsu et al. 2019: equal sizes, client k's class mix q_k ~ Dir(α p) with p the label
    frequencies; disjoint.

    A class that runs out is left out of the later clients' mixes.
    """

    name: str = "dirichlet"
    alpha: float = option(
        0.3, "concentration: small means few classes a client", "α", ge=1e-6, le=1e6
    )

    def split(self, pool: Pool) -> list[np.ndarray]:
        rng = pool.rng()
        stacks = pool.by_class(rng)
        left = np.array([len(s) for s in stacks])
        prior = left / left.sum()
        sizes = [len(a) for a in np.array_split(np.empty(len(pool.rows)), pool.clients)]
        parts = []
        for size in sizes:
            mix = _dirichlet(rng, self.alpha * prior)
            counts = _capped_multinomial(rng, size, mix, left)
            parts.append(
                # from the end of the shuffled stacks: what is left is then their beginning
                np.concatenate([s[n - c : n] for s, n, c in zip(stacks, left, counts, strict=True)])
            )
            left = left - counts
        return parts


def _dirichlet(rng: np.random.Generator, alpha: np.ndarray) -> np.ndarray:
    """Dir(α) with zeros allowed in α; a draw that underflows to zero becomes one random class."""
    mix = np.zeros(len(alpha))
    present = np.flatnonzero(alpha > 0)
    mix[present] = rng.dirichlet(alpha[present])
    if not np.isfinite(mix).all() or mix.sum() <= 0:
        mix = np.zeros(len(alpha))
        mix[rng.choice(present, p=alpha[present] / alpha[present].sum())] = 1.0
    return mix


def _capped_multinomial(
    rng: np.random.Generator, size: int, mix: np.ndarray, left: np.ndarray
) -> np.ndarray:
    """Counts per class that sum to ``size`` and do not exceed ``left``."""
    counts = np.zeros(len(mix), np.int64)
    # what a full class cannot give is drawn again from the others
    while (missing := size - counts.sum()) > 0:
        open_ = counts < left
        p = np.where(open_, mix, 0)
        p = (
            p / p.sum()
            if p.sum() > 0
            else np.where(open_, left - counts, 0) / (left - counts)[open_].sum()
        )
        counts = np.minimum(counts + rng.multinomial(missing, p), left)
    return counts


class Pfnm(Partitioner):
    """The Dirichlet of PFNM (Yurochkin et al. 2019) as used by FedAA: every class is cut over the
    clients.

    For each class p ~ Dir(α 1_N), clients that already hold n/N rows get no more; drawn again until
    every client holds at least ``least`` rows.
    """

    name: str = "pfnm"
    alpha: float = option(0.1, "concentration", "α", ge=1e-6, le=1e6)
    least: int = option(1, "rows that every client must hold", ge=1)
    attempts: int = option(10_000, "draws before giving up", ge=1, le=1_000_000)

    def split(self, pool: Pool) -> list[np.ndarray]:
        rng, n, clients = pool.rng(), len(pool.rows), pool.clients
        if self.least * clients > n:
            raise UserError(
                f"data.partition: {clients} clients cannot hold {self.least} rows each, of {n}"
            )
        for _ in range(self.attempts):
            parts: list[list[np.ndarray]] = [[] for _ in range(clients)]
            held = np.zeros(clients, np.int64)
            for group in pool.by_class(rng):
                p = rng.dirichlet(np.full(clients, self.alpha)) * (held < n / clients)
                # whoever may still get rows drew nothing: this attempt fails below
                if p.sum() <= 0:
                    break
                # the last cut is the end of the group, which np.split adds by itself
                cuts = (np.cumsum(p / p.sum()) * len(group)).astype(int)[:-1]
                for k, piece in enumerate(np.split(group, cuts)):
                    parts[k].append(piece)
                    held[k] += len(piece)
            if held.sum() == n and held.min() >= self.least:
                return [np.concatenate(p) for p in parts]
        raise UserError(
            f"data.partition: pfnm found no split of {n} rows over {clients} clients with at least "
            f"{self.least} each in {self.attempts} draws; use fewer clients or a larger alpha"
        )


class FedDualPartition(Partitioner):
    """The partition of FedDUAL's published code: clients overlap, and part of the data belongs to
    nobody.

    For each class p ~ Dir(α 1_N); client k draws max(1, ⌊p_k n_c⌋) of its n_c rows without regard
    to the others.
    """

    name: str = "feddual"
    repeats = True
    alpha: float = option(0.01, "concentration", "α", ge=1e-6, le=1e6)

    def split(self, pool: Pool) -> list[np.ndarray]:
        rng = pool.rng()
        parts: list[list[np.ndarray]] = [[] for _ in range(pool.clients)]
        for group in pool.by_class():
            p = _dirichlet(rng, np.full(pool.clients, self.alpha))
            for k in range(pool.clients):
                parts[k].append(
                    rng.choice(
                        group, min(len(group), max(1, int(p[k] * len(group)))), replace=False
                    )
                )
        return [np.concatenate(p) for p in parts]


class Zipf(Partitioner):
    """DRDM's clients: Zipf sizes d_i = d i^-σ / Σ_j j^-σ and a class mix p_i ~ Dir(α 1) drawn per
    client.

    Rows of a class are dealt from a shuffled stack that starts again when it is used up, so sizes
    and mixes are exact and rows repeat only where the clients together ask for more of a class than
    there is; of other classes rows are left that nobody holds.
    """

    name: str = "zipf"
    alpha: float = option(0.1, "concentration of the class mixes", "α", ge=1e-6, le=1e6)
    sigma: float = option(0.0, "exponent of the sizes; 0 makes them equal", "σ", ge=0, le=100)
    disjoint: bool = option(
        False,
        "deal no row twice: sizes stay exact, and what is used up is made up for by the other "
        "classes of a client's mix, or by any that are left, so later clients' mixes are not exact",
    )

    @property
    def overlapping(self) -> bool:
        return not self.disjoint

    def split(self, pool: Pool) -> list[np.ndarray]:
        rng = pool.rng()
        stacks = pool.by_class(rng)
        present = np.array([len(s) > 0 for s in stacks], float)
        share = np.arange(1, pool.clients + 1) ** -self.sigma
        sizes = np.maximum(1, np.floor(len(pool.rows) * share / share.sum())).astype(int)
        if self.disjoint and sizes.sum() > len(pool.rows):
            raise UserError(
                f"data.partition: {len(pool.rows)} rows do not give each of {pool.clients} clients "
                f"one of its own with sigma {self.sigma:g}; use fewer clients or a smaller sigma"
            )
        dealt = np.zeros(pool.classes, np.int64)
        parts = []
        for size in sizes:
            mix = _dirichlet(rng, self.alpha * present)
            if self.disjoint:
                left = np.array([len(s) for s in stacks]) - dealt
                counts = _capped_multinomial(rng, size, mix, left)
            else:
                counts = rng.multinomial(size, mix)
            pieces = [
                # goes on where the last client stopped, round and round
                s[(start + np.arange(c)) % len(s)]
                for s, start, c in zip(stacks, dealt, counts, strict=True)
                if c
            ]
            dealt += counts
            parts.append(np.concatenate(pieces))
        return parts


class SortedFraction(Partitioner):
    """FDA thesis, Sorted-X %: the first X % of the rows sorted by label, the rest in order."""

    name: str = "sorted"
    fraction: float = option(0.6, "part of the rows that is sorted by label", "X", ge=0, le=1)

    def split(self, pool: Pool) -> list[np.ndarray]:
        cut = int(self.fraction * len(pool.rows))
        first = np.argsort(pool.labels[:cut], kind="stable")
        rest = np.arange(cut, len(pool.rows))
        pairs = zip(
            np.array_split(first, pool.clients), np.array_split(rest, pool.clients), strict=True
        )
        return [np.concatenate(pair) for pair in pairs]


class LabelSkew(Partitioner):
    """FDA thesis, Label-Y: all rows of label Y go to the first clients, the rest follow."""

    name: str = "label"
    label: int = option(0, "the label that only the first clients hold", "Y", ge=0)

    def split(self, pool: Pool) -> list[np.ndarray]:
        if self.label >= pool.classes:
            raise UserError(
                f"data.partition.label: {self.label} is not one of the {pool.classes} classes"
            )
        chosen = pool.labels == self.label
        order = np.concatenate([np.flatnonzero(chosen), np.flatnonzero(~chosen)])
        return np.array_split(order, pool.clients)


class Shards(Partitioner):
    """McMahan et al. 2017: rows sorted by label, cut into N·s shards, s random shards a client."""

    name: str = "shards"
    per_client: int = option(2, "shards a client", "s", ge=1, le=1000)

    def split(self, pool: Pool) -> list[np.ndarray]:
        shards = np.array_split(
            np.argsort(pool.labels, kind="stable"), pool.clients * self.per_client
        )
        deal = pool.rng().permutation(len(shards)).reshape(pool.clients, self.per_client)
        return [np.concatenate([shards[i] for i in mine]) for mine in deal]


class Natural(Partitioner):
    """The first N of the dataset's own clients (FEMNIST's writers, SYNTHETIC's generators).

    Their rows of the training split; those of the test split are their tests, whatever is pooled.
    """

    name: str = "natural"

    def split(self, pool: Pool) -> list[np.ndarray]:
        if pool.owner is None:
            raise UserError(
                "data.partition: natural needs a dataset with natural clients (femnist, synthetic)"
            )
        owners = int(pool.owner.max()) + 1
        if pool.clients > owners:
            raise UserError(
                f"data.clients: {pool.clients} is more than the {owners} natural clients of the "
                "dataset (of what data.limit leaves of it)"
            )
        return by_owner(pool.owner, pool.clients)


class GlueDirichlet(Partitioner):
    """The Dirichlet of the FDA-Opt experiments: class quotas α-drawn per client, rows dealt in
    order.

    q_k ~ Dir(α p); client k's quota of class c is q_kc n/N; each row goes to the first client, in a
    fresh random order, whose quota of its class is at least 1, else to the client with the largest
    quota left of that class.
    """

    name: str = "glue_dirichlet"
    alpha: float = option(1.0, "concentration", "α", ge=1e-6, le=1e6)

    def split(self, pool: Pool) -> list[np.ndarray]:
        rng, n = pool.rng(), len(pool.rows)
        prior = np.bincount(pool.labels, minlength=pool.classes) / n
        quota = (
            np.stack([_dirichlet(rng, self.alpha * prior) for _ in range(pool.clients)])
            * n
            / pool.clients
        )
        parts: list[list[int]] = [[] for _ in range(pool.clients)]
        for row, label in enumerate(pool.labels):
            order = rng.permutation(pool.clients)
            willing = order[quota[order, label] >= 1]
            k = int(willing[0]) if len(willing) else int(np.argmax(quota[:, label]))
            quota[k, label] -= 1
            parts[k].append(row)
        return [np.array(p, np.int64) for p in parts]


class FromFile(Partitioner):
    """A published partition: ``NAME.npz`` with n_train and train_idx (rows of train, then test).

    Clients may share training rows; test_idx, n_test and server_test_idx must have none of them.
    """

    name: str = "file"
    repeats = True
    file: str = option(
        "fedaa_mnist_partition", "name of the .npz in the data folders, or its path", file=True
    )
    fraction: float = option(
        1.0, "part of each client's training rows that is used, drawn at random", gt=0, le=1
    )

    @property
    def _form(self) -> Form[Path]:
        return Form((self.file,), Path, ("", ".npz"))

    def files(self) -> Iterator[str]:
        """The one that is read, whatever else has its name."""
        yield str(stored(self.file, self._form) or self.file)

    def split(self, pool: Pool) -> list[np.ndarray]:
        path, arrays = self._read(pool.clients, "n_train", "train_idx")
        rows, sizes = arrays["train_idx"], arrays["n_train"]
        # row number -> position in the pool, −1 for rows outside it
        position = np.full(int(pool.rows.max()) + 1, -1)
        position[pool.rows] = np.arange(len(pool.rows))
        outside = (rows >= len(position)) | (position[np.minimum(rows, len(position) - 1)] < 0)
        if outside.any():
            raise UserError(
                f"data.partition.file: train_idx of {path} names row {rows[outside][0]}, which is "
                "not in the pool; set data.pool to all and no data.limit, unless the row is held "
                "out at the server"
            )
        parts = np.split(position[rows], np.cumsum(sizes)[:-1])
        if self.fraction == 1:
            return parts
        rng = pool.rng()
        return [rng.choice(p, math.ceil(self.fraction * len(p)), replace=False) for p in parts]

    def published(self, clients: int) -> Published:
        _, arrays = self._read(clients, "n_test", "test_idx", "server_test_idx")
        tests = np.split(arrays["test_idx"], np.cumsum(arrays["n_test"])[:-1])
        return Published(tests, arrays["server_test_idx"])

    def _read(self, clients: int, sizes: str, *names: str) -> tuple[Path, dict[str, np.ndarray]]:
        """The file, and its row numbers ``names``; ``sizes`` of the clients cut up the first."""
        path = stored(self.file, self._form)
        if path is None:
            raise missing(self.file, [self._form])
        each, *found = read_npz(path, sizes, *names)
        arrays = {n: row_numbers(a, f"{path}, {n}") for n, a in zip(names, found, strict=True)}
        arrays[sizes] = counts(each, len(arrays[names[0]]), f"{path}, {sizes}")
        if len(each) != clients:
            raise UserError(f"data.clients: {path} is for {len(each)} clients, not {clients}")
        return path, arrays
