"""Image datasets, FEMNIST's natural clients, and the SYNTHETIC generator."""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from algorithms.draws import generator
from algorithms.part import option
from orchestrator.data.room import memory
from orchestrator.data.samples import Dataset, Pictures, Request, Samples, Split, counts, join
from orchestrator.data.sources import (
    Form,
    missing,
    read_idx,
    read_npz,
    read_text,
    reading,
    stored,
    stored_or_downloaded,
)
from orchestrator.errors import UserError

NPZ = ("x_train", "y_train", "x_test", "y_test")


Splits = tuple[Split, Split]
"""Of training, and of the test."""


def packed(name: str, pictures: Pictures) -> Form[Splits]:
    """``NAME.npz`` with such ``pictures``."""
    return Form((f"{name}.npz",), lambda path: from_npz(path, pictures))


def from_npz(path: Path, pictures: Pictures) -> Splits:
    """Both splits from ``NAME.npz`` with x_train, y_train, x_test, y_test.

    Raises UserError if they are not such ``pictures``.
    """
    a, b, c, d = read_npz(path, *NPZ)
    return (
        pictures.split(a, b, f"{path}, x_train and y_train"),
        pictures.split(c, d, f"{path}, x_test and y_test"),
    )


class _IdxDataset(Dataset):
    """Grey 28x28 images in torchvision's layout ``FOLDER/raw/*-ubyte[.gz]``."""

    layout: ClassVar[tuple[str, str, str]]
    """Torchvision's class and folder, file stem of the training split, of the test split."""
    pictures: ClassVar[Pictures] = Pictures(28, 1, 10)
    moments: ClassVar[tuple[float, float]]
    """Mean and standard deviation of the training pixels in [0, 1]."""
    names: ClassVar[tuple[str, ...]] = ()
    """Of the classes."""

    def read(self, request: Request) -> Samples:
        folder, *stems = self.layout
        kinds = ("images-idx3", "labels-idx1")
        files = tuple(f"{folder}/raw/{stem}-{kind}-ubyte" for stem in stems for kind in kinds)
        raw = Form(files, self._splits, ("", ".gz", ".xz"))
        train, test = stored_or_downloaded(
            self.name, [packed(self.name, self.pictures), raw], self.fetch
        )
        mean, std = self.moments
        samples = join(train, test, self.pictures.classes, (mean,), (std,))
        return replace(samples, names=self.names)

    def fetch(self, root: Path) -> None:
        """Download by torchvision to ``root``."""
        import torchvision

        getattr(torchvision.datasets, self.layout[0])(root, download=True)

    def _splits(self, *files: Path) -> Splits:
        return self._split(*files[:2]), self._split(*files[2:])

    def _split(self, images: Path, labels: Path) -> Split:
        where = f"{images} and {labels.name}"
        return self.pictures.split(read_idx(images), read_idx(labels), where)


class Mnist(_IdxDataset):
    """MNIST handwritten digits: 60,000 train, 10,000 test."""

    name: str = "mnist"
    layout = ("MNIST", "train", "t10k")
    moments = (0.1307, 0.3081)


CLOTHES = (
    "T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag",
    "ankle boot",
)  # fmt: skip
"""Fashion-MNIST's classes."""


class FashionMnist(_IdxDataset):
    """Fashion-MNIST articles of clothing: 60,000 train, 10,000 test."""

    name: str = "fashion_mnist"
    layout = ("FashionMNIST", "train", "t10k")
    moments = (0.2860, 0.3530)
    names = CLOTHES


class Kmnist(_IdxDataset):
    """KMNIST cursive Japanese characters: 60,000 train, 10,000 test."""

    name: str = "kmnist"
    layout = ("KMNIST", "train", "t10k")
    moments = (0.1918, 0.3483)
    names = ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo")


class Emnist(_IdxDataset):
    """EMNIST byclass: 62 classes, 697,932 train, 116,323 test (images are turned upright)."""

    name: str = "emnist"
    layout = ("EMNIST", "emnist-byclass-train", "emnist-byclass-test")
    pictures = Pictures(28, 1, 62)
    names = (*string.digits, *string.ascii_uppercase, *string.ascii_lowercase)
    moments = (0.1736, 0.3317)

    def fetch(self, root: Path) -> None:
        import torchvision

        torchvision.datasets.EMNIST(root, split="byclass", download=True)

    def _split(self, images: Path, labels: Path) -> Split:
        x, y = super()._split(images, labels)
        # the files hold columns of pixels where the others hold rows
        return x.transpose(0, 2, 1), y


class FashionMnist10k(Dataset):
    """The embedded 10,000 Fashion-MNIST images, no download; a fixed split of 8,000 / 2,000."""

    name: str = "fashion_mnist_10k"

    def read(self, request: Request) -> Samples:
        return _embedded()


@cache  # unpacking takes longer than many a test's whole run
def _embedded() -> Samples:
    """The embedded images; every run of this process reads the same arrays, and none may write."""
    folder = Path(__file__).parent / "embedded"
    x = read_idx(folder / "fashion-mnist-10k-images-idx3-ubyte.xz")
    y = read_idx(folder / "fashion-mnist-10k-labels-idx1-ubyte.xz")
    order = generator(0, "fashion_mnist_10k").permutation(len(y))
    train, test = order[:8000], order[8000:]
    samples = join((x[train], y[train]), (x[test], y[test]), 10, (0.2860,), (0.3530,))
    assert isinstance(samples.x, np.ndarray)
    samples.x.setflags(write=False)
    samples.y.setflags(write=False)
    return replace(samples, names=CLOTHES)


class _ColourDataset(Dataset):
    """Colour images: ``NAME.npz``, or torchvision's files."""

    pictures: ClassVar[Pictures]
    moments: ClassVar[tuple[tuple[float, ...], tuple[float, ...]]]
    """Means and standard deviations of the training pixels in [0, 1], by channel."""

    def read(self, request: Request) -> Samples:
        import torchvision

        cls: Callable[..., Any] = getattr(torchvision.datasets, self.name.upper())
        base = "cifar-10-batches-py" if self.name == "cifar10" else "cifar-100-python"
        forms = [
            packed(self.name, self.pictures),
            Form((base,), lambda folder: self._halves(folder, cls)),
        ]
        train, test = stored_or_downloaded(self.name, forms, lambda r: cls(r, download=True))
        return join(train, test, self.pictures.classes, *self.moments)

    def _halves(self, folder: Path, cls: Callable[..., Any]) -> Splits:
        # torchvision compares its pickles with their known digests before it opens them
        return self._half(folder, cls, True), self._half(folder, cls, False)

    def _half(self, folder: Path, cls: Callable[..., Any], train: bool) -> Split:
        try:
            half = cls(folder.parent, train=train)
        except (OSError, RuntimeError) as error:
            raise UserError(f"cannot read {folder}: {error}") from error
        return self.pictures.split(half.data, np.array(half.targets), folder)


class Cifar10(_ColourDataset):
    """CIFAR-10: 50,000 train, 10,000 test, 3x32x32."""

    name: str = "cifar10"
    pictures = Pictures(32, 3, 10)
    moments = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


class Cifar100(_ColourDataset):
    """CIFAR-100, fine labels: 50,000 train, 10,000 test, 3x32x32."""

    name: str = "cifar100"
    pictures = Pictures(32, 3, 100)
    moments = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)


class TinyImageNet(Dataset):
    """Tiny-ImageNet: 200 classes, 100,000 train, 10,000 validation images used as test, 3x64x64."""

    name: str = "tiny_imagenet"
    pictures: ClassVar[Pictures] = Pictures(64, 3, 200)

    def read(self, request: Request) -> Samples:
        forms = packed(self.name, self.pictures), Form(("tiny-imagenet-200",), self._folder)
        found = stored(self.name, *forms)
        if found is None:
            raise missing(self.name, forms, "torchvision offers none")
        return join(*found, 200, (0.4802, 0.4481, 0.3975), (0.2770, 0.2691, 0.2821))

    def _folder(self, root: Path) -> Splits:
        try:
            train, test = _listed(root)
        except (OSError, KeyError, IndexError, ValueError) as error:
            raise UserError(f"cannot read {root}: {error}") from error
        return self._images(root, train), self._images(root, test)

    def _images(self, root: Path, files: Sequence[tuple[Path, int]]) -> Split:
        x = np.zeros((len(files), 64, 64, 3), np.uint8)
        for row, (path, _) in zip(x, files, strict=True):
            _picture(path, row)
        return self.pictures.split(x, np.array([label for _, label in files]), root)


Files = list[tuple[Path, int]]
"""Image files and their labels."""


def _listed(root: Path) -> tuple[Files, Files]:
    """Training and test files of Tiny-ImageNet's folder ``root``."""
    wnids = sorted(read_text(root / "wnids.txt").split())
    label = {w: i for i, w in enumerate(wnids)}
    if len(label) < len(wnids):
        raise ValueError("wnids.txt names a class twice")
    train = [
        (p, label[w]) for w in wnids for p in sorted((root / "train" / w / "images").iterdir())
    ]
    lines = read_text(root / "val" / "val_annotations.txt").splitlines()
    entries = [line.split("\t") for line in lines]
    return train, [(root / "val" / "images" / e[0], label[e[1]]) for e in entries]


def _picture(path: Path, pixels: np.ndarray) -> None:
    """Read the image ``path`` into ``pixels`` [H, W, 3]; UserError if it is none of these."""
    from PIL import Image

    with reading(path), Image.open(path) as image:
        if image.size != pixels.shape[:2]:
            raise ValueError(f"it has {image.size[0]} x {image.size[1]} pixels")
        pixels[:] = np.asarray(image.convert("RGB"))


class Femnist(Dataset):
    """FEMNIST (LEAF): handwritten characters in 62 classes, with the writers as natural clients."""

    name: str = "femnist"

    def read(self, request: Request) -> Samples:
        form = Form((f"{self.name}.npz",), self._writers)
        found = stored(self.name, form)
        if found is None:
            reason = "there is no library download of FEMNIST with its writers"
            raise missing(self.name, [form], reason)
        return found

    def _writers(self, path: Path) -> Samples:
        splits = from_npz(path, Pictures(28, 1, 62))
        names = ("n_train", "n_test")
        each = zip(read_npz(path, *names), splits, names, strict=True)
        sizes = [counts(n, len(labels), f"{path}, {name}") for n, (_, labels), name in each]
        if len(sizes[0]) != len(sizes[1]):
            raise UserError(f"{path}: n_train and n_test are of different numbers of writers")
        owner = np.concatenate([np.repeat(np.arange(len(n)), n) for n in sizes])
        samples = join(*splits, 62, (0.9638,), (0.1597,))
        return replace(samples, owner=owner)


class Synthetic(Dataset):
    """SYNTHETIC(α, β) of Li et al. 2020 as FedAA's code generates it: 60 features, 10 classes,
    natural clients.

    Client k: u_k ~ N(0, α), B_k ~ N(0, β) (α, β are standard deviations), W ~ N(u_k, 1)^{60x10}, b
    ~ N(u_k, 1)^10, v_k ~ N(B_k, 1)^60, x ~ N(v_k, diag(j^-1.2)), y = argmax(xW + b); sizes are
    int(lognormal(4, 2)) + 50.
    """

    name: str = "synthetic"
    generated: ClassVar[bool] = True
    alpha: float = option(1.0, "spread of the clients' models", "α", ge=0, le=1e6)
    beta: float = option(1.0, "spread of the clients' inputs", "β", ge=0, le=1e6)
    test_fraction: float = option(
        0.1, "part of each client's samples kept for its test", gt=0, lt=1
    )

    def read(self, request: Request) -> Samples:
        self._fits(request.clients)
        parts = [self._client(request, k) for k in range(request.clients)]
        rows = [
            (x[s], y[s], np.full(len(y[s]), k))
            # all clients' training rows, then all test rows
            for half in (0, 1)
            for k, (x, y, cut) in enumerate(parts)
            for s in [slice(cut) if half == 0 else slice(cut, None)]
        ]
        x, y, owner = (np.concatenate([r[i] for r in rows]) for i in range(3))
        return Samples(x, y, sum(cut for _, _, cut in parts), 10, owner=owner)

    def _fits(self, clients: int) -> None:
        """Raise UserError for so many clients that their rows have no room."""
        # int(lognormal(4, 2)) + 50 rows on average, twice in memory while they are put together
        most = int(memory() / (2 * 453 * 60 * 4))
        if clients > most:
            raise UserError(
                f"data.clients: rows of {clients} clients of synthetic are more than this "
                f"machine's memory has room for (about {most} clients)"
            )

    def _client(self, request: Request, k: int) -> tuple[np.ndarray, np.ndarray, int]:
        rng = generator(request.seed, "synthetic", k)
        n = int(rng.lognormal(4, 2)) + 50
        u, centre = rng.normal(0, self.alpha), rng.normal(0, self.beta)
        weight, bias = rng.normal(u, 1, (60, 10)), rng.normal(u, 1, 10)
        v = rng.normal(centre, 1, 60)
        # j^-0.6 is the deviation of variance j^-1.2
        x = v + rng.normal(size=(n, 60)) * np.arange(1, 61) ** -0.6
        y = np.argmax(x @ weight + bias, axis=1)
        return x.astype(np.float32), y.astype(np.int64), n - max(1, int(self.test_fraction * n))
