"""torchvision's networks by name: theirs but for the first and last layer, group norm, small stems."""

import numpy as np
import pytest
import torch
import torchvision
from torch import nn

from orchestrator.config import load
from orchestrator.data.own.libraries import TorchVision as TorchVisionData
from orchestrator.data.samples import Request
from orchestrator.errors import UserError
from orchestrator.models import Net
from orchestrator.models.vision import LeafCnn, TorchVisionModel
from orchestrator.rounds.experiment import Experiment


def built(shape=(3, 32, 32), classes=10, **options):
    return Net.of(TorchVisionModel.model_validate(options), shape, classes, 0).module


def test_it_is_torchvision_s():
    ours = built()
    theirs = torchvision.models.resnet18(num_classes=10)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 3, 32, 32)
    assert torch.equal(ours.eval()(x), theirs.eval()(x))


def test_group_norm_in_place_of_batch_norm():
    ours = built(norm="group", groups=32)
    theirs = torchvision.models.resnet18(
        num_classes=10, norm_layer=lambda channels: nn.GroupNorm(32, channels)
    )
    assert sum(p.numel() for p in ours.parameters()) == 11_181_642
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(ours(x), theirs(x))
    assert not [*ours.buffers()]


@pytest.mark.parametrize(
    ("of", "shape", "classes"),
    [
        ("vgg11", (3, 32, 32), 7),
        ("squeezenet1_1", (3, 64, 64), 5),
        ("mobilenet_v3_small", (1, 28, 28), 10),
        ("densenet121", (1, 32, 32), 3),
        ("resnet18", (1, 28, 28), 1),
    ],
)
def test_outputs_and_channels_are_those_of_the_data(of, shape, classes):
    net = built(
        shape, classes, of=of, norm="group", stem="small" if of == "resnet18" else "imagenet"
    )
    assert net.eval()(torch.zeros(2, *shape)).shape == (2, classes)
    assert not any(isinstance(m, nn.BatchNorm2d) for m in net.modules())


def test_a_small_stem_leaves_the_image_its_size():
    net = built(stem="small")
    assert net.layer1(net.maxpool(net.conv1(torch.zeros(1, 3, 32, 32)))).shape == (1, 64, 32, 32)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"of": "resnet8"}, "did you mean 'resnet"),
        ({"of": "vgg11", "stem": "small"}, "no ResNet"),
        ({"options": {"width": 3}}, "model.options"),
        ({"weights": "none", "of": "__class__"}, "there is no"),
    ],
)
def test_what_cannot_be_built_is_said(options, message):
    with pytest.raises(ValueError, match=message):
        built(**options)
    with pytest.raises(ValueError, match="16x16"):
        built(shape=(3, 8, 8))


def test_weights_of_a_file(tmp_path):
    theirs = torchvision.models.resnet18()
    torch.save(theirs.state_dict(), tmp_path / "r.pt")
    ours = built(weights=str(tmp_path / "r.pt"))
    assert torch.equal(ours.layer1[0].conv1.weight, theirs.layer1[0].conv1.weight)
    assert ours.fc.out_features == 10
    with pytest.raises(ValueError, match="for colour images"):
        built(shape=(1, 32, 32), weights=str(tmp_path / "r.pt"))


def test_what_torchvision_draws_is_found():
    """Paths that are dropped (StochasticDepth) are no dropout of torch's own."""
    given = ["data.dataset={name: torchvision, dataset: FakeData, "
             "options: {size: 40, image_size: [3, 32, 32], num_classes: 2}}",
             "data.clients=2", "cohort=2", "data.client_test.least=2"]  # fmt: skip
    options = "{stochastic_depth_prob: 0.01}"
    model = f"model={{name: torchvision, of: convnext_tiny, options: {options}}}"
    assert Experiment(load(None, [*given, model])).net.stochastic
    options = "{init_weights: false}"
    model = f"model={{name: torchvision, of: googlenet, options: {options}}}"
    with pytest.raises(UserError, match="torchvision's googlenet makes GoogLeNetOutputs of inputs"):
        Experiment(load(None, [*given, model]))


def test_splits_are_what_classes_call_them(tmp_path, monkeypatch, capsys):
    """EMNIST's is a variant, and that it has a test was not seen; ImageNet's test is its "val"."""
    files = tmp_path / "EMNIST" / "raw"
    files.mkdir(parents=True)
    for part, rows, pixel in (("train", 30, 1), ("test", 20, 200)):
        head = {"images": (3, rows, 28, 28), "labels": (1, rows)}
        tail = {"images": np.full((rows, 28, 28), pixel, np.uint8).tobytes(), "labels": bytes(rows)}
        for kind, (dims, *sizes) in head.items():
            name = f"emnist-digits-{part}-{kind}-idx{dims}-ubyte"
            numbers = b"".join(size.to_bytes(4, "big") for size in sizes)
            (files / name).write_bytes(bytes([0, 0, 8, dims]) + numbers + tail[kind])
    monkeypatch.setenv("FEDORCH_DATA", str(tmp_path))
    digits = TorchVisionData(dataset="EMNIST", options={"split": "digits"}, grey=True)
    found = digits.load(Request(0, 1, trains=False))
    assert (found.train, len(found.y)) == (30, 50)
    assert found.x[: found.train].max() == 1
    assert found.x[found.train :].min() == 200

    class Named(torchvision.datasets.FakeData):
        def __init__(self, root, split="train", **more):
            if split not in ("train", "val"):
                raise ValueError(f"Unknown value {split!r} for argument split")
            super().__init__({"train": 30, "val": 20}[split], (3, 8, 8), 2, **more)

    monkeypatch.setattr(torchvision.datasets, "Named", Named, raising=False)
    found = TorchVisionData(dataset="Named").load(Request(0, 1))
    assert (found.train, len(found.y)) == (30, 50)
    assert not capsys.readouterr().err
    found = TorchVisionData(dataset="Named", options={"split": "train"}).load(Request(0, 1))
    assert len(found.y) == 30
    assert "only its split 'train' is read" in capsys.readouterr().err


def test_leaf_s_network_has_its_size():
    net = Net.of(LeafCnn(), (1, 28, 28), 62, 0)
    assert net.spec.size == 6_603_710
