"""Data files that are not what they must be: each is one sentence that names the file, never other
data, a traceback, or a process that does not end.
"""

import gzip
import os
import struct
import zipfile

import numpy as np
import pytest

from algorithms.part import variants
from orchestrator.data import Dataset, Samples, room
from orchestrator.data.federated import DataConfig, FederatedData
from orchestrator.data.samples import Request, checked, counts, row_numbers
from orchestrator.errors import UserError
from tests.orchestrator.test_sources import folder, load, write_idx, write_raw, write_tiny  # noqa: F401

X = np.random.default_rng(0).integers(0, 256, (9, 32, 32, 3), np.uint8)
Y = np.arange(9)
CIFAR10 = {"x_train": X[:6], "y_train": Y[:6], "x_test": X[6:], "y_test": Y[6:]}


def refused(name, *words, **options):
    with pytest.raises(UserError) as caught:
        load(name, **options)
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 1000
    for word in words:
        assert word in text
    return text


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"y_train": Y[:5]}, "labels of shape (5,)"),
        ({"y_train": Y[:6, None]}, "labels of shape (6, 1)"),
        ({"y_test": np.array([1.5, 2, 3])}, "row 0 is 1.5"),
        ({"y_test": np.array([1, np.nan, 3])}, "row 1 is nan"),
        ({"y_test": np.array(["a", "b", "c"])}, "row 0 is a"),
        ({"y_test": np.array([1, 2, 255])}, "row 2 is 255; it must be a whole number from 0 to 9"),
        ({"y_test": np.array([1, 10**9, 3])}, "1000000000"),
        ({"y_test": np.array([1, -1, 3])}, "row 1 is -1"),
        ({"y_test": np.array([0, 2**64 - 1, 1], np.uint64)}, "18446744073709551615"),
        ({"x_train": X[:6] / 255}, "float64"),
        ({"x_train": X[:6].astype(np.int64)}, "int64"),
        ({"x_train": X[:6, ..., 0]}, "(6, 32, 32)"),
        ({"x_test": X[6:].transpose(0, 3, 1, 2)}, "(3, 3, 32, 32)"),
        ({"x_test": X[6:6], "y_test": Y[6:6]}, "(0, 32, 32, 3)"),
    ],
)
def test_an_npz_is_what_the_dataset_is(folder, wrong, word):  # noqa: F811
    """Lengths, types, ranges and shapes: whatever is wrong would else train as other data."""
    np.savez(folder / "cifar10.npz", **CIFAR10 | wrong)
    refused("cifar10", str(folder / "cifar10.npz"), word)


def test_labels_in_any_type_of_whole_numbers(folder):  # noqa: F811
    """What is only stored otherwise is not refused."""
    for kind in (np.uint8, np.int16, np.float32, np.uint64):
        arrays = {n: a.astype(kind) if n[0] == "y" else a for n, a in CIFAR10.items()}
        np.savez(folder / "cifar10.npz", **arrays)
        samples = load("cifar10")
        assert samples.y.tolist() == Y.tolist()
        assert (samples.y.dtype, samples.classes) == (np.int64, 10)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("wrong", [np.inf, np.nan, 0.5, -1])
def test_numbers_of_rows_are_whole_in_any_type(kind, wrong):
    """float16 cannot hold the largest number that is allowed, so infinity was one."""
    numbers = np.array([3, wrong], kind)
    with pytest.raises(UserError, match="row numbers"):
        row_numbers(numbers, "here")
    with pytest.raises(UserError, match="whole number of rows"):
        counts(numbers, 2**20, "here")
    assert row_numbers(np.array([3, 7], kind), "here").tolist() == [3, 7]


def test_no_dates_are_no_numbers_of_rows():
    """All of none are whole, and dates have no sum."""
    with pytest.raises(UserError, match="whole number of rows"):
        counts(np.array([], "<M8[D]"), 0, "here")


@pytest.mark.parametrize(
    ("shape", "size", "word"),
    [
        ((-1, 28, 28), 784, "(-1, 28, 28)"),
        ((0, 28, 28), 0, "(0, 28, 28)"),
        ((2**31 - 1,) * 3, 784, "GiB"),
        ((2, 28, 28), 784, "only 784"),
        ((1, 28, 28), 785, "more"),
        ((784,), 784, "(784,)"),
    ],
)
def test_an_idx_file_holds_what_its_header_says(folder, shape, size, word):  # noqa: F811
    path = folder / "MNIST" / "raw" / "train-images-idx3-ubyte.gz"
    write_raw(folder)
    (path.parent / "train-images-idx3-ubyte").unlink()
    header = struct.pack(f">HBB{len(shape)}i", 0, 8, len(shape), *shape)
    path.write_bytes(gzip.compress(header + bytes(size)))
    write_idx(path.parent / "train-labels-idx1-ubyte", np.zeros(1, np.uint8))
    refused("mnist", str(path), word)


def test_a_small_archive_with_an_array_without_end(folder, monkeypatch):  # noqa: F811
    """A compressed array of zeros can be a thousand times its file: asked for before it is read."""
    monkeypatch.setattr(room, "memory", lambda: 2**20)
    np.savez_compressed(folder / "cifar10.npz", **CIFAR10 | {"x_train": np.zeros(2**21, np.uint8)})
    refused("cifar10", "GiB of memory")
    refused("synthetic", "data.clients", clients=10**9)


@pytest.mark.parametrize(
    "bad", ["pipe", "folder", "array", "crc", "loop", "other names", "one name twice"]
)
def test_what_is_no_archive(folder, bad):  # noqa: F811
    """A pipe would be waited at for ever; a flipped bit is found by the archive's own sum."""
    path = folder / "cifar10.npz"
    if bad == "pipe":
        os.mkfifo(path)
    elif bad == "folder":
        path.mkdir()
    elif bad == "array":
        with path.open("wb") as f:
            np.save(f, X)
    elif bad == "crc":
        np.savez(path, **CIFAR10)
        raw = bytearray(path.read_bytes())
        raw[2000] ^= 1
        path.write_bytes(raw)
    elif bad == "loop":
        path.symlink_to(path)
        assert not path.exists()
    elif bad == "one name twice":
        np.savez(path, **CIFAR10)
        raw = zipfile.ZipFile(path).read("y_train.npy")
        with zipfile.ZipFile(path, "a") as z, pytest.warns(UserWarning, match="Duplicate name"):
            z.writestr("y_train.npy", raw)
        refused("cifar10", "holds 'y_train' twice")
    else:
        with zipfile.ZipFile(path, "w") as z:
            z.writestr("x.npy", b"")
    refused("cifar10", f"cannot read {path}")


@pytest.mark.parametrize(
    ("n_train", "n_test"),
    [([4, 3], [1, 3]), ([4, 2], [4]), ([7, -1], [1, 3]), ([4.5, 1.5], [1, 3]), ([6], [1, 3])],
)
def test_femnist_counts_are_those_of_its_rows(folder, n_train, n_test):  # noqa: F811
    """A row too many would hand every later row to the wrong writer."""
    x, y = np.zeros((10, 28, 28), np.uint8), np.zeros(10, np.uint8)
    np.savez(
        folder / "femnist.npz", x_train=x[:6], y_train=y[:6], x_test=x[6:], y_test=y[6:],
        n_train=n_train, n_test=n_test,
    )  # fmt: skip
    refused("femnist", str(folder / "femnist.npz"), "writers" if n_train == [6] else "")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("label,text\n4,a\n", "'4'"),
        ("label,text\n1.5,a\n", "'1.5'"),
        ("label,text\nWorld,a\n", "'World'"),
        ("label,text\n1,a,b\n", "line 2"),
        ("label,text\n1\n", "line 2"),
        ("class,text\n1,a\n", "no column 'label'"),
        ("label,text\n", "no rows"),
        ("", "no rows"),
        ('label,text\n1,"a\n2,b\n3,c\n', "line 4"),
        ('label,text\n1,"a\n2,b\n3,c"\n', "line 4"),
        ('label,text\n1,"a\n2,"b\n', "line 3"),
        ("label,text,label\n1,a,2\n", "two of its columns are named 'label'"),
    ],
)
def test_a_text_file_with_wrong_labels_or_columns(folder, text, word):  # noqa: F811
    """A quotation mark that is not closed took the rows that follow for its text."""
    (folder / "ag_news").mkdir()
    (folder / "ag_news" / "test.csv").write_text("label,text\n1,a\n")
    (folder / "ag_news" / "train.csv").write_text(text)
    refused("ag_news", str(folder / "ag_news" / "train.csv"), word)


def test_glue_rows_are_not_left_out_silently(folder):  # noqa: F811
    """Only MNLI has rows without a label; elsewhere one that is unknown is a wrong file."""
    (folder / "glue" / "SST-2").mkdir(parents=True)
    (folder / "glue" / "SST-2" / "dev.tsv").write_text("sentence\tlabel\ngood\t1\n")
    (folder / "glue" / "SST-2" / "train.tsv").write_text("sentence\tlabel\ngood\t1\nbad\t-\n")
    refused("glue", "train.tsv", "'-'", task="sst2")


def test_absurd_lengths_of_texts(folder, monkeypatch):  # noqa: F811
    (folder / "ag_news").mkdir()
    for split in ("train", "test"):
        (folder / "ag_news" / f"{split}.csv").write_text("label,text\n1,a\n")
    monkeypatch.setattr("orchestrator.data.room.memory", lambda: 1000)
    refused("ag_news", "data.dataset.length", length=8192)


def test_pictures_of_another_size(folder):  # noqa: F811
    """Pillow's errors, and images of several sizes, name the file."""
    root = write_tiny(folder, [np.zeros((64, 32, 3), np.uint8)] * 2)
    file = root / "train" / "n01" / "images" / "a.png"
    refused("tiny_imagenet", str(file), "32 x 64")
    file.write_bytes(b"no image")
    refused("tiny_imagenet", f"cannot read {file}")


@pytest.mark.parametrize("name", ["wnids.txt", "val/val_annotations.txt"])
def test_a_pipe_in_a_folder_of_pictures(folder, name):  # noqa: F811
    """One would wait for ever at it."""
    path = write_tiny(folder, [np.zeros((64, 64, 3), np.uint8)] * 2) / name
    path.unlink()
    os.mkfifo(path)
    refused("tiny_imagenet", f"cannot read {path}")


def test_a_name_that_no_file_can_have(folder):  # noqa: F811
    with pytest.raises(UserError, match="cannot look for"):
        published("x" * 300)


def published(file, clients=2, **more):
    partition = {"name": "file", "file": str(file)}
    return FederatedData.build(DataConfig(clients=clients, partition=partition, **more), 0)


SPLIT = {
    "train_idx": [0, 1, 2, 3], "n_train": [2, 2], "test_idx": [8000, 8001], "n_test": [1, 1],
    "server_test_idx": [5],
}  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"train_idx": [0, 1, 2, 10**15]}, "names row 1000000000000000"),
        ({"train_idx": [0, 1, 2, -1]}, "train_idx must be"),
        ({"train_idx": [0, 1, 2, 3.5]}, "train_idx must be"),
        ({"n_train": [2, 3]}, "n_train must be"),
        ({"n_test": [1, 2]}, "n_test must be"),
        ({"n_test": [2], "n_train": [4]}, "for 1 clients, not 2"),
        ({"test_idx": [8000, 10_000]}, "row 10000"),
        ({"test_idx": [8000, 3]}, "row 3 is in the training rows of client 1"),
        ({"test_idx": [8000, 5]}, "row 5 is in .* the server's held-out rows"),
        ({"train_idx": [0, 1, 2, 5]}, "names row 5"),
    ],
)
def test_a_published_split_is_checked(tmp_path, wrong, word):
    """Its rows are row numbers of the dataset, and nothing in it is trained and tested on."""
    np.savez(tmp_path / "split.npz", **SPLIT)
    assert published(tmp_path / "split.npz").train[1].tolist() == [2, 3]
    np.savez(tmp_path / "split.npz", **SPLIT | wrong)
    with pytest.raises(UserError, match=word):
        published(tmp_path / "split.npz")


def test_a_part_of_a_published_split_keeps_everyone(tmp_path):
    np.savez(tmp_path / "split.npz", **SPLIT | {"train_idx": [0, 1, 2, 3], "n_train": [3, 1]})
    partition = {"name": "file", "file": str(tmp_path / "split.npz"), "fraction": 0.5}
    d = FederatedData.build(DataConfig(clients=2, partition=partition), 0)
    assert len(set(d.train[0])) == 2
    assert set(d.train[0]) < {0, 1, 2}
    assert d.train[1].tolist() == [3]
    assert d.test[0].tolist() == [8000]


def samples(**changed):
    given = {
        "x": np.zeros((4, 3), np.float32), "y": np.array([0, 1, 0, 1]), "train": 3, "classes": 2,
    }  # fmt: skip
    return Samples(**given | changed)


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"x": np.full((4, 3), np.nan, np.float32)}, "NaN or infinite"),
        ({"x": np.full((4, 3), np.inf, np.float32)}, "NaN or infinite"),
        ({"x": np.zeros((4, 3))}, "float64"),
        ({"x": np.zeros(4, np.float32)}, "no rows of numbers"),
        ({"x": np.full((4, 3), -1, np.int32)}, "negative token"),
        ({"x": np.zeros((4, 3, 3), np.uint8)}, r"\[n, C, H, W\]"),
        ({"x": np.zeros((4, 1, 3, 3), np.uint8)}, "0 means"),
        ({"x": np.zeros((4, 1, 3, 3), np.uint8), "mean": (0.5,), "std": (0.0,)}, "above 0"),
        ({"train": 4}, "4 are for training"),
        ({"train": 0}, "0 are for training"),
        ({"y": np.array([0, 1, 2, 0])}, "row 2 is 2"),
        ({"owner": np.zeros(3, np.int64)}, "owners"),
    ],
)
def test_samples_of_any_dataset(changed, word):
    checked(samples(), "dataset 'some'")
    with pytest.raises(UserError, match=f"dataset 'some': .*{word}"):
        checked(samples(**changed), "dataset 'some'")


def test_every_dataset_is_checked(monkeypatch):
    """``load`` is one for all of them; a dataset only reads."""
    for cls in variants(Dataset).values():
        assert cls.load is Dataset.load
    wrong = samples(y=np.array([0, 1, 0, 7]))
    monkeypatch.setattr(variants(Dataset)["synthetic"], "read", lambda *_: wrong)
    with pytest.raises(UserError, match="dataset 'synthetic'"):
        variants(Dataset)["synthetic"]().load(Request(0, 2))


def test_a_dataset_that_depends_on_the_run_says_so(monkeypatch):
    """All seeds of a sweep had the samples of the first."""
    for name in ("seed", "clients"):
        kind = variants(Dataset)["fashion_mnist_10k"]
        monkeypatch.setattr(kind, "read", lambda _, request, name=name: getattr(request, name))
        with pytest.raises(UserError, match=rf"dataset .*request.{name}.*generated = True"):
            kind().load(Request(0, 2))
    seen = []
    # one that is made of another: features of images
    inner = variants(Dataset)["cifar10"]
    monkeypatch.setattr(kind, "read", lambda _, r: inner().load(r))
    monkeypatch.setattr(inner, "read", lambda _, r: seen.append(r.trains) or samples())
    kind().load(Request(0, 2, trains=False))
    assert seen == [False]


@pytest.mark.parametrize(
    ("more", "unread"),
    [({"x_test": X[6:], "y_test": Y[6:]}, "x_test, y_test"), ({"x_train": X[:6]}, "x_train")],
)
def test_rows_that_would_not_be_read_are_not_passed_over(tmp_path, more, unread):
    """A file of x, y, x_test and y_test was tested on a part of x, in training or later."""
    np.savez(tmp_path / "own.npz", x=X, y=np.arange(len(X)) % 2, **more)
    dataset = variants(Dataset)["npz"](path=str(tmp_path / "own.npz"), test=0.5)
    for trains in (True, False):
        with pytest.raises(UserError, match=f"it holds x, y and, beside them, {unread}, which"):
            dataset.load(Request(0, 1, trains=trains))
