"""Data files: wrong shapes, types, counts and bits are refused, never shifted or made up."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import struct
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import numpy as np

from orchestrator.config import load
from orchestrator.data.federated import FederatedData
from orchestrator.data.samples import Samples
from tests.fuzz.compositions import require_kept_apart
from tests.fuzz.family import Family, Pieces, Wrong
from tests.fuzz.oddities import HUGE, damaged

SIDE = {
    "mnist": 28,
    "cifar10": 32,
    "cifar100": 32,
    "tiny_imagenet": 64,
    "femnist": 28,
    "kmnist": 28,
}
CLASSES = {"mnist": 10, "fashion_mnist": 10, "kmnist": 10, "cifar10": 10, "cifar100": 100,
           "tiny_imagenet": 200, "femnist": 62, "ag_news": 4, "glue": 2, "fashion_mnist_10k": 10,
           "emnist": 62}  # fmt: skip
LAYOUTS = (*[(n, "npz") for n in SIDE], ("mnist", "idx"), ("fashion_mnist", "idx"), ("emnist", "idx"),
           ("ag_news", "csv"), ("glue", "tsv"), ("fashion_mnist_10k", "partition"))  # fmt: skip
ARRAYS = {
    "npz": ("x_train", "y_train", "x_test", "y_test"),
    "idx": ("train-images", "train-labels", "test-images", "test-labels"),
    "partition": ("train_idx", "n_train", "test_idx", "n_test", "server_test_idx"),
}
FIGURES = ("fewer", "more", "none", "flat", "deeper", "narrow", "scalar", "missing", "empty axis")
TYPES = (
    "<i8",
    "<f4",
    "<f8",
    "<f2",
    ">i4",
    "|b1",
    "<U3",
    "<c8",
    "|i1",
    "<u4",
    "<M8[D]",
    "|O",
    "|S2",
    "<i2",
)
VALUES = (-1, 10, 255, 62, 256, 10**9, 0.5, float("nan"), float("inf"), 2**31, *HUGE[:6])
BYTES = (
    "emptied",
    "truncated",
    "flipped",
    "flipped",
    "longer",
    "noise",
    "foreign",
    "a folder",
    "removed",
    "cyclic link",
)
LINES = ("", "1", "1,2,3,4", '"', '"unclosed', "label,text", "x,y", "-1,a", "9,a", "1e3,a", "0.5,a", "٣,a",
         "\x00,a", "1," + "a" * 200_000, "\ufeff1,a", "1\ta", "\t\t\t", "a\t1", "1\t1\t1\t1\t1\t1", "nan,a", " 1 ,a")  # fmt: skip


class DataFiles(Family):
    """A small dataset in one of its layouts, with some of it wrong."""

    name = "datafiles"
    deadline = 20.0
    quick = 25

    def draw(self, rng: Random) -> Pieces:
        name, layout = rng.choice(LAYOUTS)
        wrong = [self._wrong(rng, layout) for _ in range(rng.choice((0, 1, 1, 1, 2)))]
        return [("dataset", name, layout, rng.randrange(2**30)), *wrong]

    def _wrong(self, rng: Random, layout: str) -> tuple[Any, ...]:
        kind = rng.choice(("bytes", "figure", "type", "value"))
        if layout in ("csv", "tsv") and kind != "bytes":
            return ("line", rng.choice(LINES), rng.randrange(14))
        if kind == "bytes":
            return ("bytes", rng.random(), rng.choice(BYTES), rng.random(), rng.randrange(2**30))
        array = rng.choice(ARRAYS.get(layout, ARRAYS["npz"]))
        return (kind, array, rng.choice({"figure": FIGURES, "type": TYPES, "value": VALUES}[kind]))

    def play(self, pieces: Pieces, folder: Path) -> None:
        given = [p for p in pieces if p[0] == "dataset"] or [("dataset", "mnist", "npz", 0)]
        _, name, layout, seed = given[0]
        home = folder / "data"
        _write(
            home,
            name,
            layout,
            Random(seed),
            [p for p in pieces if p[0] not in ("dataset", "bytes")],
        )
        for p in pieces:
            if p[0] == "bytes":
                _damage(home, *p[1:])
        settings = [
            f"data.dataset={name}",
            "data.clients=2",
            "cohort=1",
            "data.partition=iid",
            "data.client_test.least=1",
        ]
        if name == "glue":
            settings.append("data.dataset={name: glue, task: rte}")
        if layout == "partition":
            settings += ["data.partition=file", "data.pool=all"]
        config = load(None, settings)
        places = {
            "FEDORCH_DATA": str(home),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "HF_HUB_OFFLINE": "1",
        }
        with mock.patch.dict(os.environ, places), mock.patch("urllib.request.urlopen", _offline):
            data = FederatedData.build(config.data, 0)
        require_sound(data.samples, name)
        require_kept_apart(data, config)
        _require_as_written(data.samples, pieces, layout)


def require_sound(samples: Samples, name: str) -> None:
    """Rows and labels go together, and are what the dataset's are."""
    x, y = samples.x, samples.y
    if len(x) != len(y) or not 0 < samples.train < len(y):
        raise Wrong(
            f"{name}, rows and labels do not go together: {len(x)}, {len(y)}, {samples.train}"
        )
    if samples.classes != CLASSES.get(name, samples.classes):
        raise Wrong(f"{name} has another number of classes: {samples.classes}")
    if y.dtype != np.int64 or y.ndim != 1 or y.min() < 0 or y.max() >= samples.classes:
        raise Wrong(f"{name}, labels are none: {y.dtype} {y.shape} {y.min()} {y.max()}")
    if x.dtype not in (np.uint8, np.float32, np.int32):
        raise Wrong(f"{name}, inputs are of a strange type: {x.dtype}")
    if x.dtype == np.float32 and not np.isfinite(x).all():
        raise Wrong(f"{name}, inputs are not finite: {x.shape}")
    if name in SIDE and x.shape[2:] != (SIDE[name],) * 2:
        raise Wrong(f"{name}, images are of another size: {x.shape}")


def _require_as_written(samples: Samples, pieces: Pieces, layout: str) -> None:
    """A count, type or value that was wrong is not taken."""
    figures = [p for p in pieces if p[0] == "figure"]
    for p in pieces:
        # one alone: a row less and a row more make as many as there were
        alone = figures == [p] and layout != "partition" and p[1] in ARRAYS.get(layout, ())
        if alone and p[2] in ("fewer", "more"):
            raise Wrong(f"{p[1]} has {p[2]} rows than the other: it was accepted")
        if (
            p[0] == "value"
            and p[1].startswith("y")
            and layout == "npz"
            and p[2] in (0.5, -1, 10**9)
        ) and sum(q[0] != "dataset" for q in pieces) == 1:
            raise Wrong(f"a label of {p[2]} in {p[1]} was accepted: {samples.y[:9].tolist()}")


def _write(home: Path, name: str, layout: str, rng: Random, wrong: Pieces) -> None:
    home.mkdir()
    if layout in ("csv", "tsv"):
        _write_text(home, layout, [p for p in wrong if p[0] == "line"])
        return
    arrays = _arrays(name, layout, np.random.default_rng(rng.randrange(2**30)))
    for kind, which, how in [p for p in wrong if p[0] != "line"]:
        if which in arrays:
            changed = _changed(arrays[which], kind, how)
            arrays = {
                k: changed if k == which else v
                for k, v in arrays.items()
                if k != which or changed is not None
            }
    _store(home, name, layout, arrays)


def _arrays(name: str, layout: str, rng: np.random.Generator) -> dict[str, Any]:
    if layout == "partition":
        order = rng.permutation(400)
        return {"train_idx": order[:200], "n_train": np.array([120, 80]), "test_idx": order[200:300],
                "n_test": np.array([50, 50]), "server_test_idx": order[300:320]}  # fmt: skip
    side, colour = SIDE.get(name, 28), SIDE.get(name, 28) != 28
    classes = CLASSES[name]
    shape = (side, side, 3) if colour else (side, side)
    found: dict[str, Any] = {}
    for (x, y), n in zip((ARRAYS[layout][:2], ARRAYS[layout][2:]), (12, 6), strict=True):
        found[x] = rng.integers(0, 256, (n, *shape), np.uint8)
        found[y] = np.append(rng.integers(0, min(classes, 3), n - 1), classes - 1).astype(np.uint8)
    if name == "femnist":
        found |= {
            "client_id": np.array([3, 5]),
            "n_train": np.array([7, 5]),
            "n_test": np.array([2, 4]),
        }
    return found


def _changed(array: np.ndarray, kind: str, how: Any) -> np.ndarray | None:
    """The array, with something wrong where it can be; None: it is missing."""
    changes = {"type": _retyped, "value": _with_value, "figure": _refigured}
    with contextlib.suppress(TypeError, ValueError, IndexError, OverflowError, RuntimeError):
        return changes[kind](array, how)
    return array


def _retyped(array: np.ndarray, how: str) -> np.ndarray:
    return array.astype("<i8").astype(how) if how == "<M8[D]" else array.astype(how)


def _with_value(array: np.ndarray, value: int | float) -> np.ndarray:
    whole = isinstance(value, int) and abs(value) < 2**63
    wide = array.astype(np.int64 if whole else np.float64)
    wide.flat[0] = value
    return wide


def _refigured(array: np.ndarray, how: str) -> np.ndarray | None:
    figures: dict[str, Any] = {
        "fewer": lambda: array[:-1],
        "more": lambda: np.concatenate([array, array[:1]]),
        "none": lambda: array[:0],
        "flat": array.ravel,
        "deeper": lambda: array[..., None],
        "narrow": lambda: array[..., :-1],
        "scalar": lambda: array.ravel()[0],
        "missing": lambda: None,
        "empty axis": lambda: array.reshape(*array.shape, 1)[..., :0],
    }
    found = figures[how]()
    return None if found is None else np.asarray(found)


def _store(home: Path, name: str, layout: str, arrays: dict[str, Any]) -> None:
    if layout == "partition":
        np.savez(home / "fedaa_mnist_partition.npz", **arrays)
    elif layout == "npz":
        np.savez(home / f"{name}.npz", **arrays)
    else:
        root = {"mnist": "MNIST", "fashion_mnist": "FashionMNIST", "emnist": "EMNIST"}[name]
        stems = (
            ("emnist-byclass-train", "emnist-byclass-test")
            if name == "emnist"
            else ("train", "t10k")
        )
        (home / root / "raw").mkdir(parents=True)
        for key, array in arrays.items():
            split, what = key.split("-")
            end = f"{what}-idx{3 if what == 'images' else 1}-ubyte"
            path = home / root / "raw" / f"{stems[split == 'test']}-{end}"
            path.write_bytes(_idx(array))


def _idx(array: np.ndarray) -> bytes:
    kinds = {"u1": 8, "i1": 9, "i2": 11, "i4": 12, "f4": 13, "f8": 14}
    code = kinds.get(array.dtype.str[1:], 8)
    shape = [min(n, 2**31 - 1) for n in array.shape]
    return struct.pack(f">HBB{array.ndim}i", 0, code, array.ndim, *shape) + array.tobytes()


def _write_text(home: Path, layout: str, wrong: Pieces) -> None:
    rows = [[str(i % 4), f"text {i}, of words"] for i in range(12)]
    header, end, folder = ["label", "text"], "csv", "ag_news"
    if layout == "tsv":
        rows = [
            [str(i), f"one {i}", "two", ("entailment", "not_entailment")[i % 2]] for i in range(12)
        ]
        header, end, folder = ["index", "sentence1", "sentence2", "label"], "tsv", "glue/RTE"
    (home / folder).mkdir(parents=True)
    for split in ("train", "test" if layout == "csv" else "dev"):
        text = io.StringIO()
        writer = csv.writer(text, delimiter="," if layout == "csv" else "\t")
        writer.writerows([header, *rows])
        lines = text.getvalue().splitlines()
        for _, line, at in wrong:
            lines[at % len(lines)] = line
        (home / folder / f"{split}.{end}").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _damage(home: Path, which: float, how: str, at: float, seed: int) -> None:
    files = sorted(p for p in home.rglob("*") if p.is_file())
    if not files:
        return
    path = files[int(which * len(files))]
    if how in ("a folder", "removed", "cyclic link"):
        path.unlink()
        if how == "a folder":
            path.mkdir()
        elif how == "cyclic link":
            os.symlink(path, path)
    else:
        path.write_bytes(damaged(Random(seed), path.read_bytes(), how, at))


def _offline(*about: object, **options: object) -> None:
    raise OSError("there is no network")
