"""Frozen features."""

import numpy as np
import pytest
import torch
import torchvision

from orchestrator.data.features import Features
from orchestrator.data.samples import Request, Samples
from orchestrator.errors import UserError
from orchestrator.files import digest


@pytest.fixture
def world(tmp_path, monkeypatch):
    """A tiny CIFAR-10 and a ResNet18 with random weights in a file."""
    monkeypatch.setenv("FEDORCH_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    x = np.random.default_rng(0).integers(0, 256, (10, 32, 32, 3), np.uint8)
    np.savez(
        tmp_path / "cifar10.npz",
        x_train=x[:7],
        y_train=np.arange(7),
        x_test=x[7:],
        y_test=np.arange(3),
    )
    torch.manual_seed(0)
    network = torchvision.models.resnet18(weights=None)
    torch.save(network.state_dict(), tmp_path / "resnet18.pth")
    return tmp_path, x, network.eval()


def test_features_are_the_backbones(world):
    folder, x, network = world
    dataset = Features(base="cifar10", weights=str(folder / "resnet18.pth"), side=32)
    samples = dataset.load(Request(0, 1))
    network.fc = torch.nn.Identity()
    images = torch.from_numpy(x).permute(0, 3, 1, 2).float() / 255
    mean, std = (
        torch.tensor(v).view(3, 1, 1) for v in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    )
    with torch.no_grad():
        want = network((images - mean) / std)
    torch.testing.assert_close(torch.from_numpy(samples.x.copy()), want, rtol=1e-3, atol=1e-4)
    assert samples.train == 7


def test_features_are_computed_once(world, monkeypatch):
    folder, _, _ = world
    dataset = Features(base="cifar10", weights=str(folder / "resnet18.pth"), side=32)
    first = dataset.load(Request(0, 1)).x.copy()

    def again(*args):
        raise AssertionError("computed a second time")

    monkeypatch.setattr(Features, "_compute", again)
    assert np.array_equal(dataset.load(Request(0, 1)).x, first)
    with pytest.raises(AssertionError, match="second time"):
        Features(base="cifar10", weights=str(folder / "resnet18.pth"), side=64).load(Request(0, 1))


def test_missing_and_wrong_weights(world, monkeypatch):
    folder, _, _ = world
    with pytest.raises(UserError, match="there is no file"):
        Features(base="cifar10", weights=str(folder / "none.pth")).load(Request(0, 1))
    (folder / "bad.pth").write_bytes(b"no weights")
    with pytest.raises(UserError, match="holds no state dict of resnet18"):
        Features(base="cifar10", weights=str(folder / "bad.pth"), side=32).load(Request(0, 1))

    def offline(weights=None):
        raise OSError("no network")

    monkeypatch.setattr(torchvision.models, "resnet18", offline)
    with pytest.raises(UserError, match="can be downloaded"):
        Features(base="cifar10", side=32).load(Request(0, 1))


def test_features_of_other_images_are_not_taken_from_the_cache(world):
    """Images that differ in the middle only, of which the cache's name once knew nothing."""
    folder, x, _ = world
    dataset = Features(base="cifar10", weights=str(folder / "resnet18.pth"), side=32)
    images = np.tile(x, (20, 1, 1, 1))
    other = images.copy()
    other[100] = 0
    names = []
    for these in (images, other):
        wide = Samples(these.transpose(0, 3, 1, 2), np.zeros(200, np.int64), 100, 10)
        names.append(dataset._key(wide))
    assert names[0] != names[1]


@pytest.mark.parametrize("wrong", ["zeros", "nothing", "rows"])
def test_a_damaged_cache_gets_a_sentence(world, wrong):
    """Too few rows would else be others' features, or a traceback at the first batch; and zeros,
    which a disk has in place of what was lost, train as well as any others.
    """
    folder, _, _ = world
    dataset = Features(base="cifar10", weights=str(folder / "resnet18.pth"), side=32)
    dataset.load(Request(0, 1))
    (stored,) = (folder / "cache" / "fedorch" / "features").iterdir()
    whole = stored.read_bytes()
    if wrong == "rows":
        np.save(stored, np.zeros((9, 512), np.float32))
        stored = stored.rename(stored.with_name(f"{stored.stem[:-64]}{digest(stored)}.npy"))
    else:
        stored.write_bytes(whole[:-400] + bytes(400) if wrong == "zeros" else b"")
    with pytest.raises(UserError, match=f"{stored.name}.* remove it"):
        dataset.load(Request(0, 1))
    stored.unlink()
    dataset.load(Request(0, 1))
