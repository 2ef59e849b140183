"""The FDA thesis' deep networks (section 3.4.1); parameter counts are for its data."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field

from algorithms.part import option
from orchestrator.models.base import Model, image_shape
from orchestrator.models.pretrained import pretrained

Blocks = tuple[Annotated[int, Field(ge=1, le=100)], ...]
"""Layers of each dense block."""


class Vgg16Star(Model):
    """VGG16 without its 512-channel blocks: 2x64, 2x128, 2x256, then 512-512 with dropout
    (2,592,202 on MNIST).
    """

    name: str = "vgg16_star"
    dropout: float = option(0.5, "dropout after both hidden dense layers", ge=0, lt=1)

    def build(self, shape: tuple[int, ...], classes: int) -> torch.nn.Module:
        channels, h, w = image_shape(shape, 8, self.name)
        layers: list[torch.nn.Module] = []
        for width in (64, 128, 256):
            for inputs in (channels, width):
                layers += [torch.nn.Conv2d(inputs, width, 3, padding=1), torch.nn.ReLU()]
            layers.append(torch.nn.MaxPool2d(2))
            channels = width
        flat = 256 * (h // 8) * (w // 8)
        dense: list[torch.nn.Module] = [torch.nn.Flatten()]
        for inputs in (flat, 512):
            dense += [torch.nn.Linear(inputs, 512), torch.nn.ReLU(), torch.nn.Dropout(self.dropout)]
        return torch.nn.Sequential(*layers, *dense, torch.nn.Linear(512, classes))


class _Dense(Model):
    dropout: float = option(0.2, "dropout after both convolutions of a layer (thesis)", ge=0, lt=1)
    blocks: Blocks = ()

    def build(self, shape: tuple[int, ...], classes: int) -> torch.nn.Module:
        from torchvision.models.densenet import DenseNet  # slow to import, in every actor

        channels, _, _ = image_shape(shape, 32, self.name)
        net = DenseNet(32, tuple(self.blocks), 64, num_classes=classes)
        # torchvision builds the first convolution for colour images only
        if channels != 3:
            net.features.conv0 = torch.nn.Conv2d(channels, 64, 7, 2, 3, bias=False)
        for module in list(net.modules()):
            if isinstance(module, torch.nn.BatchNorm2d):
                module.eps, module.momentum = 1.001e-5, 0.01  # as Keras has them
            if isinstance(module, torch.nn.Conv2d):
                # the thesis' he_normal, which Keras cuts off at two deviations
                torch.nn.init.kaiming_normal_(module.weight)
        for name, layer in net.named_modules():
            if name.rpartition(".")[2].startswith("denselayer") and self.dropout:
                # torchvision's own dropout comes once a layer, after the second convolution
                for conv in ("conv1", "conv2"):
                    setattr(
                        layer,
                        conv,
                        torch.nn.Sequential(getattr(layer, conv), torch.nn.Dropout(self.dropout)),
                    )
        return net


class DenseNet121(_Dense):
    """DenseNet-121 (Huang et al. 2017) on small images: 6,964,106 trainable parameters for
    CIFAR-10.
    """

    name: str = "densenet121"
    blocks: Blocks = option((6, 12, 24, 16), "layers of each dense block", max_length=10)


class DenseNet201(_Dense):
    """DenseNet-201 (Huang et al. 2017) on small images: 18,112,138 trainable parameters for
    CIFAR-10.
    """

    name: str = "densenet201"
    blocks: Blocks = option((6, 12, 48, 32), "layers of each dense block", max_length=10)


class FedDualVgg16(Model):
    """FedDUAL's CIFAR network: a frozen ImageNet VGG16, mean pooling, 64 ReLU units (33,482 trained
    for 10 classes).

    Dataset ``features`` with backbone ``vgg16`` (and ``side`` as the images have) takes such
    features once, of images normalised as ImageNet's are, on which model ``mlp`` of 64 units
    trains: faster, and not the same numbers.
    """

    name: str = "feddual_vgg16"
    init: Literal["default", "glorot"] = option(
        "default", "of the dense layers: PyTorch's defaults, or Glorot-uniform"
    )
    weights: str = option(
        "imagenet",
        "imagenet (torchvision's download), a file with a state dict, or none",
        file=True,
    )

    def build(self, shape: tuple[int, ...], classes: int) -> torch.nn.Module:
        from orchestrator.models.modules import MeanPool

        channels, _, _ = image_shape(shape, 32, self.name)
        if channels != 3:
            raise ValueError(
                f"model {self.name!r} needs colour images, and the inputs have shape {shape}"
            )
        net = pretrained("vgg16", self.weights, "model.weights")
        frozen = net.features.requires_grad_(False)
        return torch.nn.Sequential(
            frozen,
            MeanPool(),
            torch.nn.Linear(512, 64),
            torch.nn.ReLU(),
            torch.nn.Linear(64, classes),
        )


class ConvNeXtLarge(Model):
    """ConvNeXt-Large with the thesis' head for fine-tuning (197,068,580 parameters with 100
    classes).
    """

    name: str = "convnext_large"
    init: Literal["default"] = option(
        "default", "PyTorch's defaults for what ``weights`` does not hold"
    )
    weights: str = option(
        "imagenet",
        "imagenet (torchvision's download), a file with a state dict, or none",
        file=True,
    )

    def build(self, shape: tuple[int, ...], classes: int) -> torch.nn.Module:
        from orchestrator.models.modules import MeanPool

        image_shape(shape, 32, self.name)
        if shape[0] != 3:
            raise ValueError(
                f"model {self.name!r} needs colour images, and the inputs have shape {shape}"
            )
        net = pretrained("convnext_large", self.weights, "model.weights", stochastic_depth_prob=0.0)
        head = torch.nn.Sequential(
            torch.nn.Linear(1536, 512),
            torch.nn.ReLU(),
            torch.nn.Dropout(0.5),
            torch.nn.Linear(512, classes),
        )
        return torch.nn.Sequential(
            net.features, MeanPool(), torch.nn.LayerNorm(1536, eps=1e-6), head
        )
