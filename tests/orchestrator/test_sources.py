"""Every dataset from small files in the layouts that users have, and the order of the places."""

import csv
import gzip
import struct

import numpy as np
import pytest

from algorithms.part import variants
from orchestrator.data import Dataset
from orchestrator.data.samples import Request
from orchestrator.errors import UserError

RNG = np.random.default_rng(0)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDORCH_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def load(name, clients=3, **options):
    return variants(Dataset)[name](**options).load(Request(0, clients))


def write_idx(path, array, opener=open):
    path.parent.mkdir(parents=True, exist_ok=True)
    with opener(path, "wb") as f:
        f.write(struct.pack(f">HBB{array.ndim}i", 0, 8, array.ndim, *array.shape) + array.tobytes())


def images(n, classes=10):
    return RNG.integers(0, 256, (n, 28, 28), np.uint8), RNG.integers(0, classes, n).astype(np.uint8)


@pytest.mark.parametrize("named", ["nowhere", "a file", "n" * 300])
def test_a_folder_that_is_named_must_be_there(named, folder, monkeypatch):
    """Else the data of another folder would be taken."""
    (folder / "a file").write_text("")
    monkeypatch.setenv("FEDORCH_DATA", str(folder / named))
    with pytest.raises(UserError, match=r"FEDORCH_DATA: .* (is no folder|cannot be read)"):
        load("mnist")


@pytest.mark.parametrize(
    ("name", "root", "train", "test", "classes"),
    [
        ("mnist", "MNIST", "train", "t10k", 10),
        ("fashion_mnist", "FashionMNIST", "train", "t10k", 10),
        ("kmnist", "KMNIST", "train", "t10k", 10),
        ("emnist", "EMNIST", "emnist-byclass-train", "emnist-byclass-test", 62),
    ],
)
@pytest.mark.parametrize(("end", "opener"), [("", open), (".gz", gzip.open)])
def test_idx_layouts(folder, name, root, train, test, classes, end, opener):
    splits = {stem: images(n, classes) for stem, n in ((train, 12), (test, 5))}
    for stem, (x, y) in splits.items():
        write_idx(folder / root / "raw" / f"{stem}-images-idx3-ubyte{end}", x, opener)
        write_idx(folder / root / "raw" / f"{stem}-labels-idx1-ubyte{end}", y, opener)
    samples = load(name)
    assert samples.x.shape == (17, 1, 28, 28)
    assert samples.train == 12
    assert samples.classes == classes
    assert np.array_equal(samples.y[12:], splits[test][1])
    first = splits[train][0][0]
    assert np.array_equal(samples.x[0, 0], first.T if name == "emnist" else first)


@pytest.mark.parametrize(
    ("name", "side"), [("cifar10", 32), ("cifar100", 32), ("tiny_imagenet", 64)]
)
def test_colour_npz(folder, name, side):
    x, y = RNG.integers(0, 256, (9, side, side, 3), np.uint8), np.arange(9)
    np.savez(folder / f"{name}.npz", x_train=x[:6], y_train=y[:6], x_test=x[6:], y_test=y[6:])
    samples = load(name)
    assert samples.shape == (3, side, side)
    assert np.array_equal(samples.x[7].transpose(1, 2, 0), x[7])


def test_each_of_the_cifars_is_scaled_by_its_own_moments(folder):
    """CIFAR-100's pixels were taken for CIFAR-10's, which are darker and less spread."""
    x, y = RNG.integers(0, 256, (2, 32, 32, 3), np.uint8), np.arange(2)
    for name in ("cifar10", "cifar100"):
        np.savez(folder / f"{name}.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    ten, hundred = load("cifar10"), load("cifar100")
    assert (ten.mean, ten.std) == ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
    assert (hundred.mean, hundred.std) == ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))


def test_tiny_imagenet_folder(folder):
    from PIL import Image

    root = folder / "tiny-imagenet-200"
    picture = RNG.integers(0, 256, (64, 64, 3), np.uint8)
    for wnid in ("n01", "n02"):
        (root / "train" / wnid / "images").mkdir(parents=True)
        Image.fromarray(picture).save(root / "train" / wnid / "images" / "a.JPEG")
    (root / "val" / "images").mkdir(parents=True)
    Image.fromarray(picture).save(root / "val" / "images" / "v.JPEG")
    (root / "wnids.txt").write_text("n02\nn01\n")
    (root / "val" / "val_annotations.txt").write_text("v.JPEG\tn02\t0\t0\t1\t1\n")
    samples = load("tiny_imagenet")
    assert samples.y.tolist() == [0, 1, 1]


def test_femnist_writers(folder):
    x, y = images(10, 62)
    np.savez(
        folder / "femnist.npz", x_train=x[:6], y_train=y[:6], x_test=x[6:], y_test=y[6:],
        client_id=[7, 9], n_train=[4, 2], n_test=[1, 3],
    )  # fmt: skip
    assert load("femnist").owner.tolist() == [0, 0, 0, 0, 1, 1, 0, 1, 1, 1]


def test_ag_news_csv(folder):
    (folder / "ag_news").mkdir()
    for split, rows in (
        ("train", [(2, "Stocks, rise"), (0, "War")]),
        ("test", [(3, "War and chips")]),
    ):
        with (folder / "ag_news" / f"{split}.csv").open("w", newline="") as f:
            csv.writer(f).writerows([("label", "text"), *rows])
    samples = load("ag_news", length=4)
    assert samples.y.tolist() == [2, 0, 3]
    assert samples.x.shape == (3, 4)
    assert samples.x[1].tolist()[1:] == [0, 0, 0]
    assert samples.x[1, 0] == samples.x[2, 0] > 0


@pytest.mark.parametrize(
    ("task", "root", "dev", "header", "rows", "labels"),
    [
        ("mrpc", "MRPC", "dev", "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", ["1\t1\t2\ta \"b\tc", "0\t1\t2\ta\tb"], [1, 0]),
        ("rte", "RTE", "dev", "index\tsentence1\tsentence2\tlabel", ["0\ta\tb\tentailment", "1\ta\tb\tnot_entailment"], [0, 1]),
        ("sst2", "SST-2", "dev", "sentence\tlabel", ["good\t1", "bad\t0"], [1, 0]),
        ("qnli", "QNLI", "dev", "index\tquestion\tsentence\tlabel", ["0\ta\tb\tentailment", "1\ta\tb\tentailment"], [0, 0]),
        ("mnli", "MNLI", "dev_matched", "index\tsentence1\tsentence2\tgold_label", ["0\ta\tb\tneutral", "1\ta\tb\t-"], [1]),
        ("mnli_mm", "MNLI", "dev_mismatched", "index\tsentence1\tsentence2\tgold_label", ["0\ta\tb\tcontradiction"], [2]),
    ],
)  # fmt: skip
def test_glue_tsv(folder, task, root, dev, header, rows, labels):
    (folder / "glue" / root).mkdir(parents=True)
    for split in ("train", dev):
        (folder / "glue" / root / f"{split}.tsv").write_text("\n".join([header, *rows]) + "\n")
    samples = load("glue", task=task)
    assert samples.y.tolist() == labels * 2
    assert samples.train == len(labels)


def test_synthetic_is_a_function_of_the_seed():
    a, b = load("synthetic", clients=5), load("synthetic", clients=5)
    assert np.array_equal(a.x, b.x)
    assert a.shape == (60,)
    assert set(a.y) <= set(range(10))
    assert np.bincount(a.owner).min() >= 50


def test_synthetic_noise_has_the_stated_variances():
    """x − v_k has variance j^-1.2 in coordinate j."""
    samples = variants(Dataset)["synthetic"](alpha=0, beta=0).load(Request(1, 60))
    big = np.argmax(np.bincount(samples.owner))
    x = samples.x[samples.owner == big]
    assert len(x) > 500
    np.testing.assert_allclose(x.var(0), np.arange(1, 61) ** -1.2, rtol=0.35)


def test_missing_data_names_the_files_and_places(folder, monkeypatch):
    import torchvision

    def offline(*args, **kwargs):
        raise RuntimeError("no network")

    monkeypatch.setattr(torchvision.datasets, "KMNIST", offline)
    with pytest.raises(UserError) as caught:
        load("kmnist")
    text = str(caught.value)
    assert "kmnist.npz or KMNIST/raw/train-images-idx3-ubyte[.gz|.xz] and 3 more under" in text
    assert str(folder) in text
    assert "no network" in text
    assert "\n" not in text


def test_places_in_order(folder, tmp_path):
    x, y = images(4, classes=9)
    for place, shift in ((folder, 0), (tmp_path / "cache" / "fedorch", 1)):
        place.mkdir(parents=True, exist_ok=True)
        np.savez(place / "mnist.npz", x_train=x, y_train=y + shift, x_test=x, y_test=y + shift)
    assert np.array_equal(load("mnist").y[:4], y)
    (folder / "mnist.npz").unlink()
    assert np.array_equal(load("mnist").y[:4], y + 1)


def write_raw(place, label=0):
    """MNIST as torchvision lays it, all of one label."""
    for split, n in (("train", 4), ("t10k", 2)):
        write_idx(place / f"MNIST/raw/{split}-images-idx3-ubyte", images(n)[0])
        write_idx(place / f"MNIST/raw/{split}-labels-idx1-ubyte", np.full(n, label, np.uint8))


def write_tiny(place, pictures):
    """Tiny-ImageNet's folder with one picture for each split."""
    from PIL import Image

    root = place / "tiny-imagenet-200"
    for name, picture in zip(("train/n01/images/a.png", "val/images/v.png"), pictures, strict=True):
        (root / name).parent.mkdir(parents=True)
        Image.fromarray(picture).save(root / name)
    (root / "wnids.txt").write_text("n01\n")
    (root / "val" / "val_annotations.txt").write_text("v.png\tn01\n")
    return root


def test_one_folder_after_the_other_whatever_the_form(folder, tmp_path):
    """An .npz of the cache went before raw files of FEDORCH_DATA."""
    cache = tmp_path / "cache" / "fedorch"
    cache.mkdir(parents=True)
    write_raw(folder, label=3)
    x, y = images(4)
    np.savez(cache / "mnist.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    assert load("mnist").y.tolist() == [3] * 6
    pictures = RNG.integers(0, 256, (2, 64, 64, 3), np.uint8)
    write_tiny(folder, pictures)
    other = {"x_train": pictures[1:], "x_test": pictures[:1], "y_train": [0], "y_test": [0]}
    np.savez(cache / "tiny_imagenet.npz", **other)
    assert np.array_equal(load("tiny_imagenet").x.transpose(0, 2, 3, 1), pictures)
    np.savez(folder / "tiny_imagenet.npz", **other)
    assert np.array_equal(load("tiny_imagenet").x[0].transpose(1, 2, 0), pictures[1])


def test_the_files_of_a_dataset_are_of_one_folder(folder, tmp_path):
    """Images from one and labels from another were put together, and so were splits of texts."""
    cache = tmp_path / "cache" / "fedorch"
    write_raw(folder)
    write_raw(cache, label=1)
    for path in folder.rglob("*labels*"):
        path.unlink()
    with pytest.raises(UserError, match=r"train-images-idx3-ubyte is there, but no .*-labels-idx1"):
        load("mnist")
    for place, split in ((folder, "train"), (cache, "test")):
        (place / "ag_news").mkdir()
        (place / "ag_news" / f"{split}.csv").write_text("label,text\n1,a\n")
    with pytest.raises(UserError, match=f"no ag_news/test.csv in {folder}; all files are taken"):
        load("ag_news")


def test_a_download_that_was_interrupted_is_done_again(folder, tmp_path, monkeypatch):
    """What it has left in the cache is half a dataset, too; a link that leads nowhere is none."""
    import torchvision

    cache = tmp_path / "cache" / "fedorch"
    write_idx(cache / "MNIST" / "raw" / "train-images-idx3-ubyte", images(4)[0])
    monkeypatch.setattr(torchvision.datasets, "MNIST", lambda root, download: write_raw(root, 2))
    assert load("mnist").y.tolist() == [2] * 6
    (folder / "mnist.npz").symlink_to(folder / "gone")
    with pytest.raises(UserError, match=r"cannot read .*mnist\.npz"):
        load("mnist")


@pytest.mark.parametrize("content", [b"", b"\0\0\x08\x03garbage", b"PK not an archive"])
def test_unreadable_files_get_a_sentence(folder, content):
    write_raw(folder)
    (folder / "MNIST" / "raw" / "train-images-idx3-ubyte").write_bytes(content)
    with pytest.raises(UserError, match="cannot read"):
        load("mnist")
    (folder / "cifar10.npz").write_bytes(content)
    with pytest.raises(UserError, match="cannot read"):
        load("cifar10")


def test_pickled_arrays_are_never_loaded(folder):
    np.savez(
        folder / "cifar10.npz", x_train=np.array([{}], object), y_train=[0], x_test=[0], y_test=[0]
    )
    with pytest.raises(UserError, match="cannot read"):
        load("cifar10")


def test_the_embedded_dataset_needs_nothing(folder):
    samples = load("fashion_mnist_10k")
    assert (samples.train, len(samples.y)) == (8000, 10000)
    assert np.bincount(samples.y).tolist() == [1000] * 10
