"""torchvision's classifiers by name, and LEAF's network for handwritten characters."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import JsonValue
from torch import nn

from algorithms.part import nearest, option
from orchestrator.models.base import Model, image_shape
from orchestrator.models.pretrained import pretrained


class TorchVisionModel(Model):
    """A network of ``torchvision.models`` for classes or numbers: its last dense layer has as many
    outputs as are wanted, its first convolution as many channels as the images have.
    """

    name: str = "torchvision"
    of: str = option("resnet18", "the network's name in torchvision.models", max_length=100)
    norm: Literal["batch", "group"] = option(
        "batch", "batch norm as it is, or group norm in its place (nothing of which is averaged)"
    )
    groups: int = option(2, "group norm: most groups of channels a layer", ge=1, le=4096)
    stem: Literal["imagenet", "small"] = option(
        "imagenet",
        "small: a ResNet's first convolution is 3x3 with stride 1, without pooling after it, for "
        "images of some 32 pixels",
    )
    weights: str = option(
        "none", "imagenet (torchvision's download), a file with a state dict, or none", file=True
    )
    options: dict[str, JsonValue] = option({}, "keyword arguments of torchvision's function")

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        channels, _, _ = image_shape(shape, 16, f"torchvision {self.of}")
        self._require_known()
        try:
            given: dict[str, Any] = dict(self.options)
            net: nn.Module = pretrained(self.of, self.weights, "model.weights", **given)
        except (TypeError, ValueError, AttributeError) as error:
            why = " ".join(str(error).split())[:200]
            raise ValueError(f"model.options: torchvision's {self.of}: {why}") from error
        if self.stem == "small":
            _small(net, self.of)
        if channels != 3:
            self._take(net, channels)
        _replace_last(net, classes, self.of)
        if self.norm == "group":
            _group(net, self.groups)
        return net

    def _require_known(self) -> None:
        import torchvision

        known = torchvision.models.list_models(module=torchvision.models)
        if self.of not in known:
            raise ValueError(f"model.of: there is no {self.of!r}; {nearest(self.of, known)}"[:600])

    def _take(self, net: nn.Module, channels: int) -> None:
        """Have the first convolution take images of so many channels."""
        if self.weights != "none":
            raise ValueError(
                f"model.weights: those of torchvision's {self.of} are for colour images, and these "
                f"have {channels} channels"
            )
        name, first = next((n, m) for n, m in net.named_modules() if isinstance(m, nn.Conv2d))
        _put(net, name, _like(first, in_channels=channels))


def _like(conv: nn.Conv2d, **changed: Any) -> nn.Conv2d:
    """A fresh convolution with another's settings but for those that are ``changed``."""
    channels = ("in_channels", "out_channels", "groups")
    names = (*channels, "kernel_size", "stride", "padding", "dilation")
    settings = {name: getattr(conv, name) for name in names} | {"bias": conv.bias is not None}
    return nn.Conv2d(**{**settings, **changed})


def _put(net: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, child = name.rpartition(".")
    setattr(net.get_submodule(parent), child, module)


def _small(net: Any, name: str) -> None:
    if not (hasattr(net, "conv1") and hasattr(net, "maxpool")):
        raise ValueError(f"model.stem: {name} is no ResNet; leave it at imagenet")
    net.conv1 = _like(net.conv1, kernel_size=3, stride=1, padding=1)
    net.maxpool = nn.Identity()


def _replace_last(net: nn.Module, outputs: int, name: str) -> None:
    """A fresh last layer (dense, or a 1x1 convolution) with so many outputs."""
    layers = [(n, m) for n, m in net.named_modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    # of GoogLeNet and its like the last ones belong to classifiers beside
    path, last = next(((n, m) for n, m in layers if n == "fc"), layers[-1])
    if isinstance(last, nn.Conv2d):
        _put(net, path, _like(last, out_channels=outputs))
    else:
        _put(net, path, nn.Linear(last.in_features, outputs, last.bias is not None))


def _group(net: nn.Module, most: int) -> None:
    """Group norm in place of each batch norm, in as many groups as divide its channels."""
    for name, module in [*net.named_modules()]:
        if isinstance(module, nn.BatchNorm2d):
            channels = module.num_features
            groups = next(g for g in range(min(most, channels), 0, -1) if channels % g == 0)
            _put(net, name, nn.GroupNorm(groups, channels, module.eps))


class LeafCnn(Model):
    """LEAF's network for FEMNIST (Caldas et al. 2018): conv32-pool-conv64-pool, 5x5, and 2,048
    dense units (6,603,710 parameters with 62 classes).
    """

    name: str = "leaf_cnn"

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        channels, h, w = image_shape(shape, 4, self.name)
        return nn.Sequential(
            nn.Conv2d(channels, 32, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * (h // 4) * (w // 4), 2048),
            nn.ReLU(),
            nn.Linear(2048, classes),
        )
