"""Models for vectors and images, as the papers specify them. Parameter counts are for 28x28 grey
images, 10 classes.
"""

from __future__ import annotations

import itertools
import math
from typing import Literal

import torch

from algorithms.part import Width, option
from orchestrator.models.base import Model, image_shape


class Linear(Model):
    """Multinomial logistic regression: 7,850 parameters on 28x28 images (DRDM), 610 on SYNTHETIC
    (FedAA).
    """

    name: str = "linear"

    def build(self, shape: tuple[int, ...], classes: int) -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(math.prod(shape), classes))


class Mlp(Model):
    """Fully connected ReLU network; one hidden layer of 100 is FedAA's MNIST model (79,510
    parameters).
    """

    name: str = "mlp"
    hidden: tuple[Width, ...] = option(
        (100,), "widths of the hidden layers; FedAA's EMNIST model is [100, 100]", max_length=20
    )

    def build(self, shape: tuple[int, ...], classes: int) -> torch.nn.Module:
        widths = (math.prod(shape), *self.hidden)
        layers: list[torch.nn.Module] = [torch.nn.Flatten()]
        for a, b in itertools.pairwise(widths):
            layers += [torch.nn.Linear(a, b), torch.nn.ReLU()]
        return torch.nn.Sequential(*layers, torch.nn.Linear(widths[-1], classes))


class LeNet5(Model):
    """LeNet-5 with tanh and average pooling, as in the FDA thesis (61,706 parameters)."""

    name: str = "lenet5"
    init: Literal["default", "glorot"] = option(
        "glorot", "Glorot-uniform as in the thesis, or PyTorch's defaults"
    )

    def build(self, shape: tuple[int, ...], classes: int) -> torch.nn.Module:
        channels, h, w = image_shape(shape, 12, self.name)
        # a 5x5 convolution that keeps the size, halved; one that takes 4 pixels off, halved
        flat = 16 * ((h // 2 - 4) // 2) * ((w // 2 - 4) // 2)
        return torch.nn.Sequential(
            torch.nn.Conv2d(channels, 6, 5, padding=2),
            torch.nn.Tanh(),
            torch.nn.AvgPool2d(2),
            torch.nn.Conv2d(6, 16, 5),
            torch.nn.Tanh(),
            torch.nn.AvgPool2d(2),
            torch.nn.Flatten(),
            torch.nn.Linear(flat, 120),
            torch.nn.Tanh(),
            torch.nn.Linear(120, 84),
            torch.nn.Tanh(),
            torch.nn.Linear(84, classes),
        )


class FedDualLeNet(Model):
    """FedDUAL's Fashion-MNIST network: LeNet with a dense layer over the channels (164,116
    parameters).
    """

    name: str = "feddual_lenet"
    init: Literal["default", "glorot"] = option(
        "glorot", "Glorot-uniform as Keras does, or PyTorch's defaults"
    )

    def build(self, shape: tuple[int, ...], classes: int) -> torch.nn.Module:
        channels, h, w = image_shape(shape, 16, self.name)
        # twice a 5x5 convolution, which takes 4 pixels off, halved
        flat = 120 * (((h - 4) // 2 - 4) // 2) * (((w - 4) // 2 - 4) // 2)
        return torch.nn.Sequential(
            torch.nn.Conv2d(channels, 6, 5),
            torch.nn.Tanh(),
            torch.nn.AvgPool2d(2),
            torch.nn.Conv2d(6, 6, 5),
            torch.nn.Tanh(),
            torch.nn.AvgPool2d(2),
            torch.nn.Conv2d(6, 120, 1),
            torch.nn.Tanh(),
            torch.nn.Flatten(),
            torch.nn.Linear(flat, 84),
            torch.nn.Tanh(),
            torch.nn.Linear(84, classes),
        )


class FedAACnn(Model):
    """FedAA's CIFAR model: two 5x5 convolutions and three dense layers (62,006 parameters on
    3x32x32).
    """

    name: str = "fedaa_cnn"

    def build(self, shape: tuple[int, ...], classes: int) -> torch.nn.Module:
        channels, h, w = image_shape(shape, 16, self.name)
        # twice a 5x5 convolution, which takes 4 pixels off, halved
        flat = 16 * (((h - 4) // 2 - 4) // 2) * (((w - 4) // 2 - 4) // 2)
        return torch.nn.Sequential(
            torch.nn.Conv2d(channels, 6, 5),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
            torch.nn.Conv2d(6, 16, 5),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
            torch.nn.Flatten(),
            torch.nn.Linear(flat, 120),
            torch.nn.ReLU(),
            torch.nn.Linear(120, 84),
            torch.nn.ReLU(),
            torch.nn.Linear(84, classes),
        )


class DrdmCnn(Model):
    """DRDM's KMNIST model: conv16-pool-conv32-pool-500-classes, 3x3 (794,310 parameters)."""

    name: str = "drdm_cnn"

    def build(self, shape: tuple[int, ...], classes: int) -> torch.nn.Module:
        channels, h, w = image_shape(shape, 4, self.name)
        return torch.nn.Sequential(
            torch.nn.Conv2d(channels, 16, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
            torch.nn.Conv2d(16, 32, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
            torch.nn.Flatten(),
            torch.nn.Linear(32 * (h // 4) * (w // 4), 500),
            torch.nn.ReLU(),
            torch.nn.Linear(500, classes),
        )


class FedAAResNet(Model):
    """FedAA's Fashion-MNIST residual network with batch norm (678,794 parameters)."""

    name: str = "fedaa_resnet"

    def build(self, shape: tuple[int, ...], classes: int) -> torch.nn.Module:
        from orchestrator.models.modules import ResidualUnit

        channels, _, _ = image_shape(shape, 16, self.name)
        return torch.nn.Sequential(
            torch.nn.Conv2d(channels, 64, 7, 2, 3),
            torch.nn.BatchNorm2d(64),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(3, 2, 1),
            ResidualUnit(64, 64, 1),
            ResidualUnit(64, 64, 1),
            ResidualUnit(64, 128, 2),
            ResidualUnit(128, 128, 1),
            torch.nn.AdaptiveAvgPool2d(1),
            torch.nn.Flatten(),
            torch.nn.Linear(128, classes),
        )
