"""Models for vectors and images, as the papers specify them. Parameter counts are for 28x28 grey
images, 10 classes.
"""

from __future__ import annotations

import itertools
import math
from typing import Literal

from torch import Tensor, nn

from algorithms.part import Width, option
from orchestrator.models.base import Model, image_shape


class Linear(Model):
    """Multinomial logistic regression: 7,850 parameters on 28x28 images (DRDM), 610 on SYNTHETIC
    (FedAA).
    """

    name: str = "linear"

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes))


class Mlp(Model):
    """Fully connected ReLU network; one hidden layer of 100 is FedAA's MNIST model (79,510
    parameters).
    """

    name: str = "mlp"
    hidden: tuple[Width, ...] = option(
        (100,), "widths of the hidden layers; FedAA's EMNIST model is [100, 100]", max_length=20
    )

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        widths = (math.prod(shape), *self.hidden)
        layers: list[nn.Module] = [nn.Flatten()]
        for a, b in itertools.pairwise(widths):
            layers += [nn.Linear(a, b), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(widths[-1], classes))


class LeNet5(Model):
    """LeNet-5 with tanh and average pooling, as in the FDA thesis (61,706 parameters)."""

    name: str = "lenet5"
    init: Literal["default", "glorot"] = option(
        "glorot", "Glorot-uniform as in the thesis, or PyTorch's defaults"
    )

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        channels, h, w = image_shape(shape, 12, self.name)
        # a 5x5 convolution that keeps the size, halved; one that takes 4 pixels off, halved
        flat = 16 * ((h // 2 - 4) // 2) * ((w // 2 - 4) // 2)
        return nn.Sequential(
            nn.Conv2d(channels, 6, 5, padding=2),
            nn.Tanh(),
            nn.AvgPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.Tanh(),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Linear(flat, 120),
            nn.Tanh(),
            nn.Linear(120, 84),
            nn.Tanh(),
            nn.Linear(84, classes),
        )


class FedDualLeNet(Model):
    """FedDUAL's Fashion-MNIST network: LeNet with a dense layer over the channels (164,116
    parameters).
    """

    name: str = "feddual_lenet"
    init: Literal["default", "glorot"] = option(
        "glorot", "Glorot-uniform as Keras does, or PyTorch's defaults"
    )

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        channels, h, w = image_shape(shape, 16, self.name)
        # twice a 5x5 convolution, which takes 4 pixels off, halved
        flat = 120 * (((h - 4) // 2 - 4) // 2) * (((w - 4) // 2 - 4) // 2)
        return nn.Sequential(
            nn.Conv2d(channels, 6, 5),
            nn.Tanh(),
            nn.AvgPool2d(2),
            nn.Conv2d(6, 6, 5),
            nn.Tanh(),
            nn.AvgPool2d(2),
            nn.Conv2d(6, 120, 1),
            nn.Tanh(),
            nn.Flatten(),
            nn.Linear(flat, 84),
            nn.Tanh(),
            nn.Linear(84, classes),
        )


class FedAACnn(Model):
    """FedAA's CIFAR model: two 5x5 convolutions and three dense layers (62,006 parameters on
    3x32x32).
    """

    name: str = "fedaa_cnn"

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        channels, h, w = image_shape(shape, 16, self.name)
        # twice a 5x5 convolution, which takes 4 pixels off, halved
        flat = 16 * (((h - 4) // 2 - 4) // 2) * (((w - 4) // 2 - 4) // 2)
        return nn.Sequential(
            nn.Conv2d(channels, 6, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(flat, 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
            nn.Linear(84, classes),
        )


class DrdmCnn(Model):
    """DRDM's KMNIST model: conv16-pool-conv32-pool-500-classes, 3x3 (794,310 parameters)."""

    name: str = "drdm_cnn"

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        channels, h, w = image_shape(shape, 4, self.name)
        return nn.Sequential(
            nn.Conv2d(channels, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(32 * (h // 4) * (w // 4), 500),
            nn.ReLU(),
            nn.Linear(500, classes),
        )


class ResidualUnit(nn.Module):
    """Two 3x3 convolutions with batch norm and a skip connection (1x1 convolution where the shape
    changes).
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1)
        self.bn2 = nn.BatchNorm2d(outputs)
        changes = stride != 1 or inputs != outputs
        self.shortcut: nn.Module = (
            nn.Conv2d(inputs, outputs, 1, stride) if changes else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        return (y + self.shortcut(x)).relu()


class FedAAResNet(Model):
    """FedAA's Fashion-MNIST residual network with batch norm (678,794 parameters)."""

    name: str = "fedaa_resnet"

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        channels, _, _ = image_shape(shape, 16, self.name)
        return nn.Sequential(
            nn.Conv2d(channels, 64, 7, 2, 3),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, 1),
            ResidualUnit(64, 64, 1),
            ResidualUnit(64, 64, 1),
            ResidualUnit(64, 128, 2),
            ResidualUnit(128, 128, 1),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(128, classes),
        )
