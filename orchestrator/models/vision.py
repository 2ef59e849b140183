"""torchvision's classifiers by name, and LEAF's network for handwritten characters."""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import JsonValue

from algorithms.part import nearest, option
from orchestrator.models.base import Model, image_shape
from orchestrator.models.layers import group_norm, like, put, replace_last
from orchestrator.models.pretrained import LibraryModel, pretrained


class TorchVisionModel(LibraryModel):
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

    @property
    def foreign(self) -> str:
        # dropout and dropped paths, which it has in many ways, are found by trying
        return f"torchvision's {self.of}"

    def build(self, shape: tuple[int, ...], classes: int) -> torch.nn.Module:
        channels, _, _ = image_shape(shape, 16, f"torchvision {self.of}")
        self._require_known()
        try:
            given: dict[str, Any] = dict(self.options)
            net: torch.nn.Module = pretrained(self.of, self.weights, "model.weights", **given)
        except (TypeError, ValueError, AttributeError) as error:
            why = " ".join(str(error).split())[:200]
            raise ValueError(f"model.options: torchvision's {self.of}: {why}") from error
        if self.stem == "small":
            _small(net, self.of)
        if channels != 3:
            self._take(net, channels)
        replace_last(net, classes)
        if self.norm == "group":
            group_norm(net, self.groups)
        return net

    def _require_known(self) -> None:
        import torchvision

        known = torchvision.models.list_models(module=torchvision.models)
        if self.of not in known:
            raise ValueError(f"model.of: there is no {self.of!r}; {nearest(self.of, known)}"[:600])

    def _take(self, net: torch.nn.Module, channels: int) -> None:
        """Have the first convolution take images of so many channels."""
        if self.weights != "none":
            raise ValueError(
                f"model.weights: those of torchvision's {self.of} are for colour images, and these "
                f"have {channels} channels"
            )
        name, first = next((n, m) for n, m in net.named_modules() if isinstance(m, torch.nn.Conv2d))
        put(net, name, like(first, in_channels=channels))


def _small(net: Any, name: str) -> None:
    if not (isinstance(getattr(net, "conv1", None), torch.nn.Conv2d) and hasattr(net, "maxpool")):
        raise ValueError(f"model.stem: {name} is no ResNet; leave it at imagenet")
    net.conv1 = like(net.conv1, kernel_size=3, stride=1, padding=1)
    net.maxpool = torch.nn.Identity()


class LeafCnn(Model):
    """LEAF's network for FEMNIST (Caldas et al. 2018): conv32-pool-conv64-pool, 5x5, and 2,048
    dense units (6,603,710 parameters with 62 classes).
    """

    name: str = "leaf_cnn"

    def build(self, shape: tuple[int, ...], classes: int) -> torch.nn.Module:
        channels, h, w = image_shape(shape, 4, self.name)
        return torch.nn.Sequential(
            torch.nn.Conv2d(channels, 32, 5, padding=2),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
            torch.nn.Conv2d(32, 64, 5, padding=2),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
            torch.nn.Flatten(),
            torch.nn.Linear(64 * (h // 4) * (w // 4), 2048),
            torch.nn.ReLU(),
            torch.nn.Linear(2048, classes),
        )
