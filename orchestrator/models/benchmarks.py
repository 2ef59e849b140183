"""Networks of others' benchmarks on small images; parameter counts are for 3x32x32, 10 classes."""

from __future__ import annotations

from typing import Literal

import torch

from algorithms.part import option
from orchestrator.models.base import Model, image_shape
from orchestrator.models.layers import group_norm
from orchestrator.models.vision import TorchVisionModel


class PflCnn(Model):
    """The CIFAR-10 network of pfl-research's benchmarks (Granqvist et al. 2024, ``simple_cnn``):
    conv32-conv64-pool, 3x3 without padding, and 128 dense units (1,626,442 parameters).
    """

    name: str = "pfl_cnn"
    init: Literal["default", "glorot"] = option(
        "glorot",
        "Glorot-uniform weights and zero biases as theirs in TensorFlow, or PyTorch's defaults",
    )
    dropout: bool = option(
        True, "dropout of 0.25 after pooling and of 0.5 after the dense units, as theirs; or none"
    )

    def build(self, shape: tuple[int, ...], classes: int) -> torch.nn.Module:
        channels, h, w = image_shape(shape, 6, self.name)
        # two 3x3 convolutions, each of which takes 2 pixels off, halved
        flat = 64 * ((h - 4) // 2) * ((w - 4) // 2)
        return torch.nn.Sequential(
            torch.nn.Conv2d(channels, 32, 3),
            torch.nn.ReLU(),
            torch.nn.Conv2d(32, 64, 3),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
            *self._dropped(0.25),
            torch.nn.Flatten(),
            torch.nn.Linear(flat, 128),
            torch.nn.ReLU(),
            *self._dropped(0.5),
            torch.nn.Linear(128, classes),
        )

    def _dropped(self, part: float) -> list[torch.nn.Module]:
        return [torch.nn.Dropout(part)] if self.dropout else []


VGG11 = ((64,), (128,), (256, 256), (512, 512), (512, 512))
"""Channels of the convolutions, with pooling after each group (Simonyan and Zisserman 2015)."""


class Vgg11(Model):
    """VGG-11's eight convolutions and one dense layer, as is usual for small images (9,225,610
    parameters; 9,231,114 with norms).
    """

    name: str = "vgg11"
    norm: Literal["none", "batch", "group"] = option("none", "norm after each convolution")
    groups: int = option(2, "group norm: most groups of channels a layer", ge=1, le=4096)

    def build(self, shape: tuple[int, ...], classes: int) -> torch.nn.Module:
        channels, h, w = image_shape(shape, 32, self.name)
        layers: list[torch.nn.Module] = []
        for group in VGG11:
            for width in group:
                normed = [] if self.norm == "none" else [torch.nn.BatchNorm2d(width)]
                layers += [torch.nn.Conv2d(channels, width, 3, padding=1), *normed, torch.nn.ReLU()]
                channels = width
            layers.append(torch.nn.MaxPool2d(2))
        flat = 512 * (h // 32) * (w // 32)
        net = torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(flat, classes))
        if self.norm == "group":
            group_norm(net, self.groups)
        return net


class ResNet18GroupNorm(Model):
    """ResNet-18 with group norm and a 3x3 stem without pooling, for federated CIFAR (Hsieh et al.
    2020; Reddi et al. 2021): 11,173,962 parameters; torchvision's network, as
    ``{name: torchvision, norm: group, stem: small}`` has it.
    """

    name: str = "resnet18_gn"
    groups: int = option(2, "groups of channels a layer", ge=1, le=4096)

    def build(self, shape: tuple[int, ...], classes: int) -> torch.nn.Module:
        same = TorchVisionModel(of="resnet18", norm="group", stem="small", groups=self.groups)
        return same.build(shape, classes)
